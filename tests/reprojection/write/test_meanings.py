"""Names of classes and bits in what is delivered: GeoTIFF, STAC item, attribute table, cube."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import netCDF4
import numpy as np
import pytest
import rasterio

from reprojection import catalogue
from reprojection.catalogue import products
from reprojection.read.cf import cf_flags
from reprojection.read.description import Band
from reprojection.read.raster import Raster
from reprojection.write import meanings
from reprojection.write.cube import write_cube
from reprojection.write.meanings import attribute_table
from reprojection.write.palette import class_colour, colours_of
from reprojection.write.stac import stac_item
from reprojection.write.write import write_cog
from tests.reprojection.raster_samples import classes, plain, provenance

COVER = np.array([[1, 2, 9], [255, 1, 2]], np.uint8)


def quality() -> Raster:
    """A bit field of the catalogue: FparLai_QC, of eight bits."""
    base = plain(np.array([[0, 33, 157]], np.uint8))
    said = replace(provenance("a.hdf"), product="MCD15A2H", layer="FparLai_QC")
    return replace(base, kind="bitfield", bands=(Band(name="FparLai_QC"),), provenance=said)


def item_of(raster: Raster, path: Path) -> dict[str, Any]:
    write_cog(raster, path)
    return cast("dict[str, Any]", stac_item(path))


def test_a_geotiff_names_its_classes_to_any_reader_of_gdal(tmp_path: Path) -> None:
    write_cog(classes(COVER), tmp_path / "cover.tif")
    with rasterio.open(tmp_path / "cover.tif") as opened:
        tags = opened.tags(1)
        assert opened.colormap(1)[9] == (200, 0, 0, 255)
    assert (tags["class_1"], tags["class_2"], tags["class_9"]) == ("forest", "water", "town")


def test_classes_are_drawn_as_their_products_draw_them_and_no_two_alike() -> None:
    colours = colours_of({0: "water bodies", 1: "Evergreen needleleaf forests", 7: "something"})
    assert colours[0][:3] == (28, 13, 255)
    assert colours[1][:3] == (5, 69, 10)
    assert colours[7] == class_colour(7)
    for product in products():
        for name in product.layer_names:
            entry = product.layer(name)
            drawn = colours_of(entry.classes) if entry else {}
            assert len(set(drawn.values())) == len(drawn), (product.name, name)


def test_an_attribute_table_has_names_and_colours_by_value() -> None:
    said = classes(COVER)
    band = ET.fromstring(attribute_table(said.codes, said.colours))[0]
    names = [one.text or "" for one in band.iter("Category")]
    assert (names[1], names[2], names[9], names[0]) == ("forest", "water", "town", "")
    rows = [[cell.text for cell in row.iter("F")] for row in band.iter("Row")]
    assert rows[2] == ["9", "town", "200", "0", "0", "255"]
    usages = [int(str(one.findtext("Usage"))) for one in band.iter("FieldDefn")]
    assert usages == [5, 2, 6, 7, 8, 9]  # value, name, red, green, blue, alpha
    assert attribute_table({}, {}) == ""


@pytest.mark.parametrize(("highest", "named"), [(255, 256), (256, 0)])
def test_names_by_place_are_there_for_values_of_a_byte(highest: int, named: int) -> None:
    """GDAL has one for every value from 0 on: `_MOST_CATEGORIES` of `meanings`."""
    assert meanings._MOST_CATEGORIES == 256
    band = ET.fromstring(attribute_table({1: "one", highest: "last"}, {}))[0]
    assert len([*band.iter("Category")]) == named
    assert len([*band.iter("Row")]) == 2  # the table has every class


def test_a_stac_item_has_the_classes_and_their_colours(tmp_path: Path) -> None:
    item = item_of(classes(COVER), tmp_path / "cover.tif")
    assert any("/classification/v2.0.0/" in one for one in item["stac_extensions"])
    (band,) = item["assets"]["data"]["bands"]
    assert band["classification:classes"][2] == {
        "value": 9,
        "name": "town",
        "description": "town",
        "color_hint": "C80000",
    }


def test_a_stac_item_has_the_bits_and_the_doi(tmp_path: Path) -> None:
    item = item_of(quality(), tmp_path / "qc.tif")
    assert item["properties"]["sci:doi"] == "10.5067/MODIS/MCD15A2H.061"
    fields = {
        one["name"]: one for one in item["assets"]["data"]["bands"][0]["classification:bitfields"]
    }
    assert (fields["CLOUDSTATE"]["offset"], fields["CLOUDSTATE"]["length"]) == (3, 2)
    assert {"value": 1, "name": "cloudy", "description": "cloudy"} in fields["CLOUDSTATE"][
        "classes"
    ]


def test_an_item_of_values_has_neither(tmp_path: Path) -> None:
    item = item_of(plain(np.ones((2, 2), np.uint8)), tmp_path / "x.tif")
    assert not any("classification" in one for one in item["stac_extensions"])
    assert "sci:doi" not in item["properties"]


def test_flags_of_a_cube_decode_every_value_as_the_catalogue_does(tmp_path: Path) -> None:
    write_cog(quality(), tmp_path / "qc.tif")
    write_cube([tmp_path / "qc.tif"], tmp_path / "qc.nc", times=[datetime(2012, 1, 1, tzinfo=UTC)])
    product = catalogue.product("MCD15A2H", "61")
    entry = product.layer("FparLai_QC") if product else None
    assert entry is not None
    with netCDF4.Dataset(tmp_path / "qc.nc") as cube:
        variable = cube["FparLai_QC"]
        assert variable.flag_masks.dtype == variable.flag_values.dtype == np.uint8
        flags = list(
            zip(
                variable.flag_masks,
                variable.flag_values,
                variable.flag_meanings.split(),
                strict=True,
            )
        )
        assert len({value for _, value, _ in flags}) == len(flags), "CF: no value twice"
        assert "bit 0, MODLAND: 0 good, 1 other" in variable.comment
    for stored in range(256):
        told = {meaning for mask, value, meaning in flags if stored & mask == value}
        expected = set()
        for name, one in entry.bits.items():
            value = stored >> one.start & ((1 << one.length) - 1)
            if value and value in one.values:
                expected.add(f"{name}_{one.values[value]}".replace(" ", "_").replace(",", ""))
        assert told == expected


def test_the_highest_bit_of_a_signed_type_is_a_negative_mask() -> None:
    flags = cf_flags(quality().description(), "data", np.dtype(np.int8))
    masks = cast("list[float]", flags["flag_masks"])
    assert min(masks) == -32.0  # bits 5 to 7
    assert np.array(masks, np.int8).view(np.uint8).max() == 0b11100000


def test_a_cube_tells_quantity_source_licence_and_the_bounds_of_its_times(
    tmp_path: Path,
) -> None:
    xarray = pytest.importorskip("xarray")
    base = plain(np.ones((2, 3), np.uint8))
    said = replace(
        provenance("b.hdf", "a.hdf"), product="MCD15A2H", layer="Lai_500m", software="swathmill 1"
    )
    leaves = replace(base, units="m^2/m^2", bands=(Band(name="Lai_500m"),), provenance=said)
    later = replace(said, start="2012-01-09T00:00:00Z", end="2012-01-16T23:59:59Z")
    for number, one in enumerate((said, later)):
        write_cog(replace(leaves, provenance=one), tmp_path / f"{number}.tif")
    for kind, engine in (("netcdf", "netcdf4"), ("zarr", "zarr")):
        out = tmp_path / f"cube.{kind}"
        write_cube(
            [tmp_path / "0.tif", tmp_path / "1.tif"],
            out,
            kind="netcdf" if kind == "netcdf" else "zarr",
        )
        with xarray.open_dataset(out, engine=engine, decode_coords="all") as cube:
            assert cube["Lai_500m"].attrs["standard_name"] == "leaf_area_index"
            assert cube["Lai_500m"].attrs["units"] == "m^2/m^2"
            assert cube.attrs["references"] == "https://doi.org/10.5067/MODIS/MCD15A2H.061"
            assert "without restriction" in cube.attrs["license"]
            assert cube.attrs["history"].startswith("swathmill 1: rasters of Lai_500m")
            assert "resampling=bilinear" in cube.attrs["history"]
            bounds = cube["time_bnds"].values.astype("datetime64[s]").astype(str)
            assert bounds.tolist() == [
                ["2012-01-01T00:00:00", "2012-01-09T00:00:00"],
                ["2012-01-09T00:00:00", "2012-01-17T00:00:00"],
            ]
            assert cube["granules"].values.tolist() == ["b.hdf a.hdf"] * 2


def test_a_statistic_of_a_quantity_does_not_bear_its_name(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    said = replace(
        provenance("a.hdf"),
        product="MCD15A2H",
        layer="Lai_500m",
        parameters=(("resampling", "std"),),
    )
    write_cog(replace(plain(np.ones((2, 3), np.uint8)), provenance=said), tmp_path / "a.tif")
    write_cube([tmp_path / "a.tif"], tmp_path / "cube.nc")
    with xarray.open_dataset(tmp_path / "cube.nc") as cube:
        assert "standard_name" not in cube["Lai_500m"].attrs


def test_every_standard_name_is_of_a_layer_that_a_product_has() -> None:
    for product in catalogue.products():
        assert set(product.dois) <= {"1", "2", "21", "6", "61", "62"}
    for family in {product.family for product in catalogue.products()}:
        mine = [one for one in catalogue.products() if one.family == family]
        for pattern in mine[0].standard_names:
            layers = {name: one for one in mine for name in (*one.layer_names, *one.layers)}
            hit = [
                name
                for name, one in layers.items()
                if one.standard_name(name) == mine[0].standard_names[pattern]
            ]
            assert hit, f"{family}: {pattern}"
