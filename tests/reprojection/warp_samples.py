"""Sources and targets that the warp tests share."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from reprojection.grid.covering import project_bounds
from reprojection.grid.grids import Grid, Lattice, modis_tile_grid
from reprojection.warp.warp import SourceTile

FILL = -28672


def tile(h: int, v: int, resolution: int = 1000) -> Grid:
    return modis_tile_grid(h, v, resolution)


@cache
def noisy(grid: Grid, seed: int, dtype: str = "int16", share: float = 0.1) -> NDArray[np.integer]:
    """Random pixels, some of them fill; made once, so not to be changed."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 100, grid.shape).astype(dtype)
    pixels[rng.random(grid.shape) < share] = np.array(FILL if dtype == "int16" else 255)
    pixels.flags.writeable = False
    return pixels


def smooth(grid: Grid) -> NDArray[np.int16]:
    """Waves some tens of pixels long, without fill; the same wherever a tile ends."""
    a, _, c, _, e, f = grid.transform
    x = (c + a * (np.arange(grid.width) + 0.5)) / a
    y = (f + e * (np.arange(grid.height) + 0.5)) / a
    waves = 6000 + 2500 * np.sin(x / 41)[None, :] + 2500 * np.cos(y / 37)[:, None]
    pixels: NDArray[np.int16] = np.rint(waves).astype(np.int16)
    return pixels


def source(grid: Grid, *bands: NDArray[np.generic]) -> SourceTile:
    return SourceTile(bands=list(bands), grid=grid)  # type: ignore[arg-type]


@cache
def target(crs: str, resolution: float, box: tuple[float, float, float, float]) -> Grid:
    return Lattice(crs=crs, resolution=resolution).snap(project_bounds(box, crs))
