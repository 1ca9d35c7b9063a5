"""What an archive that can list itself holds of each product: days and positions.

This is coarse on purpose and of limited size: enough to recognise a request that cannot find
anything. What the coverage excludes does not exist; what it includes may still be absent on a given
day or place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from archives.kinds.lookup import Lookup
from archives.model import GranuleRecord
from modis.box import LonLatBox
from modis.collection import Collection
from modis.tile import Tile

CELL_DEGREES = 10
MOST_PLACED = 5_000
"""Largest number of outlines compared per product; beyond it, granules may lie anywhere."""

_BATCH = 500
_ACROSS, _DOWN = 360 // CELL_DEGREES, 180 // CELL_DEGREES


class Square(NamedTuple):
    """A square of 10 degrees: column from 180 degrees west, row from the south pole."""

    col: int
    row: int


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The coverage of one product in one collection.

    `days` are the start days of its granules. They lie in the sinusoidal `tiles` (h, v) and in the
    `cells` of 10 degrees (column from 180 degrees west, row from the south); `anywhere` says that
    some may lie elsewhere. `samples` are the paths of a few granules on this machine, if it has
    them.
    """

    product: str
    collection: Collection
    granules: int
    days: tuple[date, ...]
    tiles: frozenset[Tile] = frozenset()
    cells: frozenset[Square] = frozenset()
    anywhere: bool = False
    samples: tuple[str, ...] = ()


@runtime_checkable
class Covering(Protocol):
    """An archive that can list itself."""

    def coverage(self) -> list[Coverage] | None:
        """List all it holds, by product and collection; None if it cannot. Raises ArchiveError."""
        ...


def cells_touched(records: Sequence[GranuleRecord]) -> frozenset[Square]:
    """Find the cells of 10 degrees that granules may touch."""
    boxes = [
        LonLatBox(
            west=col * CELL_DEGREES - 180.0,
            south=row * CELL_DEGREES - 90.0,
            east=(col + 1) * CELL_DEGREES - 180.0,
            north=(row + 1) * CELL_DEGREES - 90.0,
        )
        for row in range(_DOWN)
        for col in range(_ACROSS)
    ]
    lookup = Lookup([[box] for box in boxes])
    found = np.zeros(len(boxes), bool)
    for start in range(0, len(records), _BATCH):
        found |= lookup.touching(records[start : start + _BATCH]).any(axis=0)
    return frozenset(Square(int(n) % _ACROSS, int(n) // _ACROSS) for n in np.flatnonzero(found))


def joined(first: Coverage, second: Coverage) -> Coverage:
    """Join what two archives hold of one product; granules in both count twice."""
    return Coverage(
        product=first.product,
        collection=first.collection,
        granules=first.granules + second.granules,
        days=tuple(sorted({*first.days, *second.days})),
        tiles=first.tiles | second.tiles,
        cells=first.cells | second.cells,
        anywhere=first.anywhere or second.anywhere,
        samples=first.samples or second.samples,
    )
