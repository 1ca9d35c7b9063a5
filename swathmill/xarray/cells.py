"""The cells in which a target grid is made, where those of a request are, and their granules."""

from collections.abc import Sequence
from itertools import accumulate, pairwise, product

from archives.model import GranuleRecord
from modis.tile import TILE_PIXELS, TILE_SIZE
from reprojection.errors import GridError
from reprojection.grid.grids import CELL_SIZE, Grid, Lattice
from service_manager.planner.cells import WindowCell
from service_manager.planner.located import Locator, Reach


class Cells:
    """The cells of a grid, by row, then column.

    `rows` and `columns` are their lengths along each axis, `grids` their grids. Edges of cells lie
    at multiples of their side from the CRS's origin, of a grid that does not lie on such a lattice
    from its first corner.
    """

    def __init__(self, grid: Grid, side: int | None) -> None:
        side = side or _request_side(grid)
        column, row = _first_pixel(grid, side)
        self.rows = _lengths(row, grid.height, side)
        self.columns = _lengths(column, grid.width, side)
        a, _, c, _, e, f = grid.transform
        self.grids = [
            Grid(
                crs=grid.crs,
                transform=_moved((a, c), (e, f), left, top),
                width=right - left,
                height=bottom - top,
            )
            for (top, bottom), (left, right) in product(_spans(self.rows), _spans(self.columns))
        ]
        self._locator = Locator(
            [
                WindowCell(name=str(number), grid=one, window=one, clip=None)
                for number, one in enumerate(self.grids)
            ]
        )

    def near(
        self, records: Sequence[GranuleRecord], reach: Reach
    ) -> dict[int, list[GranuleRecord]]:
        """Return, by a cell's number, the granules that a kernel of this reach may look at."""
        self._locator.look_up(records)
        found: dict[int, list[GranuleRecord]] = {}
        for record in records:
            for number in self._locator.of(record, reach):
                found.setdefault(number, []).append(record)
        return found


def _moved(
    across: tuple[float, float], down: tuple[float, float], left: int, top: int
) -> tuple[float, float, float, float, float, float]:
    """Return the transform of a part that begins at a column and row.

    The corner is a whole number of pixels from the CRS's origin where that of the grid is, as
    `Lattice.window` has it, to the last bit.
    """
    a, c = across
    e, f = down
    return a, 0.0, _along(a, c, left), 0.0, e, _along(e, f, top)


def _along(size: float, corner: float, pixels: int) -> float:
    whole = round(corner / size)
    if whole * size == corner:
        return (whole + pixels) * size
    return corner + pixels * size


def _request_side(grid: Grid) -> int:
    """Return the side of the cells in which a request makes a grid."""
    if grid.system.is_modis_sinusoidal:
        for pixels in TILE_PIXELS.values():
            if grid.transform[0] == TILE_SIZE / pixels:
                return pixels
    return CELL_SIZE


def _first_pixel(grid: Grid, side: int) -> tuple[int, int]:
    """Return the lattice's column and row of a grid's first pixel; zeros for one on none."""
    try:
        return Lattice(crs=grid.crs, resolution=grid.transform[0], cell_size=side).index(grid)
    except GridError:
        return 0, 0


def _lengths(first: int, size: int, side: int) -> tuple[int, ...]:
    """Return the lengths of the pieces in which edges of cells cut an axis."""
    edges = range((first // side + 1) * side, first + size, side)
    return tuple(end - begin for begin, end in pairwise([first, *edges, first + size]))


def _spans(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return first pixel and end of each piece."""
    return list(pairwise(accumulate(lengths, initial=0)))
