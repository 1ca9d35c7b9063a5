"""The swath search against an oracle that compares every pair, with the mathematics of numpy."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprojection.grid.grids import Grid, Lattice, modis_lattice
from reprojection.grid.orbit import SCAN_SECONDS, swath
from reprojection.grid.sphere import unit_vectors
from reprojection.grid.targets import Targets, pixel_centres
from reprojection.read.geolocation import Geolocation
from reprojection.warp.swath import Swath, nearest
from tests.oracle.numpy_swath import nearest_in_numpy

Floats = npt.NDArray[np.float64]
RADIUS_M = 6371007.181


@dataclass(frozen=True)
class Answer:
    """What the oracle says of each target: distance and radius (metres) of the nearest centre."""

    distance: Floats
    radius: Floats
    index: npt.NDArray[np.int64]


def compare_every_pair(
    geolocation: Geolocation, targets: Targets, candidates: npt.NDArray[np.bool_]
) -> Answer:
    """Compare every target with every centre, in another way than the code under test."""
    centres = vectors(geolocation.lat, geolocation.lon)
    radii = oracle_radii(centres, geolocation.scan_lines).ravel()
    flat = np.where(candidates[..., None], centres, np.nan).reshape(-1, 3)
    lat, lon = np.broadcast_arrays(targets.lat, targets.lon)
    wanted = vectors(lat, lon).reshape(-1, 3)
    distance = np.empty(len(wanted))
    index = np.empty(len(wanted), np.int64)
    known = np.flatnonzero(np.isfinite(flat[:, 0]))
    for first in range(0, len(wanted), 256):
        part = wanted[first : first + 256]
        away = np.linalg.norm(flat[known][None] - part[:, None], axis=2)
        best = np.argmin(away, axis=1)
        distance[first : first + 256] = away[np.arange(len(part)), best]
        index[first : first + 256] = known[best]
    shape = lat.shape
    return Answer(
        distance=distance.reshape(shape) * RADIUS_M,
        radius=(radii[index] * RADIUS_M).reshape(shape),
        index=index.reshape(shape),
    )


def vectors(lat: Floats, lon: Floats) -> Floats:
    phi, lam = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


def oracle_radii(centres: Floats, scan: int) -> Floats:
    """Half the diagonal of each footprint, one footprint at a time."""
    rows, cols, _ = centres.shape
    radii = np.zeros((rows, cols))
    for i in range(rows):
        for j in range(cols):
            across = [
                math.dist(centres[i, j], centres[i, n]) for n in (j - 1, j + 1) if 0 <= n < cols
            ]
            lines = [n for n in (i - 1, i + 1) if 0 <= n < rows]
            if scan > 1:
                lines = [n for n in lines if n // scan == i // scan]
            along = [math.dist(centres[i, j], centres[n, j]) for n in lines]
            a = max([d for d in across if d == d], default=0.0)
            b = max([d for d in along if d == d], default=0.0)
            radii[i, j] = math.hypot(a or b, b or a) / 2
    return radii


def check(
    found: npt.NDArray[np.int32], geolocation: Geolocation, answer: Answer, lat: Floats, lon: Floats
) -> None:
    """Each target sees the nearest centre, a tie aside, exactly where its radius reaches."""
    reached = answer.distance <= answer.radius
    clear = np.abs(answer.distance - answer.radius) > 1e-3
    assert np.array_equal((found >= 0)[clear], reached[clear])
    both = (found >= 0) & reached
    centres = vectors(geolocation.lat, geolocation.lon).reshape(-1, 3)
    wanted = vectors(*np.broadcast_arrays(lat, lon))
    away = np.linalg.norm(centres[found[both]] - wanted[both], axis=-1) * RADIUS_M
    assert np.all(away - answer.distance[both] <= 1e-3)


def granule(
    *,
    at: float,
    node: float = 20.0,
    scans: int = 4,
    scan_lines: int = 10,
    pixels: Floats | None = None,
) -> Geolocation:
    """A piece of orbit, `at` seconds after the equator."""
    times = at + (np.arange(scans, dtype=np.float64) + 0.5) * SCAN_SECONDS
    if scan_lines == 1:
        lines: Floats = times
        off: Floats = np.zeros(scans)
    else:
        lines = np.repeat(times, scan_lines)
        off = np.tile((np.arange(scan_lines) - (scan_lines - 1) / 2) * 10.0 / scan_lines, scans)
    place = swath(lines, np.arange(0, 1354, 24.0) if pixels is None else pixels, node, off)
    return Geolocation(
        lat=place.lat,
        lon=place.lon,
        sensor_zenith=place.sensor_zenith.astype(np.float32),
        scan_lines=scan_lines,
    )


def around(geolocation: Geolocation, pixels: int = 24) -> Grid:
    """A grid in degrees over and somewhat beyond the middle of a swath."""
    rows, cols = geolocation.lat.shape
    lat, lon = geolocation.lat[rows // 2, cols // 2], geolocation.lon[rows // 2, cols // 2]
    size = 0.06
    span = size * pixels / 2
    return Grid(
        crs="EPSG:4326",
        transform=(size * 4, 0.0, lon - 4 * span, 0.0, -size, lat + span),
        width=pixels,
        height=pixels,
    )


def in_numpy(
    made: Swath, targets: Targets, candidates: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.int32]:
    return nearest_in_numpy(
        made.lat, made.lon, made.scan_lines, made.cap, targets.lat, targets.lon, candidates
    )


PLACES = {
    "mid-latitudes": {"at": 800.0},
    "equator": {"at": 0.0},
    "north pole": {"at": 1480.0},
    "antimeridian": {"at": 600.0, "node": 172.0},
    "one line per scan": {"at": 800.0, "scan_lines": 1, "scans": 30},
    "two lines per scan": {"at": 800.0, "scan_lines": 2, "scans": 15},
}


@pytest.mark.parametrize("place", PLACES)
def test_each_pixel_sees_the_nearest_footprint_that_reaches_it(place: str) -> None:
    geolocation = granule(**PLACES[place])  # type: ignore[arg-type]
    targets = pixel_centres(around(geolocation))
    everything = np.ones(geolocation.lat.shape, bool)
    answer = compare_every_pair(geolocation, targets, everything)
    made = Swath.of(geolocation)
    found = in_numpy(made, targets)
    check(found, geolocation, answer, targets.lat, targets.lon)
    assert (found >= 0).mean() > 0.02
    assert np.array_equal(nearest(made, targets), found)


def test_only_candidates_are_seen_and_radii_stay() -> None:
    geolocation = granule(at=800.0)
    targets = pixel_centres(around(geolocation))
    candidates = np.random.default_rng(1).random(geolocation.lat.shape) < 0.4
    made = Swath.of(geolocation)
    found = in_numpy(made, targets, candidates)
    check(
        found,
        geolocation,
        compare_every_pair(geolocation, targets, candidates),
        targets.lat,
        targets.lon,
    )
    assert candidates.ravel()[found[found >= 0]].all()
    assert np.array_equal(nearest(made, targets, candidates=candidates), found)


def test_centres_without_geolocation_do_not_exist() -> None:
    geolocation = granule(at=800.0)
    hole = np.random.default_rng(2).random(geolocation.lat.shape) < 0.2
    geolocation.lat[hole] = np.nan
    geolocation.lon[hole] = np.nan
    targets = pixel_centres(around(geolocation))
    made = Swath.of(geolocation)
    found = in_numpy(made, targets)
    answer = compare_every_pair(geolocation, targets, ~hole)
    check(found, geolocation, answer, targets.lat, targets.lon)
    assert np.array_equal(nearest(made, targets), found)


def test_of_equally_near_footprints_the_first_wins() -> None:
    """Two centres on either side of the pixel at (0, 0), then every centre several times."""
    lon, lat = np.meshgrid([-0.5, 0.5], [0.0, -1.0])
    grid = Grid(crs="EPSG:4326", transform=(0.5, 0, -0.25, 0, -0.5, 0.25), width=1, height=1)
    targets = pixel_centres(grid)
    for times in (1, 2, 5):
        geolocation = Geolocation(
            lat=np.tile(lat, (times, 1)),
            lon=np.tile(lon, (times, 1)),
            sensor_zenith=None,
            scan_lines=2,
        )
        made = Swath.of(geolocation)
        assert in_numpy(made, targets).tolist() == [[0]]
        assert nearest(made, targets).tolist() == [[0]]


def test_a_granule_that_lies_nowhere_says_nothing() -> None:
    unknown = np.full((20, 30), np.nan)
    geolocation = Geolocation(lat=unknown, lon=unknown, sensor_zenith=None, scan_lines=10)
    targets = pixel_centres(Lattice(crs="EPSG:4326", resolution=1.0).snap((0, 0, 10, 10)))
    assert (nearest(Swath.of(geolocation), targets) == -1).all()


def test_a_stray_coordinate_claims_no_more_than_four_footprints() -> None:
    geolocation = granule(at=800.0, pixels=np.arange(0, 1354, 6.0))
    made = Swath.of(geolocation)
    targets = pixel_centres(around(geolocation, 60))
    calm = nearest(made, targets)
    geolocation.lat[20, 100], geolocation.lon[20, 100] = -80.0, 170.0
    stray = nearest(Swath.of(geolocation), targets)
    assert (calm != stray).mean() < 0.02


@settings(max_examples=25)
@given(
    top=st.integers(0, 39),
    left=st.integers(0, 39),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    threads=st.integers(1, 3),
)
def test_a_pixel_does_not_know_its_cell(
    top: int, left: int, height: int, width: int, threads: int
) -> None:
    whole, lattice, made = _shared()
    size = min(width, 80 - left), min(height, 80 - top)
    window = lattice.window(CORNER[0] + left, CORNER[1] + top, *size)
    found = nearest(made, pixel_centres(window), threads=threads)
    assert np.array_equal(found, whole[top : top + window.height, left : left + window.width])


def _shared() -> tuple[npt.NDArray[np.int32], Lattice, Swath]:
    lattice = Lattice(crs="EPSG:4326", resolution=0.005)
    geolocation = granule(at=820.0, node=20.0, pixels=np.arange(500, 800.0))
    lat, lon = geolocation.lat[20, 150], geolocation.lon[20, 150]
    assert (round(lon / 0.005) - 40, round(-lat / 0.005) - 40) == CORNER
    made = Swath.of(geolocation)
    if not _CACHE:
        _CACHE.append(nearest(made, pixel_centres(lattice.window(*CORNER, 80, 80))))
        assert (_CACHE[0] >= 0).mean() > 0.5
    return _CACHE[0], lattice, made


CORNER = (1415, -9908)
_CACHE: list[npt.NDArray[np.int32]] = []


def test_many_blocks_and_few_agree_on_a_modis_tile() -> None:
    """A grid wide enough to be cut, against its quarters and against numpy on a strip."""
    geolocation = granule(at=800.0, scans=60, pixels=np.arange(0, 1354.0, 2.0))
    made = Swath.of(geolocation)
    lattice = modis_lattice(1000)
    middle = pixel_centres(lattice.window(350, -6100, 700, 600))
    found = nearest(made, middle)
    assert (found >= 0).mean() > 0.1
    assert np.array_equal(nearest(made, middle, threads=3), found)  # in strips
    strip = pixel_centres(lattice.window(350, -5800, 700, 8))
    assert np.array_equal(nearest(made, strip), found[300:308])
    assert np.array_equal(in_numpy(made, strip), found[300:308])


def test_unit_vectors_are_on_the_sphere_where_they_should_be() -> None:
    lat = np.array([0.0, 90.0, -90.0, 45.0, 30.0, -12.345678, 91.0, np.nan])
    lon = np.array([0.0, 10.0, 0.0, 180.0, -90.0, 359.9, 0.0, 0.0])
    x, y, z = unit_vectors(lat, lon)
    expected = vectors(lat, lon)
    assert np.abs(np.stack([x, y, z], axis=-1)[:6] - expected[:6]).max() < 3e-16
    assert np.isnan(np.stack([x, y, z])[:, 6:]).all()


def test_quarter_turns_are_exact() -> None:
    x, y, _ = unit_vectors(np.zeros(9), np.arange(-360.0, 361.0, 90.0))
    assert (np.abs(x) + np.abs(y)).tolist() == [1.0] * 9
