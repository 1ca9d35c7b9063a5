"""The lookup of many granules in many areas answers as the test of one granule in one area."""

import datetime as dt

import numpy as np
import pytest

from archives.formats.boundary import Area, touches
from archives.kinds.lookup import Lookup
from archives.model import GranuleRecord, Ring
from modis.box import LonLatBox
from modis.collection import Collection
from modis.tile import Tile
from reprojection.grid.orbit import SCAN_SECONDS, swath


def granule(rings: tuple[Ring, ...] | None, tile: Tile | None = None) -> GranuleRecord:
    start = dt.datetime(2012, 1, 1, tzinfo=dt.UTC)
    return GranuleRecord(
        name="MYD04_L2.A2012001.0000.061.2018001000000.hdf",
        product="MYD04_L2",
        collection=Collection("61"),
        start=start,
        end=start,
        tile=tile,
        boundary=rings,
        production_time="2018001000000",
        size=1,
        checksum=None,
        checksum_type=None,
        url="",
        day_night="",
    )


def orbit_ring(random: np.random.Generator, points: int) -> Ring:
    """The outline of five minutes of a random orbit."""
    start = random.uniform(0, 5900)
    times = start + np.linspace(0, 203 * SCAN_SECONDS, points)
    seen = swath(times, np.array([0.0, 1353.0]), random.uniform(-180, 180), np.zeros(points))
    lon = np.concatenate([seen.lon[:, 0], seen.lon[::-1, 1]])
    lat = np.concatenate([seen.lat[:, 0], seen.lat[::-1, 1]])
    return tuple(zip(lon.tolist(), lat.tolist(), strict=True))


def box_ring(west: float, south: float, east: float, north: float) -> tuple[Ring, ...]:
    return (((west, south), (east, south), (east, north), (west, north)),)


AMERICA: list[list[Area]] = [
    [LonLatBox(west=west, south=south, east=west + 10, north=south + 10)]
    for west in range(-130, -60, 10)
    for south in (25, 35)
]
CELLS: list[list[Area]] = [
    *AMERICA,
    [LonLatBox(west=175, south=-20, east=-175, north=-5)],
    [LonLatBox(west=-180, south=80, east=180, north=90)],
    [LonLatBox(west=0, south=0, east=120, north=60)],
    [box_ring(10, -5, 18, 4), LonLatBox(west=0, south=-1, east=12, north=1)],
    [box_ring(-70, -85, 20, -75)],
    [box_ring(5, 5, 5.0000001, 5.0000001)],
]


@pytest.mark.parametrize("points", [2, 8])
def test_random_orbits_are_answered_as_one_by_one(points: int) -> None:
    random = np.random.default_rng(points)
    records = [granule((orbit_ring(random, points),)) for _ in range(250)]
    found = Lookup(CELLS).touching(records)
    expected = [[all(touches(r, area) for area in cell) for cell in CELLS] for r in records]
    np.testing.assert_array_equal(found, expected)
    assert found.any(axis=0).all()


def test_tiles_many_rings_and_unknown_places_are_answered_too() -> None:
    records = [
        granule(None, Tile(9, 5)),
        granule(None),
        granule((*box_ring(-100, 30, -95, 33), *box_ring(100, 30, 105, 33))),
        granule((((0.0, 0.0), (1.0, 1.0)),)),
    ]
    found = Lookup(CELLS).touching(records)
    expected = [[all(touches(r, area) for area in cell) for cell in CELLS] for r in records]
    np.testing.assert_array_equal(found, expected)


def test_no_granule_and_no_area_are_no_answer() -> None:
    assert Lookup(CELLS).touching([]).shape == (0, len(CELLS))
    assert Lookup([]).touching([granule(None)]).shape == (1, 0)
