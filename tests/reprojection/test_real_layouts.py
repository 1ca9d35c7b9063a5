"""Forms of real netCDF-4 files: groups within groups, square swaths, maps of the whole Earth."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from reprojection.grid.grids import Lattice
from reprojection.read.granule import open_granule
from reprojection.reproject import Options, reproject

NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable.        60"


def swath(path: Path, groups: tuple[str, str], rows: int, columns: int) -> Path:
    """A netCDF-4 swath whose dimensions have no variables, as most have."""
    down, across = np.indices((rows, columns))
    with h5py.File(path, "w") as file:
        file.attrs["ShortName"] = np.bytes_("VNP21")
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
    path = swath(tmp_path / "VNP21.A2023001.1030.002.2023002000000.nc", groups, 60, columns)
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
