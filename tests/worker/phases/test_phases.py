"""The phases on real granules, one after the other, without processes or servers."""

import hashlib
import json
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import rasterio
import xarray
from pyhdf.SD import SD
from zarr.storage import ZipStore

import reprojection.write.mosaic
import worker.phases.cube
from modis.composites import Counted
from reprojection.write import write
from tasks.bag.absence import Absent
from tasks.bag.spec import (
    CubeSpec,
    GroupSpec,
    Input,
    LayerSpec,
    MosaicSpec,
    RasterSpec,
    ReduceSpec,
)
from tasks.packages.packages import SHIPPED, load_package, pack
from tasks.spec_parts import Band
from tests.worker.mill import Mill, cell, granule, grid_spec, leaf_area
from tests.worker.world import collect_spec
from worker.phases.collect import check_granule

pytestmark = pytest.mark.real_data

MEAN = SHIPPED / "monthly-mean"
DATES = ("001", "009", "017")
TRIANGLE = '{"type": "Polygon", "coordinates": [[[-4, 51], [4, 51], [0, 58], [-4, 51]]]}'


@pytest.fixture
def mill(tmp_path: Path, granules: Path) -> Mill:
    return Mill(tmp_path, granules, files=True)


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
                    counted=Counted(4, 0.5, 4.0) if day == "001" else Counted(8, 1.0, 8.0),
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
    assert set(files) == {"manifest.json", "lineage.json", "Lai_1km.tif", "Fpar_1km.tif"}
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

    archive = pack(MEAN)
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
    weights = np.array([4, 8, 8])[:, None, None] * ~np.isnan(values)
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
        provenance = json.loads(dataset.tags()["SWATHMILL"])["provenance"]
    # What was done to each input is said, as the input's own raster says it.
    lineage = provenance["lineage"]
    with rasterio.open(mill.fetch(cells[0][1])) as first:
        own = json.loads(first.tags()["SWATHMILL"])["provenance"]
    assert lineage["layers"][0]["parameters"] == own["parameters"]
    assert lineage["layers"][0]["operation"] == own["operation"]
    assert [one["layer"] for one in lineage["layers"]] == ["Lai_1km", "Fpar_1km"]
    for one in (*provenance["granules"], *provenance["beside"]):
        path = granule(mill.archive, one["name"])
        assert one["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    (window,) = lineage["windows"]
    assert window["counts"] == [
        [number, [4, 0.5, 4.0] if number in (0, 3) else [8, 1.0, 8.0]] for number in range(6)
    ]
    (step,) = lineage["steps"]
    assert step["sha256"] == archive.digest
    assert [step["package"], step["version"]] == ["monthly-mean", load_package(MEAN).version]


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


def test_a_mosaic_larger_than_memory_may_be_is_written_by_stripes(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = leaf_area(mill.archive, "001")
    mill.make(collected)
    spec = cell(collected, "Lai_1km", date(2012, 1, 1))
    mill.make(spec)
    given = Input(key=spec.key, file="cell.tif")
    bytes_of_one = spec.grid.pixels
    for name, most, other in (
        ("whole", bytes_of_one, "write_stripes"),
        ("striped", bytes_of_one - 1, "write_result"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(reprojection.write.mosaic, "WHOLE_BYTES", most)
            patch.setattr(reprojection.write.mosaic, other, None)
            assert mill.make(MosaicSpec(inputs=(given,), name=name, grid=spec.grid))


@pytest.mark.parametrize("clip", ["", TRIANGLE])
@pytest.mark.parametrize("swath", [False, True])
@pytest.mark.parametrize("striped", [False, True])
def test_a_raster_without_a_cell_is_that_of_its_cell_byte_by_byte(
    striped: bool, swath: bool, clip: str, mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks is the same, too; and so it is where that is written by stripes."""
    if striped:
        monkeypatch.setattr(reprojection.write.mosaic, "WHOLE_BYTES", 0)
        monkeypatch.setattr(write, "STRIPE_BYTES", 0)
    bands = ("source", "reason")
    lacks = (Absent(part="h18v03", what="MCD15A2.005 2012-01-01 h18v03", why="not in the archive"),)
    spec = cell(leaf_area(mill.archive, "001"), "Lai_1km", date(2012, 1, 1))
    collected = [leaf_area(mill.archive, "001")]
    if swath:
        found = sorted(mill.archive.rglob("MYD04_L2*.hdf"))
        collected = [collect_spec(path, mill.archive, "MYD04_L2", "61") for path in found[:3]]
        update = {
            "inputs": tuple(Input(key=one.key, name=one.granule) for one in collected),
            "product": "MYD04_L2",
            "collection": "61",
            "layer": "Optical_Depth_Land_And_Ocean",
        }
        spec = spec.model_copy(update=update)
    for one in collected:
        mill.make(one)
    spec = spec.model_copy(update={"extra_bands": bands, "missing": lacks})
    (small,) = mill.make(spec)
    name = "MCD15A2.005.Lai_1km.2012-01-01"
    mosaic = MosaicSpec(
        inputs=(Input(key=spec.key, file="cell.tif"),),
        name=name,
        grid=spec.grid,
        clip=clip,
        day=spec.day,
    )
    common: dict[str, Any] = {one: getattr(spec, one) for one in LayerSpec.model_fields}
    raster = RasterSpec(**common, name=name, clip=clip)
    wanted, alone = mill.make(mosaic), mill.make(raster)
    assert small.completeness.missing
    for made, other in zip(wanted, alone, strict=True):
        assert (made.name, made.sha256, made.size) == (other.name, other.sha256, other.size)
        assert (made.completeness, made.valid_share) == (other.completeness, other.valid_share)


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
    passes = made.model_copy(
        update={"days": (days[0],) * 2, "times": ("12:10", "10:35"), "name": "passes"}
    )
    (file,) = mill.make(passes)
    (tmp_path / file.name).write_bytes(mill.fetch(file).read_bytes())
    if form == "netcdf":
        with xarray.open_dataset(tmp_path / file.name, engine="netcdf4") as opened:
            found = [str(when)[:16] for when in opened.time.values]
        assert found == ["2012-01-09T10:35", "2012-01-09T12:10"]
    time.sleep(1.1)  # HDF5 and zip note times to the second, if they do
    (tmp_path / "again").mkdir()
    rasters = [mill.fetch(*mill.world.task(given.key).files) for given in inputs]
    times = [datetime(2012, 1, day.day, tzinfo=UTC) for day in days]
    again = worker.phases.cube.write(made, rasters, times, tmp_path / "again")
    assert again.read_bytes() == path.read_bytes()


def test_every_real_granule_passes_the_checks_of_collection(granules: Path) -> None:
    found = sorted(granules.rglob("*.hdf"))
    assert found
    for path in found:
        check_granule(path)
