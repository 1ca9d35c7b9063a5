"""What explain says of a pixel: the QA layers that judged it, and gdalwarp's command, run."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio

from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_SIZE
from reprojection.explain.explain import Explanation, explain
from reprojection.grid.coordinates import SourceSpace, exact_coordinates
from reprojection.grid.grids import Grid, Lattice
from reprojection.read.qa import Reason
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import FieldToWrite, GridToWrite, SwathToWrite, write_granule
from reprojection.write.write import write_cog
from swathmill.commands.explanation import lines_of
from tests.reprojection.reading_samples import wrap_up
from tests.reprojection.warp_samples import smooth, target

FILL = -28672
SIDE = 300
STEP = TILE_SIZE / SIDE
TILE = Grid(
    crs="+proj=sinu +R=6371007.181 +units=m +no_defs",
    transform=(STEP, 0.0, -4 * TILE_SIZE, 0.0, -STEP, 5 * TILE_SIZE),
    width=SIDE,
    height=SIDE,
)
LAEA = "+proj=laea +lat_0=45 +lon_0=-50 +datum=WGS84 +units=m +no_defs"
STEP_DEGREES = 10.0 / SIDE
WHOLE = (-62.25, 40.0, -39.15, 50.0)
BOX = (-56.0, 41.0, -46.0, 49.0)
QA_RULE = {"State_1km": {"0-1": [0]}}


@cache
def gdal_formats() -> str:
    """What gdalinfo says that it reads."""
    command = ["gdalinfo", "--formats"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def needs_gdal(driver: str) -> None:
    """Skip the test where gdalwarp is missing or cannot read a kind of file."""
    if shutil.which("gdalwarp") is None or shutil.which("gdalinfo") is None:
        pytest.skip("gdalwarp is not installed (Debian: apt install gdal-bin)")
    if not re.search(rf"^\s*{driver} ", gdal_formats(), re.MULTILINE):
        pytest.skip(f"the gdalwarp installed here reads no {driver}")


def field(name: str, values: np.ndarray, dims: tuple[str, ...] = ("YDim", "XDim")) -> FieldToWrite:
    return FieldToWrite(
        name=name, values=values, dims=dims, typed={"_FillValue": FILL}, attributes={"units": "m"}
    )


@pytest.fixture(scope="module")
def hills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tile without fill, rough so that kernels show; bands differ by a thousand from the next."""
    waves = smooth(TILE) + np.random.default_rng(5).integers(0, 300, TILE.shape).astype(np.int16)
    bands = np.stack([waves + 1000 * k for k in range(6)]).astype(np.int16)
    fields = [
        field("Height", waves),
        field("First", bands[:3], ("Layer", "YDim", "XDim")),
        field("Last", np.ascontiguousarray(bands[:3].transpose(1, 2, 0)), ("YDim", "XDim", "Kind")),
        field("Both", bands.reshape(2, 3, SIDE, SIDE), ("Time", "Layer", "YDim", "XDim")),
    ]
    left, bottom, right, top = TILE.bounds
    grid = GridToWrite(
        name="Hills_Grid", upper_left=(left, top), lower_right=(right, bottom), fields=fields
    )
    name = "MOD99A1.A2012065.h14v04.061.2012153130500.hdf"
    path = tmp_path_factory.mktemp("hills") / name
    write_granule(path, wrap_up(grid, name, "MOD99A1", 61))
    return path


def explained(
    granule: Path, layer: str, grid: Grid, options: Options, folder: Path
) -> tuple[np.ndarray, Explanation]:
    """A raster's first band, and the explanation of its middle pixel."""
    found = reproject([granule], layer, grid, options)
    write_cog(found, folder / "ours.tif")
    lon, lat = -50.0, 45.0
    answer = explain(folder / "ours.tif", lon, lat, granules=[granule])
    return found.data[0].astype(int), answer


def run_line(answer: Explanation, folder: Path) -> np.ndarray:
    """What the printed command makes, as a shell runs it."""
    assert answer.gdalwarp, answer.gdalwarp_note
    subprocess.run(answer.gdalwarp, shell=True, check=True, cwd=folder, timeout=120)
    with rasterio.open(folder / "out.tif") as file:
        assert file.count == 1
        return np.asarray(file.read(1).astype(int))


def away_from_edges(grid: Grid, rim: float) -> np.ndarray:
    space = SourceSpace.of(TILE)
    col, row = exact_coordinates(
        grid, space, np.arange(grid.height)[:, None], np.arange(grid.width)[None, :]
    )
    left, top = space.offset(TILE)
    half = SIDE / 2
    inner = (np.abs(col - left - half) < half - rim) & (np.abs(row - top - half) < half - rim)
    assert inner.mean() > 0.2
    return inner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "crs", "resolution", "rim"),
    [
        ("bilinear", "EPSG:4326", 0.0333, 4),
        ("cubic", "EPSG:4326", 0.0333, 4),
        ("bilinear", "EPSG:4326", STEP_DEGREES, 4),
        ("cubic", "EPSG:4326", STEP_DEGREES, 4),
        ("bilinear", "EPSG:32622", 3000.0, 4),
        ("cubic", LAEA, 3000.0, 4),
        ("bilinear", TILE.crs, 3.3 * STEP, 8),
        ("cubic", TILE.crs, 3.3 * STEP, 12),
        ("gdal-average", LAEA, 16000.0, 8),
        ("gdal-average", "EPSG:4326", 0.3, 10),
    ],
)
def test_the_gdalwarp_command_gives_the_same_pixels(
    hills: Path, method: str, crs: str, resolution: float, rim: float, tmp_path: Path
) -> None:
    needs_gdal("HDF4")
    grid = target(crs, resolution, WHOLE if resolution == STEP_DEGREES else BOX)
    mine, answer = explained(hills, "Height", grid, Options(resampling=method), tmp_path)
    assert answer.gdalwarp_note == ""
    theirs = run_line(answer, tmp_path)
    assert np.abs(mine - theirs)[away_from_edges(grid, rim)].max() <= 1


def test_a_scale_that_differs_from_place_to_place_is_said(hills: Path, tmp_path: Path) -> None:
    """Both sides widen by about as much: better than by GDAL's own estimate, but not alike."""
    needs_gdal("HDF4")
    grid = target("EPSG:4326", 0.5, WHOLE)
    mine, answer = explained(hills, "Height", grid, Options(resampling="bilinear"), tmp_path)
    assert re.search(r"here [\d.]+ to [\d.]+ source columns", answer.gdalwarp_note)
    inner = away_from_edges(grid, 30)
    theirs = run_line(answer, tmp_path)
    amiss = np.abs(mine - theirs)[inner].max()
    assert 0 < amiss < 50
    line = re.sub(r"-wo \S+ ", "", answer.gdalwarp).replace("out.tif", "-overwrite out.tif")
    subprocess.run(line, shell=True, check=True, cwd=tmp_path, timeout=120)
    with rasterio.open(tmp_path / "out.tif") as file:
        assert amiss < np.abs(mine - file.read(1).astype(int))[inner].max()


@pytest.mark.parametrize(
    ("layer", "added"), [("First[0]", 0), ("First[2]", 2000), ("Last[1]", 1000)]
)
def test_the_command_takes_the_band(hills: Path, layer: str, added: int, tmp_path: Path) -> None:
    needs_gdal("HDF4")
    grid = target("EPSG:4326", 0.0333, BOX)
    mine, answer = explained(hills, layer, grid, Options(resampling="bilinear"), tmp_path)
    plain = reproject([hills], "Height", grid, Options(resampling="bilinear")).data[0].astype(int)
    inner = away_from_edges(grid, 4)
    assert np.abs(mine - plain - added)[inner].max() <= 1
    assert np.abs(mine - run_line(answer, tmp_path))[inner].max() <= 1


def test_bands_that_gdal_does_not_show_have_no_command(hills: Path, tmp_path: Path) -> None:
    grid = target("EPSG:4326", 0.1, BOX)
    _, answer = explained(hills, "Both[1,1]", grid, Options(), tmp_path)
    assert answer.gdalwarp == ""
    assert "two band dimensions" in answer.gdalwarp_note


def test_the_command_of_a_swath_runs_and_says_that_it_differs(tmp_path: Path) -> None:
    needs_gdal("HDF4")
    lat = np.repeat(np.linspace(52.0, 50.0, 40)[:, None], 60, axis=1).astype(np.float32)
    lon = np.repeat(np.linspace(8.0, 11.0, 60)[None, :], 40, axis=0).astype(np.float32)
    ramp = np.arange(60, dtype=np.int16)[None, :] + np.zeros((40, 1), np.int16)
    dims = ("Along", "Across")
    swath = SwathToWrite(
        name="ramps",
        geo_fields=[field("Longitude", lon, dims), field("Latitude", lat, dims)],
        data_fields=[
            field("Ramp", np.stack([ramp, ramp + 500, ramp + 900]), ("Kind", *dims)),
        ],
    )
    name = "MYD99_L2.A2012065.1200.061.2012153130500.hdf"
    write_granule(tmp_path / name, wrap_up(swath, name, "MYD99_L2", 61))
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap((8.5, 50.5, 10.5, 51.5))
    write_cog(reproject([tmp_path / name], "Ramp[1]", grid, Options()), tmp_path / "ours.tif")
    answer = explain(tmp_path / "ours.tif", 9.5, 51.0, granules=[tmp_path])
    assert "many pixels differ" in answer.gdalwarp_note
    theirs = run_line(answer, tmp_path)
    with rasterio.open(tmp_path / "ours.tif") as file:
        # GDAL takes the places for corners of pixels: it is up to a column off.
        assert np.abs(file.read(1).astype(int) - theirs).max() <= 2


def hdf5_tile(path: Path) -> None:
    """A VIIRS-like tile: values on a grid of SIDE pixels, QA on one of half as many."""
    left, bottom, right, top = TILE.bounds
    lines = ["GROUP=GridStructure"]
    for number, (grid, side) in enumerate((("Fine", SIDE), ("Coarse", SIDE // 2)), 1):
        lines += [
            f"GROUP=GRID_{number}",
            f'GridName="{grid}"',
            f"XDim={side}",
            f"YDim={side}",
            f"UpperLeftPointMtrs=({left:.6f},{top:.6f})",
            f"LowerRightMtrs=({right:.6f},{bottom:.6f})",
            "Projection=HE5_GCTP_SNSOID",
            f"ProjParams=({SPHERE_RADIUS:.6f},0,0,0,0,0,0,0,0,0,0,0,0)",
            f"END_GROUP=GRID_{number}",
        ]
    lines += ["END_GROUP=GridStructure", "END"]
    state = np.arange(SIDE * SIDE // 4).reshape(SIDE // 2, SIDE // 2).astype(np.uint16)
    with h5py.File(path, "w") as file:
        file.create_group("HDFEOS INFORMATION")
        file["HDFEOS INFORMATION"]["StructMetadata.0"] = np.bytes_("\n".join(lines))
        fine = file.create_group("HDFEOS/GRIDS/Fine/Data Fields")
        height = fine.create_dataset("Height", data=smooth(TILE))
        height.attrs["_FillValue"] = np.array([FILL], np.int16)
        file.create_group("HDFEOS/GRIDS/Coarse/Data Fields").create_dataset("State_1km", data=state)


@pytest.fixture(scope="module")
def viirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viirs") / "VNP99A1.A2012065.h14v04.002.2012153130500.h5"
    hdf5_tile(path)
    return path


def test_the_command_opens_an_hdf5_tile(viirs: Path, tmp_path: Path) -> None:
    needs_gdal("HDF5")
    grid = target("EPSG:4326", 0.0333, BOX)
    mine, answer = explained(viirs, "Height", grid, Options(resampling="bilinear"), tmp_path)
    inner = away_from_edges(grid, 4)
    assert np.abs(mine - run_line(answer, tmp_path))[inner].max() <= 1


def test_without_granules_there_is_no_command_but_a_reason(hills: Path, tmp_path: Path) -> None:
    grid = target("EPSG:4326", 0.1, BOX)
    write_cog(reproject([hills], "Height", grid, Options()), tmp_path / "ours.tif")
    answer = explain(tmp_path / "ours.tif", -50.0, 45.0)
    assert answer.gdalwarp == ""
    assert answer.gdalwarp_note == f"to see the command, name where {hills.name} can be found"
    assert [line for line in lines_of(answer) if line.startswith("gdalwarp")] == [
        f"gdalwarp   {answer.gdalwarp_note}"
    ]


def test_the_qa_layer_that_failed_a_pixel_is_shown(viirs: Path, tmp_path: Path) -> None:
    grid = target("EPSG:4326", 0.0333, BOX)
    options = Options(resampling="nearest", qa=QA_RULE, extra_bands=("reason",))
    found = reproject([viirs], "Height", grid, options)
    write_cog(found, tmp_path / "ours.tif")
    failed = np.argwhere(found.data[1] == Reason.QA)
    assert len(failed)
    left, _, _, top = grid.bounds
    for row, column in failed[:: len(failed) // 3]:
        lon, lat = left + (column + 0.5) * 0.0333, top - (row + 0.5) * 0.0333
        origin = explain(tmp_path / "ours.tif", lon, lat, granules=[viirs]).origin
        assert origin is not None
        assert origin.reason == "the nearest source pixel fails the QA rule"
        (quality,) = origin.quality
        assert quality.layer == "State_1km"
        number = (origin.row // 2) * (SIDE // 2) + origin.column // 2
        assert quality.stored == number
        assert number & 3


@pytest.mark.real_data
def test_a_coarser_qa_layer_of_a_real_granule_is_decoded(granules: Path, tmp_path: Path) -> None:
    (granule,) = (granules / "l3-tiles" / "MOD09GA").glob("*.hdf")
    grid = Lattice(crs="EPSG:3031", resolution=500.0).snap((-90e3, -1075e3, -80e3, -1060e3))
    options = Options(qa={"state_1km_1": {"Cloud": [0]}}, extra_bands=("reason",))
    found = reproject([granule], "sur_refl_b01_1", grid, options)
    write_cog(found, tmp_path / "ours.tif")
    lon, lat = -175.49123992695246, -80.10136031358144
    origin = explain(tmp_path / "ours.tif", lon, lat, granules=[granule]).origin
    assert origin is not None
    by_layer = {quality.layer: quality for quality in origin.quality}
    assert list(by_layer) == ["QC_500m_1", "state_1km_1"]
    cloud = next(one for one in by_layer["state_1km_1"].fields if one.name == "Cloud")
    assert (cloud.value, cloud.meaning) == (1, "cloudy")
