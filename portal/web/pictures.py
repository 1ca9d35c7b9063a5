"""Small pictures of result rasters, and the descriptions that the rasters hold.

A raster is read where it is stored, by byte ranges: its header and the smallest overview that is
large enough, never the whole file. Pictures are drawn when they are first asked for, and cached.
"""

import io
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import rasterio
from pydantic import ValidationError
from rasterio.enums import Resampling
from rasterio.errors import RasterioError

from portal.core.problems import NotFoundError
from portal.core.results import ResultFile, ResultReader
from reprojection.read.raster import Description, Raster
from reprojection.write.picture import draw, encode_png
from reprojection.write.write import TAG
from tasks.errors import SwathmillError

SMALL, LARGE = 144, 1024
"""Longest side in pixels: of a thumbnail beside a file's name, of a picture on its own page."""

_KEPT_BYTES = 32 * 10**6
_AT_ONCE = 2
_READ_BYTES = 2**18  # per call to storage
_NAME = "result.tif"
_SHOWN = (2.0, 98.0)  # percentiles at the ends of the colour scale, as in `reprojection.picture`


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A raster as a page shows it: its description, and the values at the ends of its scale."""

    said: Description
    nodata: float | int | None
    low: float | None
    high: float | None
    valid: float  # share of pixels with a value, counted in the picture


class Pictures:
    """Draw and cache pictures. Thread-safe; only a few are drawn at once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._drawing = threading.BoundedSemaphore(_AT_ONCE)

    def png(self, reader: ResultReader, result: ResultFile, side: int) -> bytes:
        """Draw a PNG of a raster's first band, its longer side at most `side` pixels.

        Raises NotFoundError for a file that is no raster of Swathmill, and what the reader raises.
        """
        name = (result.file.sha256, side)
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        with self._drawing:
            raster, _ = _read(reader, result, side)
            drawn = encode_png(draw(raster))
        with self._lock:
            self._kept[name] = drawn
            while sum(map(len, self._kept.values())) > _KEPT_BYTES and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return drawn

    def shown(self, reader: ResultReader, result: ResultFile) -> Shown:
        """Return a raster's description and the ends of its scale; raise as `png` does."""
        with self._drawing:
            raster, said = _read(reader, result, LARGE)
        values = raster.values(0)
        known = values[np.isfinite(values)]
        low, high = (float(v) for v in np.percentile(known, _SHOWN)) if known.size else (None, None)
        return Shown(
            said=said,
            nodata=raster.nodata,
            low=low,
            high=high,
            valid=known.size / values.size,
        )


def has_picture(result: ResultFile) -> bool:
    """Tell whether a result can have a picture: its name ends like a GeoTIFF's."""
    return PurePosixPath(result.path).suffix.lower() in (".tif", ".tiff")


def _read(reader: ResultReader, result: ResultFile, side: int) -> tuple[Raster, Description]:
    """Read the first band, at most `side` pixels long, and the description of the raster."""
    if not has_picture(result):
        raise _refused(result, "it is no raster")

    failures: list[Exception] = []

    def opener(path: str, _mode: str = "rb", **_: object) -> io.BufferedReader:
        if path != _NAME:
            raise FileNotFoundError(path)
        return io.BufferedReader(_BlobFile(reader, result, failures), _READ_BYTES)

    try:
        with (
            rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"),
            rasterio.open(_NAME, opener=opener, driver="GTiff") as dataset,
        ):
            said = Description.model_validate_json(dataset.tags().get(TAG, ""))
            share = min(1.0, side / max(dataset.height, dataset.width))
            shape = max(1, round(dataset.height * share)), max(1, round(dataset.width * share))
            smooth = said.kind == "continuous"
            data = dataset.read(
                [1],
                out_shape=(1, *shape),
                resampling=Resampling.average if smooth else Resampling.nearest,
            )
            nodata = dataset.nodata
    except (RasterioError, ValidationError) as error:
        if failures:
            raise failures[0] from error
        for _ in reader.whole(result):
            continue  # raises if the file is damaged
        raise _refused(result, "it is no raster of Swathmill") from error
    if nodata is not None and data.dtype.kind != "f":
        nodata = int(nodata)
    first = said.model_copy(update={"bands": said.bands[:1]})
    return first.raster(data, nodata), said


def _refused(result: ResultFile, why: str) -> NotFoundError:
    return NotFoundError(
        f"{result.path} has no picture: {why}.",
        "Download it and open it in a program for this format.",
    )


class _BlobFile(io.RawIOBase):
    """A result as a file that reads only the bytes asked for from storage.

    GDAL does not pass exceptions on from its reads, so they are collected in `failures`.
    """

    def __init__(self, reader: ResultReader, result: ResultFile, failures: list[Exception]) -> None:
        self._reader = reader
        self._size = result.file.size
        self._result = result
        self._failures = failures
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        try:
            data = b"".join(self._reader.part(self._result, self._at, length))
        except SwathmillError as error:
            self._failures.append(error)
            return 0
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
