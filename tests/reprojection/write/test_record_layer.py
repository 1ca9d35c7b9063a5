"""A raster of a record says its record, layer and sensor: in its tags, its item and its cube."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio

from reprojection.errors import ChoiceRefusedError
from reprojection.explain.explain import explain
from reprojection.grid.grids import Grid
from reprojection.read.completeness import Completeness, Missing
from reprojection.read.description import Band, Provenance, SourceGranule
from reprojection.read.raster import Pixels, Raster
from reprojection.write import mosaic, write
from reprojection.write.cube import write_cube
from reprojection.write.mosaic import write_joined
from reprojection.write.record_layer import as_record, record_mosaic
from reprojection.write.sizes import TILE
from reprojection.write.stac import stac_item
from reprojection.write.write import write_cog


def leaf(product: str, collection: str, layer: str, day: str, units: str = "") -> Raster:
    return Raster(
        data=np.full((1, 4, 4), 2.5, np.float32),
        grid=Grid(crs="EPSG:4326", transform=(1.0, 0.0, 0.0, 0.0, -1.0, 4.0), width=4, height=4),
        nodata=float("nan"),
        kind="continuous",
        bands=(Band(name=layer),),
        units=units,
        provenance=Provenance(
            product=product,
            collection=collection,
            layer=layer,
            granules=(SourceGranule(name=f"{product}.{day}"),),
            start=f"{day}T00:00:00Z",
            end=f"{day}T00:00:00Z",
        ),
    )


MODIS = leaf("MOD15A2H", "61", "Lai_500m", "2025-12-27", "m^2/m^2")
VIIRS = leaf("VNP15A2H", "2", "Lai", "2026-01-01", "m2/m2")


def test_a_cube_joins_sensors_and_says_which(tmp_path: Path) -> None:
    cubes = pytest.importorskip("netCDF4")
    paths = []
    for one in (MODIS, VIIRS):
        paths.append(tmp_path / f"{one.provenance.product}.tif")
        write_cog(as_record(one, "leaf-area-8day", "Lai", "1"), paths[-1])
    write_cube(paths, tmp_path / "cube.nc")
    with cubes.Dataset(tmp_path / "cube.nc") as cube:
        assert list(cube["sensor"][:]) == ["Terra MODIS", "Suomi NPP VIIRS"]
        assert cube["Lai"].units == "1"
        assert cube.title == "leaf-area-8day Lai"
        assert "MOD15A2H.061, VNP15A2H.002" in cube.source
    with rasterio.open(paths[0]) as image:
        tags = image.tags(1)
        assert (tags["RECORD"], tags["LAYER"]) == ("leaf-area-8day", "Lai")
        assert tags["SENSOR"] == "Terra MODIS"
        assert image.descriptions == ("Lai",)
    said = stac_item(paths[1])["properties"]
    assert isinstance(said, dict)
    assert said["swathmill:record"] == "leaf-area-8day"
    assert said["swathmill:sensor"] == "Suomi NPP VIIRS"
    assert (said["swathmill:product"], said["swathmill:layer"]) == ("VNP15A2H", "Lai")


def test_a_mean_is_of_the_sensors_with_a_value_at_the_pixel(tmp_path: Path) -> None:
    paths = []
    for one, values in ((MODIS, [1.0, np.nan, 3.0, np.nan]), (VIIRS, [2.0, 2.0, np.nan, np.nan])):
        paths.append(tmp_path / f"{one.provenance.product}.tif")
        write_cog(replace(one, data=np.tile(np.array(values, np.float32), (1, 4, 1))), paths[-1])
    lacks = Missing(what="MYD15A2H", why="not in the archive")
    named = "leaf-area-8day", "Lai", "1"
    rows = record_mosaic(paths, MODIS.grid, named, absent=2, missing=[lacks])
    assert rows.about.data.strides == (0, 0, 0)  # no pixel is in memory
    np.testing.assert_array_equal(rows.rows(1, 3)[0, 1], [1.5, 2.0, 3.0, np.nan])
    found = rows.whole()
    np.testing.assert_array_equal(found.data[0, 0], [1.5, 2.0, 3.0, np.nan])
    assert found.completeness == Completeness(share=0.5, missing=(lacks,))
    said = found.provenance
    assert said.record is not None
    assert (said.record.sensor, said.record.sensors) == ("Terra MODIS, Suomi NPP VIIRS", 2)
    assert (said.product, said.collection) == ("MOD15A2H, VNP15A2H", "61, 2")
    assert len(said.granules) == 2
    write_cog(found, tmp_path / "mean.tif")
    told = explain(tmp_path / "mean.tif", 0.5, 3.5)
    assert (told.value, told.gdalwarp) == (1.5, "")
    assert told.note.startswith("it is the mean of Terra MODIS, Suomi NPP VIIRS")
    for one, path in zip((MODIS, VIIRS), paths, strict=True):
        write_cog(replace(one, kind="class", units=""), path)
    with pytest.raises(ChoiceRefusedError, match="single bands of continuous values"):
        record_mosaic(paths, MODIS.grid, named)


def test_a_mean_by_stripes_is_that_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(4)
    values = random.normal(3, 1, (2, 1100, 40)).astype(np.float32)
    values[random.random(values.shape) < 0.3] = np.nan
    grid = replace(MODIS.grid, width=40, height=1100)
    paths = []
    for one, plane in zip((MODIS, VIIRS), values, strict=True):
        paths.append(tmp_path / f"{one.provenance.product}.tif")
        write_cog(replace(one, data=plane[np.newaxis], grid=grid), paths[-1])
    mean = record_mosaic(paths, grid, ("leaf-area-8day", "Lai", "1"))
    write_joined(mean, tmp_path / "whole.tif")
    monkeypatch.setattr(mosaic, "WHOLE_BYTES", 0)
    monkeypatch.setattr(write, "STRIPE_BYTES", 0)
    asked: list[int] = []
    rows = mean.rows

    def counted(start: int, stop: int) -> Pixels:
        asked.append(stop - start)
        return rows(start, stop)

    write_joined(replace(mean, rows=counted), tmp_path / "striped.tif")
    assert max(asked) == TILE
    with rasterio.open(tmp_path / "striped.tif") as file:
        written = file.read(1)
    with np.errstate(invalid="ignore"):
        exact = np.nansum(values.astype(float), axis=0) / (~np.isnan(values)).sum(axis=0)
    np.testing.assert_array_equal(written, exact.astype(np.float32))
    assert (tmp_path / "striped.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()


def test_layers_of_products_alone_do_not_join(tmp_path: Path) -> None:
    paths = []
    for one in (MODIS, replace(VIIRS, units=MODIS.units)):
        paths.append(tmp_path / f"{one.provenance.product}.tif")
        write_cog(one, paths[-1])
    with pytest.raises(ChoiceRefusedError, match="do not fit in one cube"):
        write_cube(paths, tmp_path / "cube.nc")
    assert b'"record"' not in paths[0].read_bytes()


@pytest.mark.parametrize("stated", ["Celsius", "degree_C", "%"])
def test_granules_in_another_unit_are_no_part_of_a_record(stated: str) -> None:
    sea = leaf("VIIRS_NPP-JPL-L2P", "2016.2", "sea_surface_temperature", "2025-12-27", stated)
    with pytest.raises(ChoiceRefusedError, match=re.escape(repr(stated))):
        as_record(sea, "sea-surface-temperature", "SST", "K")


@pytest.mark.parametrize("stated", ["kelvin", "K", "", "a spelling of its own"])
def test_a_unit_may_be_spelt_otherwise(stated: str) -> None:
    sea = leaf("VIIRS_NPP-JPL-L2P", "2016.2", "sea_surface_temperature", "2025-12-27", stated)
    assert as_record(sea, "sea-surface-temperature", "SST", "K").units == "K"
