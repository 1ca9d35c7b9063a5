"""Which places the granules of a stretch touch: tiles by arithmetic, swaths by their boundaries."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from archives.kinds.lookup import Lookup
from archives.model import GranuleRecord, Ring
from modis.box import LonLatBox
from modis.tile import Tile

Reach = tuple[float, bool]  # of a kernel: metres, and whether it looks at whole pixels


class Locatable(Protocol):
    """A place that granules may touch."""

    def tiles(self, reach: float, whole_pixel: bool) -> frozenset[Tile]:
        """Return the MODIS tiles that a kernel of this reach in metres looks at."""
        ...

    def outline(self) -> tuple[LonLatBox | tuple[Ring, ...], ...]:
        """Return the areas that a swath must touch, all of them, to matter here."""
        ...


class Locator:
    """Looks granules up among places, which it names by their index; `only` some of them."""

    def __init__(self, places: Sequence[Locatable], only: frozenset[int] | None = None) -> None:
        self._places = places
        self._only = only
        self._lookup: Lookup | None = None
        self._by_tile: dict[Reach, dict[Tile, tuple[int, ...]]] = {}
        self._swaths: dict[str, tuple[int, ...]] = {}  # by granule name

    def look_up(self, records: Iterable[GranuleRecord]) -> None:
        """Find the places of these swaths: many at once are cheap."""
        fresh: list[GranuleRecord] = []
        numbers: dict[object, int] = {}  # products of one swath share a boundary
        names: dict[str, int] = {}
        for record in records:
            if record.tile is None and record.name not in self._swaths:
                number = names[record.name] = numbers.setdefault(record.boundary, len(fresh))
                if number == len(fresh):
                    fresh.append(record)
        if not fresh:
            return
        if self._lookup is None:
            self._lookup = Lookup([place.outline() for place in self._places])
        granules, places = np.nonzero(self._lookup.touching(fresh))
        ends = np.searchsorted(granules, np.arange(len(fresh) + 1)).tolist()
        touched = places.tolist()
        spans = [tuple(touched[start:end]) for start, end in pairwise(ends)]
        if (only := self._only) is not None:
            spans = [tuple(place for place in span if place in only) for span in spans]
        self._swaths.update((name, spans[number]) for name, number in names.items())

    def forget(self) -> None:
        """Forget the places of all swaths."""
        self._swaths.clear()

    def touches(self, record: GranuleRecord) -> bool:
        """Tell whether a granule is in any place; it is located first where it has not been."""
        self.look_up((record,))
        return bool(self.of(record, (0.0, False)))

    def of(self, record: GranuleRecord, reach: Reach) -> tuple[int, ...]:
        """Return the places where a kernel of this reach may look at the granule, in order.

        A swath must have been located before.
        """
        if record.tile is None:
            return self._swaths[record.name]
        if reach not in self._by_tile:
            self._by_tile[reach] = self._tiles(reach)
        return self._by_tile[reach].get(record.tile, ())

    def _tiles(self, reach: Reach) -> dict[Tile, tuple[int, ...]]:
        found: dict[Tile, tuple[int, ...]] = {}
        for index, place in enumerate(self._places):
            if self._only is not None and index not in self._only:
                continue
            for tile in place.tiles(*reach):
                found[tile] = (*found.get(tile, ()), index)
        return found
