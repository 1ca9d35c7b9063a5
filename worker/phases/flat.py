"""Rasters as flat files, for programs that cannot read or write GeoTIFF.

A flat file has float32 values, little-endian, band after band, row after row, NaN where there is no
value; beside it lies an ENVI header (`.hdr`, "ENVI header files" in the ENVI documentation). Values
of layers are in physical units; codes, counts and the like are as they are stored.
"""

import os
import stat
from pathlib import Path, PurePosixPath

import numpy as np
import rasterio
from rasterio.windows import Window

from tasks.model.categories import Category
from tasks.model.packages import Package
from tasks.model.spec import GridSpec
from tasks.run.classify import AttemptError
from worker.phases.group import Manifest

SUFFIX = ".bin"
_TYPE = np.dtype("<f4")
_ENVI_FLOAT = 4  # ENVI's number of the type
_ROWS = 512


def flat_manifest(manifest: Manifest) -> Manifest:
    """Return a manifest that names flat files in place of GeoTIFFs."""
    bands = tuple(
        band.model_copy(
            update={
                "file": flat_name(band.file),
                "further": tuple(
                    one.model_copy(update={"file": flat_name(one.file)}) for one in band.further
                ),
            }
        )
        for band in manifest.bands
    )
    return manifest.model_copy(update={"bands": bands})


def flat_name(file: str) -> str:
    """Return the name of a raster's flat file."""
    return str(PurePosixPath(file).with_suffix(SUFFIX))


def write_flat(source: Path, to: Path) -> None:
    """Write a stack as a flat file with its header; `to` is the flat file."""
    with rasterio.open(source) as stack:
        shape = (stack.count, stack.height, stack.width)
        values = np.memmap(to, _TYPE, "w+", shape=shape)
        for number in stack.indexes:
            scale, offset = stack.scales[number - 1], stack.offsets[number - 1]
            for row in range(0, stack.height, _ROWS):
                rows = min(_ROWS, stack.height - row)
                window = Window(0, row, stack.width, rows)
                stored = stack.read(number, window=window)
                value = stored.astype(np.float64) * scale + offset
                if stack.nodata is not None:
                    value[stored == stack.nodata] = np.nan
                values[number - 1, row : row + rows] = value
        values.flush()
        header = _header(shape, stack.transform, [text or "" for text in stack.descriptions])
    to.with_suffix(".hdr").write_text(header, "ascii", "replace")


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


def take_flat(package: Package, grid: GridSpec | None, outputs: Path) -> None:
    """Make GeoTIFFs of the flat files that a program wrote in place of its rasters.

    `X.bin` stands for `X.tif`; where the program wrote that too, the flat file is ignored.

    Raises:
        AttemptError: user code failed: a flat file is not a number of whole bands.
    """
    if package.inputs.format != "envi" or grid is None:
        return
    for flat in sorted(outputs.glob(f"*{SUFFIX}")):
        raster = flat.with_suffix(".tif")
        if not os.path.lexists(raster):
            _write_raster(flat, raster, grid)


def _write_raster(flat: Path, to: Path, grid: GridSpec) -> None:
    handle = os.open(flat, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno())
        band = grid.width * grid.height * _TYPE.itemsize
        if not stat.S_ISREG(size.st_mode) or size.st_size % band or not size.st_size:
            raise AttemptError(
                Category.USER_CODE_FAILED,
                f"the package's output {flat.name} has {size.st_size:,} bytes; a band of float32 "
                f"on the inputs' grid has {band:,}: write whole bands",
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
