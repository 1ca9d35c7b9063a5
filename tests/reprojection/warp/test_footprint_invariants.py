"""What holds for statistics of any swath: held over random ones, sparse ones first.

`make proofs` runs 10,000 swaths, `make test` some of them.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from modis.axes import Shape
from reprojection.grid.grids import Grid
from reprojection.grid.targets import Centres, Targets
from reprojection.read.geolocation import Geolocation
from reprojection.read.kept import NO_MEMORY
from reprojection.read.qa import Reason
from reprojection.warp.footprint_shares import Shares, footprint_shares
from reprojection.warp.footprint_statistics import FootprintStatistics, Statistic
from reprojection.warp.from_swaths import (
    _Footprints,
    _Granule,
    _statistic,
    corners_grid,
    squares_along,
)
from reprojection.warp.merge import Merger
from reprojection.warp.swath import Swath, nearest

Floats = NDArray[np.float64]
LATTICES = {
    "EPSG:4326": (0.25, 8.0, 47.0),
    "EPSG:32632": (20_000.0, 360_000.0, 5_140_000.0),
    "ESRI:54008": (21_000.0, 21_000.0 * 28, 21_000.0 * 249),
}
"""Pixel, western and northern edge of a grid over the swaths, by CRS."""
SIDE = 16


def random_granule(rng: np.random.Generator) -> _Granule:
    """A swath of a few footprints of 2 to 30 km, turned, most of them often without a value."""
    rows, columns = int(rng.integers(2, 14)), int(rng.integers(2, 14))
    step = float(rng.uniform(0.02, 0.3))
    turn = float(rng.uniform(0, 2 * np.pi))
    i, j = np.indices((rows, columns)) - np.array([rows, columns])[:, None, None] / 2
    i, j = i + rng.uniform(-0.2, 0.2, i.shape), j + rng.uniform(-0.2, 0.2, j.shape)
    lat = 45.0 + step * (i * np.cos(turn) - j * np.sin(turn))
    lon = 10.0 + step * (i * np.sin(turn) + j * np.cos(turn)) * 1.4
    place = Geolocation(lat=lat, lon=lon, sensor_zenith=None, scan_lines=1)
    whole = rng.random() < 0.5
    values = (
        rng.integers(-3000, 3000, rows * columns).astype(np.int16)
        if whole
        else rng.normal(250, 40, rows * columns).astype(np.float32)
    )
    kinds = np.array([Reason.VALID, Reason.FILL, Reason.CODE], np.uint8)
    share = float(rng.choice([0.03, 0.1, 0.5, 0.95]))
    why = rng.choice(kinds, rows * columns, p=[share, 0.8 * (1 - share), 0.2 * (1 - share)])
    zenith = rng.uniform(0, 65, rows * columns).astype(np.float32)
    footprints = _Footprints(key=None, swath=Swath.of(place), zenith=zenith)
    return _Granule(
        values=values, why=why, candidates=None, footprints=footprints, memory=NO_MEMORY
    )


def grid_at(crs: str, col: int = 0, row: int = 0, width: int = SIDE, height: int = SIDE) -> Grid:
    pixel, west, north = LATTICES[crs]
    corner = pixel, 0.0, west + col * pixel, 0.0, -pixel, north - row * pixel
    return Grid(crs=crs, transform=corner, width=width, height=height)


def made(
    granule: _Granule, grid: Grid, method: Statistic
) -> tuple[Floats, NDArray[np.uint8], Floats]:
    """A statistic, its reasons and the mean zenith on a grid; NaN where nothing is seen."""
    at, value, why, zenith = _statistic(granule, grid, 0, grid.height, method, threads=1)
    planes = [np.full(grid.shape, np.nan) for _ in range(3)]
    for plane, found in zip(planes, (value, why, zenith), strict=True):
        plane.ravel()[at] = found
    values, reasons, angles = planes
    return values, np.nan_to_num(reasons, nan=255).astype(np.uint8), angles


def shares_of(granule: _Granule, grid: Grid) -> tuple[Shares, NDArray[np.int32], int]:
    swath = granule.footprints.swath
    per = squares_along(swath, grid)
    squares = corners_grid(grid, per)
    corners = Centres(squares).rows(0, squares.height)
    seen = nearest(swath, corners)
    return footprint_shares(swath, corners, seen, per=per, begun=0, threads=1), seen, per


def check_values(granule: _Granule, grid: Grid) -> int:
    """min <= mean <= max, no spread of one footprint, and a zenith that is one of a mean."""
    found = {m: made(granule, grid, m) for m in ("average", "std", "min", "max", "count", "mode")}
    mean, why, zenith = found["average"]
    there = why == Reason.VALID
    low, high, spread = (found[m][0][there] for m in ("min", "max", "std"))
    assert (low <= mean[there]).all()
    assert (mean[there] <= high).all()
    assert (spread >= 0.0).all()
    assert (spread <= (high - low) * 0.5 * (1 + 1e-9)).all()
    one = low == high
    assert (spread[one] == 0.0).all()
    assert (mean[there][one] == low[one]).all()
    assert (found["mode"][0][there] >= low).all()
    assert (found["mode"][0][there] <= high).all()
    count = found["count"][0][there]
    assert (count >= 1).all()
    assert one[count == 1].all()
    angles = granule.footprints.zenith
    inside = zenith[~np.isnan(zenith)]
    assert ((angles.min() <= inside) & (inside <= angles.max())).all()
    coded = why == Reason.CODE
    assert np.isin(mean[coded], granule.values[granule.why == Reason.CODE]).all()
    return int(there.sum())


def check_boxes(granule: _Granule, whole_grid: Grid, rng: np.random.Generator) -> None:
    """The same pixel in every box and cell, to the last bit."""
    col, row = (int(rng.integers(0, 12)) for _ in range(2))
    width, height = (int(rng.integers(1, SIDE - first + 1)) for first in (col, row))
    box = grid_at(whole_grid.crs, col, row, width, height)
    window = np.s_[row : row + height, col : col + width]
    methods: tuple[Statistic, ...] = ("average", "std")
    for method in methods:
        whole, part = made(granule, whole_grid, method), made(granule, box, method)
        for plane in range(3):
            assert np.array_equal(whole[plane][window], part[plane], equal_nan=True)


def check_areas(granule: _Granule, grid: Grid) -> None:
    """Shares add up to the area that is seen, and no value is lost or made by the division."""
    found, seen, per = shares_of(granule, grid)
    assert (found.share > 0.0).all()
    total = np.bincount(found.pixel, found.share, grid.pixels).reshape(grid.shape)
    there = (seen >= 0).astype(float)
    # At the granule's rim each corner that sees something stands for a quarter of a square.
    quarters = (there[:-1, :-1] + there[:-1, 1:] + there[1:, :-1] + there[1:, 1:]) / 4
    area = quarters.reshape(grid.height, per, grid.width, per).sum(axis=(1, 3))
    assert np.allclose(total, area, rtol=0, atol=1e-9 * per * per)
    good = granule.why[found.footprint] == Reason.VALID
    valued = np.bincount(found.pixel[good], found.share[good], grid.pixels)
    mean, why, _ = made(granule, grid, "average")
    means = np.where(why == Reason.VALID, mean, 0.0).ravel()
    values = granule.values[found.footprint[good]].astype(float)
    sums = (found.share[good] * values).sum()
    assert np.isclose((means * valued).sum(), sums, rtol=1e-9, atol=1e-6)


def check(seed: int) -> int:
    rng = np.random.default_rng(seed)
    granule = random_granule(rng)
    grid = grid_at([*LATTICES][seed % len(LATTICES)])
    valued = check_values(granule, grid)
    check_boxes(granule, grid, rng)
    check_areas(granule, grid)
    return valued


def test_invariants_of_some_swaths() -> None:
    assert sum(check(seed) for seed in range(20)) > 150


@pytest.mark.proof
def test_invariants_of_ten_thousand_swaths() -> None:
    assert sum(check(seed) for seed in range(10_000)) > 100_000


@pytest.mark.parametrize("crs", [*LATTICES, "EPSG:3035"])
@pytest.mark.parametrize("per", [4, 5, 7])
def test_corners_of_squares_are_the_same_in_every_box(crs: str, per: int) -> None:
    """Corners lie half a square from where a grid's pixels are numbered."""
    pixel, west, north = LATTICES.get(crs, (7_000.0, 7_000.0 * 600, 7_000.0 * 400))
    pixel = 0.1 if crs == "EPSG:4326" else pixel

    def corners(col: int, row: int, width: int, height: int) -> Targets:
        corner = pixel, 0.0, (col + round(west / pixel)) * pixel, 0.0, -pixel
        top = (round(north / pixel) - row) * pixel
        box = Grid(crs=crs, transform=(*corner, top), width=width, height=height)
        squares = corners_grid(box, per)
        return Centres(squares).rows(0, squares.height)

    whole = corners(0, 0, 24, 24)
    for col, row, width, height in ((1, 1, 5, 7), (2, 3, 20, 9), (7, 10, 3, 14), (23, 23, 1, 1)):
        part = corners(col, row, width, height)
        window = np.s_[row * per : (row + height) * per + 1, col * per : (col + width) * per + 1]
        for name in ("lat", "lon"):
            expected = np.broadcast_to(getattr(whole, name), whole.shape)[window]
            assert np.array_equal(expected, np.broadcast_to(getattr(part, name), part.shape))


def statistic(method: Statistic, values: list[float], shares: list[float]) -> float:
    """The statistic of one pixel whose footprints have these values and shares."""
    found = FootprintStatistics(
        pixels=1,
        values=np.array([*values, 1e6]),
        why=np.zeros(len(values) + 1, np.uint8),
        zenith=np.zeros(len(values) + 1, np.float32),
        method=method,
    )
    number = np.arange(len(values))
    found.add(Shares(pixel=0 * number, footprint=number, share=np.array(shares)))
    _, value, _, _ = found.result()
    return float(value[0])


@pytest.mark.parametrize(
    ("values", "shares", "mean", "spread"),
    [
        ([-30.0], [0.01], -30.0, 0.0),
        ([-30.0], [1e-300], -30.0, 0.0),
        ([10.0, 20.0], [0.03, 0.01], 12.5, 18.75**0.5),
        ([0.1, 0.1, 0.1], [0.3, 0.2, 0.1], 0.1, 0.0),
        ([1e9, 1e9 + 1], [0.5, 0.5], 1e9 + 0.5, 0.5),
    ],
)
def test_statistics_of_slivers(
    values: list[float], shares: list[float], mean: float, spread: float
) -> None:
    """One footprint of -30 gave 110, the mean of all values nearby."""
    assert statistic("average", values, shares) == mean
    assert statistic("std", values, shares) == pytest.approx(spread, rel=1e-12)


def test_a_sliver_does_not_win_the_merge_by_a_zenith_of_zero() -> None:
    """Its mean zenith was drawn to zero, so that `merge: nadir` took it."""
    merger = Merger(shape=Shape(1, 1), dtype=np.dtype("float32"), nodata=np.nan, merge="nadir")
    for value, zenith, share in ((1.0, 20.0, 3.0), (2.0, 60.0, 0.01)):
        found = FootprintStatistics(
            pixels=1,
            values=np.array([value]),
            why=np.zeros(1, np.uint8),
            zenith=np.array([zenith], np.float32),
            method="average",
        )
        first = np.zeros(1, np.int64)
        found.add(Shares(pixel=first, footprint=first, share=np.array([share])))
        merger.add(*found.result())
    assert merger.result().values[0, 0] == 1.0


def test_a_footprint_of_unknown_zenith_leaves_the_mean_to_the_others() -> None:
    found = FootprintStatistics(
        pixels=2,
        values=np.array([1.0, 2.0, 3.0]),
        why=np.zeros(3, np.uint8),
        zenith=np.array([np.nan, 30.0, np.nan], np.float32),
        method="average",
    )
    pixel, footprint = np.array([0, 0, 1]), np.array([0, 1, 2])
    found.add(Shares(pixel=pixel, footprint=footprint, share=np.array([1.0, 1.0, 1.0])))
    _, _, _, zenith = found.result()
    assert zenith[0] == 30.0
    assert np.isnan(zenith[1])
