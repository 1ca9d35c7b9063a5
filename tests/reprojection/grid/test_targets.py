"""Where pixel centres lie: by plan within a metre of PROJ, and the same by any run of rows."""

import numpy as np
import pytest

from reprojection.grid.coordinates import Numbering
from reprojection.grid.covering import project_bounds
from reprojection.grid.grids import Extent, Grid, Lattice
from reprojection.grid.sphere import unit_vectors
from reprojection.grid.targets import Centres, pixel_centres

RADIUS_M = 6371007.181


def exact(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    numbering = Numbering.of(grid)
    rows = np.arange(grid.height, dtype=np.float64) + (numbering.row + 0.5)
    cols = np.arange(grid.width, dtype=np.float64) + (numbering.col + 0.5)
    x, y = np.broadcast_arrays(*numbering.xy(rows[:, None], cols[None, :]))
    lon, lat = grid.system.to_lonlat(x.ravel(), y.ravel())
    return lon.reshape(grid.shape), lat.reshape(grid.shape)


@pytest.mark.parametrize(
    ("crs", "resolution", "box"),
    [
        ("EPSG:32632", 1000.0, (4, 40, 12, 46)),
        ("EPSG:3413", 5000.0, (-180, 75, 180, 90)),
        ("EPSG:2193", 2000.0, (165, -48, 179, -34)),
        ("ESRI:54009", 50000.0, (-180, -80, 180, 80)),
    ],
)
def test_centres_lie_within_a_metre_of_proj(
    crs: str, resolution: float, box: tuple[float, float, float, float]
) -> None:
    grid = Lattice(crs=crs, resolution=resolution).snap(project_bounds(Extent(*box), crs))
    found = pixel_centres(grid)
    lon, lat = exact(grid)
    assert np.array_equal(np.isnan(found.lat + found.lon), np.isnan(lat + lon))
    apart = np.stack(unit_vectors(found.lat, found.lon)) - np.stack(unit_vectors(lat, lon))
    assert np.nanmax(np.linalg.norm(apart, axis=0)) * RADIUS_M < 1.0


@pytest.mark.parametrize("crs", ["EPSG:32632", "EPSG:4326"])
def test_a_run_of_rows_has_the_same_centres(crs: str) -> None:
    resolution = 1000.0 if crs == "EPSG:32632" else 0.01
    grid = Lattice(crs=crs, resolution=resolution).snap(project_bounds((4, 44, 7, 47), crs))
    whole, part = pixel_centres(grid), Centres(grid).rows(101, 262)
    assert np.array_equal(np.broadcast_to(whole.lat, grid.shape)[101:262], part.lat + 0 * part.lon)
    assert np.array_equal(np.broadcast_to(whole.lon, grid.shape)[101:262], part.lon + 0 * part.lat)
