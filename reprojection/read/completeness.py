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


_NO_LAYER, _ALL_FILL, _NO_PLACES, _REFUSED = (
    "holds no layer ",
    "holds only fill in layer ",
    "does not say where its pixels lie: without ",
    "cannot be read as asked: ",
)


def no_layer(layer: str, *, night: bool = False) -> str:
    """Say why a granule that does not hold a layer is no part of a raster."""
    return f"{_NO_LAYER}{layer}{_of_night(night)}"


def only_fill(layer: str) -> str:
    """Say why a granule of night that holds nothing but fill in a layer is no part of a raster."""
    return f"{_ALL_FILL}{layer}{_of_night(True)}"


def no_places(companion: str) -> str:
    """Say why a swath without the granule that says where its pixels lie is no part of a raster."""
    return f"{_NO_PLACES}{companion}"


def refused(error: Exception) -> str:
    """Say why a granule that is sound is no part of what is read at sites."""
    return f"{_REFUSED}{error}"


def is_by_granule(why: str) -> bool:
    """Tell whether this reason was found in a granule, and is no failure of a task."""
    return why.startswith((_NO_LAYER, _ALL_FILL, _NO_PLACES, _REFUSED))


def _of_night(night: bool) -> str:
    return ", as granules of night do" if night else ""


def found_besides(said: Completeness, found: Completeness) -> Completeness:
    """Add what was found lacking in parts that are there to what was known to be lacking.

    Each part counts by the share found. What is named already is not counted again.
    """
    if set(found.missing) <= set(said.missing):
        return said
    return Completeness(
        share=min(round(said.share * found.share, _DIGITS), 1.0 - 10.0**-_DIGITS),
        missing=tuple(sorted({*said.missing, *found.missing})),
        unnamed=said.unnamed + found.unnamed,
    )


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
