"""Rasters as flat files, for programs that cannot read or write GeoTIFF.

A flat file has float32 values, little-endian, band after band, row after row, NaN where there is no
value; beside it lies an ENVI header (`.hdr`, "ENVI header files" in the ENVI documentation). Values
of layers are in physical units; codes, counts and the like are as they are stored.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.windows import Window

from tasks.bag.spec import GridSpec
from worker.phases.adopt import failed
from worker.sandbox.reading.read_rasters import MOST_BANDS

SUFFIX = ".bin"
_TYPE = np.dtype("<f4")
_ENVI_FLOAT = 4  # ENVI's number of the type
_ROWS = 512


def write_flat(source: Path, to: Path) -> None:
    """Write a stack as a flat file with its header; `to` is the flat file."""
    with rasterio.open(source) as stack:
        shape = (stack.count, stack.height, stack.width)
        values = np.memmap(to, _TYPE, "w+", shape=shape)
        for number in stack.indexes:
            for row in range(0, stack.height, _ROWS):
                rows = min(_ROWS, stack.height - row)
                window = Window(0, row, stack.width, rows)
                values[number - 1, row : row + rows] = physical(stack, number, window)
        values.flush()
        header = _header(shape, stack.transform, [text or "" for text in stack.descriptions])
    to.with_suffix(".hdr").write_text(header, "ascii", "replace")


def physical(stack: rasterio.DatasetReader, number: int, window: Window) -> npt.NDArray[np.float64]:
    """Read a part of a band in physical units, NaN where it has no value."""
    stored = stack.read(number, window=window)
    value: npt.NDArray[np.float64] = stored.astype(np.float64)
    value = value * stack.scales[number - 1] + stack.offsets[number - 1]
    if stack.nodata is not None:
        value[stored == stack.nodata] = np.nan
    return value


def _header(shape: tuple[int, int, int], transform: rasterio.Affine, names: list[str]) -> str:
    bands, lines, samples = shape
    west, north = transform.c, transform.f
    return "\n".join(
        (
            "ENVI",
            f"samples = {samples}",
            f"lines = {lines}",
            f"bands = {bands}",
            "header offset = 0",
            "file type = ENVI Standard",
            f"data type = {_ENVI_FLOAT}",
            "interleave = bsq",
            "byte order = 0",
            f"map info = {{Arbitrary, 1, 1, {west!r}, {north!r}, {transform.a!r}, "
            f"{-transform.e!r}}}",
            f"band names = {{{', '.join(names)}}}",
            "data ignore value = nan",
            "",
        )
    )


def take_flat(rasters: Iterable[str], grid: GridSpec, outputs: Path) -> None:
    """Make GeoTIFFs of the flat files that a program wrote in place of its declared rasters.

    `X.bin` stands for `X.tif`; where the program wrote that too, the flat file is ignored.

    Raises:
        AttemptError: user code failed: a flat file is no plain file, or not a number of whole
            bands.
    """
    for name in rasters:
        raster = outputs / name
        flat = raster.with_suffix(SUFFIX)
        if os.path.lexists(flat) and not os.path.lexists(raster):
            _write_raster(flat, raster, grid)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _write_raster(flat: Path, to: Path, grid: GridSpec) -> None:
    try:
        opened = open(flat, "rb", opener=_open)  # noqa: SIM115 - closed below
    except OSError as error:
        raise failed(flat.name, f"cannot be read: {error.strerror}") from None
    with opened as file:
        size = os.fstat(file.fileno())
        band = grid.width * grid.height * _TYPE.itemsize
        if not stat.S_ISREG(size.st_mode):
            raise failed(flat.name, "is no plain file")
        if size.st_size % band or not 1 <= size.st_size // band <= MOST_BANDS:
            raise failed(
                flat.name,
                f"has {size.st_size:,} bytes; a band of float32 on the inputs' grid has {band:,}: "
                f"write whole bands, at most {MOST_BANDS:,}",
            )
        count = size.st_size // band
        with rasterio.open(
            to,
            "w",
            driver="GTiff",
            dtype="float32",
            count=count,
            width=grid.width,
            height=grid.height,
            crs=grid.crs,
            transform=rasterio.Affine(*grid.transform),
            nodata=float("nan"),
            BIGTIFF="IF_SAFER",
        ) as out:
            for number in range(1, count + 1):
                values = np.fromfile(file, _TYPE, grid.width * grid.height)
                out.write(values.reshape(grid.height, grid.width), number)
