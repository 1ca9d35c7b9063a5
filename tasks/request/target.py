"""The target of a request: its lattice, the grid of its results, and the region's outline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from modis.sphere import METRES_PER_DEGREE
from modis.tile import TILE_SIZE, Tile
from reprojection.catalogue import Product
from reprojection.errors import GridError
from reprojection.grid.covering import (
    Covering,
    TooManyPixelsError,
    cover,
)
from reprojection.grid.crs import Crs
from reprojection.grid.grids import Cell, Grid, Lattice, modis_lattice
from tasks.errors import RequestRefusedError, refusal_of
from tasks.request.document import Request
from tasks.request.region.kinds import region_area
from tasks.request.vertices import Area

_FINEST = 10.0  # metres

_BLOCKS = 4  # along the side of a smallest cell
_SMALL = 2  # smallest cells: as many pixels may be one cell of the request's own
_DOUBLED = 2  # times at most: a cell's side is 1024, 2048 or 4096 pixels
_MOST_SOURCE = 8800  # source pixels along a larger cell's side and the tiles at both its ends
_COARSE = 1000.0  # metres: coarser source pixels count as these, so that granules stay few


@dataclass(frozen=True, kw_only=True)
class Part:
    """A raster of the results: its grid, and its name where there are several."""

    name: str
    grid: Grid


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a request's pixels lie.

    The side of the lattice's cells is that for the request. `grid` holds all results; `parts`
    are the grids of the mosaics of a layer and date: `grid`, or one for each group of tiles
    that lie apart from the others; `widened` is `grid` in whole blocks, a quarter of a smallest
    cell's side, so that requests of nearly the same region agree in it. `area` is the region in
    degrees (longitudes may pass 180). `modis` is the nominal resolution in metres of the
    sinusoidal tile grid, else None. If `is_one_cell`, the widened grid is one cell, wherever it
    lies: it is small, and not of tiles. With `whole_cells` all cells that the grid touches are
    made whole.
    """

    lattice: Lattice
    grid: Grid
    widened: Grid
    area: Area
    parts: tuple[Part, ...]
    modis: int | None = None
    is_one_cell: bool = False
    whole_cells: bool = False

    @property
    def pixel_metres(self) -> float:
        """Return the height of a pixel in metres, the same everywhere on the lattice.

        A resampling method must not depend on the region.
        """
        return _pixel_metres(self.lattice)


def target(request: Request, known: Sequence[Product | None]) -> Target:
    """Return the target of a request, its bounds snapped outward onto the lattice.

    `known` are the entries of its products.

    Raises RequestRefusedError, which names the field, for a CRS, resolution or region that cannot
    be.
    """
    area = region_area(request.region)
    lattice = _lattice(request)
    found = _covering(request, lattice, area)
    small = found.widened.pixels <= _SMALL * lattice.cell_size**2
    return Target(
        lattice=replace(
            lattice, cell_size=_cell_side(request, lattice, found.widened.pixels, known)
        ),
        grid=found.grid,
        widened=found.widened,
        area=area,
        parts=_parts(request, lattice, found.grid),
        modis=request.grid.modis,
        is_one_cell=small and request.grid.modis is None and not request.cells,
        whole_cells=request.cells,
    )


def pixel_text(request: Request, crs: Crs) -> str:
    """Format the side of a pixel with its unit, as a scientist says it: "0.01 degree"."""
    if request.grid.modis is not None:
        return f"{request.grid.modis} m"
    return f"{request.grid.resolution:g} {_unit(crs)}"


def finer_than_modis(request: Request, crs: Crs) -> str:
    """Return a note for a pixel far smaller than any of MODIS, or an empty text.

    Such a pixel mostly means that its unit is mistaken.
    """
    resolution = request.grid.resolution
    if resolution is None or crs.parsed.is_geographic:
        return ""
    metres = resolution * crs.metres
    if metres >= _FINEST:
        return ""
    return (
        f"The unit of {request.grid.crs} is the {_unit(crs)}, and MODIS pixels are 250 to 10,000 "
        "metres wide: write 1000, say. "
    )


def cell_name(cell: Cell, *, modis: bool) -> str:
    """Name a cell for people and folders: `h17v03`, or `r-6c1` of a user's lattice."""
    if modis:
        return Tile.at_cell(cell.col, cell.row).name
    return f"r{cell.row}c{cell.col}"


def _lattice(request: Request) -> Lattice:
    choice = request.grid
    if choice.modis is not None:
        return modis_lattice(choice.modis)
    if choice.crs is None or choice.resolution is None:
        raise RequestRefusedError(
            "grid", "has neither crs and resolution nor modis.", "Give one of the two."
        )
    try:
        lattice = Lattice.normal(choice.crs, choice.resolution)
    except GridError as error:
        raise refusal_of("grid.crs", str(error), "choose another") from None
    check_degrees(lattice, "grid.resolution")
    return lattice


def _covering(request: Request, lattice: Lattice, area: Area) -> Covering:
    """Cover the region; the refusal of too many pixels names the pixel, not the region."""
    of_tiles = request.grid.modis is not None
    tiles = request.region.tiles or () if of_tiles else ()
    try:
        return cover(
            lattice,
            area,
            box=request.region.bbox,
            cells=_cells(map(Tile.parse, tiles)),
            block=max(1, lattice.cell_size // _BLOCKS),
            everywhere=of_tiles,
        )
    except TooManyPixelsError as error:
        raise RequestRefusedError(
            "grid.modis" if of_tiles else "grid.resolution",
            f"a pixel of {pixel_text(request, lattice.system)} is too small for this region: the "
            f"raster would have {error.wide:,.0f} x {error.high:,.0f} pixels.",
            f"{finer_than_modis(request, lattice.system)}Ask for larger pixels or a smaller "
            "region.",
        ) from None
    except GridError as error:
        raise refusal_of(request.region.field, str(error), "choose another") from None


def check_degrees(lattice: Lattice, field: str) -> None:
    """Refuse metres that are taken for degrees; RequestRefusedError names the field."""
    if lattice.system.parsed.is_geographic and lattice.resolution > 20.0:
        raise RequestRefusedError(
            field,
            f"{lattice.resolution:g} degrees is larger than a MODIS swath.",
            f"The unit of {lattice.crs} is the degree; 1000 m is about 0.009 degree.",
        )


def _cell_side(
    request: Request, lattice: Lattice, pixels: int, known: Sequence[Product | None]
) -> int:
    """Return the side of a request's cells: doubled while the results have as many pixels.

    It stays as it is on the tile grid, where cells are handed over or given to a reduction, for
    swaths, and where a larger cell would need too many source pixels: an attempt holds
    whole tiles in memory.
    """
    side = lattice.cell_size
    if request.grid.modis is not None or request.hands_over_cells or request.steps:
        return side
    most = (_MOST_SOURCE * _source_metres(known) - 2 * TILE_SIZE) / _pixel_metres(lattice)
    for _ in range(_DOUBLED):
        if pixels < (2 * side) ** 2 or 2 * side > most:
            break
        side *= 2
    return side


def _source_metres(known: Sequence[Product | None]) -> float:
    """Return the side of the products' smallest pixel; 0 with swaths or products not known.

    A large cell would hold all swaths of a day at once.
    """
    metres = [one.resolution if one and one.geometry == "tile" else 0.0 for one in known]
    return min(_COARSE, *metres)


def _pixel_metres(lattice: Lattice) -> float:
    if lattice.system.parsed.is_geographic:
        return lattice.resolution * METRES_PER_DEGREE
    return lattice.resolution * lattice.system.metres


def _unit(crs: Crs) -> str:
    return crs.parsed.axis_info[0].unit_name or "unit"


def _parts(request: Request, lattice: Lattice, grid: Grid) -> tuple[Part, ...]:
    """Return the grids of the results: tiles of the tile grid that do not touch lie apart."""
    if request.region.tiles is None or request.grid.modis is None:
        return (Part(name="", grid=grid),)
    groups = _touching(map(Tile.parse, request.region.tiles))
    if len(groups) == 1:
        return (Part(name="", grid=grid),)
    return tuple(
        Part(name=tiles[0].name, grid=lattice.snap(lattice.cell_bounds(_cells(tiles))))
        for tiles in groups
    )


def _cells(tiles: Iterable[Tile]) -> list[Cell]:
    return [Cell(tile.col, tile.row) for tile in tiles]


def _touching(tiles: Iterable[Tile]) -> list[list[Tile]]:
    """Divide tiles into groups that touch, also at a corner; by row, then column."""
    left = sorted(set(tiles), key=lambda tile: (tile.v, tile.h))
    groups = []
    while left:
        group = [left.pop(0)]
        for one in group:
            near = [tile for tile in left if max(abs(tile.h - one.h), abs(tile.v - one.v)) == 1]
            group += near
            left = [tile for tile in left if tile not in near]
        groups.append(sorted(group, key=lambda tile: (tile.v, tile.h)))
    return groups
