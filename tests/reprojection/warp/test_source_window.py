"""No pixel of a target takes a source pixel beyond the part that is read for it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from reprojection.errors import GridError
from reprojection.grid.covering import project_bounds
from reprojection.grid.crs import MODIS_SINUSOIDAL
from reprojection.grid.grids import Grid, Lattice
from reprojection.read.granule import Part
from reprojection.resampling import METHODS
from reprojection.warp import source_window as module
from reprojection.warp.source_window import source_window
from reprojection.warp.warp import warp
from tests.reprojection.warp_samples import FILL, source, tile

_ROTATED = "+proj=sinu +lon_0=-75 +R=6371007.181 +nadgrids=@null +units=m +no_defs"
_POLAR = "+proj=laea +lat_0=90 +lon_0=0 +R=6371228 +nadgrids=@null +units=m +no_defs"
_TURNED = 0.31  # radians of a target that is rotated


def _geographic(pixel: float) -> Grid:
    width, height = round(360 / pixel), round(180 / pixel)
    transform = pixel, 0.0, -180.0, 0.0, -pixel, 90.0
    return Grid(crs="EPSG:4326", transform=transform, width=width, height=height)


def _around(crs: str, x: float, y: float, pixel: float, side: int) -> Grid:
    transform = pixel, 0.0, x - pixel * side / 2, 0.0, -pixel, y + pixel * side / 2
    return Grid(crs=crs, transform=transform, width=side, height=side)


SOURCES = {
    "sinusoidal": [tile(18, 3), tile(17, 3)],
    "sinusoidal at the rim": [tile(35, 8), tile(0, 8)],
    "far north": [tile(18, 0), tile(17, 0), tile(18, 1)],
    "globe": [_geographic(0.25)],
    "polar": [_around(_POLAR, -6e5, 4e5, 1000.0, 1200), _around(_POLAR, 6e5, 4e5, 1000.0, 1200)],
    "rotated": [_around(_ROTATED, 5e5, 3e5, 1000.0, 900)],
}


def _middle(name: str, rng: np.random.Generator) -> tuple[float, float]:
    """Choose a place in the first source or close to its edge."""
    grid = SOURCES[name][0]
    a, _, c, _, e, f = grid.transform
    across, down = rng.choice([0.0, 0.03, 0.4, 0.97, 1.0], 2)
    x, y = c + a * grid.width * across, f + e * grid.height * down
    lon, lat = grid.system.to_lonlat(np.array([x]), np.array([y]))
    return float(lon[0]), float(lat[0])


def _targets(name: str, rng: np.random.Generator, sides: Sequence[float]) -> list[Grid]:
    """Small grids of several maps and resolutions around a place, one of them turned."""
    lon, lat = _middle(name, rng)
    if not np.isfinite(lon):
        return []
    side = float(rng.choice(sides))
    box = lon - side, max(lat - side, -89.9), lon + side, min(lat + side, 89.9)
    pixels = int(rng.integers(5, 40))
    found = []
    utm = f"EPSG:{32600 + int((lon + 180) // 6) % 60 + 1}"
    for crs in ("EPSG:4326", utm, "EPSG:3035", MODIS_SINUSOIDAL, "EPSG:3413"):
        try:
            west, south, east, north = project_bounds(box, crs)
        except GridError:  # the map does not hold the place
            continue
        if not np.isfinite([west, south, east, north]).all() or east <= west:
            continue
        lattice = Lattice(crs=crs, resolution=(east - west) / pixels)
        grid = lattice.snap((west, south, east, north))
        if grid.width * grid.height < 20_000:
            found.append(grid)
    if not found:
        return []
    a, _, c, _, e, f = found[-1].transform
    cos, sin = np.cos(_TURNED), np.sin(_TURNED)
    turned = float(a * cos), float(-a * sin), c, float(e * sin), float(e * cos), f
    found.append(replace(found[-1], transform=turned))
    if name.startswith("sinusoidal"):  # the tiles' own pixels are copied
        lattice = Lattice(crs=MODIS_SINUSOIDAL, resolution=abs(SOURCES[name][0].transform[0]))
        found.append(lattice.snap(project_bounds(box, MODIS_SINUSOIDAL)))
    return [grid for grid in found if grid.width * grid.height < 20_000]


def _beyond(seed: int, part: Part, grid: Grid, kept: np.ndarray) -> np.ndarray:
    other = np.random.default_rng(seed + 1).integers(0, 100, grid.shape).astype(np.int16)
    at = np.s_[part.row : part.row + part.rows, part.column : part.column + part.columns]
    other[at] = kept[at]
    return other


def differing(
    name: str, seed: int, sides: Sequence[float], methods: Iterable[str], most: int
) -> tuple[int, int, int]:
    """Warp onto random targets with other pixels beyond the parts; count targets that differ, those
    of which a part was read, and all."""
    rng = np.random.default_rng(seed)
    grids = SOURCES[name]
    pixels = [
        np.random.default_rng((seed, n)).integers(0, 100, grid.shape).astype(np.int16)
        for n, grid in enumerate(grids)
    ]
    for band in pixels:
        band[np.random.default_rng(seed).random(band.shape) < 0.1] = FILL
    wrong = small = 0
    targets = _targets(name, rng, sides)[-most:]
    for target in targets:
        parts = [source_window(grid, target) for grid in grids]
        poisoned = [
            source(grid, _beyond(seed, part, grid, band))
            for grid, part, band in zip(grids, parts, pixels, strict=True)
        ]
        whole = [source(grid, band) for grid, band in zip(grids, pixels, strict=True)]
        small += any(part.rows * part.columns < 0.5 * grid.height * grid.width
                     for grid, part in zip(grids, parts, strict=True))  # fmt: skip
        for method in methods:
            mine = warp(poisoned, target, method, fill=FILL)  # type: ignore[arg-type]
            wanted = warp(whole, target, method, fill=FILL)  # type: ignore[arg-type]
            wrong += not np.array_equal(mine, wanted)
    return wrong, small, len(targets)


@pytest.mark.parametrize("name", SOURCES)
def test_no_pixel_takes_what_lies_beyond_the_part(name: str) -> None:
    wrong, small, every = differing(name, 1, (0.1,), ("cubic", "average"), 3)
    assert wrong == 0
    assert small == every == 3


@pytest.mark.proof
@pytest.mark.parametrize("name", SOURCES)
def test_no_pixel_of_many_targets_takes_what_lies_beyond_the_part(name: str) -> None:
    counts = [differing(name, seed, (0.03, 0.4, 2.0), METHODS, 9) for seed in range(20)]
    assert sum(wrong for wrong, _, _ in counts) == 0
    assert sum(small for _, small, _ in counts) > 0.4 * sum(every for _, _, every in counts)


def test_for_a_target_of_very_many_pixels_the_whole_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (globe,) = SOURCES["globe"]
    target = Lattice(crs="EPSG:4326", resolution=0.1).snap((10.0, 10.0, 11.0, 11.0))
    monkeypatch.setattr(module, "_MOST", 100)
    assert source_window(globe, target).rows < 30
    monkeypatch.setattr(module, "_MOST", 99)
    assert source_window(globe, target) == (0, 0, *globe.shape)


def test_a_part_goes_on_beyond_180_degrees() -> None:
    """A kernel at the eastern rim of a globe takes pixels of the western one."""
    (globe,) = SOURCES["globe"]
    target = Lattice(crs="EPSG:4326", resolution=0.1).snap((178.0, 10.0, 180.0, 11.0))
    part = source_window(globe, target)
    assert (part.column, part.columns) == (0, globe.width)
    assert part.rows < 30
