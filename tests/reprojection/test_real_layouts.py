"""Forms of real netCDF-4 files: groups within groups, square swaths, maps of the whole Earth."""

from datetime import UTC, datetime
from pathlib import Path

import h5py
import numpy as np
import pytest

from reprojection.grid.grids import Lattice
from reprojection.read.granule import open_granule
from reprojection.read.outline import outline
from reprojection.reproject import Options, reproject
from tests.reprojection.headers import header, write

NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable.        60"


def swath(path: Path, groups: tuple[str, str], rows: int, columns: int) -> Path:
    """A netCDF-4 swath whose dimensions have no variables, as most have."""
    down, across = np.indices((rows, columns))
    with h5py.File(path, "w") as file:
        file.attrs["ShortName"] = np.bytes_("VNP98")
        scales = {"number_of_lines": rows, "number_of_pixels": columns}
        for name, length in scales.items():
            file[name] = np.zeros(length, np.float32)
            file[name].make_scale(NOT_A_VARIABLE)
        places = {
            f"{groups[0]}/latitude": (48.0 - 0.1 * down).astype(np.float32),
            f"{groups[0]}/longitude": (6.0 + 0.1 * across).astype(np.float32),
            f"{groups[1]}/LST": (280 + down % 10).astype(np.float32),
        }
        for name, values in places.items():
            made = file.create_dataset(name, data=values)
            for axis, scale in enumerate(scales):
                made.dims[axis].attach_scale(file[scale])
    return path


@pytest.mark.parametrize(
    "groups",
    [
        ("GeolocationData", "SnowData"),
        ("VIIRS_Swath_LSTE/Geolocation Fields", "VIIRS_Swath_LSTE/Data Fields"),
        ("a/b/c/place", "a/b/c/data"),
    ],
)
@pytest.mark.parametrize("columns", [60, 50])
def test_layers_of_groups_are_read_also_where_lines_are_as_many_as_pixels(
    tmp_path: Path, groups: tuple[str, str], columns: int
) -> None:
    path = swath(tmp_path / "VNP98.A2023001.1030.002.2023002000000.nc", groups, 60, columns)
    with open_granule(path) as granule:
        layer = granule.layer("LST")
        assert (layer.dims, layer.shape) == (("number_of_lines", "number_of_pixels"), (60, columns))
    grid = Lattice(crs="EPSG:4326", resolution=0.07).snap((6.5, 43.0, 10.0, 47.0))
    found = reproject([path], "LST", grid, Options(resampling="nearest"))
    assert found.valid_share > 0.8
    assert 280 <= float(np.nanmin(found.values())) <= float(np.nanmax(found.values())) <= 289


def test_a_map_of_the_whole_earth_ends_at_the_poles(tmp_path: Path) -> None:
    """Coordinates in float32 put its corner a rounding beyond."""
    path = tmp_path / "A20180012018031.L3m_MO_CHL_chlor_a_9km.nc"
    with h5py.File(path, "w") as file:
        lat = np.linspace(90 - 1 / 24, -90 + 1 / 24, 2160).astype(np.float32)
        lon = np.linspace(-180 + 1 / 24, 180 - 1 / 24, 4320).astype(np.float32)
        file["lat"], file["lon"] = lat + np.float32(2.5e-6), lon
        file["chlor_a"] = np.full((2160, 4320), 1.5, np.float32)
        for axis, name in enumerate(("lat", "lon")):
            file[name].make_scale(name)
            file["chlor_a"].dims[axis].attach_scale(file[name])
    with open_granule(path) as granule:
        (grid,) = granule.grids.values()
        assert (grid.left, grid.bottom, grid.right, grid.top) == (-180.0, -90.0, 180.0, 90.0)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "count", "mean"),
    [("S2008001.L3m_DAY", 9, 1.24559), ("S20080012008031.L3m_MO", 11, 1.19203)],
)
def test_real_maps_of_ocean_colour(granules: Path, name: str, count: int, mean: float) -> None:
    (path,) = granules.glob(f"new-real/{name}_CHL_chlor_a_9km.nc")
    whole = Lattice(crs="EPSG:4326", resolution=1 / 12).snap((-180.0, -90.0, 180.0, 90.0))
    found = reproject([path], "chlor_a", whole, Options(resampling="nearest"))
    values = found.values()
    assert int(np.isfinite(values).sum()) == count
    assert np.nanmean(values) == pytest.approx(mean, abs=1e-5)


def sst(path: Path) -> Path:
    """A swath as the Group for High Resolution Sea Surface Temperature has them (L2P)."""
    down, across = np.indices((1, 40, 60))[1:]
    with h5py.File(path, "w") as file:
        file.attrs["id"] = np.bytes_("MODIS_A-JPL-L2P-v2019.0")
        file.attrs["Conventions"] = np.bytes_("CF-1.7, ACDD-1.3")
        file.attrs["comment"] = np.bytes_("L2P Core; Night, Start Node:Descending")
        file.attrs["time_coverage_start"] = np.bytes_("20190805T065501Z")
        file.attrs["time_coverage_end"] = np.bytes_("20190805T065958Z")
        for name, size in (("time", 1), ("nj", 40), ("ni", 60)):
            file[name] = np.zeros(size, np.int32)
            file[name].make_scale(name)
        file["lat"] = (48.05 - 0.1 * down[0]).astype(np.float32)
        file["lon"] = (6.05 + 0.1 * across[0]).astype(np.float32)
        file["sea_surface_temperature"] = (10 * across).astype(np.int16)
        file["quality_level"] = (across % 6).astype(np.int8)
        for name, dims in (
            ("lat", ("nj", "ni")),
            ("lon", ("nj", "ni")),
            ("sea_surface_temperature", ("time", "nj", "ni")),
            ("quality_level", ("time", "nj", "ni")),
        ):
            for axis, dim in enumerate(dims):
                file[name].dims[axis].attach_scale(file[dim])
        stated = {"scale_factor": 0.005, "add_offset": 273.15}
        file["sea_surface_temperature"].attrs.update(stated, _FillValue=np.int16(-32767))
        file["quality_level"].attrs.update(
            valid_min=np.int8(0), valid_max=np.int8(5), _FillValue=np.int8(-128)
        )
    return path


def test_sea_surface_temperature_of_ghrsst_is_placed_masked_and_dated(tmp_path: Path) -> None:
    path = sst(tmp_path / "20190805065501-JPL-L2P_GHRSST-SSTskin-MODIS_A-N-v02.0-fv01.0.nc")
    with open_granule(path) as granule:
        assert (granule.product, granule.collection) == ("MODIS_A-JPL-L2P", "2019")
        assert granule.day_night == "night"
        assert granule.start == datetime(2019, 8, 5, 6, 55, 1, tzinfo=UTC)
        layer = granule.layer("sea_surface_temperature")
        assert (layer.qa, layer.dims) == ("quality_level", ("nj", "ni"))
        assert outline(granule).boundary is not None
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap((6.45, 45.05, 10.95, 47.05))
    options = Options(resampling="nearest", units="physical", qa="good")
    found = reproject([path], "sea_surface_temperature", grid, options)
    column = np.arange(4, 4 + grid.width)
    good = np.isin(column % 6, (4, 5))
    assert np.array_equal(found.valid(), np.broadcast_to(good, grid.shape))
    right = 273.15 + 0.005 * 10 * column
    assert np.allclose(found.data[0][:, good], right[good])


def test_aerosol_of_dark_target_is_placed_scaled_and_masked_by_its_flag(tmp_path: Path) -> None:
    path, values = write(header("XAERDT_L2_MODIS_Aqua"), tmp_path)
    stored = values["/geophysical_data/Optical_Depth_Land_And_Ocean"][0]
    flag = np.resize(np.array([-9999, 0, 1, 2, 3], np.int16), stored.shape)
    flag[::2] = 3  # each of the values that are made has a flag that is good, and others
    with h5py.File(path, "a") as file:
        file["geophysical_data/Land_Ocean_Quality_Flag"][...] = flag
    step = 8 / (stored.size - 1)  # degrees: each pixel of the row at 46 degrees north is one cell
    row = (6 - 0.4 * step, 46 - 0.4 * step, 14 + 0.4 * step, 46 + 0.4 * step)
    grid = Lattice(crs="EPSG:4326", resolution=step).snap(row)
    assert grid.shape == (1, stored.size)
    for rule, wanted in (("good", (2, 3)), ("best", (3,))):
        there = (stored >= -100) & np.isin(flag, wanted)
        assert 0.3 < there.mean() < 0.8
        options = Options(resampling="nearest", units="physical", qa=rule)
        found = reproject([path], "Optical_Depth_Land_And_Ocean", grid, options)
        assert np.array_equal(found.valid()[0], there)
        assert found.data[0][0, there] == pytest.approx(0.001 * stored[there])


@pytest.mark.parametrize("name", ["_FillValue", "valid_min", "add_offset"])
@pytest.mark.parametrize("form", [np.uint8(0), np.array([0], np.uint8)])
def test_an_attribute_that_is_0_is_there(tmp_path: Path, name: str, form: object) -> None:
    path = swath(tmp_path / "VNP98.A2023001.1030.002.2023002000000.nc", ("a", "b"), 10, 12)
    with h5py.File(path, "a") as file:
        file["b/LST"].attrs.update({name: form, "valid_max": np.float32(300), "scale_factor": 1.0})
    with open_granule(path) as granule:
        layer = granule.layer("LST")
        assert layer.notes == ()
        assert (layer.fill == 0) is (name == "_FillValue")
        if name == "valid_min":
            assert layer.valid_range == (0, 300)


@pytest.mark.real_data
def test_a_real_swath_of_sea_surface_temperature(granules: Path) -> None:
    (path,) = granules.glob("new-real/SS_MODIS_A-JPL-L2P-v2014.0.nc")
    with open_granule(path) as granule:
        layer = granule.layer("sea_surface_temperature")
        stored = granule.read(layer).astype(int)
        assert layer.valid_range is not None
        low, high = layer.valid_range
        values = stored[(stored >= low) & (stored <= high)] * layer.scale + layer.offset
        place = granule.geolocation(layer)
    assert values.size == 7999
    assert (values.min(), values.max()) == (pytest.approx(268.30), pytest.approx(315.035))
    assert values.mean() == pytest.approx(295.1381, abs=1e-4)
    assert np.nanmean(place.lat) == pytest.approx(46.1955, abs=1e-4)
    assert np.nanmean(place.lon) == pytest.approx(81.81078, abs=1e-4)
