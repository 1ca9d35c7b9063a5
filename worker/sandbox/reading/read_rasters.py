"""Read a package's rasters: `read_rasters.py WANTED FOLDER TO`, inside the sandbox.

WANTED is a `Wanted` as JSON. For each of its names the pixels go into a file of TO, whose name is
the raster's number, and what else the file says into `report.json` there. The module imports none
of ours, because it runs alone, by `python -I`, where a package's own files could do no harm.
"""

import errno
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.crs import CRS
from rasterio.io import DatasetReader, MemoryFile
from rasterio.transform import Affine
from rasterio.windows import Window

REPORT = "report.json"
MOST_BANDS = 1000

_DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_FLOATS = ("float32", "float64")
_SNAP = 1e-3  # pixels by which a raster may be off its grid
_ROWS = 512
_LONGEST_TEXT = 200
# One file, one format: no sidecars, no overviews or masks beside it, no other driver.
_GDAL = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_NUM_THREADS": "1",
    "GDAL_CACHEMAX": 128,
}


class RefusedError(Exception):
    """A raster cannot be taken; the text follows its name in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The rasters to read, by name, and the grid that each has to lie on.

    `transform` has six numbers, a to f; `most_bytes` is the bound of one raster's pixels.
    """

    names: tuple[str, ...]
    crs: str
    transform: tuple[float, ...]
    width: int
    height: int
    most_bytes: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a raster says, its pixels apart. Texts are cut, and else as the file has them."""

    dtype: str
    nodata: float | int | None
    scale: float
    offset: float
    units: str
    bands: tuple[str, ...]


def main() -> None:
    """Read all rasters, or say which one cannot be taken, and why."""
    given, folder, to = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    wanted = Wanted(**given)
    report: dict[str, object] = {}
    found = []
    for number, name in enumerate(wanted.names):
        try:
            with Opening(folder / name, wanted) as (dataset, said):
                shape = (len(said.bands), wanted.height, wanted.width)
                into = np.memmap(to / str(number), said.dtype, "w+", shape=shape)
                _copy(dataset, into)
                into.flush()
        except RefusedError as error:
            report = {"file": name, "problem": str(error)}
            break
        found.append(asdict(said))
    report["found"] = found
    (to / REPORT).write_text(json.dumps(report), "utf-8")


class Opening:
    """Open a GeoTIFF and check all that it says before a pixel is read.

    A failure to read it is a RefusedError, too, but for a full disk.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path, self._wanted = path, wanted
        self._environment = rasterio.Env(**_GDAL)
        self._dataset: DatasetReader | None = None

    def __enter__(self) -> tuple[DatasetReader, Found]:
        if not stat.S_ISREG(os.lstat(self._path).st_mode):
            raise RefusedError("is a link or a special file: write a file")
        self._environment.__enter__()
        try:
            self._dataset = rasterio.open(self._path, driver="GTiff")
            return self._dataset, _checked(self._dataset, self._wanted)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._dataset is not None:
            self._dataset.close()
        self._environment.__exit__(None, None, None)
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if isinstance(error, Exception) and not isinstance(error, RefusedError) and not full:
            said = " ".join(str(error).replace(str(self._path), self._path.name).split())
            raise RefusedError(
                f"is not a raster that opens (a GeoTIFF alone is read): {said[:300]}"
            ) from error


def _checked(dataset: DatasetReader, wanted: Wanted) -> Found:
    if not 1 <= dataset.count <= MOST_BANDS:
        raise RefusedError(f"has {dataset.count} bands; {MOST_BANDS} are the most")
    dtypes = set(dataset.dtypes)
    if len(dtypes) > 1 or not dtypes <= {*_DTYPES, *_FLOATS}:
        raise RefusedError(
            f"has pixels of the type {', '.join(sorted(dtypes))}: write all bands as one type of "
            "integers or floats"
        )
    (dtype,) = dtypes
    _check_grid(dataset, wanted)
    size = dataset.count * wanted.height * wanted.width * np.dtype(dtype).itemsize
    if size > wanted.most_bytes:
        raise RefusedError(
            f"has {size / 1e9:.2f} GB of pixels, {wanted.most_bytes / 1e9:.2f} GB are the most: "
            "write fewer bands, or a smaller type"
        )
    scale, offset = float(dataset.scales[0]), float(dataset.offsets[0])
    if not math.isfinite(scale) or not math.isfinite(offset) or scale == 0:
        raise RefusedError(
            f"has the scale {scale} and the offset {offset}: write finite numbers, and no scale 0"
        )
    return Found(
        dtype=dtype,
        nodata=_nodata(dtype, dataset.nodata),
        scale=scale,
        offset=offset,
        units=_short(dataset.units[0] or ""),
        bands=tuple(_short(text or f"band {n}") for n, text in enumerate(dataset.descriptions, 1)),
    )


def _check_grid(dataset: DatasetReader, wanted: Wanted) -> None:
    found = tuple(dataset.transform)[:6]
    pixel = abs(wanted.transform[0])
    same = all(abs(a - b) <= _SNAP * pixel for a, b in zip(found, wanted.transform, strict=True))
    if (dataset.width, dataset.height) != (wanted.width, wanted.height) or not same:
        raise RefusedError(
            f"has {dataset.width} x {dataset.height} pixels with the transform {found}; the inputs "
            f"have {wanted.width} x {wanted.height} with {tuple(wanted.transform)}: write it on "
            "their grid"
        )
    if not dataset.crs:
        raise RefusedError("has no CRS: write it with the inputs' CRS, as their files hold it")
    expected = CRS.from_user_input(wanted.crs)
    if dataset.crs not in (expected, _as_written(expected)):
        raise RefusedError(
            f"has the CRS {_short(dataset.crs.to_string())}; the inputs have "
            f"{_short(wanted.crs)}: write it on their grid"
        )


def _as_written(crs: CRS) -> CRS | None:
    """Return a CRS as a GeoTIFF gives it back: its keys hold fewer details than a text."""
    profile = {"driver": "GTiff", "dtype": "uint8", "count": 1, "width": 1, "height": 1}
    with MemoryFile() as memory:
        with memory.open(**profile, crs=crs, transform=Affine.scale(2.0)):
            pass
        with memory.open() as dataset:
            return dataset.crs


def _nodata(dtype: str, nodata: float | None) -> float | int | None:
    if dtype in _FLOATS:
        return math.nan if nodata is None else float(nodata)
    if nodata is None:
        raise RefusedError(
            f"has {dtype} pixels and no nodata value, so empty pixels could not be distinguished "
            "from data: set nodata, or write floats"
        )
    span = np.iinfo(dtype)
    if not math.isfinite(nodata) or nodata != int(nodata) or not span.min <= nodata <= span.max:
        raise RefusedError(f"has the nodata value {nodata}, which is no {dtype}: set another one")
    return int(nodata)


def _copy(dataset: DatasetReader, into: npt.NDArray[np.generic]) -> None:
    """Read all bands, some rows at a time."""
    for rows in _strips(dataset.height):
        window = Window(0, rows.start, dataset.width, rows.stop - rows.start)
        into[:, rows] = dataset.read(window=window)


def _strips(height: int) -> Iterator[slice]:
    for start in range(0, height, _ROWS):
        yield slice(start, min(start + _ROWS, height))


def _short(text: str) -> str:
    return text[:_LONGEST_TEXT]


if __name__ == "__main__":
    main()
