"""Join cells into one raster on a region's grid."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rasterio
import shapely
from rasterio.windows import Window
from shapely import MultiPolygon, Polygon

from reprojection.errors import ChoiceRefusedError, GridError
from reprojection.grid.grids import Grid
from reprojection.grid.targets import pixel_centres
from reprojection.read.completeness import Completeness, Missing, of_parts
from reprojection.read.description import Description, Provenance
from reprojection.read.raster import Pixels, Raster
from reprojection.write.joined_lineage import LineageJoiner
from reprojection.write.sizes import WHOLE_BYTES
from reprojection.write.write import Opened, open_raster, write_result, write_stripes

_SNAP = 1e-3  # pixels by which a cell may be off the region's lattice
_ROWS_AT_ONCE = 256


def mosaic(
    cell_paths: Sequence[Path],
    grid: Grid,
    clip: Polygon | MultiPolygon | None = None,
    *,
    clip_text: str = "",
    absent: int = 0,
    missing: Sequence[Missing] = (),
    unnamed: int = 0,
) -> Raster:
    """Assemble cells of one layer and date into one raster on `grid`, which is on their lattice.

    `clip` is in EPSG:4326 (longitude, latitude); pixels whose centre is outside become nodata;
    `clip_text` is its GeoJSON, which the lineage keeps.
    Where there is no cell the raster is nodata, with the reason "no granule". Cells are read one
    after the other, each only in the part that the region needs. Provenance lists the granules of
    all cells; the numbers in source bands are changed to match it. `absent` cells were expected but
    are not given, because the inputs `missing` and `unnamed` others are not available.

    Raises ChoiceRefusedError for no cells or cells that differ in more than position and granules,
    GridError for a cell off the lattice, BadFormatError for a file that is not a cell.
    """
    return joined(
        cell_paths,
        grid,
        clip,
        clip_text=clip_text,
        absent=absent,
        missing=missing,
        unnamed=unnamed,
    ).whole()


def joined(
    cell_paths: Sequence[Path],
    grid: Grid,
    clip: Polygon | MultiPolygon | None = None,
    *,
    clip_text: str = "",
    absent: int = 0,
    missing: Sequence[Missing] = (),
    unnamed: int = 0,
) -> "Joined":
    """Return what `mosaic` assembles, of which no pixel is read yet; errors as there."""
    if not cell_paths:
        raise ChoiceRefusedError("no cell was given; a mosaic needs at least one")
    cells = [_stored(path) for path in cell_paths]
    whole = of_parts([one.said.completeness for one in cells], absent, missing, unnamed)
    return _joined(cells, grid, clip, clip_text, whole)


def mosaic_of_cell(
    cell: Raster, clip: Polygon | MultiPolygon | None = None, *, clip_text: str = ""
) -> Raster:
    """Return what `mosaic` makes of one cell on the cell's own grid; the cell is in no file.

    The raster takes over the cell's pixels, and changes them.

    Raises ChoiceRefusedError as `mosaic` does.
    """
    dtype = cell.data.dtype

    def read(window: Window) -> Pixels:
        rows, cols = window.toslices()
        return cell.data[:, rows, cols]

    one = _Cell(
        name=cell.provenance.layer,
        said=cell.description(),
        nodata=cell.nodata,
        dtype=dtype,
        read=read,
    )
    return _joined([one], cell.grid, clip, clip_text, of_parts([cell.completeness])).whole()


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """A cell: what it says of itself, and how a window of its pixels is read."""

    name: str
    said: Description
    nodata: float | int | None
    dtype: np.dtype[np.generic]
    read: Callable[[Window], Pixels]


def _stored(path: Path) -> _Cell:
    opened = open_raster(path)

    def read(window: Window) -> Pixels:
        with rasterio.open(path, driver="GTiff") as dataset:
            part: Pixels = dataset.read(window=window)
        return part

    return _Cell(
        name=path.name, said=opened.said, nodata=opened.nodata, dtype=opened.dtype, read=read
    )


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A raster whose rows are read when they are asked for.

    `about` is the raster, whose pixels take no memory and mean nothing. `rows` reads the pixels of
    the rows from one to before another, shape (bands, rows, width).
    """

    about: Raster
    rows: Callable[[int, int], Pixels]

    def whole(self) -> Raster:
        """Return the raster with its pixels."""
        return replace(self.about, data=self.rows(0, self.about.grid.height))


def write_joined(raster: Joined, path: Path) -> tuple[Opened, float]:
    """Write a raster from memory, or a larger one stripe by stripe, as `write_result` does."""
    if raster.about.data.nbytes <= WHOLE_BYTES:
        return write_result(raster.whole(), path)
    return write_stripes(raster.about, raster.rows, path)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Rows of cells that lie beside one another, cut out with a polygon."""

    about: Raster
    cells: Sequence["_Placed"]
    clip: Polygon | MultiPolygon | None

    def __call__(self, start: int, stop: int) -> Pixels:
        """Read the pixels of some rows."""
        data, about = None, self.about
        shape = (stop - start, about.grid.width)
        for one in self.cells:
            first, last = max(start, one.rows.start), min(stop, one.rows.stop)
            if first >= last:
                continue
            part = one.read(first - one.rows.start, last - one.rows.start)
            if data is None and part.shape[1:] == shape:
                data = part  # they are all of these rows
                continue
            if data is None:
                data = _empty(about, shape)
            data[:, first - start : last - start, one.cols] = part
        if data is None:
            data = _empty(about, shape)
        if self.clip is not None:
            _cut(data, about, start, self.clip)
        return data


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A cell, or the part of it that a raster has: its rows and columns there."""

    cell: _Cell
    window: Window
    rows: slice
    cols: slice
    sources: tuple[int, ...]
    """The bands that number granules."""
    numbers: npt.NDArray[np.int64]
    """Of these numbers those in the raster."""

    def read(self, start: int, stop: int) -> Pixels:
        """Read some of its rows."""
        above = self.window.row_off + start
        whole = Window(self.window.col_off, above, self.window.width, stop - start)
        part = self.cell.read(whole)
        for band in self.sources:
            # Physical units make it float.
            part[band] = self.numbers[part[band].astype(np.intp)]
        return part


def _joined(
    cells: Sequence[_Cell],
    grid: Grid,
    clip: Polygon | MultiPolygon | None,
    clip_text: str,
    completeness: Completeness,
) -> Joined:
    """Join cells, at least one."""
    first, nodata, dtype = cells[0].said, cells[0].nodata, cells[0].dtype
    for one in cells[1:]:
        same = (one.dtype, _common(one.said)) == (dtype, _common(first))
        if not same or repr(one.nodata) != repr(nodata):
            raise ChoiceRefusedError(
                f"{one.name} and {cells[0].name} are not cells of one layer: type, "
                "nodata, bands, scale and units must agree"
            )
    provenance = together([one.said.provenance for one in cells], clip_text)
    sources = tuple(n for n, band in enumerate(first.bands) if band.role == "source")
    if sources:
        _check_numbers(len(provenance.granules), dtype, nodata)
    numbers = {source: number for number, source in enumerate(provenance.granules, 1)}
    placed = []
    for one in cells:
        place = _place(one.said.grid.grid(), grid)
        if place is None:
            continue
        window, rows, cols = place
        own = np.array([0, *(numbers[source] for source in one.said.provenance.granules)])
        placed.append(
            _Placed(cell=one, window=window, rows=rows, cols=cols, sources=sources, numbers=own)
        )
    notes = tuple(sorted({note for one in cells for note in one.said.notes}))
    said = first.model_copy(update={"provenance": provenance, "notes": notes})
    nothing = np.broadcast_to(np.zeros((), dtype), (len(first.bands), *grid.shape))
    about = replace(Raster.of(said, nothing, nodata, grid), completeness=completeness)
    return Joined(about=about, rows=_Rows(about=about, cells=placed, clip=clip))


def _check_numbers(count: int, dtype: np.dtype[np.generic], nodata: float | int | None) -> None:
    """Refuse granule numbers too large for the raster's type, which all bands share."""
    most = 2**24 if dtype.kind == "f" else np.iinfo(dtype.name).max
    if count > most or (nodata is not None and 0 < nodata <= count):
        raise ChoiceRefusedError(
            f"the band source cannot number {count} granules in type {dtype} with nodata {nodata}; "
            "choose units physical, a smaller region, or leave source out of extra_bands"
        )


def _common(said: Description) -> tuple[str, str]:
    """Return the part of a description in which cells of one raster must agree."""
    return said.provenance.layer, said.model_dump_json(
        exclude={"provenance", "grid", "completeness", "notes"}
    )


def together(parts: Sequence[Provenance], clip: str) -> Provenance:
    """Join the provenances of rasters of one layer; product and options are those of the first."""
    granules = sorted({source for part in parts for source in part.granules}, key=lambda s: s.name)
    taken = [part.taken for part in parts if part.taken is not None]
    made = replace(
        parts[0],
        granules=tuple(granules),
        start=_first(part.start for part in parts),
        end=max(part.end for part in parts),
        beside=(),
        lineage=None,
        taken=(_first(one for one, _ in taken), max(one for _, one in taken)) if taken else None,
    )
    joiner = LineageJoiner()
    for part in parts:
        if part.lineage is None:
            return made
        joiner.add(part, part.lineage)
    return joiner.finish(made, joined=True, clip=clip)


def _first(moments: Iterable[str]) -> str:
    return min(filter(None, moments), default="")


def _empty(about: Raster, shape: tuple[int, int]) -> Pixels:
    data = np.empty((len(about.bands), *shape), about.data.dtype)
    for band, one in enumerate(about.bands):
        data[band] = one.empty(about.nodata)
    return data


def _place(cell: Grid, grid: Grid) -> tuple[Window, slice, slice] | None:
    """Return the window of a cell that lies in the grid, and its target rows and columns."""
    a, b, c, d, e, f = grid.transform
    pixel = (a, b, d, e)
    of_cell = (*cell.transform[:2], *cell.transform[3:5])
    col, row = (cell.transform[2] - c) / a, (cell.transform[5] - f) / e
    aligned = (
        grid.is_upright
        and all(
            abs(one - other) <= 1e-9 * abs(a) for one, other in zip(pixel, of_cell, strict=True)
        )
        and abs(col - round(col)) <= _SNAP
        and abs(row - round(row)) <= _SNAP
    )
    if not aligned:
        raise GridError(
            f"a cell at {cell.bounds} is not on the lattice of the grid at {grid.bounds}; "
            "cells and region must share one lattice"
        )
    left, top = round(col), round(row)
    cols = slice(max(left, 0), min(left + cell.width, grid.width))
    rows = slice(max(top, 0), min(top + cell.height, grid.height))
    if cols.start >= cols.stop or rows.start >= rows.stop:
        return None
    window = Window(
        cols.start - left, rows.start - top, cols.stop - cols.start, rows.stop - rows.start
    )
    return window, rows, cols


def _cut(data: Pixels, about: Raster, start: int, polygon: Polygon | MultiPolygon) -> None:
    """Take the values from the pixels outside a polygon; the first row is that of a number."""
    shapely.prepare(polygon)
    height = data.shape[1]
    for first in range(0, height, _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, height))
        there = _strip(about.grid, slice(start + rows.start, start + rows.stop))
        outside = ~inside_polygon(polygon, there)
        for band, one in enumerate(about.bands):
            data[band, rows][outside] = one.empty(about.nodata)


def _strip(grid: Grid, rows: slice) -> Grid:
    a, b, c, d, e, f = grid.transform
    return Grid(
        crs=grid.crs,
        transform=(a, b, c + b * rows.start, d, e, f + e * rows.start),
        width=grid.width,
        height=rows.stop - rows.start,
    )


def inside_polygon(polygon: Polygon | MultiPolygon, grid: Grid) -> npt.NDArray[np.bool_]:
    """Tell which pixel centres are in the polygon, whose longitudes may exceed 180."""
    centres = pixel_centres(grid)
    lat, lon = np.broadcast_arrays(centres.lat, centres.lon)
    inside = np.zeros(grid.shape, np.bool_)
    west, _, east, _ = polygon.bounds
    for turn in (-360.0, 0.0, 360.0):
        if -180.0 + turn <= east and 180.0 + turn >= west:
            inside |= shapely.contains_xy(polygon, lon + turn, lat)
    return inside
