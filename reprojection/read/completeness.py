"""How complete a raster is: the expected inputs that it was made without, and the share there was.

The share counts parts. A cell's parts are the granules that touch it, a mosaic's are its cells, a
cube's its dates, a reduction's the bands of its group. Each part counts the same, and a part that
is itself incomplete counts by its own share.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_DIGITS = 6


@dataclass(frozen=True, kw_only=True, order=True)
class Missing:
    """An expected input that was not there, and why."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """The share of the expected inputs that was there, 1 where all were, and those that were not.

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
        """The same with the names of so many missing inputs at most."""
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
    """What is made of parts that are there and of `absent` others that are not.

    `missing` says what the absent ones lack, by name, `unnamed` how much more that is; names of the
    parts are added.
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
