"""Read a whole granule, only to know that it can be read and which granule it is."""

from pathlib import Path

from modis.granule_name import other_granule
from reprojection.read.granule import Granule, open_granule


def read_whole(path: Path) -> str:
    """Read every value of a granule; return what `other_than_named` does.

    Raises:
        BadFormatError: it is not HDF.
        UnreadableGranuleError: it is damaged.
    """
    with open_granule(path) as granule:
        granule.verify()
        return other_than_named(path, granule)


def other_than_named(path: Path, granule: Granule) -> str:
    """Return which other granule a file holds than its name says; "" if none."""
    tiles = {grid.tile for grid in granule.grids.values()}
    return other_granule(path.name, granule.name, tiles.pop() if len(tiles) == 1 else None)
