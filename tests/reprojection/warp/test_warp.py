"""Warping tiles: seams, bounds, threads, the numpy versions, gdalwarp, and awkward places."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray

from modis.tile import TILE_SIZE
from reprojection.errors import ChoiceRefusedError, GridError
from reprojection.grid.coordinates import SourceSpace, exact_coordinates
from reprojection.grid.crs import MODIS_SINUSOIDAL
from reprojection.grid.grids import Grid, Lattice, modis_lattice
from reprojection.resampling import METHODS
from reprojection.warp import c_kernels
from reprojection.warp.warp import SourceTile, warp
from tests.oracle import numpy_kernels
from tests.reprojection.warp_samples import FILL, noisy, smooth, source, target, tile

WEST, EAST = tile(17, 3), tile(18, 3)
BOX = (-2.0, 52.0, 2.0, 54.0)
TARGETS = [
    target("EPSG:4326", 0.01, BOX),
    target("EPSG:4326", 0.06, BOX),
    target("EPSG:32631", 800.0, BOX),
    target("EPSG:3035", 4500.0, BOX),
    target("EPSG:4326", 0.001, (-0.1, 52.0, 0.1, 52.1)),
]


def pair(dtype: str = "int16") -> list[SourceTile]:
    return [source(WEST, noisy(WEST, 1, dtype)), source(EAST, noisy(EAST, 2, dtype))]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", TARGETS, ids=lambda g: f"{g.crs}-{g.transform[0]:g}")
def test_a_seam_equals_the_interior(method: str, grid: Grid) -> None:
    """Two tiles give what one raster of both gives."""
    both = Grid(crs=WEST.crs, transform=WEST.transform, width=2400, height=1200)
    sources = pair()
    one = np.hstack([sources[0].bands[0], sources[1].bands[0]])
    apart = warp(sources, grid, method, fill=FILL)  # type: ignore[arg-type]
    joined = warp([source(both, one)], grid, method, fill=FILL)  # type: ignore[arg-type]
    assert np.array_equal(apart, joined)
    assert (apart != FILL).mean() > 0.5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", TARGETS[:4], ids=lambda g: f"{g.crs}-{g.transform[0]:g}")
def test_pixels_do_not_depend_on_bounds_threads_or_order(method: str, grid: Grid) -> None:
    whole = warp(pair(), grid, method, fill=FILL)  # type: ignore[arg-type]
    threads = warp(pair()[::-1], grid, method, fill=FILL, threads=3)  # type: ignore[arg-type]
    assert whole.tobytes() == threads.tobytes()
    lattice = Lattice(crs=grid.crs, resolution=grid.transform[0])
    col, row = lattice.index(grid)
    top, left = grid.height // 3, grid.width // 4
    part = lattice.window(col + left, row + top, grid.width // 2, grid.height // 3)
    piece = warp(pair(), part, method, fill=FILL)  # type: ignore[arg-type]
    wanted = whole[:, top : top + part.height, left : left + part.width]
    assert np.array_equal(piece, wanted)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "dtype",
    ["int16", *(pytest.param(n, marks=pytest.mark.slow) for n in ("uint8", "float32", "int32"))],
)
def test_numpy_and_compiled_kernels_agree_bit_for_bit(
    method: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = 255 if dtype == "uint8" else FILL
    sources = pair(dtype if dtype == "uint8" else "int16")
    sources = [SourceTile(bands=[s.bands[0].astype(dtype)], grid=s.grid) for s in sources]
    for grid in (
        target("EPSG:32631", 2500.0, (-1, 52, 1, 53)),
        target("EPSG:4326", 0.02, (-1, 52, 1, 53)),
        target("EPSG:32631", 300.0, (-0.2, 52, 0.2, 52.2)),
    ):
        compiled = warp(sources, grid, method, fill=fill)  # type: ignore[arg-type]
        with monkeypatch.context() as patched:
            patched.setattr(c_kernels, "Warper", numpy_kernels.Warper)
            plain = warp(sources, grid, method, fill=fill)  # type: ignore[arg-type]
        assert compiled.tobytes() == plain.tobytes()


@pytest.mark.parametrize("grid", TARGETS, ids=lambda g: f"{g.crs}-{g.transform[0]:g}")
def test_nearest_is_the_exact_pixel_but_for_ties(grid: Grid) -> None:
    sources = pair()
    mine = warp(sources, grid, "nearest", fill=FILL)[0]
    space = SourceSpace.of(WEST)
    col, row = exact_coordinates(
        grid, space, np.arange(grid.height)[:, None], np.arange(grid.width)[None, :]
    )
    left, top = space.offset(WEST)
    both = np.hstack([sources[0].bands[0], sources[1].bands[0]])
    i, j = np.floor(row).astype(int) - top, np.floor(col).astype(int) - left
    inside = (i >= 0) & (i < 1200) & (j >= 0) & (j < 2400)
    wanted = np.where(inside, both[np.clip(i, 0, 1199), np.clip(j, 0, 2399)], FILL)
    tie = np.minimum(np.abs(col - np.rint(col)), np.abs(row - np.rint(row))) < 5e-4
    assert (mine == wanted)[~tie].all()
    # Rows of a geographic grid can run along the edges of source rows.
    assert tie.mean() < (0.5 if grid.crs == "EPSG:4326" else 0.01)


def test_gdals_fill_rule_and_the_search_for_valid_pixels() -> None:
    pixels = np.full(EAST.shape, 100, np.int16)
    pixels[600, 600] = FILL
    a, _, c, _, e, f = EAST.transform
    fine = Grid(
        crs=MODIS_SINUSOIDAL,
        transform=(a / 4, 0.0, c + 598 * a, 0.0, e / 4, f + 598 * e),
        width=20,
        height=20,
    )
    by_rule = warp([source(EAST, pixels)], fine, "bilinear", fill=FILL)[0]
    assert (by_rule == FILL).sum() == 16
    assert (by_rule[by_rule != FILL] == 100).all()
    searched = warp([source(EAST, pixels)], fine, "bilinear", fill=FILL, search="valid")[0]
    assert (searched == 100).all()


def test_a_valid_mask_stands_for_fill() -> None:
    pixels, valid = noisy(EAST, 3, share=0.0), np.ones(EAST.shape, dtype=bool)
    valid[::2] = False
    masked = SourceTile(bands=[pixels], grid=EAST, valid=[valid])
    burnt = source(EAST, np.where(valid, pixels, np.int16(FILL)))
    grid = TARGETS[2]
    for method in ("nearest", "average"):
        assert np.array_equal(
            warp([masked], grid, method, fill=FILL),
            warp([burnt], grid, method, fill=FILL),
        )


def test_bands_share_coordinates_and_nothing_else() -> None:
    bands = [noisy(EAST, n) for n in range(3)]
    together = warp([source(EAST, *bands)], TARGETS[2], "bilinear", fill=FILL)
    for n, band in enumerate(bands):
        assert np.array_equal(
            together[n], warp([source(EAST, band)], TARGETS[2], "bilinear", fill=FILL)[0]
        )


def supersampled(pixels: NDArray[np.int16], grid: Grid, of: Grid) -> NDArray[np.float64]:
    """Each target pixel's mean over 64 x 64 places at exact coordinates; NaN where one is off."""
    n = 64
    steps = (np.arange(n) + 0.5) / n
    a, _, c, _, e, f = grid.transform
    fine = Grid(
        crs=grid.crs,
        transform=(a / n, 0.0, c, 0.0, e / n, f),
        width=grid.width * n,
        height=grid.height * n,
    )
    space = SourceSpace.of(of)
    left, top = space.offset(of)
    total = np.zeros(grid.shape)
    for k in range(len(steps)):
        rows = np.arange(grid.height)[:, None] * n + k
        col, row = exact_coordinates(fine, space, rows, np.arange(fine.width)[None, :])
        i, j = np.floor(row).astype(int) - top, np.floor(col).astype(int) - left
        inside = (i >= 0) & (i < of.height) & (j >= 0) & (j < of.width)
        values = np.where(inside, pixels[i.clip(0, 1199), j.clip(0, 1199)], np.nan)
        total += values.reshape(grid.height, grid.width, n).sum(axis=2)
    return total / (n * n)


@pytest.mark.parametrize(("crs", "resolution"), [("EPSG:32631", 6000.0), ("EPSG:4326", 0.03)])
def test_average_is_the_mean_over_the_quadrilateral(crs: str, resolution: float) -> None:
    pixels = smooth(EAST)
    grid = target(crs, resolution, (4.0, 52.0, 4.6, 52.5))
    mine = warp([source(EAST, pixels)], grid, "average", fill=FILL)[0]
    wanted = supersampled(pixels, grid, EAST)
    known = np.isfinite(wanted)
    assert known.mean() > 0.9
    assert np.abs(mine - wanted)[known].max() <= 1.0


def test_mode_extremes_and_median_of_whole_pixels() -> None:
    """Two by two pixels to one, in the source's own projection: the answers are plain."""
    a, _, c, _, e, f = EAST.transform
    coarse = Grid(
        crs=MODIS_SINUSOIDAL, transform=(2 * a, 0.0, c, 0.0, 2 * e, f), width=600, height=600
    )
    pixels = noisy(EAST, 5, share=0.0)
    blocks = np.sort(pixels.reshape(600, 2, 600, 2).transpose(0, 2, 1, 3).reshape(600, 600, 4))
    inner = (slice(0, 599), slice(1, 599))
    for method, wanted in (
        ("min", blocks[..., 0]),
        ("max", blocks[..., 3]),
        ("median", blocks[..., 1]),
    ):
        got = warp([source(EAST, pixels)], coarse, method, fill=FILL)[0]  # type: ignore[arg-type]
        assert np.array_equal(got[inner], wanted[inner]), method
    classes = np.repeat(np.repeat(noisy(coarse, 7, share=0.0)[:600, :600], 2, 0), 2, 1)
    classes[::2, ::2] = 999
    got = warp([source(EAST, classes)], coarse, "mode", fill=FILL)[0]
    assert np.array_equal(got[inner], classes[1::2, 1::2][inner])


@pytest.mark.parametrize(
    ("method", "crs", "resolution", "scale"),
    [
        ("bilinear", "EPSG:32631", 500.0, None),
        ("cubic", "EPSG:32631", 500.0, None),
        ("bilinear", "EPSG:4326", 0.008, None),
        ("cubic", "EPSG:4326", 0.008, None),
        ("bilinear", "EPSG:32631", 3706.5, 4.0),
        ("cubic", "EPSG:32631", 3706.5, 4.0),
        ("gdal-average", "EPSG:3035", 3706.5, None),
    ],
)
def test_gdalwarp_without_approximation_agrees_to_a_unit(
    method: str, crs: str, resolution: float, scale: float | None, tmp_path: Path
) -> None:
    if shutil.which("gdalwarp") is None:
        pytest.skip("gdalwarp is not installed")
    pixels = smooth(EAST)
    grid = target(crs, resolution, (3.0, 52.0, 6.0, 54.5))
    before, after = tmp_path / "in.tif", tmp_path / "out.tif"
    with rasterio.open(
        before,
        "w",
        driver="GTiff",
        width=1200,
        height=1200,
        count=1,
        dtype="int16",
        crs=MODIS_SINUSOIDAL,
        transform=rasterio.Affine(*EAST.transform),
        nodata=FILL,
    ) as file:
        file.write(pixels, 1)
    path = (
        "+proj=pipeline +step +proj=sinu +R=6371007.181 +inv +step +proj=utm +zone=31"
        if crs == "EPSG:32631"
        else "+proj=pipeline +step +proj=sinu +R=6371007.181 +inv"
        " +step +proj=laea +lat_0=52 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80"
        if crs == "EPSG:3035"
        else "+proj=pipeline +step +proj=sinu +R=6371007.181 +inv"
        " +step +proj=unitconvert +xy_in=rad +xy_out=deg"
    )
    # Spelt so that x comes first, as it does in the pipelines.
    named = {
        "EPSG:4326": "OGC:CRS84",
        "EPSG:3035": "+proj=laea +lat_0=52 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80",
    }
    bounds = grid.bounds
    command = [
        "gdalwarp", "-q", "-et", "0", "-ct", path, "-t_srs", named.get(crs, crs), "-r",
        method.removeprefix("gdal-"), "-te", *(repr(edge) for edge in bounds),
        "-ts", str(grid.width), str(grid.height), "-dstnodata", str(FILL),
    ]  # fmt: skip
    if scale:
        command += ["-wo", f"XSCALE={1 / scale}", "-wo", f"YSCALE={1 / scale}"]
    subprocess.run([*command, str(before), str(after)], check=True, timeout=120)
    with rasterio.open(after) as file:
        theirs = file.read(1).astype(int)
    fixed = (scale, scale) if scale else (1.0, 1.0) if method != "gdal-average" else None
    mine = warp([source(EAST, pixels)], grid, method, fill=FILL, scale=fixed)[0].astype(int)  # type: ignore[arg-type]
    both = (mine != FILL) & (theirs != FILL)
    rim = int(np.ceil(4 * (scale or 1))) + 8
    space = SourceSpace.of(EAST)
    col, row = exact_coordinates(
        grid, space, np.arange(grid.height)[:, None], np.arange(grid.width)[None, :]
    )
    left, top = space.offset(EAST)
    inner = (np.abs(col - left - 600) < 600 - rim) & (np.abs(row - top - 600) < 600 - rim)
    assert (both | ~inner).all()
    assert inner.mean() > 0.3
    assert np.abs(mine - theirs)[inner].max() <= 1


def test_the_rioxarray_reference_differs_only_beside_cell_edges(granules: Path) -> None:
    import xarray

    folder = granules / "peer-reference" / "rioxarray"
    with xarray.open_dataset(folder / "MODIS_ARRAY.nc", mask_and_scale=False) as before:
        pixels = before["__xarray_dataarray_variable__"].values.squeeze()
        x, y = before["x"].values, before["y"].values
    with xarray.open_dataset(folder / "MODIS_ARRAY_UTM_GDAL361.nc", mask_and_scale=False) as after:
        theirs = after["__xarray_dataarray_variable__"].values.squeeze()
        u, v = after["x"].values, after["y"].values
    size = TILE_SIZE / 4800
    of = Grid(
        crs=MODIS_SINUSOIDAL,
        transform=(size, 0.0, float(x[0]) - size / 2, 0.0, -size, float(y[0]) + size / 2),
        width=len(x),
        height=len(y),
    )
    step = (float(u[-1]) - float(u[0])) / (len(u) - 1)
    drop = (float(v[-1]) - float(v[0])) / (len(v) - 1)
    grid = Grid(
        crs="+proj=utm +zone=15 +datum=WGS84 +units=m +no_defs",
        transform=(step, 0.0, float(u[0]) - step / 2, 0.0, drop, float(v[0]) - drop / 2),
        width=len(u),
        height=len(v),
    )
    mine = warp([source(of, pixels)], grid, "nearest", fill=FILL)[0]
    space = SourceSpace.of(of)
    col, row = exact_coordinates(
        grid, space, np.arange(grid.height)[:, None], np.arange(grid.width)[None, :]
    )
    beside = np.minimum(np.abs(col - np.rint(col)), np.abs(row - np.rint(row)))
    assert beside[mine != theirs].max(initial=0.0) <= 0.06
    assert (mine == theirs).mean() > 0.9


class TestAwkwardPlaces:
    """The antimeridian, poles, rims, single pixels, and great changes of scale."""

    @pytest.mark.parametrize("method", METHODS)
    def test_the_antimeridian(self, method: str) -> None:
        rims = [tile(0, 8), tile(35, 8), tile(0, 9), tile(35, 9)]
        sources = [source(grid, np.full(grid.shape, 7, np.int16)) for grid in rims]
        for grid in (
            target("EPSG:4326", 0.05, (178, -2, -178, 2)),
            target("EPSG:32601", 5000.0, (178, -2, -178, 2)),
        ):
            got = warp(sources, grid, method, fill=FILL)[0]  # type: ignore[arg-type]
            assert (got == 7).mean() > 0.99
            assert set(np.unique(got)) <= {7, FILL}

    @pytest.mark.parametrize("method", METHODS)
    def test_a_pole(self, method: str) -> None:
        tiles = [(h, 0) for h in range(14, 22)]
        sources = [source(tile(h, v), np.full((1200, 1200), 7, np.int16)) for h, v in tiles]
        grid = target("EPSG:3413", 10000.0, (-180, 84, 180, 90))
        got = warp(sources, grid, method, fill=FILL)[0]  # type: ignore[arg-type]
        middle = got[30:-30, 30:-30]
        assert (middle == 7).mean() > 0.99

    @pytest.mark.parametrize("method", METHODS)
    def test_a_target_of_one_pixel_and_scales_far_apart(self, method: str) -> None:
        pixels = [source(EAST, np.full(EAST.shape, 9, np.int16))]
        for size in (1.0, 0.001):
            one = Lattice(crs="EPSG:4326", resolution=size).window(
                int(6 / size), -int(56 / size), 1, 1
            )
            assert warp(pixels, one, method, fill=FILL)[0, 0, 0] == 9  # type: ignore[arg-type]

    @pytest.mark.parametrize("method", METHODS)
    def test_a_tile_on_its_own_grid_is_copied_beyond_the_rim(self, method: str) -> None:
        rim = tile(0, 8)
        sides = [noisy(rim, 1), noisy(tile(1, 8), 2)]
        sources = [source(rim, sides[0]), source(tile(1, 8), sides[1])]
        first = np.array([[0]])
        assert np.isnan(exact_coordinates(rim, SourceSpace.of(rim), first, first)).all()
        got = warp(sources, rim, method, fill=FILL)[0]  # type: ignore[arg-type]
        assert np.array_equal(got, sides[0])
        whole = modis_lattice(1000).window(600 - 18 * 1200, -1200, 1200, 1300)
        across = warp(sources, whole, method, fill=FILL)[0]  # type: ignore[arg-type]
        assert np.array_equal(across[:1200, :600], sides[0][:, 600:])
        assert np.array_equal(across[:1200, 600:], sides[1][:, :600])
        assert (across[1200:] == FILL).all()

    def test_a_region_without_tiles_is_fill(self) -> None:
        grid = target("EPSG:32633", 2000.0, (14, -20, 16, -18))
        assert (warp(pair(), grid, "bilinear", fill=FILL) == FILL).all()

    def test_a_datum_shift_is_taken(self) -> None:
        """British National Grid lies 100 m from where the sphere's direct path would put it."""
        grid = Lattice(crs="EPSG:27700", resolution=1000.0).window(400, -300, 1, 1)
        lon, _ = grid.lonlat_outline()[0]
        assert lon == pytest.approx(-2.0, abs=0.003)


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"method": "lanczos", "fill": FILL}, ChoiceRefusedError, "unknown"),
        ({"fill": 1e9}, ChoiceRefusedError, "cannot be stored"),
    ],
)
def test_choices_that_cannot_be_had(
    kwargs: dict[str, float], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        warp(pair(), TARGETS[0], **kwargs)  # type: ignore[arg-type]


def test_sources_off_one_lattice_are_refused() -> None:
    a, _, c, _, e, f = EAST.transform
    shifted = Grid(
        crs=EAST.crs, transform=(a, 0.0, c + 0.3 * a, 0.0, e, f), width=1200, height=1200
    )
    with pytest.raises(GridError, match="one lattice"):
        warp([source(EAST, noisy(EAST, 1)), source(shifted, noisy(EAST, 2))], TARGETS[0], fill=FILL)
    with pytest.raises(GridError, match="nothing to warp"):
        warp([], TARGETS[0], fill=FILL)
