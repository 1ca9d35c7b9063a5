"""What an archive that can list itself holds of each product: its days, and where they lie.

Coarse on purpose and of bounded size: enough to tell a request that can find nothing. What it
denies is not there; what it grants may still be absent on that day or at that place.
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
"""Granules of one product whose outlines are looked at; those of more may lie anywhere."""

_BATCH = 500
_ACROSS, _DOWN = 360 // CELL_DEGREES, 180 // CELL_DEGREES


class Square(NamedTuple):
    """A square of 10 degrees: column from 180 degrees west, row from the south pole."""

    col: int
    row: int


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """One product in one collection.

    `days` are the start days of its granules. They lie in the sinusoidal `tiles` and in the
    `cells` of 10 degrees; `anywhere`: some may
    lie elsewhere. `samples` are the paths of a few granules on this machine, if it has them.
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
        """All it holds, by product and collection; None when it cannot say. Raises ArchiveError."""
        ...


def cells_touched(records: Sequence[GranuleRecord]) -> frozenset[Square]:
    """The cells of 10 degrees that granules may touch."""
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
    """What two archives hold of one product together. Granules that both have count twice."""
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
