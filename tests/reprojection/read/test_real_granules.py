"""Facts about real granules that reading must get right."""

from pathlib import Path

import numpy as np
import pytest

from reprojection.catalogue.layers import LayerKind
from reprojection.errors import NoGeolocationError
from reprojection.read.granule import Granule, open_granule
from reprojection.read.outline import outline

pytestmark = pytest.mark.real_data


def the(granules: Path, pattern: str) -> Granule:
    return open_granule(sorted(granules.glob(pattern))[0])


def test_every_granule_opens_and_every_layer_reads(granules: Path) -> None:
    files = sorted(granules.glob("l*/*/*.hdf"))
    assert len(files) >= 50
    for path in files:
        with open_granule(path) as found:
            assert found.name == path.name
            assert found.entry is not None, path.name
            # All layers of one granule of each product; only some of the repeats.
            layers = list(found.layers.values())
            for layer in layers if path == sorted(path.parent.glob("*.hdf"))[0] else layers[:2]:
                bands = found.read_all_bands(layer)
                assert bands.shape[1:] == layer.shape
                assert bands.dtype == layer.dtype


def test_grids_are_where_structmetadata_says_not_the_name(granules: Path) -> None:
    for pattern, tile, size in (
        ("l3-tiles/MCD15A2/*h17v03*", (17, 3), (1200, 1200)),
        ("l3-tiles/MCD15A2/*h18v03*", (18, 3), (1200, 1200)),
        ("l3-tiles/MOD10A2/*", (9, 5), (2400, 2400)),
        ("l3-tiles/MOD11B2/*", (14, 4), (200, 200)),
        ("l3-tiles/MOD09A1_subset/*", None, (73, 66)),
        ("l3-tiles/MOD13A2_subset/*", None, (185, 219)),
    ):
        with the(granules, pattern) as found:
            (grid,) = found.grids.values()
            assert grid.tile == tile, pattern
            assert (grid.height, grid.width) == size, pattern


def test_a_subset_lies_inside_its_tile_but_is_not_it(granules: Path) -> None:
    with the(granules, "l3-tiles/MOD13A2_subset/*") as found:
        place = outline(found)
        assert place.tile is None
        assert place.boundary is not None
        lons, lats = zip(*place.boundary[0], strict=True)
        assert 48 < min(lats) < max(lats) < 51
        assert 8 < min(lons) < max(lons) < 13


def test_scaling_by_each_product(granules: Path) -> None:
    for pattern, layer, scale, offset in (
        ("l2-swath/MYD04_L2/*", "Optical_Depth_Land_And_Ocean", 0.001, 0.0),
        ("l2-swath/MYD11_L2/*", "LST", 0.02, 0.0),
        ("l2-swath/MYD11_L2/*", "Emis_31", 0.002, 0.49),
        ("l3-tiles/MOD11B2/*", "Day_view_angl", 1.0, -65.0),
        ("l3-tiles/MOD09GA/*", "sur_refl_b01_1", 0.0001, 0.0),
        ("l3-tiles/MOD09GA/*", "SensorZenith_1", 0.01, 0.0),
        ("l3-tiles/MOD09GA/*", "Range_1", 25.0, 0.0),
        ("l3-tiles/MOD09GA/*", "obscov_500m_1", 0.01, 0.0),
        ("l3-tiles/MOD09A1_subset/*", "sur_refl_b01", 0.0001, 0.0),
        ("l3-tiles/MOD13A2_subset/*", "1 km 16 days NDVI", 0.0001, 0.0),
        ("l3-tiles/MCD15A2/*", "Fpar_1km", 0.01, 0.0),
    ):
        with the(granules, pattern) as found:
            known = found.layers[layer]
            assert (known.scale, known.offset) == pytest.approx((scale, offset)), layer


def test_fills_that_are_zero_or_absent(granules: Path) -> None:
    with the(granules, "l3-tiles/MOD10A1/*") as found:
        assert found.layers["NDSI"].fill == 0
        assert found.layers["NDSI_Snow_Cover"].codes[250] == "cloud"
    with the(granules, "l3-tiles/MOD10A2/*") as found:
        assert found.layers["Eight_Day_Snow_Cover"].fill == 0
        assert found.layers["Eight_Day_Snow_Cover"].kind is LayerKind.BITFIELD
        assert found.layers["Maximum_Snow_Extent"].classes[200] == "snow"
    with the(granules, "l2-swath/MYD11_L2/*") as found:
        assert found.layers["QC"].fill is None


def test_quality_bytes_are_unsigned(granules: Path) -> None:
    for pattern in ("l2-swath/MYD04_L2/*", "l2-swath/MOD04_L2/*"):
        with the(granules, pattern) as found:
            for name in ("Quality_Assurance_Land", "Quality_Assurance_Ocean"):
                layer = found.layers[name]
                assert (layer.dtype, layer.valid_range) == (np.dtype("u1"), (0, 255))
                assert found.read(f"{name}[0]").shape == layer.shape


def test_fpar_is_a_fraction(granules: Path) -> None:
    with the(granules, "l3-tiles/MCD15A2/*") as found:
        assert found.layers["Fpar_1km"].units == "1"


def test_mod14_has_no_geolocation_and_zero_length_lists(granules: Path) -> None:
    with the(granules, "l2-swath/MOD14/*") as found:
        assert "FP_line" in found.others
        assert len(found.others) == 27
        assert found.read("fire mask").shape == (2030, 1354)
        with pytest.raises(NoGeolocationError, match="MOD03"):
            found.geolocation("fire mask")
        # Its inventory still says roughly where it is.
        assert outline(found).boundary is not None


def test_two_grids_of_one_file_are_kept_apart(granules: Path) -> None:
    with the(granules, "l3-tiles/MOD09GA/*") as found:
        assert found.layers["state_1km_1"].grid == "MODIS_Grid_1km_2D"
        assert found.layers["sur_refl_b01_1"].grid == "MODIS_Grid_500m_2D"
        assert found.layers["sur_refl_b01_1"].shape == (2400, 2400)
        assert "state_1km_c" in found.others
        values = found.read("sur_refl_b01_1")
        low, high = found.layers["sur_refl_b01_1"].valid_range or (0, 0)
        inside = np.greater_equal(values, low) & np.less_equal(values, high)
        assert np.count_nonzero(inside) == 14643


def test_swath_geolocation_is_brought_to_the_layer(granules: Path) -> None:
    with the(granules, "l2-swath/MYD11_L2/*") as found:
        coarse = found.geolocation("Latitude")
        fine = found.geolocation("LST")
        assert coarse.lat.shape == (406, 271)
        assert coarse.scan_lines == 2
        assert fine.lat.shape == (2030, 1354)
        assert fine.scan_lines == 10
        assert np.array_equal(fine.lat[2::5, 2::5], coarse.lat)
        assert np.allclose(fine.lon[2::5, 2::5], coarse.lon, atol=1e-10)
        spacing = np.hypot(np.diff(fine.lat[1000]), np.diff(fine.lon[1000]))
        assert 0.005 < spacing.min() < spacing.max() < 0.05


def test_ten_kilometre_swaths_hold_their_own_geolocation(granules: Path) -> None:
    with the(granules, "l2-swath/MYD04_L2/*0250*") as found:
        place = found.geolocation("Optical_Depth_Land_And_Ocean")
        assert place.lat.shape == (203, 135)
        assert place.scan_lines == 1
        assert place.lat.min() == pytest.approx(25.34, abs=0.005)
        assert place.lon.max() == pytest.approx(168.70, abs=0.005)
        assert place.sensor_zenith is not None
        assert place.sensor_zenith.dtype == np.float32
        assert 0 <= np.nanmin(place.sensor_zenith) < 1 < 60 < np.nanmax(place.sensor_zenith) < 70
        with pytest.raises(NoGeolocationError, match="Cell_Along_Swath_500"):
            found.geolocation("Aerosol_Cldmask_Land_Ocean")


def test_zenith_from_the_scan_agrees_with_the_stored_one(granules: Path) -> None:
    for path in sorted(granules.glob("l2-swath/M*04_L2/*.hdf")):
        with open_granule(path) as found:
            layer = found.layers["Optical_Depth_Land_And_Ocean"]
            stored = found.geolocation(layer).sensor_zenith
            assert stored is not None
            found.layers = {
                name: found.layers[name] for name in found.layers if name != "Sensor_Zenith"
            }
            computed = found.geolocation(layer).sensor_zenith
            assert computed is not None
            assert np.nanmax(np.abs(stored - computed)) < 0.3
