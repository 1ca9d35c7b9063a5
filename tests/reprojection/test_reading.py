"""Reading granules written for the purpose: grids, swaths, bands, HDF5, damage."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyhdf.SD import SD

from modis.tile import TILE_SIZE
from reprojection.catalogue.layers import LayerKind
from reprojection.errors import (
    BadFormatError,
    ChoiceRefusedError,
    NoGeolocationError,
    UnknownLayerError,
    UnreadableGranuleError,
)
from reprojection.read.granule import open_granule
from reprojection.sample.hdfeos_write import FieldToWrite, SwathToWrite, write_granule
from tests.reprojection.reading_samples import small_tile, wrap_up


def written(folder: Path, granule: object) -> Path:
    path = folder / "granule.hdf"
    write_granule(path, granule)  # type: ignore[arg-type]
    return path


def swath_with_bands() -> SwathToWrite:
    """A 4 x 6 swath with band axes before, after and around its raster."""
    rows, columns = 4, 6
    lat = np.linspace(50, 51, rows * columns, dtype=np.float32).reshape(rows, columns)
    dims = ("Along", "Across")
    depth = np.arange(3 * rows * columns, dtype=np.int16).reshape(3, rows, columns)
    qa = np.arange(100, 100 + rows * columns * 5).reshape(rows, columns, 5).astype(np.int8)
    both = np.arange(2 * rows * columns * 3, dtype=np.int32).reshape(2, rows, columns, 3)
    turned = np.arange(rows * columns, dtype=np.int16).reshape(columns, rows)
    return SwathToWrite(
        name="mod04",
        geo_fields=[
            FieldToWrite(name="Latitude", values=lat, dims=dims),
            FieldToWrite(name="Longitude", values=lat - 40, dims=dims),
        ],
        data_fields=[
            FieldToWrite(name="Depth", values=depth, dims=("Solution", *dims)),
            FieldToWrite(
                name="Quality_Assurance_Land",
                values=qa,
                dims=(*dims, "QA_Byte"),
                typed={"valid_range": (0, -1), "_FillValue": 0},
            ),
            FieldToWrite(name="Both", values=both, dims=("Band", *dims, "Level")),
            FieldToWrite(name="Turned", values=turned, dims=("Across", "Along")),
            FieldToWrite(
                name="Unplaced", values=np.zeros((8, 12), np.int16), dims=("Along_2", "Across_2")
            ),
            FieldToWrite(name="Table", values=np.zeros(7, np.int16), dims=("Fires",)),
        ],
    )


def test_a_tile_is_read_as_stored(tmp_path: Path) -> None:
    granule = small_tile()
    with open_granule(written(tmp_path, granule)) as found:
        assert (found.product, found.collection) == ("MCD15A2", "5")
        assert found.name == granule.local_name
        assert found.start == granule.start
        assert found.end == granule.end
        assert found.production_time == "2012153130500"
        assert found.day_night == "day"
        assert found.grids["MOD_Grid_MOD15A2"].tile == (17, 3)
        layer = found.layers["Lai_1km"]
        assert (layer.kind, layer.scale, layer.fill) == (LayerKind.CONTINUOUS, 0.1, 255)
        assert layer.valid_range == (0, 100)
        assert layer.codes[254] == "water"
        assert layer.qa == "FparLai_QC"
        assert np.array_equal(found.read("Lai_1km"), granule.structure.fields[0].values)  # type: ignore[union-attr]


def test_raster_axes_are_found_by_name(tmp_path: Path) -> None:
    swath = swath_with_bands()
    depth, qa, both, turned = (item.values for item in swath.data_fields[:4])
    name = "MOD04_L2.A2012065.1200.061.2012153130500.hdf"
    with open_granule(written(tmp_path, wrap_up(swath, name, "MOD04_L2", 61))) as found:
        assert found.layers["Depth"].shape == (4, 6)
        assert found.layers["Depth"].bands == (("Solution", 3),)
        assert np.array_equal(found.read("Depth[2]"), depth[2])
        assert np.array_equal(found.read_all_bands("Depth"), depth)
        assert np.array_equal(
            found.read("Quality_Assurance_Land[3]"),
            np.ascontiguousarray(qa[:, :, 3]).view(np.uint8),
        )
        assert np.array_equal(found.read("Both[1,2]"), both[1, :, :, 2])
        assert np.array_equal(found.read("Turned"), turned.T)
        assert found.others == ("Table",)


def test_bytes_of_quality_are_unsigned(tmp_path: Path) -> None:
    name = "MOD04_L2.A2012065.1200.061.2012153130500.hdf"
    with open_granule(
        written(tmp_path, wrap_up(swath_with_bands(), name, "MOD04_L2", 61))
    ) as found:
        layer = found.layers["Quality_Assurance_Land"]
        assert (layer.dtype, layer.valid_range, layer.fill) == (np.dtype("u1"), (0, 255), 0)
        assert layer.kind is LayerKind.BITFIELD


def test_a_band_must_be_named_and_exist(tmp_path: Path) -> None:
    name = "MOD04_L2.A2012065.1200.061.2012153130500.hdf"
    with open_granule(
        written(tmp_path, wrap_up(swath_with_bands(), name, "MOD04_L2", 61))
    ) as found:
        with pytest.raises(ChoiceRefusedError, match=r"3 \(Solution\) bands.*Depth\[0\]"):
            found.read("Depth")
        for wrong in ("Depth[3]", "Depth[0,0]", "Turned[0]", "Nothing", "Nothing[1]"):
            with pytest.raises(UnknownLayerError, match=r"Depth|Turned"):
                found.read(wrong)


def test_a_layer_that_nothing_places_has_no_geolocation(tmp_path: Path) -> None:
    name = "MOD04_L2.A2012065.1200.061.2012153130500.hdf"
    with open_granule(
        written(tmp_path, wrap_up(swath_with_bands(), name, "MOD04_L2", 61))
    ) as found:
        assert found.geolocation("Depth[0]").lat.shape == (4, 6)
        with pytest.raises(NoGeolocationError, match="Along_2"):
            found.geolocation("Unplaced")


def test_an_unknown_product_works_from_its_attributes(tmp_path: Path) -> None:
    field = FieldToWrite(
        name="sur_refl_b09",
        values=np.full((24, 24), 2500, np.int16),
        dims=("YDim", "XDim"),
        typed={"valid_range": (-100, 16000), "_FillValue": -28672},
        attributes={"scale_factor": 10000.0, "add_offset": 0.0, "units": "reflectance"},
    )
    granule = small_tile(product="XYZ99A1", collection=6, fields=[field])
    with open_granule(written(tmp_path, granule)) as found:
        assert found.entry is None
        layer = found.layers["sur_refl_b09"]
        assert (layer.kind, layer.scale, layer.fill) == (LayerKind.CONTINUOUS, 0.0001, -28672)


def test_long_texts_are_read_as_pyhdf_reads_them(tmp_path: Path) -> None:
    path = written(tmp_path, small_tile())
    file = SD(str(path))
    expected = file.attributes()["StructMetadata.0"].rstrip("\0")
    file.end()
    with open_granule(path) as found:
        assert found.attributes["StructMetadata"] == expected


def viirs_tile(path: Path) -> None:
    struct = "\n".join(
        [
            "GROUP=GridStructure",
            "GROUP=GRID_1",
            'GridName="VNP_Grid_500m_2D"',
            "XDim=8",
            "YDim=8",
            f"UpperLeftPointMtrs=({-TILE_SIZE:.6f},{6 * TILE_SIZE:.6f})",
            f"LowerRightMtrs=(0.000000,{5 * TILE_SIZE:.6f})",
            "Projection=HE5_GCTP_SNSOID",
            "ProjParams=(6371007.181000,0,0,0,0,0,0,0,0,0,0,0,0)",
            "END_GROUP=GRID_1",
            "END_GROUP=GridStructure",
            "END",
        ]
    )
    with h5py.File(path, "w") as file:
        file.create_group("HDFEOS INFORMATION")
        file["HDFEOS INFORMATION"]["StructMetadata.0"] = np.bytes_(struct)
        fields = file.create_group("HDFEOS/GRIDS/VNP_Grid_500m_2D/Data Fields")
        band = fields.create_dataset(
            "SurfReflect_I1", data=np.arange(64, dtype=np.int16).reshape(8, 8), compression="gzip"
        )
        band.attrs["scale_factor"] = np.array([0.0001])
        band.attrs["add_offset"] = np.array([0.0])
        band.attrs["valid_range"] = np.array([-100, 16000], np.int16)
        band.attrs["_FillValue"] = np.array([-28672], np.int16)
        band.attrs["units"] = np.bytes_("reflectance")
        fields.create_dataset("SurfReflect_QF1", data=np.zeros((8, 8), np.uint8))
        fields.create_dataset("iobs_res_1", data=np.zeros((8, 8), np.uint8))
        scaled = fields.create_dataset("Wetness_Index", data=np.zeros((8, 8), np.uint8))
        scaled.attrs["scale_factor"] = np.array([0.01])


def test_a_viirs_tile_is_read_behind_the_same_reader(tmp_path: Path) -> None:
    path = tmp_path / "VNP09GA.A2020001.h17v03.001.2020002030405.h5"
    viirs_tile(path)
    with open_granule(path) as found:
        assert (found.product, found.collection) == ("VNP09GA", "1")
        assert found.grids["VNP_Grid_500m_2D"].tile == (17, 3)
        layer = found.layers["SurfReflect_I1"]
        assert (layer.scale, layer.fill, layer.valid_range) == (0.0001, -28672, (-100, 16000))
        assert layer.units == "reflectance"
        assert layer.grid == "VNP_Grid_500m_2D"
        assert found.read(layer)[7, 7] == 63


def test_bits_and_classes_of_an_unknown_product_are_not_continuous(tmp_path: Path) -> None:
    path = tmp_path / "VNP99X1.A2020001.h17v03.001.2020002030405.h5"
    viirs_tile(path)
    with open_granule(path) as found:
        assert found.entry is None
        kinds = {name: layer.kind for name, layer in found.layers.items()}
    assert kinds == {
        "SurfReflect_I1": LayerKind.CONTINUOUS,
        "SurfReflect_QF1": LayerKind.BITFIELD,
        "Wetness_Index": LayerKind.CONTINUOUS,
        "iobs_res_1": LayerKind.CLASS,
    }


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"<!DOCTYPE html><html>Earthdata Login</html>", "web page"),
        (b"", "empty"),
        (b"PK\x03\x04 a zip archive", "begins with 50 4b 03 04"),
    ],
)
def test_what_is_not_hdf_is_a_bad_format(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "MOD09GA.A2008296.h14v17.006.2015181011753.hdf"
    path.write_bytes(content)
    with pytest.raises(BadFormatError, match=word):
        open_granule(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableGranuleError, match=r"gone\.hdf"):
        open_granule(tmp_path / "gone.hdf")


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.9])
def test_a_truncated_granule_is_unreadable(tmp_path: Path, part: float) -> None:
    path = written(tmp_path, small_tile(side=200))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])

    def read_everything() -> None:
        with open_granule(path) as found:
            for layer in found.layers.values():
                found.read_all_bands(layer)
            assert len(found.layers) == 2

    with pytest.raises(UnreadableGranuleError):
        read_everything()


@settings(max_examples=30)
@given(st.integers(0, 2), st.integers(0, 3), st.integers(0, 5))
def test_every_element_of_a_band_is_where_the_file_has_it(
    tmp_path_factory: pytest.TempPathFactory, band: int, row: int, column: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "bands.hdf"
    swath = swath_with_bands()
    if not path.exists():
        name = "MOD04_L2.A2012065.1200.061.2012153130500.hdf"
        write_granule(path, wrap_up(swath, name, "MOD04_L2", 61))
    with open_granule(path) as found:
        stored = swath.data_fields[0].values[band, row, column]
        assert found.read(f"Depth[{band}]")[row, column] == stored


@pytest.mark.parametrize(
    ("said", "meant"), [("None", ""), ("class-flag", ""), ("m^2/m^2", "m^2/m^2")]
)
def test_units_that_name_no_unit_are_none(tmp_path: Path, said: str, meant: str) -> None:
    field = FieldToWrite(
        name="Measure",
        values=np.zeros((24, 24), np.int16),
        dims=("YDim", "XDim"),
        attributes={"units": said},
    )
    path = written(tmp_path, small_tile(product="MOD99", fields=[field]))
    with open_granule(path) as granule:
        assert granule.layer("Measure").units == meant
