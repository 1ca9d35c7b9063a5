"""Read a user's own raster, a GeoTIFF or netCDF-4 file, and write it in the one form kept.

The form is an HDF5 file with one data set per layer, of axes (date, row, column) or (row, column),
north up, stored values as they were, and the description of `reprojection.catalogue.user_raster`
as an attribute. `open_granule` reads it like any granule on a grid.

The input comes from a stranger, so read it in a process that may die. A format is told by the first
bytes. Nothing is read but the file itself: GDAL opens it by the one driver GTiff, without files
beside it; of HDF5, links and data sets that lead to other files are refused.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np

from modis.formats import HDF5_MAGIC
from reprojection.catalogue.layers import LayerKind
from reprojection.catalogue.user_raster import (
    DESCRIPTION,
    LAYER,
    RasterLayer,
    UserRaster,
    usual_period,
)
from reprojection.formats.structmetadata import MAX_SIDE
from reprojection.grid.targets import pixel_metres
from reprojection.read.user_structure import GRID, structure_of
from reprojection.user_rasters.source import (
    MOST_DAYS,
    RasterChoices,
    RasterFile,
    RasterRefusedError,
    Source,
)

MOST_LAYERS = 64
MOST_PIXELS = 1 << 27
"""Of one date of a layer in a projection, which is read whole."""
MOST_DEGREE_PIXELS = 1 << 30
"""Of one in longitude and latitude, of which only the rows needed are read."""
MOST_VALUES = 1 << 32
MOST_SWELLING = 1000
"""Bytes of values for each byte of the file; more is a file made to fill memory."""

_FREE_BYTES = 1 << 28  # of values, whatever the size of the file
_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_DAY_IN_NAME = re.compile(
    r"(?<!\d)(\d{4})-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)|A(\d{4})(\d{3})(?!\d)"
)
_BLOCK_VALUES = 1 << 23
_DAMAGE = (OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError)


def day_in_name(name: str) -> date | None:
    """Return the day that a file's name tells: 2012-04-01, 20120401 or A2012092."""
    found = _DAY_IN_NAME.search(name)
    if found is None:
        return None
    try:
        if found[4]:
            return datetime.strptime(f"{found[4]}{found[5]}", "%Y%j").replace(tzinfo=UTC).date()
        return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        return None


def convert(files: Sequence[RasterFile], choices: RasterChoices, out: Path) -> UserRaster:
    """Check the files of a raster, and write them as the one file in which it is kept.

    Several files are dates of one raster. Equal files and choices give equal bytes.

    Raises:
        RasterRefusedError: they cannot be taken as a raster; says why and what to do.
    """
    sources: list[Source] = []
    days: list[date] = []
    try:
        for one in files:
            source = _opened(one)
            sources.append(source)
            days += _days_of(one, source, many=len(files) > 1)
        first = sources[0]
        for one, other in zip(files, sources, strict=True):
            _check_alike(one, first, other)
        raster = _described(first, choices, tuple(sorted(days)))
        total = sum(one.path.stat().st_size for one in files)
        _check_size(raster, total)
        planes = [
            (source, number)
            for _, source, number in sorted(
                (
                    (day, source, number)
                    for source, there in zip(sources, _split(days, sources), strict=True)
                    for number, day in enumerate(there)
                ),
                key=lambda item: item[0],
            )
        ] or [(first, 0)]
        _write(raster, [key for _, key in first.layers], planes, out)
    except (*_DAMAGE, MemoryError, struct.error) as problem:
        raise RasterRefusedError(
            f"{files[0].name} cannot be read: {problem}. It is damaged or cut off; make it again."
        ) from problem
    return raster


def _split(days: Sequence[date], sources: Sequence[Source]) -> Iterator[list[date]]:
    at = 0
    for source in sources:
        many = max(1, len(source.days))
        yield list(days[at : at + many])
        at += many


def _days_of(file: RasterFile, source: Source, *, many: bool) -> tuple[date, ...]:
    if source.days:
        if many or file.day is not None:
            raise RasterRefusedError(
                f"{file.name} has dates of its own. Push it alone, and without a date."
            )
        return source.days
    day = file.day or (day_in_name(file.name) if many else None)
    if many and day is None:
        raise RasterRefusedError(
            f"{file.name} does not say its date. Several files are dates of one raster: write the "
            "date into each name, like 2012-04-01, or give it."
        )
    return (day,) if day is not None else ()


def _opened(file: RasterFile) -> Source:
    with file.path.open("rb") as opened:
        head = opened.read(512)
    if head[:4] in _TIFF_MAGIC:
        from reprojection.user_rasters.geotiff import open_geotiff

        return open_geotiff(file)
    if head.startswith(HDF5_MAGIC):
        from reprojection.user_rasters.netcdf import open_netcdf

        return open_netcdf(file)
    raise RasterRefusedError(f"{file.name} is {_format_of(head)}. {_TAKEN}")


_TAKEN = "GeoTIFF (also as COG) and netCDF-4 are taken; write it as one of them."


def _format_of(head: bytes) -> str:
    start = head.lstrip()
    if not head:
        return "empty"
    if start.startswith(b"<VRT"):
        return "a VRT, which names other files and holds no values itself"
    if head.startswith((b"CDF\x01", b"CDF\x02", b"CDF\x05")):
        return "a classic netCDF-3 file, which nccopy -k nc4 turns into netCDF-4"
    if start[:1] == b"<":
        return "a web page or XML"
    if start[:1] in b"{[":
        return "text in JSON"
    if head.startswith(b"PK"):
        return "a zip"
    if head.startswith(b"\x1f\x8b"):
        return "packed by gzip"
    return f"of a format that is not known (it begins with {head[:4].hex(' ')})"


def _check_alike(file: RasterFile, first: Source, other: Source) -> None:
    if other.grid != first.grid:
        raise RasterRefusedError(
            f"{file.name} does not lie on the same grid as the first file. Files of one raster "
            "have the same CRS, origin, pixels and size."
        )
    mine, theirs = ([one for one, _ in source.layers] for source in (first, other))
    if mine != theirs:
        raise RasterRefusedError(
            f"{file.name} does not have the same layers as the first file: "
            f"{', '.join(one.name for one in theirs)}, of the same type, nodata, scale and units."
        )


def _described(source: Source, choices: RasterChoices, days: tuple[date, ...]) -> UserRaster:
    twice = next((day for day, after in pairwise(days) if day == after), None)
    if twice is not None:
        raise RasterRefusedError(
            f"there are two rasters of {twice}. A raster has one for each date; take a mean first."
        )
    if len(days) > MOST_DAYS:
        raise RasterRefusedError(f"{len(days):,} dates are too many; {MOST_DAYS:,} are taken.")
    layers = _named([one for one, _ in source.layers], choices)
    grid = source.grid
    metres = pixel_metres(grid)
    made = UserRaster(
        name=choices.name,
        crs=grid.crs,
        transform=grid.transform,
        width=grid.width,
        height=grid.height,
        resolution=metres,
        outline=(),
        layers=layers,
        days=days,
        period=choices.period or usual_period(days),
    )
    # The reader of granules imports this module.
    from reprojection.read.outline import grid_rings

    (info,) = structure_of(made).grids
    rings = grid_rings(info)
    if not rings:
        raise RasterRefusedError(
            "none of it lies on the Earth by its CRS. Correct the CRS or the transform."
        )
    return made.model_copy(update={"outline": rings})


def _named(layers: Sequence[RasterLayer], choices: RasterChoices) -> tuple[RasterLayer, ...]:
    """Name the layers, and set their kinds and units, by what the owner says."""
    if len(layers) > MOST_LAYERS:
        raise RasterRefusedError(f"{len(layers)} layers are too many; {MOST_LAYERS} are taken.")
    names = list(choices.layers) or [one.name for one in layers]
    if len(layers) == 1 and names == ["band_1"]:
        names = [choices.name if choices.name[0].isalpha() else f"layer-{choices.name}"[:60]]
    if len(names) != len(layers):
        raise RasterRefusedError(
            f"{len(names)} names are given for {len(layers)} layers. Name each layer, or none."
        )
    wrong = next((one for one in names if not LAYER.fullmatch(one)), None)
    if wrong is not None:
        raise RasterRefusedError(
            f"{wrong!r} is not a name of a layer: write letters, digits, `_`, `.` and `-`, a "
            "letter first."
        )
    if len({*names}) < len(names):
        raise RasterRefusedError("two layers have the same name. Give each its own.")
    strange = [one for one in (*choices.classes, *choices.units) if one not in names]
    if strange:
        raise RasterRefusedError(
            f"there is no layer {strange[0]!r}. The layers are: {', '.join(names)}."
        )
    made = []
    for name, one in zip(names, layers, strict=True):
        units = choices.units.get(name, one.units)
        kind = LayerKind.CLASS if name in choices.classes else one.kind
        if kind is LayerKind.CLASS and one.dtype.startswith("float"):
            raise RasterRefusedError(
                f"the classes of {name} are stored as {one.dtype}. Store them as whole numbers."
            )
        made.append(one.model_copy(update={"name": name, "units": units, "kind": kind}))
    return tuple(made)


def _check_size(raster: UserRaster, stored: int) -> None:
    pixels = raster.width * raster.height
    most = MOST_DEGREE_PIXELS if raster.crs == "EPSG:4326" else MOST_PIXELS
    if max(raster.width, raster.height) > MAX_SIDE:
        raise RasterRefusedError(
            f"it has {raster.width:,} x {raster.height:,} pixels; {MAX_SIDE:,} are taken along a "
            "side. Cut it to your region, or make it coarser."
        )
    if pixels > most:
        raise RasterRefusedError(
            f"it has {raster.width:,} x {raster.height:,} pixels; {most:,} are taken in this "
            "CRS. Cut it to your region, or make it coarser."
        )
    many = pixels * max(1, len(raster.days))
    values = many * len(raster.layers)
    size = many * sum(np.dtype(one.dtype).itemsize for one in raster.layers)
    if values > MOST_VALUES:
        raise RasterRefusedError(
            f"it has {values:,} values in all; {MOST_VALUES:,} are taken. Push fewer dates or "
            "layers at a time, as rasters of their own."
        )
    if size > MOST_SWELLING * stored + _FREE_BYTES:
        raise RasterRefusedError(
            f"its {stored:,} bytes stand for {size:,} bytes of values, more than "
            f"{MOST_SWELLING} times as many. Make it coarser, or write it with less compression."
        )


def _write(
    raster: UserRaster,
    keys: Sequence[int | str],
    planes: Sequence[tuple[Source, int]],
    out: Path,
) -> None:
    """Write the file, a block of rows at a time."""
    shape: tuple[int, ...] = (raster.height, raster.width)
    chunk: tuple[int, ...] = (min(256, raster.height), min(512, raster.width))
    if raster.days:
        shape, chunk = (len(raster.days), *shape), (1, *chunk)
    rows = max(256, _BLOCK_VALUES // raster.width // 256 * 256)
    with h5py.File(out, "w") as file:
        file.attrs[DESCRIPTION] = raster.model_dump_json()
        fields = file.create_group(f"HDFEOS/GRIDS/{GRID}/Data Fields")
        for layer, key in zip(raster.layers, keys, strict=True):
            made = fields.create_dataset(
                layer.name,
                shape,
                layer.dtype,
                chunks=chunk,
                shuffle=True,
                compression="gzip",
                compression_opts=1,
                track_times=False,
            )
            for axis, dim in enumerate(("date", "YDim", "XDim")[-len(shape) :]):
                made.dims[axis].label = dim
            made.attrs["scale_factor"], made.attrs["add_offset"] = layer.scale, layer.offset
            if layer.nodata is not None:
                made.attrs["_FillValue"] = np.dtype(layer.dtype).type(layer.nodata)
            for number, (source, there) in enumerate(planes):
                for first in range(0, raster.height, rows):
                    many = min(rows, raster.height - first)
                    block = source.read(key, there, first, many)
                    at = np.s_[first : first + many]
                    made[(number, at) if raster.days else at] = block
