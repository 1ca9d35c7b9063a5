"""How complete a raster is: the expected inputs it lacks, and the share it was made from.

The share counts parts. The parts of a cell are the granules that touch it; of a mosaic, its cells;
of a cube, its dates; of a reduction, the bands of its group. Each part counts equally, and a part
that is incomplete itself counts by its own share.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_DIGITS = 6


@dataclass(frozen=True, kw_only=True, order=True)
class Missing:
    """An expected input that was not available, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """The share of the expected inputs that were available (1: all), and those that were not.

    `unnamed` is the number of further missing inputs whose names are left out.
    """

    share: float = 1.0
    missing: tuple[Missing, ...] = ()
    unnamed: int = 0

    @property
    def count(self) -> int:
        """The number of missing inputs."""
        return len(self.missing) + self.unnamed

    def named(self, most: int) -> "Completeness":
        """Return a copy that names at most this many missing inputs."""
        if len(self.missing) <= most:
            return self
        return replace(self, missing=self.missing[:most], unnamed=self.count - most)


WHOLE = Completeness()


def of_parts(
    parts: Sequence[Completeness],
    absent: int = 0,
    missing: Iterable[Missing] = (),
    unnamed: int = 0,
) -> Completeness:
    """Combine the completeness of available parts with `absent` other parts.

    `missing` names what the absent parts lack, and `unnamed` counts what is not named. The missing
    inputs of the available parts are added.
    """
    if not absent and all(part == WHOLE for part in parts):
        return WHOLE
    names = {name for part in parts for name in part.missing}
    share = math.fsum(part.share for part in parts) / (len(parts) + absent)
    return Completeness(
        share=min(round(share, _DIGITS), 1.0 - 10.0**-_DIGITS),
        missing=tuple(sorted(names.union(missing))),
        unnamed=unnamed + sum(part.unnamed for part in parts),
    )
