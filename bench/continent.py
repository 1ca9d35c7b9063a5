"""A synthetic catalogue of the continental US: tiles by arithmetic, swaths by closed-form orbits.

Names, start times, production times, sizes and boundaries as archives list them, without files.
Orbits do not repeat: no boundary occurs twice but in products of one swath.
"""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from archives.model import Fetched, GranuleRecord, Holding, Progress, Ring
from modis.box import LonLatBox
from modis.collection import Collection
from modis.sphere import SPHERE_RADIUS_KM
from modis.tile import Tile
from reprojection.grid.orbit import DAY_SECONDS, PERIOD_SECONDS, swath

CONUS = LonLatBox(-125.0, 24.5, -66.5, 49.5)
TILES = tuple(
    Tile(h, v) for v in (4, 5, 6) for h in range(7, 14) if (h, v) not in {(7, 4), (13, 6)}
)
PRODUCTS: dict[str, tuple[str, str, int]] = {  # layer, and period in days
    "MOD09GA": ("61", "sur_refl_b01_1", 1),
    "MYD09GA": ("61", "sur_refl_b01_1", 1),
    "MOD11A1": ("61", "LST_Day_1km", 1),
    "MYD11A1": ("61", "LST_Day_1km", 1),
    "MOD13A2": ("61", "1 km 16 days NDVI", 16),
    "MCD15A2H": ("61", "Lai_500m", 8),
    "MOD04_L2": ("61", "Optical_Depth_Land_And_Ocean", 0),
    "MYD04_L2": ("61", "Optical_Depth_Land_And_Ocean", 0),
    "MYD05_L2": ("61", "Water_Vapor_Infrared", 0),
}
_EPOCH = date(2000, 1, 1)
_NODE = {"MOD": (-75.0, 22.5), "MYD": (15.0, 13.5)}  # longitude of a node, hour it is crossed there
_SECONDS = 300
_EDGE = 7  # points along each side of a swath
_PRODUCED = "2018001000000"
_SAME = {
    "production_time": _PRODUCED,
    "checksum": None,
    "checksum_type": None,
    "day_night": "",
    "source": "continent",
}


def request_document(start: date, end: date, **changes: Any) -> dict[str, Any]:
    """A request for all nine products over the US at 0.01 degree."""
    return {
        "title": "Ten years of a continent",
        "products": [
            {"name": name, "collection": collection, "layers": [layer]}
            for name, (collection, layer, _) in PRODUCTS.items()
        ],
        "region": {"bbox": list(CONUS)},
        "time": {"start": start.isoformat(), "end": end.isoformat()},
        "grid": {"crs": "EPSG:4326", "resolution": 0.01},
        "resampling": "nearest",
        **changes,
    }


class Continent:
    """An archive of records only."""

    def __init__(self, *, ever_new: bool = False) -> None:
        self.ever_new = ever_new

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,  # noqa: ARG002 - all that is listed lies about the US
    ) -> Iterator[GranuleRecord]:
        period = PRODUCTS[product][2]
        for offset in range((end_day - start_day).days + 1):
            day = start_day + timedelta(days=offset)
            if not period:
                yield from _swaths(product, collection, day)
            elif (day.timetuple().tm_yday - 1) % period == 0:
                yield from _tiles(product, collection, day, period)

    def stamp(
        self,
        product: str,
        collection: str,  # noqa: ARG002
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,  # noqa: ARG002
    ) -> str:
        """Arithmetic does not change; `ever_new` makes the archive one that cannot say."""
        return "" if self.ever_new else f"{product} {start_day} {end_day}"

    def holdings(self, product: str) -> list[Holding]:
        return [Holding(product=product, collection=Collection(PRODUCTS[product][0]))]

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        del progress
        raise NotImplementedError(f"{record.name} is made up; nothing can be fetched to {to}")


def _tiles(product: str, collection: str, day: date, period: int) -> Iterator[GranuleRecord]:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    end = start + timedelta(days=period)
    first, rest = f"{product}.A{day:%Y%j}", f"0{collection}.{_PRODUCED}.hdf"
    for tile in TILES:
        name = f"{first}.{tile.name}.{rest}"
        yield _record(product, collection, name, start, end, tile, None, 9_000_000)


def _swaths(product: str, collection: str, day: date) -> Iterator[GranuleRecord]:
    first, rest = f"{product}.A{day:%Y%j}", f"0{collection}.{_PRODUCED}.hdf"
    for start, end, time, boundary in _overpasses(product[:3], day):
        name = f"{first}.{time}.{rest}"
        yield _record(product, collection, name, start, end, None, boundary, 3_000_000)


def _record(
    product: str,
    collection: str,
    name: str,
    start: datetime,
    end: datetime,
    tile: Tile | None,
    boundary: tuple[Ring, ...] | None,
    size: int,
) -> GranuleRecord:
    """A record made without its constructor: the catalogue is not what is measured."""
    record = object.__new__(GranuleRecord)
    record.__dict__.update(
        _SAME,
        name=name,
        product=product,
        collection=collection,
        start=start,
        end=end,
        tile=tile,
        boundary=boundary,
        size=size,
        url=name,
    )
    return record


@lru_cache(maxsize=1)
def _track() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Latitude and longitude of both edges of the swath, a line for each second of an orbit and
    beyond, from a node at longitude 0."""
    times = np.arange(0.0, PERIOD_SECONDS + _SECONDS + 1.0)
    seen = swath(times, np.array([0.0, 1353.0]), 0.0, np.zeros(len(times)))
    return seen.lat, seen.lon


@lru_cache(maxsize=64)
def _overpasses(
    satellite: str, day: date
) -> tuple[tuple[datetime, datetime, str, tuple[Ring]], ...]:
    """The 5-minute swaths of a UTC day that come near the US: start, end, start as HHMM and
    outline."""
    lat, lon = _track()
    starts = np.arange(0, 86_400, _SECONDS)
    longitude, hour = _NODE[satellite]
    since = (day - _EPOCH).days * 86_400.0 + starts - hour * 3600.0
    orbits = np.floor(since / PERIOD_SECONDS)
    first = (since - orbits * PERIOD_SECONDS).astype(int)
    node = longitude - orbits * (360.0 * PERIOD_SECONDS / DAY_SECONDS)
    # The plane turns with the Sun, once a year.
    node += 360.0 * (since / 86_400.0) / 365.2422
    steps = np.linspace(0, _SECONDS, _EDGE).astype(int)
    lines = first[:, None] + steps
    lats = np.concatenate([lat[lines, 0], lat[lines[:, ::-1], 1]], axis=1)
    lons = np.concatenate([lon[lines, 0], lon[lines[:, ::-1], 1]], axis=1) + node[:, None]
    lons = (lons + 180.0) % 360.0 - 180.0
    west, south, east, north = CONUS
    inside = (lats > south - 12) & (lats < north + 12) & (lons > west - 16) & (lons < east + 16)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    near = np.flatnonzero(inside.any(axis=1) & _steady(lats))
    passes = []
    for second, east, north in zip(
        starts[near], lons[near].tolist(), lats[near].tolist(), strict=True
    ):
        start = midnight + timedelta(seconds=int(second))
        outline = tuple(zip(east, north, strict=True))
        passes.append((start, start + timedelta(seconds=_SECONDS), f"{start:%H%M}", (outline,)))
    return tuple(passes)


def _steady(lats: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Swaths that are not wholly off the US by latitude."""
    middle = lats.mean(axis=1)
    steady: np.ndarray[Any, Any] = np.abs(middle - 37.0) < 12.5 + math.degrees(
        2300 / SPHERE_RADIUS_KM / 2
    )
    return steady
