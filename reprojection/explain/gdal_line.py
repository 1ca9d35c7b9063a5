"""Write the gdalwarp command closest to how a raster was made, and how its pixels differ."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from modis.formats import HDF5_MAGIC
from modis.sphere import SPHERE_RADIUS
from reprojection.grid.coordinates import Coordinates, SourceSpace
from reprojection.grid.crs import Crs
from reprojection.grid.grids import Grid
from reprojection.read.description import Description
from reprojection.read.granule_layer import GranuleHeader, find_places
from reprojection.warp.warp_task import WIDENING

_METHODS = {"nearest": "near", "gdal-average": "average", "median": "med"}
_BOXED = ("average", "mode", "min", "max", "median")
_TYPES = {
    "uint8": "Byte",
    "int16": "Int16",
    "uint16": "UInt16",
    "int32": "Int32",
    "uint32": "UInt32",
    "float32": "Float32",
    "float64": "Float64",
}
# Latitudes on the sphere count as WGS84 latitudes, without a datum shift.
_SINUSOIDAL = f"+proj=sinu +R={SPHERE_RADIUS} +nadgrids=@null +units=m +wktext"

_SAMPLES = 41
"""Number of sample pixels along each side at which the kernel's width is computed."""

_SAME = 1e-3
"""Relative difference up to which kernel widths count as equal."""

Floats = npt.NDArray[np.float64]


def gdalwarp_line(
    said: Description,
    grid: Grid,
    dtype: np.dtype[np.generic],
    nodata: float | int | None,
    found: Mapping[str, Path],
) -> tuple[str, str]:
    """Write a gdalwarp command, and a note in plain words on how its pixels differ.

    The command is "" if there is none, and the note says why: a granule is missing in `found`
    (files by name), or GDAL cannot open the layer.

    For tiles the command gives the same pixels, except near fill, codes and tile edges, where the
    note says how they differ. Positions may also differ by up to 0.006 source pixels, which changes
    a value by about one unit, more where values vary strongly. For swaths GDAL has no search within
    footprints; geolocation arrays are its closest method.
    """
    missing = [one.name for one in said.provenance.granules if one.name not in found]
    if missing:
        return "", f"to see the command, name where {', '.join(missing)} can be found"
    origins = find_places(list(found.values()), said.provenance.layer).places
    why_not = _no_equivalent(origins, grid)
    if why_not:
        return "", why_not
    chosen = dict(said.provenance.parameters)
    method = str(chosen.get("resampling", "nearest"))
    notes = _notes(origins, method, chosen)
    words = ["gdalwarp", "-et", "0", "-r", _METHODS.get(method, method)]
    tile = origins[0].grid
    if tile is None:
        words.append("-geoloc")
    else:
        words += ["-s_srs", _gdal_crs(tile.crs)]
        if method in ("bilinear", "cubic"):
            scale, note = _scale(grid, [one.grid for one in origins if one.grid is not None])
            words += scale
            notes += note
    words += ["-t_srs", _gdal_crs(grid.crs)]
    words += ["-te", *(repr(float(edge)) for edge in grid.bounds)]
    words += ["-ts", str(grid.width), str(grid.height)]
    if dtype.name in _TYPES:
        words += ["-ot", _TYPES[dtype.name]]
    if origins[0].layer.fill is not None:
        words += ["-srcnodata", str(origins[0].layer.fill)]
    if nodata is not None:
        words += ["-dstnodata", str(nodata)]
    before, sources = _sources(origins)
    commands = [*before, [*words, *sources, "out.tif"]]
    return " && ".join(shlex.join(command) for command in commands), "; ".join(notes)


def _is_hdf5(place: GranuleHeader) -> bool:
    with place.path.open("rb") as file:
        return file.read(len(HDF5_MAGIC)) == HDF5_MAGIC


def _no_equivalent(origins: Sequence[GranuleHeader], grid: Grid) -> str:
    """Explain why no gdalwarp command can be given; return "" if one can."""
    _, b, _, d, e, _ = grid.transform
    if b or d or e > 0:
        return "none: gdalwarp cannot make a rotated grid, or one with south at the top"
    if any(_is_hdf5(one) and one.grid is None for one in origins):
        return "none: GDAL does not read where the pixels of an HDF5-EOS swath lie"
    if any(_is_hdf5(one) and one.layer.bands for one in origins):
        return "none: GDAL does not say which band of an HDF5-EOS layer is which"
    if len(origins[0].layer.bands) > 1:
        return "none: GDAL does not show all bands of a layer with two band dimensions"
    return ""


def _notes(
    origins: Sequence[GranuleHeader], method: str, chosen: Mapping[str, object]
) -> list[str]:
    """List in what ways gdalwarp cannot follow how the raster was made."""
    notes = []
    layer, on_tiles = origins[0].layer, origins[0].grid is not None
    if not on_tiles:
        notes.append(
            "GDAL does not search within footprints and places a swath's pixels by its own rule, "
            "so many pixels differ; where granules overlap, it takes the last one"
        )
    elif method in _BOXED:
        notes.append(
            f"gdalwarp takes the {method} of the box between two corners of a pixel, Swathmill of "
            "the pixel's exact outline, so that values differ"
        )
    if on_tiles and len(origins) > 1 and method != "nearest":
        notes.append("gdalwarp's kernel stops at the edge of each granule")
    if chosen.get("mask", True):
        if layer.codes or layer.valid_range is not None:
            notes.append("GDAL takes codes and values outside the valid range for values")
        if chosen.get("qa"):
            notes.append("GDAL does not apply the QA rule")
    if on_tiles and chosen.get("search") == "valid":
        notes.append("GDAL leaves a pixel empty where the nearest source pixel is fill")
    if chosen.get("units") == "brightness":
        notes.append("GDAL gives stored values; the raster's are physical or, of radiances, kelvin")
    elif chosen.get("units") == "physical" and (layer.scale, layer.offset) != (1.0, 0.0):
        notes.append(
            f"GDAL gives stored values; the raster's are stored * {layer.scale} + {layer.offset}"
        )
    return notes


def _gdal_crs(text: str) -> str:
    return _SINUSOIDAL if Crs.of(text).is_modis_sinusoidal else text


def _sources(origins: Sequence[GranuleHeader]) -> tuple[list[list[str]], list[str]]:
    """Return the commands to run first, and the names of the data sets to warp."""
    before, names = [], []
    for number, one in enumerate(origins, 1):
        name = _subdataset(one)
        if _is_hdf5(one) and one.grid is not None:
            # GDAL versions before 3.7 do not georeference HDF5-EOS grids.
            left, bottom, right, top = one.grid.bounds
            corners = [repr(float(edge)) for edge in (left, top, right, bottom)]
            placed = ["-a_srs", _gdal_crs(one.grid.crs), "-a_ullr", *corners]
            file = f"granule{number}.vrt"
            before.append(["gdal_translate", "-q", "-of", "VRT", *placed, name, file])
            name = file
        names.append(name)
    return before, names


def _subdataset(one: GranuleHeader) -> str:
    """Return GDAL's name for the layer; a band goes through a virtual raster (GDAL 3.1)."""
    layer = one.layer
    structure = layer.grid or layer.swath or ""
    field = layer.base_name.removeprefix(f"{structure}/")
    if _is_hdf5(one):
        inside = f"//HDFEOS/GRIDS/{structure}/Data Fields/{field}".replace(" ", "_")
        return f'HDF5:"{one.path}":{inside}'
    kind = "EOS_GRID" if one.grid is not None else "EOS_SWATH"
    name = f'HDF4_EOS:{kind}:"{one.path}":{structure}:{field}'
    if not layer.bands:
        return name
    band = layer.index[0] + 1 if layer.index else 1
    return f"vrt://{name}?bands={band}"


def _scale(grid: Grid, tiles: Sequence[Grid]) -> tuple[list[str], list[str]]:
    """Return the options that fix how far gdalwarp widens bilinear and cubic, and a note.

    Without them gdalwarp estimates one scale for the whole raster. Swathmill widens the kernel by
    the number of source pixels that each pixel spans at its position; one scale can match this only
    if that number is the same everywhere.
    """
    spans = _spans(grid, tiles)
    if not spans.size:
        return ["-wo", "XSCALE=1", "-wo", "YSCALE=1"], []
    middle, low, high = np.median(spans, axis=0), spans.min(axis=0), spans.max(axis=0)
    options = []
    for axis, span in zip("XY", middle, strict=True):
        options += ["-wo", f"{axis}SCALE={1 / span:.10g}"]
    if (high <= low * (1 + _SAME)).all():
        return options, []
    return options, [
        "Swathmill widens the kernel by what each pixel spans, here "
        f"{low[0]:.3g} to {high[0]:.3g} source columns and {low[1]:.3g} to {high[1]:.3g} source "
        "rows; gdalwarp takes one number for all, here the middle one, so that values differ "
        "where the span does"
    ]


def _spans(grid: Grid, tiles: Sequence[Grid]) -> Floats:
    """Compute the source columns and rows (n, 2) by which kernels widen, at sampled positions."""
    space = SourceSpace.of(tiles[0])
    places = [_cells(grid)] + [_cells_of_tile(grid, tile) for tile in tiles]
    rows, cols = (np.concatenate([place[axis] for place in places]) for axis in (0, 1))
    coordinates = Coordinates(grid=grid, space=space)
    numbering = coordinates.numbering

    def at(down: float, right: float) -> Floats:
        found = coordinates.exact(rows + (numbering.row + down), cols + (numbering.col + right))
        return np.stack(found, axis=1)

    centre = at(0.5, 0.5)
    inside = np.zeros(len(centre), np.bool_)
    for tile in tiles:
        first = np.array(space.offset(tile))
        size = np.array([tile.width, tile.height])
        with np.errstate(invalid="ignore"):
            inside |= ((centre >= first) & (centre < first + size)).all(axis=1)
    a, b, c, d = (at(down, right)[inside] for down, right in ((0, 0), (0, 1), (1, 1), (1, 0)))
    along, down = ((b - a) + (c - d)) / 2, ((d - a) + (c - b)) / 2
    height = np.hypot(down[:, 1], along[:, 1])
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.abs(along[:, 0] * down[:, 1] - down[:, 0] * along[:, 1]) / height
    spans = np.stack([width, height], axis=1)
    spans = spans[np.isfinite(spans).all(axis=1)]
    if spans.size:
        # A pixel that crosses the antimeridian appears to span the whole Earth.
        spans = spans[(spans <= 4 * np.median(spans, axis=0)).all(axis=1)]
    return np.where(spans > WIDENING, spans, 1.0)


def _cells(grid: Grid) -> tuple[Floats, Floats]:
    """Return rows and columns of pixels spread evenly over a grid."""
    rows = np.unique(np.linspace(0, grid.height - 1, _SAMPLES).round())
    cols = np.unique(np.linspace(0, grid.width - 1, _SAMPLES).round())
    return np.repeat(rows, len(cols)), np.tile(cols, len(rows))


def _cells_of_tile(grid: Grid, tile: Grid) -> tuple[Floats, Floats]:
    """Return rows and columns of the grid's pixels that lie under positions spread over a tile."""
    rows, cols = _cells(tile)
    a, _, c, _, e, f = tile.transform
    x, y = grid.system.from_lonlat(
        *tile.system.to_lonlat(c + a * (cols + 0.5), f + e * (rows + 0.5))
    )
    a, _, c, _, e, f = grid.transform
    row, col = np.floor((y - f) / e), np.floor((x - c) / a)
    with np.errstate(invalid="ignore"):
        within = (row >= 0) & (row < grid.height) & (col >= 0) & (col < grid.width)
    return row[within], col[within]
