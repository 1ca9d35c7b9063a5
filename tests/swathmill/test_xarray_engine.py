"""Granules as xarray's datasets: values, places, attributes, what is read, and what is refused."""

import gc
import pickle
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import cf_xarray  # noqa: F401
import h5py
import numpy as np
import odc.geo.xr  # noqa: F401
import pytest
import rioxarray  # noqa: F401
import xarray as xr

from reprojection import catalogue
from reprojection.catalogue.layers import LayerKind, is_fill
from reprojection.errors import (
    BadFormatError,
    ChoiceRefusedError,
    RangeExcludesAllError,
    ReprojectionError,
    UnknownLayerError,
)
from reprojection.formats import hdf5_chunks
from reprojection.grid.crs import Crs
from reprojection.read.granule import open_granule
from reprojection.read.granule_layer import layer_grid
from reprojection.read.qa import Reason, reasons
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import FieldToWrite, write_granule
from tests.generated.products import write_product
from tests.reprojection.reading_samples import small_tile

NDVI = "500 m 16 days NDVI"
CHUNKED = f"HDFEOS/GRIDS/Grid_500m/Data Fields/{NDVI}"


def opened(path: Path, *, chunks: dict[str, int] | None = None, **options: object) -> xr.Dataset:
    return xr.open_dataset(path, engine="swathmill", chunks=chunks, backend_kwargs=options)


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_there() -> None:
    """What datasets of other tests keep of granules would be read no more."""
    gc.collect()


@pytest.fixture(scope="module")
def tile(sample_archive: Path) -> Path:
    return next(sample_archive.rglob("MCD15A2.A2012105.h17v03*.hdf"))


@pytest.fixture(scope="module")
def swath(sample_archive: Path) -> Path:
    return next(sample_archive.rglob("MYD04_L2.A2012104*.hdf"))


@pytest.fixture(scope="module")
def viirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A granule of VIIRS, one layer of which is stored in chunks of 12 x 16 pixels."""
    known = catalogue.product("VNP13A1", "2")
    assert known is not None
    path = write_product(tmp_path_factory.mktemp("viirs"), known, "2", date(2020, 1, 1))
    with h5py.File(path, "r+") as file:
        plain = file[CHUNKED]
        values, attributes, parent = plain[...], dict(plain.attrs), plain.parent
        del file[CHUNKED]
        made = parent.create_dataset(
            CHUNKED.rsplit("/", 1)[-1], data=values, chunks=(12, 16), compression="gzip"
        )
        made.attrs.update(attributes)
    return path


def each_band(held: xr.DataArray) -> Iterator[tuple[np.ndarray, str]]:
    """Each plane of a variable, with the name of its band in the granule."""
    planes = held.values[0] if held.dims[0] == "time" else held.values
    name = held.attrs["layer"]
    for index in np.ndindex(planes.shape[:-2]):
        yield planes[index], f"{name}[{','.join(map(str, index))}]" if index else name


def agrees(path: Path, dataset: xr.Dataset, names: list[str]) -> None:
    """Hold variables to the stored values, scaled, where they are data by the reader's rules."""
    with open_granule(path) as granule:
        for name in names:
            for plane, band in each_band(dataset[name]):
                layer = granule.layer(band)
                stored = granule.read(layer)
                why = reasons(granule, layer, None, stored)
                if layer.kind is LayerKind.BITFIELD:
                    assert np.array_equal(plane, stored)
                    continue
                if layer.kind is LayerKind.CLASS or layer.scale_problem:
                    fill = dataset[name].attrs["_FillValue"]
                    expected = np.where(why == Reason.VALID, stored, fill)
                    assert np.array_equal(plane, expected, equal_nan=plane.dtype.kind == "f")
                    continue
                expected = stored.astype(float) * layer.scale + layer.offset
                expected[why != Reason.VALID] = np.nan
                assert np.array_equal(plane, expected.astype(plane.dtype), equal_nan=True), band


def test_a_tile_is_what_the_reader_makes_of_it(tile: Path) -> None:
    found = opened(tile)
    assert found.Lai_1km.dims == ("time", "y", "x")
    assert found.Lai_1km.dtype == np.float32
    agrees(tile, found, list(map(str, found.data_vars)))
    assert str(found.time.values[0])[:10] == "2012-04-14"
    assert found.attrs["granule"] == tile.name
    assert found.Lai_1km.attrs["ancillary_variables"] == "FparLai_QC"
    assert found.Lai_1km.attrs["standard_name"] == "leaf_area_index"


def test_values_are_those_of_reproject_on_the_tile_itself(tile: Path) -> None:
    with open_granule(tile) as granule:
        grid = layer_grid(granule, granule.layer("Lai_1km"))
    assert grid is not None
    for options, engine in (
        (Options(resampling="nearest", units="physical"), {}),
        (Options(resampling="nearest", units="physical", qa="good"), {"qa": "good"}),
        (Options(resampling="nearest"), {"units": "stored"}),
        (Options(resampling="nearest", units="physical", mask=False), {"mask": False}),
    ):
        made = reproject(tile, "Lai_1km", grid, options)
        held = opened(tile, layers="Lai_1km", **engine).Lai_1km
        assert np.array_equal(held.values[0], made.data[0], equal_nan=True)
        assert held.dtype == made.data.dtype
    stored = opened(tile, layers="Lai_1km", units="stored")
    scaled = xr.decode_cf(stored).Lai_1km
    assert np.allclose(scaled.values, opened(tile).Lai_1km.values, equal_nan=True)


def test_codes_are_kept_beside_values(tile: Path) -> None:
    with open_granule(tile) as granule:
        stored = granule.read("Lai_1km")
        why = reasons(granule, "Lai_1km")
    codes = opened(tile, layers="Lai_1km", codes="keep").Lai_1km_codes
    there = why == Reason.CODE
    assert there.any()
    assert np.array_equal(codes.values[0][there], stored[there])
    assert (codes.values[0][~there] == codes.attrs["_FillValue"]).all()
    assert 250 in codes.attrs["flag_values"]


def test_others_find_the_coordinate_reference_system(tile: Path) -> None:
    found = opened(tile)
    with open_granule(tile) as granule:
        grid = layer_grid(granule, granule.layer("Lai_1km"))
    assert grid is not None
    wanted = grid.system.parsed.to_wkt()
    for wkt in (found.rio.crs.to_wkt(), found.odc.crs.to_wkt()):
        crs = Crs.of(wkt).parsed
        assert crs.coordinate_operation is not None
        assert crs.coordinate_operation.method_name == "Sinusoidal"
        assert crs.ellipsoid == Crs.of(wanted).parsed.ellipsoid
    assert found.rio.transform()[:6] == pytest.approx(grid.transform, abs=1e-3)
    assert found.odc.geobox.affine[:6] == pytest.approx(grid.transform, abs=1e-3)
    assert found.odc.geobox.shape == (1200, 1200)
    assert found.cf.axes == {"X": ["x"], "Y": ["y"], "T": ["time"]}
    assert found.Lai_1km.rio.nodata is None or np.isnan(found.Lai_1km.rio.nodata)
    moved = found.Lai_1km[0].rio.reproject("EPSG:32631", resolution=5000)
    assert np.isfinite(moved.values).any()


def test_tiles_and_dates_form_one_cube(sample_archive: Path) -> None:
    paths = sorted(sample_archive.rglob("MCD15A2.A20120[67]*.hdf"))
    assert len({path.name.split(".")[2] for path in paths}) == 2
    whole = xr.open_mfdataset(
        paths, engine="swathmill", backend_kwargs={"layers": ["Lai_1km"]}, chunks={}
    )
    assert whole.sizes == {"time": len(paths) // 2, "y": 1200, "x": 2400}
    assert (np.diff(whole.x) > 0).all()
    for path in paths[:2]:
        one = opened(path, layers="Lai_1km")
        part = whole.sel(x=one.x, time=one.time)
        assert np.array_equal(part.Lai_1km.values, one.Lai_1km.values, equal_nan=True)


def test_a_swath_has_places_and_times(swath: Path) -> None:
    found = opened(swath)
    name = "Optical_Depth_Land_And_Ocean"
    assert found[name].dims == ("along_track", "cross_track")
    agrees(swath, found, list(map(str, found.data_vars)))
    with open_granule(swath) as granule:
        place = granule.geolocation(name)
    assert np.array_equal(found.lat.values, place.lat, equal_nan=True)
    assert np.array_equal(found.lon.values, place.lon, equal_nan=True)
    cut = opened(swath).isel(along_track=slice(20, 3, -2), cross_track=[5, 2])
    assert np.array_equal(cut.lon.values, place.lon[20:3:-2, [5, 2]])
    assert np.array_equal(cut[name].values, found[name].values[20:3:-2, [5, 2]], equal_nan=True)
    minutes = (found.scan_time.values[[0, -1]] - found.time.values) / np.timedelta64(1, "s")
    assert minutes[0] == 0
    assert 290 < minutes[1] < 300
    assert found.cf.coordinates["latitude"] == ["lat"]
    assert found.cf.coordinates["longitude"] == ["lon"]


def test_only_the_chunks_of_a_window_are_read(viirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    inflated = hdf5_chunks._inflated

    def counted(data: bytes, size: int) -> bytes:
        read.append(size)
        return inflated(data, size)

    monkeypatch.setattr(hdf5_chunks, "_inflated", counted)
    found = opened(viirs)
    assert found[NDVI].shape == (1, 48, 48)
    assert not read
    for rows, columns, chunks in (
        (slice(0, 12), slice(0, 16), 1),
        (slice(11, 13), slice(3, 40, 5), 6),
        ([40], slice(None), 3),
        (slice(None), slice(None), 12),
    ):
        read.clear()
        opened(viirs)[NDVI][:, rows, columns].load()
        assert read == [12 * 16 * 2] * chunks


def test_an_array_is_read_in_other_processes_and_by_dask(tile: Path) -> None:
    whole = opened(tile, qa="good").Lai_1km
    lazy = opened(tile, qa="good").Lai_1km.chunk({"x": 500})
    assert lazy.chunks is not None
    assert len(lazy.chunks[2]) == 3
    assert np.array_equal(lazy.values, whole.values, equal_nan=True)
    again = pickle.loads(pickle.dumps(opened(tile, qa="good").Lai_1km))
    assert np.array_equal(again.values, whole.values, equal_nan=True)


def test_quality_is_decoded_field_by_field(tile: Path) -> None:
    found = opened(tile)
    fields = found.swathmill.qa("Lai_1km")
    stored = found.FparLai_QC.values
    assert np.array_equal(fields.MODLAND.values, stored & 1)
    assert fields.MODLAND.attrs["flag_values"].tolist() == [0, 1]
    assert np.array_equal(fields.CLOUDSTATE.values, (stored >> 3) & 3)
    assert xr.testing.assert_identical(fields, found.swathmill.qa("FparLai_QC")) is None
    good = found.Lai_1km.where(fields.MODLAND == 0)
    with pytest.raises(ChoiceRefusedError, match="bit fields of 'Lai_1km' are not known"):
        opened(tile, layers="Lai_1km").swathmill.qa("Lai_1km")
    with pytest.raises(UnknownLayerError, match="the granule has: Fpar_1km"):
        found.swathmill.qa("absent")
    assert good.notnull().any()


def test_a_pixel_is_explained(tile: Path, swath: Path) -> None:
    found = opened(tile)
    told = found.swathmill.explain("Lai_1km", -3.2, 55.9)
    assert told.origin is not None
    assert told.origin.granule == tile.name
    assert (told.row, told.column) == (told.origin.row, told.origin.column)
    value = found.Lai_1km.values[0, told.row, told.column]
    assert value == pytest.approx(told.value) if told.value is not None else np.isnan(value)
    assert told.origin.quality[0].fields[0].name == "MODLAND"
    cut = found.isel(y=slice(100, None), x=slice(50, None))
    other = cut.swathmill.explain("Lai_1km", -3.2, 55.9)
    assert (other.row, other.column) == (told.row - 100, told.column - 50)
    with pytest.raises(ChoiceRefusedError, match="outside the dataset"):
        found.swathmill.explain("Lai_1km", 100.0, 0.0)
    with pytest.raises(ChoiceRefusedError, match="was computed"):
        (found * 2).swathmill.explain("Lai_1km", -3.2, 55.9)
    seen = opened(swath)
    row, column = 100, 60
    lon, lat = float(seen.lon[row, column]), float(seen.lat[row, column])
    told = seen.swathmill.explain("Optical_Depth_Land_And_Ocean", lon, lat)
    assert (told.row, told.column) == (row, column)


def test_a_swath_is_written_as_cf_asks(swath: Path, tmp_path: Path) -> None:
    """Names of bands are labels beside their axis, and a plain number has units."""
    found = opened(swath)
    found.to_netcdf(tmp_path / "swath.nc")
    with xr.open_dataset(tmp_path / "swath.nc") as back:
        assert back.Solution_3_Land_name.values.tolist() == ["0.47 µm", "0.55 µm", "0.66 µm"]
        assert back.Optical_Depth_Land_And_Ocean.attrs["units"] == "1"
        assert np.array_equal(back.scan_time, found.scan_time)
        assert np.allclose(back.Sensor_Zenith, found.Sensor_Zenith, equal_nan=True)


def test_coordinates_of_a_grid_are_written_without_a_fill_value(tile: Path, tmp_path: Path) -> None:
    opened(tile).to_netcdf(tmp_path / "tile.nc")
    with xr.open_dataset(tmp_path / "tile.nc", mask_and_scale=False) as raw:
        for name in ("x", "y"):
            assert "_FillValue" not in raw[name].attrs


def test_it_is_written_as_packed_and_read_again(tile: Path, tmp_path: Path) -> None:
    found = opened(tile)
    found.to_netcdf(tmp_path / "tile.nc")
    with (
        open_granule(tile) as granule,
        xr.open_dataset(
            tmp_path / "tile.nc", engine="netcdf4", mask_and_scale=False, decode_coords="all"
        ) as raw,
    ):
        stored, why = granule.read("Lai_1km"), reasons(granule, "Lai_1km")
        layer = granule.layer("Lai_1km")
        assert raw.Lai_1km.dtype == layer.dtype
        assert np.array_equal(raw.Lai_1km.values[0][why == 0], stored[why == 0])
        assert is_fill(raw.Lai_1km.values[0][why != 0], layer).all()
        assert raw.Lai_1km.encoding["grid_mapping"] == "spatial_ref"
        assert np.array_equal(raw.FparLai_QC.values[0], granule.read("FparLai_QC"))


def test_each_group_is_a_node_of_a_tree(tmp_path: Path) -> None:
    known = catalogue.product("MOD09GA", "61")
    assert known is not None
    path = write_product(tmp_path, known, "61", date(2020, 1, 1))
    tree = xr.open_datatree(path, engine="swathmill")
    assert len(tree.children) == 2
    fine = opened(path)
    assert fine.attrs["group"] == "Grid_500m"
    assert fine.attrs["other_groups"] == "Grid_1000m"
    coarse = opened(path, group="Grid_1000m")
    assert coarse.sizes["x"] < fine.sizes["x"]
    assert opened(path, layers="SensorZenith_1").attrs["group"] == "Grid_1000m"
    with pytest.raises(ChoiceRefusedError, match="open one group at a time"):
        opened(path, layers=["SensorZenith_1", "sur_refl_b01_1"])
    with pytest.raises(ChoiceRefusedError, match="its groups are: Grid_"):
        opened(path, group="absent")


def test_the_quality_of_a_window_is_its_own(tmp_path: Path) -> None:
    """The tile's QA refuses its second row, and its third for "best"."""
    write_granule(tmp_path / "a.hdf", small_tile())
    with open_granule(tmp_path / "a.hdf") as granule:
        why = reasons(granule, "Lai_1km", "best")
    assert why[1, 5] == why[2, 5] == Reason.QA
    for rows, columns in ((slice(1, 5), slice(0, 9)), (slice(2, 3), slice(4, 24))):
        held = opened(tmp_path / "a.hdf", layers="Lai_1km", qa="best").Lai_1km[0, rows, columns]
        assert np.array_equal(np.isnan(held.values), why[rows, columns] != Reason.VALID)
    assert held.attrs["quality_rule"] == "best"


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"layer": "Lai_1km"}, ChoiceRefusedError, "no option 'layer': choose among layers"),
        ({"mask_and_scale": False}, ChoiceRefusedError, 'units="stored" and mask=False'),
        ({"layers": "Lai"}, UnknownLayerError, "the granule has: Fpar_1km"),
        ({"units": "metres"}, ChoiceRefusedError, "choose stored or physical or brightness"),
        ({"qa": "good", "mask": False}, ChoiceRefusedError, "leave out one of the two"),
        ({"qa": "fine"}, ChoiceRefusedError, "fine"),
        ({"qa": {"absent": [1]}}, ChoiceRefusedError, "which MCD15A2"),
    ],
)
def test_what_does_not_fit_is_refused(
    tile: Path, options: dict[str, Any], error: type[ReprojectionError], told: str
) -> None:
    with pytest.raises(error, match=told):
        opened(tile, **options)


def test_a_window_without_data_is_no_fault_of_the_range(tmp_path: Path) -> None:
    """A file's own range may leave nothing of a window over, but not nothing of the layer."""
    values = np.full((40, 40), 3000, np.int16)
    values[:2] = 20_000
    for name, highest in (("some", 16_000), ("none", 2_000)):
        field = FieldToWrite(
            name="LST",
            values=values,
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, highest), "_FillValue": -1},
            attributes={},
        )
        granule = small_tile(product="MOD99A1", side=40, fields=[field])
        path = tmp_path / f"{name}.hdf"
        write_granule(path, granule)
        held = opened(path).LST
        if name == "some":
            assert np.isnan(held[:, :2].values).all()
            assert (held[:, 2:].values == 3000).all()
        else:
            for few in (held[:, 2:], held[:, 2:4, :4]):
                with pytest.raises(RangeExcludesAllError, match="1,600 values"):
                    few.load()


def test_what_is_no_granule_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "MOD13Q1.A2012001.h17v03.061.2020001000000.hdf"
    page.write_text("<html>sign in</html>")
    with pytest.raises(BadFormatError, match="web page"):
        opened(page)
    with pytest.raises(ChoiceRefusedError, match="fetch the granule first"):
        xr.open_dataset("https://example.org/a.hdf", engine="swathmill")
    with page.open("rb") as file, pytest.raises(ChoiceRefusedError, match="give its path"):
        xr.open_dataset(file, engine="swathmill")


def test_xarray_finds_the_engine_by_the_granule(tile: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "Lai_1km" in xr.open_dataset(tile)
