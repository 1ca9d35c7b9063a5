"""The whole path on real granules, against oracles that share no code with it."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyproj
import pytest
from pyhdf.SD import SD
from scipy.spatial import cKDTree

from reprojection.grid.grids import Lattice
from reprojection.read.qa import Reason
from reprojection.reproject import Driver, Merge, Options, reproject

pytestmark = pytest.mark.real_data

AEROSOL = "Optical_Depth_Land_And_Ocean"
RADIUS_M = 6371007.181


def vectors(lat: npt.NDArray[np.float64], lon: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    phi, lam = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


def radii(centres: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Half diagonals of the footprints of a swath with one line per scan."""
    across = np.linalg.norm(np.diff(centres, axis=1), axis=-1)
    along = np.linalg.norm(np.diff(centres, axis=0), axis=-1)
    a = np.maximum(np.pad(across, ((0, 0), (1, 0))), np.pad(across, ((0, 0), (0, 1))))
    b = np.maximum(np.pad(along, ((1, 0), (0, 0))), np.pad(along, ((0, 1), (0, 0))))
    radius: npt.NDArray[np.float64] = np.hypot(a, b) / 2
    return radius


def test_ten_aerosol_granules_of_four_orbits(granules: Path) -> None:
    """Every cell: footprint radius, smallest zenith among valid, then newest."""
    files = sorted((granules / "l2-swath/MYD04_L2").glob("*.hdf"))
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap((70, 15, 150, 55))
    lat = 55 - (np.arange(400) + 0.5) * 0.1
    lon = 70 + (np.arange(800) + 0.5) * 0.1
    wanted = vectors(*np.meshgrid(lat, lon, indexing="ij"))
    expected = np.full(grid.shape, -9999, np.int16)
    covered = np.zeros(grid.shape, bool)
    best = np.full(grid.shape, np.inf)
    touching = 0
    unsure = np.zeros(grid.shape, bool)
    for file in files:
        sds = SD(str(file))
        centres = vectors(
            sds.select("Latitude").get().astype(float), sds.select("Longitude").get().astype(float)
        )
        values, zenith = sds.select(AEROSOL).get(), sds.select("Sensor_Zenith").get()
        reaches = radii(centres).ravel()
        distance, index = cKDTree(centres.reshape(-1, 3)).query(
            wanted, distance_upper_bound=1.001 * reaches.max()
        )
        index = np.minimum(index, reaches.size - 1)  # of places that are too far, at no distance
        reach = reaches[index]
        unsure |= np.abs(distance - reach) * RADIUS_M < 1e-3
        seen = distance <= reach
        touching += bool(seen.any())
        covered |= seen
        value, angle = values.ravel()[index], zenith.ravel()[index]
        better = seen & (value != -9999) & (value >= -100) & (value <= 5000) & (angle <= best)
        expected[better], best[better] = value[better], angle[better]
        sds.end()
    assert touching == 10
    assert not unsure.any()
    extra = Options(extra_bands=("count", "source", "reason"))
    found = reproject(files, AEROSOL, grid, extra)
    assert np.array_equal(found.data[0], expected)
    assert found.nodata == -9999
    assert np.array_equal(found.data[3] != Reason.NO_GRANULE, covered)
    assert 0.05 < (expected != -9999).mean() < 0.2
    assert np.array_equal(found.data[1] > 0, expected != -9999)
    assert np.array_equal(found.data[2] > 0, expected != -9999)


def test_no_holes_inside_the_swaths_with_masking_off(granules: Path) -> None:
    files = sorted((granules / "l2-swath/MYD04_L2").glob("*.hdf"))
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap((70, 15, 150, 55))
    found = reproject(files, "Sensor_Zenith", grid, Options(mask=False, extra_bands=("reason",)))
    covered = found.data[1] != Reason.NO_GRANULE
    left = (
        np.maximum.accumulate(covered, axis=1)
        & np.maximum.accumulate(covered[:, ::-1], axis=1)[:, ::-1]
    )
    up = np.maximum.accumulate(covered, axis=0) & np.maximum.accumulate(covered[::-1], axis=0)[::-1]
    holes = left & up & ~covered
    # The gap between two orbits opens to the south: only single pixels count as holes.
    alone = holes.copy()
    for shift, axis in ((1, 0), (-1, 0), (1, 1), (-1, 1)):
        alone &= ~np.roll(holes, shift, axis)
    assert alone.sum() < 0.001 * covered.sum()


def test_two_tiles_against_a_float64_warp(granules: Path) -> None:
    files = sorted((granules / "l3-tiles/MCD15A2").glob("*.A2012001.*.hdf"))
    grid = Lattice(crs="EPSG:4326", resolution=0.01).snap((-8.0, 50.5, 6.0, 58.5))
    found = reproject(files, "Lai_1km", grid, Options(resampling="nearest"))
    assert (found.data.dtype, found.nodata, found.scale) == (np.dtype(np.uint8), 255, 0.1)
    assert found.valid().mean() == pytest.approx(0.361, abs=0.002)

    tile = math.pi * RADIUS_M / 18
    pixel = tile / 1200
    source = np.concatenate([SD(str(file)).select("Lai_1km").get() for file in files], axis=1)
    to_map = pyproj.Transformer.from_crs(
        pyproj.CRS.from_proj4(f"+proj=longlat +R={RADIUS_M} +no_defs"),
        pyproj.CRS.from_proj4(f"+proj=sinu +R={RADIUS_M} +units=m +no_defs"),
        always_xy=True,
    )
    lon, lat = np.meshgrid(
        -8 + (np.arange(1400) + 0.5) * 0.01, 58.5 - (np.arange(800) + 0.5) * 0.01
    )
    x, y = to_map.transform(lon, lat)
    col, row = (x + tile) / pixel, (6 * tile - y) / pixel
    inside = (row >= 0) & (row < 1200) & (col >= 0) & (col < 2400)
    expected = np.full(grid.shape, 255, np.uint8)
    expected[inside] = source[row[inside].astype(int), col[inside].astype(int)]
    expected[expected > 100] = 255
    edge = np.minimum(np.abs(col - np.rint(col)), np.abs(row - np.rint(row))) < 1e-3
    assert np.array_equal(found.data[0][~edge], expected[~edge])
    # Every fifth row of 0.01 degrees runs exactly along the edge between two rows of pixels.
    assert edge.mean() < 0.21


def test_land_surface_temperature_at_one_kilometre(granules: Path) -> None:
    """Coarse geolocation and ten lines a scan; the night granule has 1% of values."""
    (file,) = (granules / "l2-swath/MYD11_L2").glob("*.hdf")
    grid = Lattice(crs="EPSG:4326", resolution=0.05).snap((-40, 0, -12, 23))
    found = reproject([file], "LST", grid, Options(extra_bands=("reason",), units="physical"))
    assert found.data.dtype == np.float32
    covered = found.data[1] != Reason.NO_GRANULE
    assert covered.any()
    temperatures = found.values()[found.valid()]
    assert temperatures.size > 20
    assert 220 < temperatures.min() < temperatures.max() < 320


@pytest.mark.parametrize(
    ("merge", "method"),
    [
        ("nadir", "nearest"),
        ("first", "nearest"),
        pytest.param("latest", "average", marks=pytest.mark.proof),
    ],
)
def test_layers_of_one_product_never_pair_granules(
    granules: Path, merge: Merge, method: str
) -> None:
    """Zenith, time and quality of the very granule that the optical depth is of, in each pixel."""
    files = sorted((granules / "l2-swath/MYD04_L2").glob("*.hdf"))
    grid = Lattice(crs="EPSG:4326", resolution=0.25).snap((70, 15, 150, 55))
    alone = Options(resampling=method, merge=merge, extra_bands=("source", "reason"))
    lead = reproject(files, AEROSOL, grid, alone)
    number = lead.data[1].astype(int)
    follows = replace(alone, driver=Driver(layer=AEROSOL, resampling=method))
    mixed = 0
    for layer in ("Solar_Zenith", "Scan_Start_Time", "Image_Optical_Depth_Land_And_Ocean"):
        other = reproject(files, layer, grid, follows)
        assert other.provenance.granules == lead.provenance.granules
        source, some = other.data[1].astype(int), other.valid(0)
        both = (number > 0) & (source > 0)
        assert both.sum() > 1000
        assert np.array_equal(number[both], source[both])
        assert (some == (source > 0)).all()
        by_itself = reproject(files, layer, grid, alone)
        mixed += int(((by_itself.data[1] != number) & both).sum())
        # What no granule but the driving layer's own could give is not lost where that has fill.
        assert ((number > 0) | (source > 0) | ~by_itself.valid(0)).mean() > 0.99
    assert mixed > 0  # by themselves the layers pair granules
