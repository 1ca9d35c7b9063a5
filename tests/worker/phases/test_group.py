"""What a group holds for a reduction, and what a package gets of it."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import rasterio

from reprojection.reproject import ExtraBand, Options, reproject
from reprojection.sample.hdfeos_write import write_granule
from reprojection.write.write import Opened, open_raster, write_cog
from tasks.bag.categories import Category
from tasks.bag.spec import GroupSpec
from tasks.packages.packages import Packages
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from tasks.spec_parts import Band, LayerLabel
from tests.reprojection.reading_samples import small_tile
from tests.worker.mill import grid_spec
from worker.phases.group import manifest, sort_layers, stack
from worker.phases.reduce import give_inputs
from worker.phases.reproject import grid_of

LAYERS = ("Lai_1km", "FparLai_QC")
DAYS = (date(2012, 3, 5), date(2012, 3, 13))
EXTRA: tuple[ExtraBand, ...] = ("count", "source", "reason")


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """A group's folder: two layers on two days, with codes and all extra bands."""
    grid = grid_spec().model_copy(update={"width": 200, "height": 40})
    options = Options(resampling="nearest", codes="keep", extra_bands=EXTRA)
    bands: list[Band] = []
    rasters: dict[int, Opened] = {}
    for day in DAYS:
        near = ".NRT" if day == DAYS[1] else ""
        granule = tmp_path / f"MCD15A2.A{day:%Y%j}.h17v03.005.2012153130500{near}.hdf"
        write_granule(granule, small_tile(date=f"{day:%Y%j}"))
        for layer in LAYERS:
            cell = tmp_path / f"{layer}.{day}.tif"
            write_cog(reproject([granule], layer, grid_of(grid), options), cell, overviews=False)
            rasters[len(bands)] = open_raster(cell)
            bands.append(
                Band(product="MCD15A2", collection="5", layer=layer, day=day, cell="h17v03")
            )
    spec = GroupSpec(group="h17v03 all", cell="h17v03", window="all", grid=grid, bands=tuple(bands))
    folder = tmp_path / "group"
    folder.mkdir()
    layers = sort_layers(spec, rasters)
    shares = {
        file: stack(one, number, folder / file) for one in layers for number, file in one.files
    }
    text = manifest(spec, layers, shares).model_dump_json()
    (folder / "manifest.json").write_text(text, "utf-8")
    return folder


def test_bands_say_how_many_of_their_granules_are_of_near_real_time(group: Path) -> None:
    bands = json.loads((group / "manifest.json").read_text())["bands"]
    marks = {(band["layer"], band["date"]): band.get("near_real_time") for band in bands}
    assert marks == {
        (one, f"{day}"): None if day == DAYS[0] else 1 for one in LAYERS for day in DAYS
    }


def test_files_of_layers_are_called_as_the_plan_says_also_where_a_run_lacks_one(
    tmp_path: Path,
) -> None:
    grid = grid_spec().model_copy(update={"width": 8, "height": 8})
    granule = tmp_path / "MCD15A2.A2012065.h17v03.005.2012153130500.hdf"
    write_granule(granule, small_tile(date="2012065"))
    write_cog(reproject([granule], LAYERS[0], grid_of(grid), Options()), tmp_path / "cell.tif")
    own = open_raster(tmp_path / "cell.tif")
    bands = tuple(
        Band(product=name, collection="5", layer=LAYERS[0], day=DAYS[0], cell="c")
        for name in ("MCD15A2", "MOD15A2")
    )
    spec = GroupSpec(group="c all", cell="c", window="all", grid=grid, bands=bands)
    labels = tuple(
        LayerLabel(product=band.product, collection="5", layer=LAYERS[0], label=label)
        for band, label in zip(bands, ("one", "other"), strict=True)
    )
    told = spec.model_copy(update={"labels": labels})
    assert [one.file for one in sort_layers(told, {0: own, 1: own})] == ["one.tif", "other.tif"]
    lacking = told.model_copy(update={"bands": bands[1:]})
    assert [one.file for one in sort_layers(lacking, {0: own})] == ["other.tif"]
    # A plan of an earlier build says nothing, and names its outputs by the short spelling.
    files_of = [one.file for one in sort_layers(spec, {0: own, 1: own})]
    assert files_of == ["MCD15A2.5.Lai_1km.tif", "MOD15A2.5.Lai_1km.tif"]
    assert told.key != spec.key


def files(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir()}


def test_each_overpass_is_a_band_with_its_start(tmp_path: Path) -> None:
    grid = grid_spec().model_copy(update={"width": 8, "height": 8})
    granule = tmp_path / "MCD15A2.A2012065.h17v03.005.2012153130500.hdf"
    write_granule(granule, small_tile(date="2012065"))
    write_cog(reproject([granule], LAYERS[0], grid_of(grid), Options()), tmp_path / "cell.tif")
    starts = ("04:30", "02:50", "")  # the last is of the next day, of which there is no single one
    bands = [
        Band(
            product="MCD15A2",
            collection="5",
            layer=LAYERS[0],
            day=DAYS[1] if not time else DAYS[0],
            cell=cell,
            time=time,
        )
        for cell in ("r0c0", "r0c1")
        for time in starts
    ]
    spec = GroupSpec(
        group="r0c0 all", cell="r0c0", window="all", grid=grid, bands=tuple(bands), halo=2
    )
    own = open_raster(tmp_path / "cell.tif")
    rasters = {n: own if n < 3 else replace(own, path=tmp_path / f"{n}.tif") for n in range(6)}
    (layer,) = sort_layers(spec, rasters)
    whens = ["2012-03-05T02:50", "2012-03-05T04:30", "2012-03-13"]
    assert [band.when for band, _ in layer.bands] == whens
    # Around an overpass lies the same overpass in the neighbouring cells.
    assert [layer.around[when] for when in whens] == [(rasters[n].path,) for n in (4, 3, 5)]
    shares = {layer.file: stack(replace(layer, around={}), 1, tmp_path / layer.file)}
    with rasterio.open(tmp_path / layer.file) as made:
        assert list(made.descriptions) == whens
    found = json.loads(manifest(spec, [layer], shares).model_dump_json())["bands"]
    assert [band.get("overpass") for band in found] == [*whens[:2], None]
    assert [band["date"] for band in found] == ["2012-03-05", "2012-03-05", "2012-03-13"]


def test_codes_and_extra_bands_reach_a_reduction(group: Path, tmp_path: Path) -> None:
    found = json.loads((group / "manifest.json").read_text("utf-8"))["bands"]
    assert [(b["layer"], b["date"], b["kind"]) for b in found] == [
        (layer, day.isoformat(), kind)
        for layer, kind in zip(LAYERS, ("continuous", "bitfield"), strict=True)
        for day in DAYS
    ]
    assert found[0]["units"] == "m^2/m^2"
    assert (found[0]["scale"], found[0]["offset"], found[0]["applied"]) == (0.1, 0.0, False)
    with rasterio.open(group / "Lai_1km.tif") as values:
        shares = [np.mean(values.read(n) != values.nodata) for n in (1, 2)]
    assert [found[n]["valid_share"] for n in (0, 1)] == pytest.approx(shares, rel=1e-5)
    assert found[0]["codes"]["250"] == "urban, built-up"
    for band in found:
        assert [one["role"] for one in band["further"]] == ["codes", *EXTRA]
        cell = tmp_path / f"{band['layer']}.{band['date']}.tif"
        with rasterio.open(cell) as raster:
            planes = raster.read()
        for number, one in enumerate([band, *band["further"]]):
            with rasterio.open(group / one["file"]) as made:
                assert np.array_equal(made.read(one["band"]), planes[number])
                assert made.count == len(DAYS)
    with rasterio.open(group / "Lai_1km.codes.tif") as codes:
        assert codes.scales == (1.0, 1.0)
        assert 250 in codes.read(1)
    with rasterio.open(group / "Lai_1km.tif") as values:
        assert values.scales == pytest.approx((0.1, 0.1))


def test_a_package_gets_only_the_kinds_of_layers_that_it_takes(group: Path, tmp_path: Path) -> None:
    package = Packages.of(Settings()).find("mean").package
    to = tmp_path / "input"
    to.mkdir()
    give_inputs(package, files(group), to, copied=False)
    bands = json.loads((to / "manifest.json").read_text("utf-8"))["bands"]
    assert {band["layer"] for band in bands} == {"Lai_1km"}
    further = {f"Lai_1km.{role}.tif" for role in ("codes", *EXTRA)}
    assert set(files(to)) == {"manifest.json", "Lai_1km.tif", *further}


def test_a_package_that_takes_nothing_of_a_group_is_not_run(group: Path, tmp_path: Path) -> None:
    package = Packages.of(Settings()).find("mean").package
    only = package.model_copy(update={"takes": ("class",)})
    with pytest.raises(AttemptError, match=r"classes; the group has FparLai_QC \(bitfield\)") as no:
        give_inputs(only, files(group), tmp_path, copied=False)
    assert no.value.category is Category.CHOICE_REFUSED
