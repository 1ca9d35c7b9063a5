"""Estimate what a request would make, from its document alone: raster size, cells, tiles, sites."""

from dataclasses import dataclass

from reprojection.grid.grids import Grid
from tasks.request.checks import check_request
from tasks.request.notes import reach_text, request_notes
from tasks.request.region.kinds import region_area, region_tiles
from tasks.request.resolved import ResolvedRequest
from tasks.request.sites import parse_sites
from tasks.request.target import Target
from tasks.settings import Settings

_MOST_TILES = 24


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The largest raster's size in pixels, the pixel's side and unit, cells and tiles touched.

    `reach` says from where to where the region reaches. `sites` counts those that it reads in place
    of making rasters; 0: it makes rasters.
    """

    width: int
    height: int
    pixel: float
    unit: str
    cells: int
    layers: int
    days: int
    sites: int
    tiles: tuple[str, ...]
    more_tiles: int
    notes: tuple[str, ...]
    reach: str

    @property
    def pixels(self) -> int:
        """Number of pixels of one raster."""
        return self.width * self.height

    @property
    def bytes_each(self) -> int:
        """Size of one uncompressed raster of 16-bit values, in bytes."""
        return 2 * self.pixels


def estimate(resolved: ResolvedRequest, limits: Settings) -> Estimate:
    """Check a request by its document and say what it would make.

    Raises RequestRefusedError, which names the field, as `tasks.request.checks.check_request` does.
    """
    check_request(resolved, limits)
    request, made = resolved.request, resolved.target
    largest, pixel, unit = _raster(made)
    tiles = sorted(region_tiles(request.region), key=lambda tile: (tile.v, tile.h))
    return Estimate(
        width=largest.width,
        height=largest.height,
        pixel=pixel,
        unit=unit,
        cells=_cells(made),
        layers=sum(len(one.layers) for one in resolved.products if one.number == one.head),
        days=request.time.days,
        sites=len(parse_sites(request.region.sites)) if request.region.sites else 0,
        tiles=tuple(tile.name for tile in tiles[:_MOST_TILES]),
        more_tiles=max(0, len(tiles) - _MOST_TILES),
        notes=request_notes(resolved),
        reach=reach_text(region_area(request.region).bounds),
    )


def raster_text(resolved: ResolvedRequest) -> str:
    """Say how large the largest raster is and how far its region reaches; "": none is made."""
    if resolved.request.region.in_place:
        return ""
    grid, pixel, unit = _raster(resolved.target)
    reach = reach_text(region_area(resolved.request.region).bounds)
    return f"{grid.width:,} x {grid.height:,} pixels of {pixel:.6g} {unit}, {reach}"


def _raster(made: Target) -> tuple[Grid, float, str]:
    """Return the grid of the largest raster, its pixel's side and unit."""
    crs = made.lattice.system.parsed
    largest = max((part.grid for part in made.parts), key=lambda grid: grid.pixels)
    unit = "degree" if crs.is_geographic else _unit(crs.axis_info[0].unit_name)
    return largest, made.lattice.resolution, unit


def _cells(made: Target) -> int:
    if made.is_one_cell:
        return 1
    size = made.lattice.cell_size
    found = 0
    for part in made.parts:
        col, row = made.lattice.index(part.grid)
        across = (col + part.grid.width - 1) // size - col // size + 1
        down = (row + part.grid.height - 1) // size - row // size + 1
        found += across * down
    return found


def _unit(name: str) -> str:
    return "m" if name in ("metre", "meter") else name
