"""The phases on real granules, one after the other, without processes or servers."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import rasterio
import xarray
from pyhdf.SD import SD
from zarr.storage import ZipStore

import worker.cube
from reprojection.grids import modis_tile_grid
from tasks import protocol
from tasks.blobs import split_blob
from tasks.categories import Category
from tasks.model import ArtifactFile
from tasks.packages import Packages, pack
from tasks.services import memory_services
from tasks.settings import Settings
from tasks.spec import (
    Band,
    CollectSpec,
    CubeSpec,
    GridSpec,
    GroupSpec,
    Input,
    MosaicSpec,
    ReduceSpec,
    ReprojectSpec,
    Spec,
)
from tasks.transitions import RetryPolicy
from tests.worker.world import World, collect_spec
from worker.child import perform
from worker.collect import check_granule
from worker.messages import Failed, Job, Succeeded

pytestmark = pytest.mark.real_data

DATES = ("001", "009", "017")


class Mill:
    """Runs tasks by the child's own code, in this process."""

    def __init__(self, folder: Path, archive: Path) -> None:
        self.world = World(services=memory_services())
        self.settings = Settings(data_dir=folder, archive=str(archive), attempt_memory_gb=64)
        self.folder = folder
        self.scratch = folder / "scratch"
        self.archive = archive

    def attempt(self, spec: Spec, name: str = "") -> Succeeded | Failed:
        """Claim and perform, and write the end into the table."""
        services = self.world.services
        key = self.world.plan(spec)
        claimed = protocol.claim(services, key, "worker", RetryPolicy())
        assert claimed is not None
        scratch = self.scratch / (name or claimed.claim)
        scratch.mkdir(parents=True)
        job = Job(
            key=key,
            claim=claimed.claim,
            spec=claimed.spec,
            inputs=claimed.input_files,
            scratch=scratch,
            cache=self.folder / "cache",
            settings=self.settings,
            sandbox="limits",
        )
        said = perform(job, lambda *_: None, lambda _: services.blobs)
        if isinstance(said, Succeeded):
            attempt = claimed.attempt(started=0, ended=1, duration=1)
            assert protocol.commit(services, attempt, said.files)
        return said

    def make(self, spec: Spec) -> tuple[ArtifactFile, ...]:
        said = self.attempt(spec)
        assert isinstance(said, Succeeded), said
        return said.files

    def fetch(self, file: ArtifactFile) -> Path:
        to = self.folder / file.sha256
        self.world.services.blobs.get_file(*split_blob(file.blob), to, file.sha256)
        return to


@pytest.fixture
def mill(tmp_path: Path, granules: Path) -> Mill:
    return Mill(tmp_path, granules)


def grid_spec() -> GridSpec:
    grid = modis_tile_grid(17, 3, 1000)
    return GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height)


def granule(archive: Path, pattern: str) -> Path:
    found = sorted(archive.rglob(pattern))
    assert found, pattern
    return found[0]


def leaf_area(archive: Path, day: str) -> CollectSpec:
    path = granule(archive, f"MCD15A2.A2012{day}.h17v03.005.*.hdf")
    return collect_spec(path, archive, "MCD15A2", "5")


def cell(granule: CollectSpec, layer: str, day: date) -> ReprojectSpec:
    return ReprojectSpec(
        inputs=(Input(key=granule.key, name=granule.granule),),
        product="MCD15A2",
        collection="5",
        layer=layer,
        day=day,
        grid=grid_spec(),
        resampling="nearest",
    )


def test_a_month_of_leaf_area_from_archive_to_monthly_mean(mill: Mill) -> None:
    bands, cells = [], []
    for layer in ("Lai_1km", "Fpar_1km"):
        for day in DATES:
            collected = leaf_area(mill.archive, day)
            if layer == "Lai_1km":
                (file,) = mill.make(collected)
                assert file.blob.startswith(f"granules/{collected.key}/")
                assert file.size == collected.size
            when = date(2012, 1, int(day))
            spec = cell(collected, layer, when)
            (made,) = mill.make(spec)
            assert made.name == "cell.tif"
            cells.append((Input(key=spec.key), made))
            bands.append(
                Band(
                    product="MCD15A2",
                    collection="5",
                    layer=layer,
                    day=when,
                    cell="h17v03",
                    weight=0.5 if day == "001" else 1.0,
                )
            )
    group = GroupSpec(
        inputs=tuple(given for given, _ in cells),
        group="h17v03 2012-01",
        cell="h17v03",
        window="2012-01",
        grid=grid_spec(),
        bands=tuple(bands),
    )
    files = {file.name: file for file in mill.make(group)}
    assert set(files) == {"manifest.json", "Lai_1km.tif", "Fpar_1km.tif"}
    manifest = json.loads(mill.fetch(files["manifest.json"]).read_text("utf-8"))
    assert [b["band"] for b in manifest["bands"] if b["file"] == "Lai_1km.tif"] == [1, 2, 3]
    with rasterio.open(mill.fetch(files["Lai_1km.tif"])) as stack:
        assert stack.descriptions == ("2012-01-01", "2012-01-09", "2012-01-17")
        stored, scale, nodata = stack.read(), stack.scales[0], stack.nodata
    for n, day in enumerate(DATES):
        raw = SD(str(granule(mill.archive, f"MCD15A2.A2012{day}.h17v03*.hdf"))).select("Lai_1km")
        pixels = raw.get()
        # The group's grid is the granules' own, so the stack is what is stored, less the codes.
        assert np.array_equal(stored[n], np.where(pixels <= 100, pixels, nodata))

    archive = pack(Packages.of(mill.settings).find("monthly-mean").folder)
    mill.world.put_package(archive)
    reduction = ReduceSpec(
        inputs=(Input(key=group.key),),
        package="monthly-mean",
        digest=archive.digest,
        outputs=("Lai_1km_mean.tif", "Fpar_1km_mean.tif"),
    )
    outputs = mill.make(reduction)
    assert [file.name for file in outputs] == ["Lai_1km_mean.tif", "Fpar_1km_mean.tif"]
    values = np.where(stored == nodata, np.nan, stored * scale)
    weights = np.array([0.5, 1, 1])[:, None, None] * ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        expected = np.nansum(values * weights, axis=0) / weights.sum(axis=0)
    with rasterio.open(mill.fetch(outputs[0])) as mean:
        found = mean.read(1)
        assert mean.descriptions == ("Lai_1km mean 2012-01",)
        assert np.isnan(mean.nodata)
    assert np.isfinite(found).mean() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-6)

    mosaic = MosaicSpec(
        inputs=(Input(key=reduction.key, file="Lai_1km_mean.tif"),),
        name="Lai_1km_mean.2012-01",
        grid=grid_spec(),
    )
    image, item = mill.make(mosaic)
    assert image.name == "Lai_1km_mean.2012-01.tif"
    said = json.loads(mill.fetch(item).read_text("utf-8"))
    assert said["properties"]["start_datetime"] == "2012-01-01T00:00:00Z"
    assert len(said["properties"]["swathmill:granules"]) == 3
    assert said["properties"]["swathmill:parameters"]["package"] == "monthly-mean"
    with rasterio.open(mill.fetch(image)) as dataset:
        np.testing.assert_array_equal(dataset.read(1), found)


def test_equal_keys_give_equal_bytes(granules: Path, tmp_path: Path) -> None:
    collected = leaf_area(granules, "001")
    spec = cell(collected, "Lai_1km", date(2012, 1, 1))
    sums = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        other = Mill(tmp_path / name, granules)
        other.make(collected)
        sums.add(other.make(spec)[0].sha256)
    assert len(sums) == 1


def test_cells_become_one_cog_with_overviews(mill: Mill) -> None:
    collected = leaf_area(mill.archive, "001")
    mill.make(collected)
    spec = cell(collected, "Lai_1km", date(2012, 1, 1))
    mill.make(spec)
    grid = grid_spec()
    mosaic = MosaicSpec(
        inputs=(Input(key=spec.key, file="cell.tif"),), name="Lai_1km.2012-01-01", grid=grid
    )
    files = mill.make(mosaic)
    with rasterio.open(mill.fetch(files[0])) as dataset:
        assert dataset.overviews(1)
        assert (dataset.width, dataset.height) == (grid.width, grid.height)


@pytest.mark.parametrize("form", ["netcdf", "zarr"])
def test_dates_become_one_cube_with_equal_bytes(
    mill: Mill, form: Literal["netcdf", "zarr"], tmp_path: Path
) -> None:
    inputs, days = [], []
    for number, name in ((9, "009"), (1, "001")):
        collected = leaf_area(mill.archive, name)
        mill.make(collected)
        days.append(date(2012, 1, number))
        spec = cell(collected, "Lai_1km", days[-1])
        mill.make(spec)
        inputs.append(Input(key=spec.key, file="cell.tif"))
    made = CubeSpec(
        inputs=tuple(inputs), name="Lai_1km", form=form, grid=grid_spec(), days=tuple(days)
    )
    (file,) = mill.make(made)
    assert file.name == {"netcdf": "Lai_1km.nc", "zarr": "Lai_1km.zarr.zip"}[form]
    path = tmp_path / file.name
    path.write_bytes(mill.fetch(file).read_bytes())
    if form == "netcdf":
        dataset = xarray.open_dataset(path, engine="netcdf4")
    else:
        dataset = xarray.open_zarr(ZipStore(path, mode="r"), chunks=None)
    with dataset as opened:
        assert [str(when)[:10] for when in opened.time.values] == ["2012-01-01", "2012-01-09"]
        values = opened["Lai_1km"].values
    for plane, given in zip(values, reversed(inputs), strict=True):
        (raster,) = mill.world.task(given.key).files
        with rasterio.open(mill.fetch(raster)) as dataset:
            stored, nodata = dataset.read(1), dataset.nodata
            expected = np.where(stored == nodata, np.nan, stored * dataset.scales[0])
        np.testing.assert_allclose(plane, expected, atol=1e-6)
    time.sleep(1.1)  # HDF5 and zip note times to the second, if they do
    (tmp_path / "again").mkdir()
    rasters = [mill.fetch(*mill.world.task(given.key).files) for given in inputs]
    again = worker.cube.write(made, rasters, days, tmp_path / "again")
    assert again.read_bytes() == path.read_bytes()


def failure(mill: Mill, spec: Spec) -> Failed:
    said = mill.attempt(spec)
    assert isinstance(said, Failed), said
    return said


def test_a_missing_source_heals_by_its_bit(mill: Mill) -> None:
    collected = leaf_area(mill.archive, "001")
    (file,) = mill.make(collected)
    mill.world.services.blobs.delete(*split_blob(file.blob))
    for entry in (mill.folder / "cache" / "entries").glob("*/*"):
        entry.unlink()
    said = failure(mill, cell(collected, "Lai_1km", date(2012, 1, 1)))
    assert said.category is Category.SOURCE_BLOB_MISSING
    assert said.healing == 1


def test_a_blob_that_is_not_what_was_recorded_is_corrupt(mill: Mill) -> None:
    collected = leaf_area(mill.archive, "001")
    path = granule(mill.archive, "MCD15A2.A2012009.h17v03*.hdf")
    stored = mill.world.services.blobs.put_file("granules", "other", path)
    wrong = ArtifactFile(name=path.name, blob="granules/other", size=stored.size, sha256="0" * 64)
    mill.world.done(collected, [wrong])
    said = failure(mill, cell(collected, "Lai_1km", date(2012, 1, 1)))
    assert said.category is Category.CORRUPT_BLOB_READ


def test_a_layer_the_granule_lacks_is_unreadable_input(mill: Mill) -> None:
    collected = leaf_area(mill.archive, "001")
    mill.make(collected)
    said = failure(mill, cell(collected, "Nonesuch", date(2012, 1, 1)))
    assert said.category is Category.UNREADABLE_INPUT_FILE
    assert "Lai_1km" in said.message


def archive_with(tmp_path: Path, name: str, data: bytes) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / name).write_bytes(data)
    return folder


NAME = "MCD15A2.A2012001.h17v03.005.2012017211237.hdf"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_granule_is_unreadable(tmp_path: Path, granules: Path, share: float) -> None:
    data = granule(granules, "MCD15A2.A2012001.h17v03*.hdf").read_bytes()
    archive = archive_with(tmp_path, NAME, data[: int(len(data) * share)])
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5")
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.UNREADABLE_INPUT_FILE, said


@pytest.mark.parametrize("data", [b"<!DOCTYPE html><html>Sign in</html>", b"", b"\x0e\x03"])
def test_what_is_not_hdf_is_a_bad_image_format(tmp_path: Path, data: bytes) -> None:
    archive = archive_with(tmp_path, NAME, data)
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5")
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.BAD_IMAGE_FORMAT, said


def test_a_granule_that_vanished_is_not_published(tmp_path: Path) -> None:
    archive = archive_with(tmp_path, NAME, b"x")
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5")
    (archive / NAME).unlink()
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.SOURCE_NOT_PUBLISHED


def test_a_granule_unlike_its_record_is_a_failed_download(tmp_path: Path) -> None:
    archive = archive_with(tmp_path, NAME, b"xyz")
    spec = collect_spec(archive / NAME, archive, "MCD15A2", "5").model_copy(update={"size": 4})
    said = failure(Mill(tmp_path / "mill", archive), spec)
    assert said.category is Category.DOWNLOAD_FAILED


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "swathmill-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_out_of_disk_and_no_mystery(granules: Path, small_disk: Path) -> None:
    collected = leaf_area(granules, "001")
    assert 600_000 < collected.size < 2_000_000, "the test needs a granule that nearly fills it"
    mill = Mill(small_disk, granules)
    (small_disk / "ballast").write_bytes(bytes(2 * 2**20 - 300_000))
    said = failure(mill, collected)
    assert said.category is Category.OUT_OF_DISK, said
    assert not list((small_disk / "cache" / "entries").glob("*/*"))


def test_a_disk_that_fills_while_gdal_writes(
    granules: Path, small_disk: Path, tmp_path: Path
) -> None:
    mill = Mill(tmp_path / "mill", granules)
    collected = leaf_area(granules, "001")
    mill.make(collected)
    mill.scratch = small_disk / "scratch"
    room = (collected.size // 4096 + 2) * 4096  # for the granule, and too little for the cell
    (small_disk / "ballast").write_bytes(bytes(2 * 2**20 - room))
    spec = cell(collected, "Lai_1km", date(2012, 1, 1))
    said = failure(mill, spec)
    assert said.category is Category.OUT_OF_DISK, said
    assert list(small_disk.rglob("cell")), "not even the granule had room"


def test_every_real_granule_passes_the_checks_of_collection(granules: Path) -> None:
    found = sorted(granules.rglob("*.hdf"))
    assert found
    for path in found:
        check_granule(path)


def test_a_swath_without_geolocation_is_collected_and_then_unreadable(mill: Mill) -> None:
    path = granule(mill.archive, "MOD14.A2017001.*.hdf")
    collected = collect_spec(path, mill.archive, "MOD14", "6")
    mill.make(collected)
    spec = ReprojectSpec(
        inputs=(Input(key=collected.key, name=path.name),),
        product="MOD14",
        collection="6",
        layer="fire mask",
        day=date(2017, 1, 1),
        grid=grid_spec(),
        resampling="nearest",
    )
    said = failure(mill, spec)
    assert said.category is Category.UNREADABLE_INPUT_FILE, said
