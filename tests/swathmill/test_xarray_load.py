"""`swathmill.load`: the pixels of requests, block by block, onto any grid that says itself."""

import gc
import io
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array
import numpy as np
import odc.geo.xr  # noqa: F401
import pytest
import rasterio
import shapely
import xarray as xr

import reprojection.read.kept
from archives.model import GranuleRecord
from reprojection.catalogue import product
from reprojection.catalogue.layers import Layer
from reprojection.errors import (
    ChoiceRefusedError,
    GridError,
    ReprojectionError,
    UnknownLayerError,
)
from reprojection.grid.grids import Grid, Lattice, modis_lattice
from reprojection.read.granule import Granule, open_granule
from reprojection.reproject import Options, reproject
from swathmill import FoundGranules, load, search
from swathmill.xarray.cells import Cells
from tests.generated.products import write_product
from worker.phases.reproject import Cell, cell_pixels, write_cell

LATTICE = Lattice(crs="EPSG:4326", resolution=0.05, cell_size=128)
BOX = (-8.0, 50.5, 6.0, 58.5)
GRID = LATTICE.snap(BOX)
DEPTH = "Optical_Depth_Land_And_Ocean"


@pytest.fixture(scope="module")
def tiles(sample_archive: Path) -> list[Path]:
    """Two tiles of three dates."""
    return sorted(sample_archive.rglob("MCD15A2.A2012[01][0-9]5*.hdf"))


@pytest.fixture(scope="module")
def swaths(sample_archive: Path) -> list[Path]:
    return sorted(sample_archive.rglob("MYD04_L2.*.hdf"))


@pytest.fixture(autouse=True, scope="module")
def _nothing_stays() -> Iterator[None]:
    """Nothing of a dataset stays when it is gone, whatever became of it."""
    gc.collect()
    yield
    gc.collect()
    assert reprojection.read.kept._STORE._keepings == []
    assert reprojection.read.kept._STORE.open_files == 0


@pytest.fixture(autouse=True)
def _one_thread_at_a_time() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def days_of(paths: list[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(path.name.split(".")[1][1:], []).append(path)
    return found


def requested(paths: list[Path], layer: str, grid: Grid, options: Options, to: Path) -> np.ndarray:
    """A cell as a worker makes it for a request, as it is in the file."""
    name = paths[0].name.split(".")
    cell = Cell(
        product=name[0],
        collection=str(int(name[-3])),
        layer=layer,
        day=date(2012, 1, 1),
        grid=grid,
        options=options,
    )
    write_cell(cell_pixels(cell, paths), to)
    with rasterio.open(to) as opened:
        return np.asarray(opened.read())


def in_cell(found: xr.DataArray, grid: Grid) -> tuple[np.ndarray, tuple[slice, slice]]:
    """What a dataset has of a cell, and where in the cell that lies."""
    west, south, east, north = grid.bounds
    part = found.sel(x=slice(west, east), y=slice(north, south))
    left = round((float(part.x[0]) - west) / grid.transform[0] - 0.5)
    top = round((north - float(part.y[0])) / grid.transform[0] - 0.5)
    return part.values, (slice(top, top + part.y.size), slice(left, left + part.x.size))


@pytest.mark.parametrize(
    "options",
    [Options(qa="good"), Options(units="physical", resampling="cubic", clamp=True)],
    ids=["stored", "physical"],
)
def test_blocks_of_tiles_are_the_cells_of_a_request(
    tiles: list[Path], options: Options, tmp_path: Path
) -> None:
    found = load(tiles, "Lai_1km", GRID, options=options, cell_size=128).Lai_1km
    assert found.shape == (len(days_of(tiles)), 160, 280)
    assert found.chunks == ((1,) * found.shape[0], (18, 128, 14), (32, 128, 120))
    for number, paths in list(enumerate(days_of(tiles).values()))[1:2]:
        for place in LATTICE.cells(GRID)[3:6]:
            cell = LATTICE.cell_grid(*place)
            made = requested(paths, "Lai_1km", cell, options, tmp_path / "cell.tif")[0]
            values, inside = in_cell(found[number], cell)
            assert values.dtype == made.dtype
            assert values.tobytes() == np.ascontiguousarray(made[inside]).tobytes()
            assert values.size


def test_blocks_of_swaths_are_the_cells_of_a_request(swaths: list[Path], tmp_path: Path) -> None:
    options = Options(resampling="average", extra_bands=("source",))
    found = load(swaths, DEPTH, GRID, options=options, cell_size=128)
    first = next(iter(days_of(swaths).values()))
    assert len(first) == 4
    for place in LATTICE.cells(GRID)[2:6]:
        cell = LATTICE.cell_grid(*place)
        made = requested(first, DEPTH, cell, options, tmp_path / "cell.tif")
        for band, name in enumerate((DEPTH, f"{DEPTH}_source")):
            values, inside = in_cell(found[name][0], cell)
            assert values.tobytes() == np.ascontiguousarray(made[band][inside]).tobytes()
    assert str(found.granules.values[0]).split() == [path.name for path in first]


def test_layers_of_swaths_follow_the_first_as_in_a_request(swaths: list[Path]) -> None:
    other = "Image_Optical_Depth_Land_And_Ocean"
    with open_granule(swaths[0]) as granule:
        other = (
            other
            if other in granule.layers
            else next(
                name
                for name in granule.layers
                if granule.layers[name].shape == (203, 135)
                and name not in (DEPTH, "Latitude", "Longitude")
                and not granule.layers[name].bands
            )
        )
    found = load(swaths, [DEPTH, other], GRID)
    made = found[other].encoding["swathmill_options"]
    assert made.driver.layer == DEPTH
    assert found[DEPTH].encoding["swathmill_options"].driver is None


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The granules of which a layer is decoded, as it is."""
    names: list[str] = []
    plain = Granule.read

    def counted(granule: Granule, layer: Layer | str) -> np.ndarray:
        names.append(granule.path.name)
        return plain(granule, layer)

    monkeypatch.setattr(Granule, "read", counted)
    return names


def test_it_is_made_of_the_granules_that_touch_a_block(tiles: list[Path], read: list[str]) -> None:
    found = load(tiles, "Lai_1km", GRID, options=Options(resampling="nearest"), cell_size=40)
    assert not read
    west = found.Lai_1km[1].sel(x=slice(-7.9, -6.1), y=slice(53.9, 52.1)).values
    east = found.Lai_1km[0].sel(x=slice(4.1, 5.9), y=slice(53.9, 52.1)).values
    assert west.size
    assert east.size
    days = list(days_of(tiles).values())
    assert read == [days[1][0].name, days[0][1].name]


def test_the_method_is_chosen_for_the_whole_grid(tiles: list[Path]) -> None:
    """Towards the pole pixels of degrees are smaller: blocks would differ in what is coarser."""
    grid = Lattice(crs="EPSG:4326", resolution=0.0255).snap((-9.0, 50.0, 0.0, 60.0))
    found = load(tiles[:1], "FparLai_QC", grid, cell_size=256).FparLai_QC
    whole = reproject(tiles[0], "FparLai_QC", grid, Options())
    chosen = dict(whole.provenance.parameters)["resampling"]
    assert found.encoding["swathmill_options"].resampling == chosen
    assert np.array_equal(found[0].values, whole.data[0])


def test_where_no_granule_lies_nothing_is_opened(
    tiles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = Lattice(crs="EPSG:4326", resolution=0.1).snap((-60.0, -10.0, 6.0, 58.5))
    found = load(tiles[:2], "Lai_1km", wide, options=Options(resampling="nearest"), cell_size=128)
    monkeypatch.setattr(reprojection.read.kept, "open_granule", None)
    held = found.Lai_1km[0].sel(y=slice(20, -10))
    assert (held.values == held.attrs["_FillValue"]).all()


def test_neighbouring_blocks_decode_a_granule_once(tiles: list[Path], read: list[str]) -> None:
    """What they share is kept while the dataset is there, in this process, and no longer."""
    store = reprojection.read.kept._STORE
    found = load(tiles[:2], "Lai_1km", GRID, cell_size=64)
    found.Lai_1km[:, :64].compute()
    assert sorted(read) == [path.name for path in tiles[:2]]
    found.Lai_1km[:, :96].compute()
    assert len(read) == 2
    assert store.held > 0
    del found
    gc.collect()
    assert (store.held, store.open_files) == (0, 0)


def test_a_date_is_forgotten_when_its_last_block_was_made(
    tiles: list[Path], read: list[str]
) -> None:
    """So memory does not grow with dates and layers."""
    store = reprojection.read.kept._STORE
    options = Options(resampling="nearest", units="physical")
    found = load(tiles, ["Lai_1km", "Fpar_1km"], GRID, options=options, cell_size=64)
    held: list[tuple[int, int]] = []
    with dask.callbacks.Callback(posttask=lambda *_: held.append((store.held, store.open_files))):
        for _ in range(2):
            for name in ("Lai_1km", "Fpar_1km"):
                found[name].compute()
    assert sorted(read) == sorted(4 * [path.name for path in tiles])
    one_date = 2 * 1200 * 1200
    assert max(size for size, _ in held) == one_date
    assert held[-1] == (0, 0)


_STORED = """
import sys, dask, dask.array
from pathlib import Path
from swathmill import Lattice, Options, load
from bench.turns import peak_mib

class Sink:
    def __setitem__(self, at, pixels):
        pass

dask.config.set(scheduler="synchronous")
grid = Lattice(crs="EPSG:4326", resolution=0.002).snap((-8.0, 52.0, 6.0, 58.5))
options = Options(resampling="nearest", units="physical")
found = load([Path(one) for one in sys.argv[1:]], ["Lai_1km", "Fpar_1km"], grid, options=options)
before = peak_mib()
dask.array.store([found.Lai_1km.data, found.Fpar_1km.data], [Sink(), Sink()], lock=False)
print(peak_mib() - before, found.Lai_1km.nbytes / 2**20)
"""


@pytest.mark.proof
def test_memory_does_not_grow_with_the_dates(sample_archive: Path) -> None:
    """A process that hands on each block holds blocks and the tiles of a date."""
    paths = sorted(map(str, sample_archive.rglob("MCD15A2*.hdf")))
    peaks = []
    for dates in (1, 4):
        words = [sys.executable, "-c", _STORED, *paths[: 2 * dates]]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        peak, whole = map(float, done.stdout.split())
        peaks.append(peak)
    assert peak < whole / 4
    assert peaks[1] < peaks[0] + 16.0


def test_swaths_are_forgotten_when_all_layers_were_made(
    swaths: list[Path], read: list[str]
) -> None:
    """Their layers share where the pixels lie, and the first leads the others."""
    store = reprojection.read.kept._STORE
    names = [DEPTH, "Corrected_Optical_Depth_Land[1]"]
    found = load([swaths[1], swaths[3]], names, GRID, cell_size=128)
    found[DEPTH].compute()
    assert store.held > 0
    assert store.open_files == 2
    decoded = len(read)
    found[list(found)[1]].compute()
    assert (store.held, store.open_files) == (0, 0)
    assert len(read) == decoded + 2


def test_a_workers_process_keeps_what_blocks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task brings its own copy, which goes with the task."""
    packed = pickle.dumps(reprojection.read.kept.Keeping(1_000_000))
    assert pickle.loads(packed) is not pickle.loads(packed)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert pickle.loads(packed) is pickle.loads(packed)
    reprojection.read.kept._of_process.cache_clear()


def test_an_area_over_cells_is_as_one(tiles: list[Path]) -> None:
    """A grid on no lattice, too: UTM from an odd corner."""
    odd = Grid(
        crs="EPSG:32630",
        transform=(2500.0, 0.0, 401_234.5, 0.0, -2500.0, 6_301_111.25),
        width=90,
        height=70,
    )
    for grid in (GRID, odd):
        whole = reproject(tiles[:2], "Lai_1km", grid, Options(units="physical"))
        parts = load(tiles[:2], "Lai_1km", grid, cell_size=64).Lai_1km
        assert len(parts.chunks[1]) > 1
        assert np.array_equal(parts[0].values, whole.data[0], equal_nan=True)


def test_the_sinusoidal_grid_is_made_in_tiles(tiles: list[Path]) -> None:
    lattice = modis_lattice(1000)
    grid = lattice.window(-1200 - 7, -7200 + 1, 1300, 900)
    assert Cells(grid, None).columns == (7, 1200, 93)
    assert Cells(grid, None).rows == (900,)
    cells = [one.grid for one in [SimpleNamespace(grid=one) for one in Cells(grid, None).grids]]
    col, row = lattice.index(cells[1])
    assert cells[1].transform == lattice.window(col, row, 1, 1).transform
    found = load(tiles[:2], "Lai_1km", grid, options=Options(resampling="nearest")).Lai_1km
    with open_granule(tiles[0]) as granule:
        stored = granule.read("Lai_1km")
    seen = found[0, :, 7:1207].values
    data = seen != found.attrs["_FillValue"]
    assert np.array_equal(seen[data], stored[1:901][data])
    assert data.any()


def test_grids_of_every_form_are_targets(tiles: list[Path]) -> None:
    wanted = load(tiles[:2], "Lai_1km", GRID)
    profile = {
        "crs": rasterio.CRS.from_epsg(4326),
        "transform": rasterio.Affine(*GRID.transform),
        "width": GRID.width,
        "height": GRID.height,
        "dtype": "float32",
    }
    west, south, east, north = BOX
    polygon = shapely.Polygon([(west, south), (east, south), (0.0, north), (west, south)])
    frame = SimpleNamespace(
        crs="EPSG:4326",
        __geo_interface__={
            "type": "FeatureCollection",
            "features": [{"type": "Feature", "geometry": shapely.geometry.mapping(polygon)}],
        },
    )
    named: dict[str, Any] = {"crs": "EPSG:4326", "resolution": 0.05}
    for arguments in (
        {"target": GRID.geobox},
        {"target": LATTICE.geobox(BOX)},
        {"like": wanted},
        {"like": wanted.Lai_1km},
        {"target": profile},
        {"bounds": BOX, **named},
        {"region": BOX, **named},
        {"region": polygon, **named},
        {"region": frame, **named},
    ):
        found = load(tiles[:2], "Lai_1km", **arguments)
        assert found.odc.geobox == wanted.odc.geobox, arguments
        assert np.array_equal(found.x, wanted.x)


def test_a_block_is_made_in_another_process(tiles: list[Path]) -> None:
    found = load(tiles[:2], "Lai_1km", GRID, cell_size=128)
    again = pickle.loads(pickle.dumps(found.Lai_1km[0, :50, :50]))
    assert np.array_equal(again.values, found.Lai_1km[0, :50, :50].values, equal_nan=True)
    with dask.config.set(scheduler="threads", num_workers=4):
        threads = found.Lai_1km.values
    assert np.array_equal(threads, found.Lai_1km.values, equal_nan=True)


@pytest.mark.proof
def test_a_cluster_of_processes_makes_the_same(tiles: list[Path], swaths: list[Path]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            assert len(client.scheduler_info()["workers"]) == 2
            for paths, layer in ((tiles, "Lai_1km"), (swaths, DEPTH)):
                found = load(paths, layer, GRID, cell_size=128)[layer]
                there = client.compute(found).result()
                assert np.array_equal(there.values, found.values, equal_nan=True)


def test_physical_values_and_attributes(tiles: list[Path], tmp_path: Path) -> None:
    found = load(tiles, ["Lai_1km", "FparLai_QC"], GRID)
    assert found.Lai_1km.dtype == np.float32
    assert found.FparLai_QC.dtype == np.uint8
    assert "flag_masks" in found.FparLai_QC.attrs
    assert found.Lai_1km.attrs["standard_name"] == "leaf_area_index"
    assert [str(one)[:10] for one in found.time.values] == sorted(
        str(np.datetime64("2012-01-01") + int(day[4:]) - 1) for day in days_of(tiles)
    )
    found.isel(time=[0]).to_netcdf(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc", decode_coords="all") as back:
        assert np.array_equal(back.Lai_1km[0], found.Lai_1km[0], equal_nan=True)
        assert back.odc.crs == "EPSG:4326"


def test_a_pixel_is_explained(tiles: list[Path]) -> None:
    found = load(tiles, "Lai_1km", GRID, options=Options(resampling="nearest", units="physical"))
    told = found.swathmill.explain("Lai_1km", -3.205, 55.905, time=str(found.time.values[1]))
    assert told.origin is not None
    assert told.origin.granule in {path.name for path in list(days_of(tiles).values())[1]}
    value = found.Lai_1km[1, told.row, told.column].values.item()
    assert value == pytest.approx(told.value) if told.value is not None else np.isnan(value)
    one = found.isel(time=1).swathmill.explain("Lai_1km", -3.205, 55.905)
    assert one.origin == told.origin
    with pytest.raises(ChoiceRefusedError, match="it has several dates: name one by time"):
        found.swathmill.explain("Lai_1km", -3.205, 55.905)


def test_a_date_without_the_layer_is_empty(tmp_path: Path) -> None:
    known = product("MOD09GA", "61")
    assert known is not None
    paths = [write_product(tmp_path, known, "61", date(2020, 1, day)) for day in (1, 2)]
    found = load(paths, "sur_refl_b01_1", crs="EPSG:4326", resolution=0.5, region=(0, 40, 20, 52))
    assert found.sizes["time"] == 2


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({}, GridError, r"no target grid: give a Grid, a GeoBox, an xarray object \(like=\)"),
        ({"target": LATTICE}, GridError, "a Lattice has no extent"),
        ({"target": GRID, "like": GRID}, GridError, "give one of them"),
        ({"target": GRID, "crs": "EPSG:4326"}, GridError, "give one or the other"),
        ({"target": 7}, GridError, "int is no target grid"),
        ({"target": xr.Dataset()}, GridError, "give it a CRS"),
        ({"crs": "EPSG:4326", "resolution": 1, "region": 3}, GridError, "3 is no region"),
        ({"target": GRID, "layers": "absent"}, UnknownLayerError, "the granule has: Fpar_1km"),
        ({"target": GRID, "layers": []}, ChoiceRefusedError, "no layer was named"),
        ({"target": GRID, "layers": ["a", "a"]}, ChoiceRefusedError, "named twice"),
        ({"target": GRID, "options": {"b": Options()}}, ChoiceRefusedError, "the layers are: Lai"),
        ({"target": GRID, "options": Options(qa="fine")}, ChoiceRefusedError, "fine"),
        ({"target": GRID, "granules": []}, ChoiceRefusedError, "no granule was given"),
        (
            {"target": GRID, "granules": "https://a/b.hdf"},
            ChoiceRefusedError,
            "is not on this machine: fetch it",
        ),
        ({"target": GRID, "granules": 7}, ChoiceRefusedError, "int is no granule"),
    ],
)
def test_what_does_not_fit_is_refused(
    tiles: list[Path], arguments: dict[str, Any], error: type[ReprojectionError], told: str
) -> None:
    given = {"granules": tiles[:2], "layers": "Lai_1km", **arguments}
    with pytest.raises(error, match=told):
        load(given.pop("granules"), given.pop("layers"), **given)


def test_granules_of_two_products_are_refused(tiles: list[Path], swaths: list[Path]) -> None:
    with pytest.raises(ChoiceRefusedError, match="load one at a time"):
        load([*tiles, *swaths], "Lai_1km", GRID)


def test_granules_come_as_others_have_them(tiles: list[Path], tmp_path: Path) -> None:
    wanted = load(tiles[:2], "Lai_1km", GRID).Lai_1km[0].values
    for path in tiles[:2]:
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "notes.hdf").write_text("no granule")

    def item(path: Path) -> SimpleNamespace:
        assets = {
            "metadata": SimpleNamespace(href="https://a/b.xml"),
            "data": SimpleNamespace(href=path.as_uri()),
        }
        return SimpleNamespace(id=path.stem, assets=assets)

    for given in (tmp_path, [item(path) for path in tiles[:2]], map(str, tiles[:2])):
        found = load(given, "Lai_1km", GRID).Lai_1km[0].values
        assert np.array_equal(found, wanted, equal_nan=True)
    with pytest.raises(ChoiceRefusedError, match="has no asset in HDF"):
        load(SimpleNamespace(id="a", assets={}), "Lai_1km", GRID)
    with pytest.raises(ChoiceRefusedError, match=r"earthaccess.download\(results, folder\)"):
        load([SimpleNamespace(data_links=list)], "Lai_1km", GRID)


def test_what_is_elsewhere_is_fetched_into_a_folder(
    tiles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(results: list[SimpleNamespace], folder: str) -> list[str]:
        return [shutil.copy(one.path, folder) for one in results]

    monkeypatch.setitem(sys.modules, "earthaccess", SimpleNamespace(download=download))
    result = SimpleNamespace(data_links=list, path=tiles[0])
    remote = io.BytesIO(tiles[1].read_bytes())
    remote.path = f"bucket/{tiles[1].name}"  # type: ignore[attr-defined]
    folder = tmp_path / "granules"
    found = load([result, remote], "Lai_1km", GRID, folder=folder)
    assert {path.name for path in folder.iterdir()} == {path.name for path in tiles[:2]}
    wanted = load(tiles[:2], "Lai_1km", GRID)
    assert np.array_equal(found.Lai_1km, wanted.Lai_1km, equal_nan=True)
    with pytest.raises(ChoiceRefusedError, match="name a folder to copy it into"):
        load([io.BytesIO(b"")], "Lai_1km", GRID)


def test_what_a_search_found_is_loaded(tiles: list[Path], tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for path in tiles:
        (archive / path.name).symlink_to(path)
    days = ("2012-03-01", date(2012, 4, 20))
    found = search("MCD15A2", (-8.0, 50.5, -7.0, 51.0), days, archive=archive)
    assert [record.name for record in found] == [tiles[0].name, tiles[2].name]
    assert "2 granules" in repr(found)
    assert found[0].start_day == date(2012, 3, 5)
    assert found.paths() == [archive / record.name for record in found]
    loaded = load(found[1:], "Lai_1km", GRID)
    assert loaded.granules.values.tolist() == [tiles[2].name]
    # Of an archive on the network the files are elsewhere.
    sources: Any = SimpleNamespace(path_of=lambda _: None, fetch=copied)
    far = FoundGranules(found.records[:2], sources)
    copied.calls.clear()
    with pytest.raises(ChoiceRefusedError, match=r"load\(..., folder=...\)"):
        far.paths()
    for _ in range(2):
        paths = far.paths(tmp_path / "far")
    assert copied.calls == [record.name for record in far]
    assert [path.name for path in paths] == copied.calls
    nothing = search("MCD15A2", None, "2001-01-01", archive=archive)
    assert len(nothing) == 0
    with pytest.raises(ChoiceRefusedError, match="no granule was given"):
        load(nothing, "Lai_1km", GRID)


class Copied:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, record: GranuleRecord, to: Path) -> None:
        self.calls.append(record.name)
        to.write_bytes(bytes(record.size))


copied = Copied()


@pytest.mark.parametrize("time", ["", "spring", "2012-02-01..2012-01-01", ("2012-01-01",) * 3])
def test_a_search_wants_days(time: Any) -> None:
    with pytest.raises(ChoiceRefusedError, match="days: "):
        search("MCD15A2", None, time, archive="absent")
