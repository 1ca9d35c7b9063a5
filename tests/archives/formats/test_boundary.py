"""Which granules touch an area: never missing one, seldom one too many."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archives.formats.boundary import tile_ring, touches
from archives.model import GranuleRecord, Ring
from modis.box import LonLatBox
from modis.collection import Collection
from modis.tile import Tile
from reprojection.grid.orbit import SCAN_SECONDS, Swath, swath

START = datetime(2020, 1, 1, tzinfo=UTC)


def record(tile: Tile | None = None, boundary: tuple[Ring, ...] | None = None) -> GranuleRecord:
    return GranuleRecord(
        name="X",
        product="MYD04_L2",
        collection=Collection("61"),
        start=START,
        end=START + timedelta(minutes=5),
        tile=tile,
        boundary=boundary,
        production_time="",
        size=1,
        checksum=None,
        checksum_type=None,
        url="x",
        day_night="day",
    )


def five_minutes(seconds: float, node: float) -> Swath:
    """A 10 km swath of a whole granule, from the closed form."""
    times = seconds + (np.arange(203, dtype=np.float64) + 0.5) * SCAN_SECONDS
    return swath(times, np.arange(135, dtype=np.float64) * 10 + 4.5, node, np.zeros(203))


def outline_of(found: Swath, points: int) -> tuple[Ring, ...]:
    """A ring through `points` pixel centres of each side."""
    rows = np.linspace(0, 202, points).round().astype(int)
    columns = np.linspace(0, 134, points).round().astype(int)
    path = [(0, c) for c in columns] + [(r, 134) for r in rows[1:]]
    path += [(202, c) for c in columns[-2::-1]] + [(r, 0) for r in rows[-2:0:-1]]
    return (tuple((float(found.lon[at]), float(found.lat[at])) for at in path),)


def corners_of(seconds: float, node: float) -> tuple[Ring, ...]:
    """The four corners of the granule's 1 km footprints, as archives publish them."""
    times = seconds + np.array([0.0, 203 * SCAN_SECONDS])
    found = swath(times, np.array([-0.5, 1353.5]), node, np.zeros(2))
    path = [(0, 0), (0, 1), (1, 1), (1, 0)]
    return (tuple((round(float(found.lon[at]), 4), round(float(found.lat[at]), 4)) for at in path),)


def holds_a_pixel(found: Swath, box: LonLatBox) -> bool:
    across = (found.lon - box.west) % 360 <= (box.east - box.west) % 360
    return bool((across & (found.lat >= box.south) & (found.lat <= box.north)).any())


BOXES = st.builds(
    lambda west, south, width, height: LonLatBox(
        west=west,
        south=south,
        east=(west + width + 180) % 360 - 180,
        north=min(90.0, south + height),
    ),
    st.floats(-180, 179.9),
    st.floats(-90, 85),
    st.floats(0.2, 60),
    st.floats(0.2, 40),
)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.floats(0, 5900), st.floats(-180, 180), BOXES, st.sampled_from([3, 24]))
def test_a_box_with_pixels_in_it_is_never_missed(
    seconds: float, node: float, box: LonLatBox, points: int
) -> None:
    found = five_minutes(seconds, node)
    if holds_a_pixel(found, box):
        assert touches(record(boundary=outline_of(found, points)), box)
        assert touches(record(boundary=corners_of(seconds, node)), box)


@pytest.mark.slow
@pytest.mark.parametrize("points", [3, 24, None])
def test_hardly_any_granule_is_taken_in_vain(points: int | None) -> None:
    """Over one day's granules and 10 degree cells everywhere, at most 10% too many."""
    random = np.random.default_rng(7)
    orbits = [(300.0 * (n % 20), 200.0 - 24.7 * (n // 20)) for n in range(0, 280, 3)]
    day = [five_minutes(*orbit) for orbit in orbits]
    rings = (
        [corners_of(*orbit) for orbit in orbits]
        if points is None
        else [outline_of(found, points) for found in day]
    )
    records = [record(boundary=ring) for ring in rings]
    asked = hit = 0
    for _ in range(150):
        west, south = random.uniform(-180, 170), random.uniform(-80, 70)
        box = LonLatBox(west=west, south=south, east=west + 10, north=south + 10)
        for found, known in zip(day, records, strict=True):
            if touches(known, box):
                asked += 1
                hit += holds_a_pixel(found, box)
    assert hit > 200
    assert asked <= 1.1 * hit


def test_the_antimeridian_is_nothing_special() -> None:
    ring: Ring = ((170.0, -10.0), (-170.0, -10.0), (-170.0, 10.0), (170.0, 10.0))
    swath_record = record(boundary=(ring,))
    assert touches(swath_record, LonLatBox(west=175, south=-5, east=-175, north=5))
    assert touches(swath_record, LonLatBox(west=-175, south=-5, east=-172, north=5))
    assert touches(swath_record, LonLatBox(west=-180, south=-5, east=180, north=5))
    assert not touches(swath_record, LonLatBox(west=-160, south=-5, east=160, north=5))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_swath_over_a_pole_holds_the_pole(sign: float) -> None:
    ring: Ring = tuple((float(lon), sign * 75.0) for lon in range(-180, 180, 30))
    polar = record(boundary=(ring,))
    south, north = sorted((sign * 89.5, sign * 90.0))
    assert touches(polar, LonLatBox(west=10, south=south, east=11, north=north))
    assert touches(polar, (tuple((float(lon), sign * 89.0) for lon in range(0, 360, 20)),))
    assert not touches(polar, LonLatBox(west=-180, south=-20, east=180, north=20))


def test_unknown_places_touch_everything() -> None:
    assert touches(record(), LonLatBox(west=0, south=0, east=1, north=1))


def test_tiles_are_where_the_grid_has_them() -> None:
    home = record(tile=Tile(18, 3))  # 50 to 60 N, east of Greenwich
    assert touches(home, LonLatBox(west=2, south=52, east=3, north=53))
    assert not touches(home, LonLatBox(west=-3, south=52, east=-2, north=53))
    assert not touches(home, LonLatBox(west=2, south=61, east=3, north=62))
    assert touches(home, LonLatBox(west=-180, south=-90, east=180, north=90))


def test_tiles_off_the_earth_touch_nothing() -> None:
    assert tile_ring(Tile(0, 0)) == ()
    assert all(tile_ring(tile) == () for tile in (Tile(-1, 5), Tile(36, 5), Tile(5, 18)))
    assert not touches(record(tile=Tile(0, 0)), LonLatBox(west=-180, south=-90, east=180, north=90))


def test_a_rim_tile_ends_at_the_antimeridian() -> None:
    ring = tile_ring(Tile(9, 2))  # part of it lies beyond 180 W
    assert ring
    assert min(lon for lon, _ in ring) == -180.0
    assert not touches(record(tile=Tile(9, 2)), LonLatBox(west=170, south=61, east=179, north=69))


def tiles_met(box: LonLatBox) -> set[Tile]:
    tiles = (Tile(h, v) for v in range(18) for h in range(36))
    return {tile for tile in tiles if touches(record(tile=tile), box)}


def test_the_tiles_of_a_region() -> None:
    assert tiles_met(LonLatBox(west=-8, south=50.5, east=6, north=58.5)) == {(17, 3), (18, 3)}
    whole = tiles_met(LonLatBox(west=-180, south=-90, east=180, north=90))
    assert len(whole) == 460


@given(st.floats(-179.9, 179.9), st.floats(-89.9, 89.9))
def test_every_place_lies_in_the_tile_the_formula_says(lon: float, lat: float) -> None:
    h = int(np.floor(18 + lon * np.cos(np.radians(lat)) / 10))
    v = int(np.floor(9 - lat / 10))
    here = LonLatBox(west=lon, south=lat, east=lon + 1e-6, north=lat + 1e-6)
    assert touches(record(tile=Tile(h, v)), here)


@pytest.mark.slow
@given(BOXES, st.floats(0, 1), st.floats(0, 1))
def test_every_place_in_a_box_lies_in_its_tiles(box: LonLatBox, right: float, up: float) -> None:
    lon = (box.west + right * ((box.east - box.west) % 360) + 180) % 360 - 180
    lat = np.clip(box.south + up * (box.north - box.south), -89.999, 89.999)
    h = int(np.floor(18 + lon * np.cos(np.radians(lat)) / 10))
    v = int(np.floor(9 - lat / 10))
    tiles = tiles_met(box)
    assert (h, v) in tiles
    assert all(touches(record(tile=tile), box) for tile in tiles)
