"""Statistics of swaths: every footprint of a pixel by its share, whatever the pixel's size."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from reprojection.grid.grids import Grid, Lattice
from reprojection.grid.targets import Centres
from reprojection.read.geolocation import Geolocation
from reprojection.read.granule import open_granule
from reprojection.read.qa import reasons
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import FieldToWrite, SwathToWrite, write_granule
from reprojection.warp import from_swaths
from reprojection.warp.footprint_shares import Shares, footprint_shares
from reprojection.warp.from_swaths import corners_grid, squares_along
from reprojection.warp.swath import Swath, nearest
from tests.oracle.numpy_shares import shares_in_numpy
from tests.reprojection.reading_samples import wrap_up

SHAPE = (200, 270)
FILL = -9999
GRID = Lattice(crs="EPSG:4326", resolution=0.5).snap((8.0, 44.0, 10.0, 45.5))
DENSE = 240  # points along a pixel's side: the finest footprints have about four each way


@pytest.fixture(scope="module")
def swath(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kilometre footprints of noise, with some fill, and classes."""
    rng = np.random.default_rng(3)
    rows, columns = np.indices(SHAPE)
    lat = (46.0 - 0.009 * rows + 0.0004 * columns).astype(np.float32)
    lon = (7.5 + 0.012 * columns + 0.0008 * rows).astype(np.float32)
    depth = rng.integers(-100, 4000, SHAPE).astype(np.int16)
    depth[rng.random(SHAPE) < 0.3] = FILL
    kind = rng.choice([0, 1, 2, 3], SHAPE, p=[0.3, 0.29, 0.21, 0.2]).astype(np.int16)
    dims = ("Along", "Across")

    def place(name: str, values: NDArray[np.float32]) -> FieldToWrite:
        return FieldToWrite(name=name, values=values, dims=dims, typed={"_FillValue": -999.0})

    def data(name: str, values: NDArray[np.int16]) -> FieldToWrite:
        typed: dict[str, int | tuple[int, int]] = {"_FillValue": FILL, "valid_range": (-100, 5000)}
        return FieldToWrite(name=name, values=values, dims=dims, typed=typed)

    structure = SwathToWrite(
        name="mod04",
        geo_fields=[place("Latitude", lat), place("Longitude", lon)],
        data_fields=[data("Depth", depth), data("Surface_Type", kind)],
    )
    granule = wrap_up(structure, "MOD99_L2.A2012065.1030.061.2012153130500.hdf", "MOD99_L2", 61)
    path = tmp_path_factory.mktemp("swath") / granule.local_name
    write_granule(path, granule)
    return path


def points_grid(grid: Grid, per: int) -> Grid:
    """A grid with `per` x `per` pixels in each pixel of another; their centres are points."""
    a, b, c, d, e, f = grid.transform
    return Grid(
        crs=grid.crs,
        transform=(a / per, b / per, c, d / per, e / per, f),
        width=grid.width * per,
        height=grid.height * per,
    )


def shares_of(
    footprints: Swath, grid: Grid, *, threads: int = 1, plain: bool = False
) -> tuple[Shares, int]:
    """Shares of footprints in the pixels of a grid, and the squares of a pixel."""
    per = squares_along(footprints, grid)
    squares = corners_grid(grid, per)
    corners = Centres(squares).rows(0, squares.height)
    seen = nearest(footprints, corners)
    if plain:
        return shares_in_numpy(footprints, corners, seen, per, 0), per * per
    found = footprint_shares(footprints, corners, seen, per=per, begun=0, threads=threads)
    return found, per * per


def footprints_of(path: Path) -> Swath:
    with open_granule(path) as granule:
        return Swath.of(granule.geolocation("Depth"))


def test_shares_are_those_of_very_many_points(swath: Path) -> None:
    footprints = footprints_of(swath)
    found, squares = shares_of(footprints, GRID)
    points = points_grid(GRID, 4 * DENSE)
    seen = nearest(footprints, Centres(points).rows(0, 4 * DENSE))[:, : 4 * DENSE]
    truth = np.bincount(seen[seen >= 0], minlength=footprints.lat.size) / (4 * DENSE) ** 2
    mine = np.zeros(footprints.lat.size)
    first = found.pixel == 0
    mine[found.footprint[first]] = found.share[first] / squares
    some = (truth > 0) | (mine > 0)
    error = (mine - truth)[some] / truth[some].mean()
    # Two points along a footprint's side gave 0.2 and 0.6.
    assert error.std() < 0.03
    assert np.abs(error).max() < 0.15
    assert np.isclose(found.share[first].sum(), squares)


def test_shares_of_a_regular_lattice_are_rectangles() -> None:
    rows, columns = np.indices((80, 90)).astype(np.float64)
    lat, lon = 2.0 - 0.05 * rows, 10.0 + 0.05 * columns
    place = Geolocation(lat=lat, lon=lon, sensor_zenith=None, scan_lines=1)
    # Pixels of 2.4 by 2.4 footprints, the first of which begins a tenth inside a footprint.
    grid = Grid(crs="EPSG:4326", transform=(0.12, 0, 10.98, 0, -0.12, 1.02), width=2, height=2)
    found, squares = shares_of(Swath.of(place), grid)
    half = np.array([-0.025, 0.025])
    for pixel, west, north in ((0, 10.98, 1.02), (3, 11.1, 0.9)):
        at = found.pixel == pixel
        for number, share in zip(found.footprint[at], found.share[at], strict=True):
            row, column = divmod(int(number), 90)
            wide = np.clip(lon[row, column] + half, west, west + 0.12)
            high = np.clip(lat[row, column] + half, north - 0.12, north)
            exact = np.diff(wide)[0] * np.diff(high)[0] / 0.0144
            assert abs(share / squares - exact) < 0.003


def test_shares_are_those_of_numpy_and_the_same_in_threads(swath: Path) -> None:
    footprints = footprints_of(swath)
    # Over the granule's corner, so that its rim is there, too.
    grid = Lattice(crs="EPSG:4326", resolution=0.2).snap((7.3, 45.6, 8.1, 46.2))
    compiled, _ = shares_of(footprints, grid)
    threads, _ = shares_of(footprints, grid, threads=2)
    plain, _ = shares_of(footprints, grid, plain=True)
    for name in ("pixel", "footprint", "share"):
        assert np.array_equal(getattr(compiled, name), getattr(plain, name))
        assert np.array_equal(np.sort(getattr(compiled, name)), np.sort(getattr(threads, name)))
    assert len(compiled.pixel) > 500


def seen_by_pixel(path: Path, layer: str, grid: Grid) -> list[NDArray[np.generic]]:
    """The values that DENSE x DENSE points of each pixel see."""
    with open_granule(path) as granule:
        values, why = granule.read(layer).ravel(), reasons(granule, layer).ravel()
        footprints = Swath.of(granule.geolocation(layer))
    points = points_grid(grid, DENSE)
    seen = nearest(footprints, Centres(points).rows(0, points.height))
    by_pixel = seen.reshape(grid.height, DENSE, grid.width, DENSE).transpose(0, 2, 1, 3)
    every = []
    for one in by_pixel.reshape(grid.pixels, -1):
        at = one[one >= 0]
        every.append(values[at[why[at] == 0]])
    return every


def made(path: Path, layer: str, method: str) -> NDArray[np.float64]:
    found = reproject([path], layer, GRID, Options(resampling=method))
    return np.asarray(found.data[0].ravel(), np.float64)


def test_average_and_spread_are_those_of_all_footprints(swath: Path) -> None:
    truth = seen_by_pixel(swath, "Depth", GRID)
    mean, spread = made(swath, "Depth", "average"), made(swath, "Depth", "std")
    for number, values in enumerate(truth):
        assert len(values) > 10_000
        # The noise has a spread of 1,180; with 256 of some 2,000 footprints the mean errs by 60.
        assert abs(float(mean[number]) - values.mean()) < 24.0
        assert abs(float(spread[number]) - values.std()) < 24.0


def test_extremes_and_counts_are_of_all_footprints(swath: Path) -> None:
    truth = seen_by_pixel(swath, "Depth", GRID)
    low, high = made(swath, "Depth", "min"), made(swath, "Depth", "max")
    count = made(swath, "Depth", "count")
    with open_granule(swath) as granule:
        good = (reasons(granule, "Depth") == 0).sum()
    for number, values in enumerate(truth):
        assert abs(float(low[number]) - values.min()) <= 5
        assert abs(float(high[number]) - values.max()) <= 5
    whole = Lattice(crs="EPSG:4326", resolution=10.0).snap((0.0, 40.0, 10.0, 50.0))
    (only,) = reproject([swath], "Depth", whole, Options(resampling="count")).data[0].ravel()[:1]
    assert good * 0.7 < only <= good
    assert (count > 500).all()


def test_mode_is_the_class_with_the_largest_share(swath: Path) -> None:
    truth = seen_by_pixel(swath, "Surface_Type", GRID)
    mode = made(swath, "Surface_Type", "mode")
    for number, values in enumerate(truth):
        shares = np.bincount(values.astype(int), minlength=4)
        assert shares[int(mode[number])] >= 0.95 * shares.max()
    counted = reproject([swath], "Surface_Type", GRID, Options(resampling="count"))
    assert counted.kind == "continuous"
    assert counted.units == "1"


@pytest.mark.parametrize("method", ["average", "count", "std", "min", "max", "mode"])
def test_the_parts_in_which_a_raster_is_made_do_not_show(
    swath: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(swath, "Depth", method)
    for points in (3000, 40_000):
        monkeypatch.setattr(from_swaths, "_POINTS_AT_ONCE", points)
        assert np.allclose(made(swath, "Depth", method).astype(float), whole.astype(float))


def test_a_mean_is_rounded_not_cut(swath: Path) -> None:
    stored = reproject([swath], "Depth", GRID, Options(resampling="average"))
    exact = reproject([swath], "Depth", GRID, Options(resampling="average", units="physical"))
    assert np.array_equal(stored.data[0], np.rint(exact.data[0].astype(float)))
