"""Generated granules of the families whose files have a form of their own."""

from datetime import date
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from pyhdf.SD import SD, SDC

from reprojection import catalogue
from reprojection.errors import ChoiceRefusedError, NoGeolocationError, UnknownLayerError
from reprojection.grid.grids import Lattice
from reprojection.read.granule import open_granule
from reprojection.read.outline import outline
from reprojection.read.qa import placement
from reprojection.read.temperatures import monochromatic
from reprojection.reproject import Driver, Options, reproject
from tests.generated.products import write_product

DAY = date(2020, 1, 1)
GRID = Lattice(crs="EPSG:4326", resolution=0.1).snap((8.0, 43.0, 11.0, 46.0))


def generated(folder: Path, name: str, collection: str) -> Path:
    known = catalogue.product(name, collection)
    assert known is not None
    return write_product(folder, known, collection, DAY)


def test_bands_of_level_1b_are_scaled_each_by_its_own(tmp_path: Path) -> None:
    path = generated(tmp_path, "MOD02HKM", "61")
    for band in (0, 3):
        name = f"EV_500_RefSB[{band}]"
        stored = reproject([path], name, GRID, Options())
        physical = reproject([path], name, GRID, Options(units="physical"))
        there = stored.valid()
        # reflectance_scales are 1e-4 times the band's number, reflectance_offsets count from 0.
        expected = 1e-4 * (band + 1) * (stored.data[0][there].astype(float) - band)
        assert np.allclose(physical.data[0][there], expected, rtol=1e-6)
        assert "reflectance_scales" in physical.provenance.scaling
    with open_granule(path) as granule:
        layer = granule.layer("EV_500_RefSB[1]")
        assert layer.codes[65533] == "detector saturated"
        place = granule.geolocation(layer)
        assert place.lat.shape == layer.shape
        coarse = granule.read("Latitude")
        assert np.allclose(place.lat[::2, ::2], coarse, atol=1e-3)


def test_radiance_of_emissive_bands(tmp_path: Path) -> None:
    path = generated(tmp_path, "MYD021KM", "61")
    found = reproject([path], "EV_1KM_Emissive[10]", GRID, Options(units="physical"))
    assert found.provenance.scaling.startswith("radiance_scales * (stored - radiance_offsets)")


def test_brightness_temperature_of_modis_is_that_of_its_radiance(tmp_path: Path) -> None:
    path = generated(tmp_path, "MYD021KM", "61")
    name = "EV_1KM_Emissive[10]"  # band 31
    radiance = reproject([path], name, GRID, Options(units="physical"))
    found = reproject([path], name, GRID, Options(units="brightness"))
    there = found.valid()
    assert there.any()
    assert np.array_equal(there, radiance.valid() & (radiance.data[0] > 0.0))
    # Planck's law at the wavelength of the band, as the inverse gives it back.
    metres = 1e-2 / 907.6813
    kelvin = 0.9995270 * found.data[0][there].astype(float) + 0.1343433
    h, c, k = 6.6260755e-34, 2.9979246e8, 1.380658e-23
    planck = 2e-6 * h * c**2 / metres**5 / np.expm1(h * c / (metres * k * kelvin))
    assert np.allclose(planck, radiance.data[0][there], rtol=2e-3)
    assert (found.units, found.scale, found.data.dtype.name) == ("K", 1.0, "float32")
    assert found.provenance.scaling.startswith("brightness temperature of the radiance")
    # Reflective bands have none, and stay what they are in physical units.
    other = "EV_1KM_RefSB[3]"
    one, two = (
        reproject([path], other, GRID, Options(units=u)) for u in ("physical", "brightness")
    )
    assert np.array_equal(one.data, two.data, equal_nan=True)
    with pytest.raises(ChoiceRefusedError, match="not a temperature"):
        reproject([path], name, GRID, Options(units="brightness", resampling="std"))


def test_a_worked_brightness_temperature() -> None:
    # Some 9.5 W/m2/um/sr are what a black body of 300 K radiates at 11 um.
    metres = 1e-2 / 908.0884
    h, c, k = 6.6260755e-34, 2.9979246e8, 1.380658e-23
    radiance = 2e-6 * h * c**2 / metres**5 / np.expm1(h * c / (metres * k * 300.0))
    assert 9.0 < radiance < 10.0
    assert np.allclose(monochromatic(np.array([radiance]), 908.0884), 300.0)


def test_brightness_temperature_of_viirs_is_that_of_the_file_s_table(tmp_path: Path) -> None:
    path, place = generated(tmp_path, "VNP02MOD", "2"), generated(tmp_path, "VNP03MOD", "2")
    with h5py.File(path, "a") as file:
        table = 200.0 + np.arange(65536) / 500.0
        table[:10] = -999.9
        file["observation_data/M15_brightness_temperature_lut"] = table.astype(np.float32)
    stored = reproject([path, place], "M15", GRID, Options())
    found = reproject([path, place], "M15", GRID, Options(units="brightness"))
    there = stored.valid()
    assert np.allclose(found.data[0][there], 200.0 + stored.data[0][there] / 500.0, atol=1e-4)


def test_granules_of_level_1b_whose_scales_differ_are_one_raster_in_physical_units(
    tmp_path: Path,
) -> None:
    known = catalogue.product("MOD02HKM", "61")
    assert known is not None
    first = write_product(tmp_path / "first", known, "61", DAY)
    later = write_product(tmp_path / "later", known, "61", date(2020, 1, 2))
    name = "EV_500_RefSB"
    before = reproject([first], f"{name}[1]", GRID, Options(units="physical"))
    file = SD(str(later), SDC.WRITE)
    layer = file.select(name)
    scales = layer.attributes()["reflectance_scales"]
    layer.attr("reflectance_scales").set(SDC.FLOAT32, [2.0 * one for one in scales])
    layer.endaccess()
    file.end()
    found = reproject([first, later], f"{name}[1]", GRID, Options(units="physical", merge="latest"))
    there = found.valid()
    assert np.allclose(found.data[0][there], 2.0 * before.data[0][there], rtol=1e-5)
    with pytest.raises(ChoiceRefusedError, match="or units be physical"):
        reproject([first, later], f"{name}[1]", GRID, Options())


def test_bits_of_the_cloud_mask_are_never_blended(tmp_path: Path) -> None:
    path = generated(tmp_path, "MOD35_L2", "61")
    found = reproject([path], "Cloud_Mask[0]", GRID, Options())
    assert found.kind == "bitfield"
    assert found.valid().any()


def test_black_marble_lies_on_its_own_tiles(tmp_path: Path) -> None:
    path = generated(tmp_path, "VNP46A2", "1")
    with open_granule(path) as granule:
        said = outline(granule)
    assert said.tile is None
    assert said.boundary is not None
    lons, lats = zip(*[point for ring in said.boundary for point in ring], strict=True)
    assert (min(lons), max(lons), min(lats), max(lats)) == (0.0, 10.0, 40.0, 50.0)


def test_a_mapped_netcdf_grid_is_read_by_its_coordinates(tmp_path: Path) -> None:
    path = tmp_path / "AQUA_MODIS.20200101.L3m.DAY.CHL.chlor_a.4km.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.6"
        file.time_coverage_start = "2020-01-01T00:00:00.000Z"
        file.product_name, file.processing_version = path.name, "R2022.0.2"
        file.createDimension("lat", 180)
        file.createDimension("lon", 360)
        file.createVariable("lat", "f4", ("lat",))[:] = 89.5 - np.arange(180)
        file.createVariable("lon", "f4", ("lon",))[:] = -179.5 + np.arange(360)
        values = file.createVariable("sst", "i2", ("lat", "lon"), fill_value=-32767, zlib=True)
        values.set_auto_maskandscale(False)
        values.scale_factor, values.add_offset = 0.005, 10.0
        values[:] = np.arange(180)[:, None] + np.zeros(360, int)
    stored = reproject([path], "sst", GRID, Options(resampling="nearest"))
    # Row 46 has its centre at 43.5 degrees north.
    assert set(np.unique(stored.data[0][-10:])) == {46}
    assert (stored.scale, stored.offset) == (0.005, 10.0)
    assert "catalogue" in stored.provenance.scaling
    assert (stored.provenance.product, stored.provenance.collection) == ("MODISA_L3m_CHL", "2022")


@pytest.mark.parametrize("group", ["navigation_data", "geolocation_data"])
def test_a_netcdf_swath_is_placed_by_its_own_coordinates(tmp_path: Path, group: str) -> None:
    path = tmp_path / "AQUA_MODIS.20200101T103000.L2.OC.nc"
    rows, columns = 40, 60
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.6"
        file.createDimension("number_of_lines", rows)
        file.createDimension("pixels_per_line", columns)
        dims = ("number_of_lines", "pixels_per_line")
        place, data = file.createGroup(group), file.createGroup("geophysical_data")
        lat = np.broadcast_to(47.0 - 0.12 * np.arange(rows)[:, None], (rows, columns))
        lon = np.broadcast_to(6.0 + 0.12 * np.arange(columns)[None, :], (rows, columns))
        place.createVariable("latitude", "f4", dims)[:] = lat
        place.createVariable("longitude", "f4", dims)[:] = lon
        chlor = data.createVariable("chlor_a", "f4", dims, fill_value=-32767.0)
        chlor[:] = np.arange(rows)[:, None] + np.zeros(columns)
        flags = data.createVariable("l2_flags", "i4", dims)
        flags[:] = 1
    found = reproject([path], "chlor_a", GRID, Options())
    assert found.valid().mean() > 0.9
    middle = found.data[0, 15, 15]
    assert abs(middle - (47.0 - 44.45) / 0.12) <= 1.0
    assert reproject([path], "l2_flags", GRID, Options()).kind == "bitfield"


def test_a_netcdf_file_says_what_it_is_in_attributes(tmp_path: Path) -> None:
    path = generated(tmp_path, "VNP02MOD", "2")
    renamed = path.rename(tmp_path / "renamed.nc")
    with open_granule(renamed) as granule:
        assert (granule.product, granule.collection) == ("VNP02MOD", "2")
        assert granule.start is not None
        assert granule.start.hour == 10
    with h5py.File(renamed) as file:
        assert "observation_data/M05" in file


@pytest.mark.parametrize(
    ("name", "companion", "collection", "layer"),
    [
        ("MOD14", "MOD03", "61", "fire mask"),
        ("VNP02MOD", "VNP03MOD", "2", "M05"),
        ("VNP14IMG", "VNP03IMG", "2", "fire mask"),
        ("VNP09", "VNP03MOD", "2", "750m Surface Reflectance Band M1"),
        ("VNP09", "VNP03IMG", "2", "375m Surface Reflectance Band I1"),
    ],
)
def test_granules_without_coordinates_lie_where_their_companions_say(
    tmp_path: Path, name: str, companion: str, collection: str, layer: str
) -> None:
    path = generated(tmp_path, name, collection)
    geo = generated(tmp_path, companion, collection)
    found = reproject([geo, path], layer, GRID, Options())
    assert found.valid().mean() > 0.8  # a fire mask of 0 is fill
    assert [granule.name for granule in found.provenance.granules] == [path.name]
    with pytest.raises(NoGeolocationError, match=f"{name} needs its {companion}"):
        reproject([path], layer, GRID, Options())
    other = generated(tmp_path, "MOD05_L2", "61")
    with pytest.raises(UnknownLayerError):
        reproject([path, other], layer, GRID, Options())


def test_swaths_and_companions_of_near_real_time_go_with_standard_ones(tmp_path: Path) -> None:
    both: dict[str, list[Path]] = {}
    for name in ("VNP02MOD", "VNP03MOD"):
        known = catalogue.product(name, "2")
        assert known is not None
        other = known.model_copy(update={"name": f"{name}_NRT"})
        both[name] = [write_product(tmp_path, one, "2", DAY) for one in (known, other)]
    (standard, early), (place, guess) = both.values()
    whole = reproject([standard, place], "M05", GRID, Options())
    for given, near in (((early, guess), 1), ((early, place), 1), ((standard, guess), 0)):
        found = reproject(given, "M05", GRID, Options())
        assert np.array_equal(found.data, whole.data)
        assert found.provenance.near_real_time == near
    with pytest.raises(NoGeolocationError, match="needs its VNP03MOD"):
        reproject([early], "M05", GRID, Options())


M1, I1 = "750m Surface Reflectance Band M1", "375m Surface Reflectance Band I1"
COARSE = Lattice(crs="EPSG:4326", resolution=0.05).snap((8.0, 43.5, 9.0, 44.5))


@pytest.mark.parametrize(("layer", "guide"), [(M1, "VNP03MOD"), (I1, "VNP03IMG")])
def test_each_resolution_of_a_swath_lies_where_its_own_companion_says(
    tmp_path: Path, layer: str, guide: str
) -> None:
    path = generated(tmp_path, "VNP09", "2")
    guides = [generated(tmp_path, name, "2") for name in ("VNP03MOD", "VNP03IMG")]
    found = reproject([path, *guides], layer, COARSE, Options(resampling="nearest", mask=False))
    mine = next(one for one in guides if one.name.startswith(guide))
    with h5py.File(mine) as file:
        places = [file[f"geolocation_data/{word}"][...] for word in ("latitude", "longitude")]
    lat, lon = (np.radians(one.astype(float).ravel()) for one in places)
    centre = np.radians([44.5 - 0.05 * (np.arange(20) + 0.5), 8.0 + 0.05 * (np.arange(20) + 0.5)])
    up, across = (one.ravel() for one in np.meshgrid(*centre, indexing="ij"))
    near = np.cos(up[:, None] - lat) - np.cos(up[:, None]) * np.cos(lat) * (
        1.0 - np.cos(across[:, None] - lon)
    )  # the cosine of the angle between
    stored = SD(str(path), SDC.READ).select(layer).get().ravel()
    best = near.max(axis=1)
    chosen = near == best[:, None]
    right = [value in stored[row] for value, row in zip(found.data[0].ravel(), chosen, strict=True)]
    assert all(right)
    both = Options(resampling="nearest", mask=False, driver=Driver(layer=M1 if layer == I1 else I1))
    led = reproject([path, *guides], layer, COARSE, both)
    assert np.array_equal(led.data, found.data)


def test_a_resolution_without_its_own_companion_is_refused_by_name(tmp_path: Path) -> None:
    path = generated(tmp_path, "VNP09", "2")
    coarse = generated(tmp_path, "VNP03MOD", "2")
    assert reproject([path, coarse], M1, COARSE, Options()).valid().all()
    with pytest.raises(NoGeolocationError, match="VNP09 needs its VNP03IMG of the same start"):
        reproject([path, coarse], I1, COARSE, Options())


def test_quality_of_750_m_covers_two_by_two_pixels_of_375_m(tmp_path: Path) -> None:
    with open_granule(generated(tmp_path, "VNP09", "2")) as granule:
        fine, coarse = granule.layer(I1), granule.layer("QF1 Surface Reflectance")
        assert fine.qa == coarse.name
        rows, columns = placement(granule, fine, coarse)
        assert rows is not None
        assert columns is not None
        assert rows.tolist() == [n // 2 for n in range(96)] == columns.tolist()
