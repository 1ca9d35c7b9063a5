"""Small pictures of result rasters, and the descriptions that the rasters hold.

A raster is read where it is stored, by byte ranges: its header and the smallest overview that is
large enough, never the whole file. Pictures are drawn when they are first asked for, and cached.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from portal.results.layers import is_raster
from portal.results.result_files import ResultFile, ResultReader
from reprojection.read.description import Description
from reprojection.read.raster import Raster
from reprojection.write.band_statistics import BandStatistics

SMALL, LARGE = 144, 1024
"""Longest side in pixels: of a thumbnail beside a file's name, of a picture on its own page."""

SAMPLED = 512
"""Longest side in pixels of what legends and statistics are counted from."""

WHOLE_PIXELS = 2**22
"""Up to so many pixels a band is read whole for its histogram."""

_KEPT_BYTES = 32 * 10**6
_AT_ONCE = 2
_SHOWN = (
    2.0,
    98.0,
)  # percentiles at the ends of the colour scale, as in `reprojection.write.picture`


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A raster as a page shows it: its description, and the values at the ends of its scale."""

    said: Description
    nodata: float | int | None
    low: float | None
    high: float | None
    valid: float  # share of all pixels with a value, counted in the picture if the file lacks it


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
            from reprojection.write.picture import draw, encode_png

            raster, _ = _read(reader, result, side)
            drawn = encode_png(draw(raster))
        with self._lock:
            self._kept[name] = drawn
            while sum(map(len, self._kept.values())) > _KEPT_BYTES and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return drawn

    def small(
        self, reader: ResultReader, result: ResultFile, band: int = 0
    ) -> tuple[Raster, Description]:
        """Read a band of a raster, at most `SAMPLED` pixels long; raise as `png` does."""
        with self._drawing:
            return _read(reader, result, SAMPLED, band)

    def counted(
        self, reader: ResultReader, result: ResultFile, band: int
    ) -> tuple[Raster, Description]:
        """Read a band whole up to `WHOLE_PIXELS`, else as `small` does; raise as `png` does."""
        with self._drawing:
            from portal.results.picture_reading import read_counted

            return read_counted(reader, result, WHOLE_PIXELS, SAMPLED, band)

    def statistics(
        self, reader: ResultReader, result: ResultFile, band: int
    ) -> BandStatistics | None:
        """Read what the file says of all pixels of a band; None if nothing; raise as `png` does."""
        with self._drawing:
            from portal.results.picture_reading import read_statistics

            return read_statistics(reader, result, band)

    def pixel(
        self, reader: ResultReader, result: ResultFile, lon: float, lat: float
    ) -> tuple[Raster, Description] | None:
        """Read the pixel at a place in degrees; None outside the raster; raise as `png` does."""
        with self._drawing:
            from portal.results.picture_reading import read_pixel

            return read_pixel(reader, result, lon, lat)

    def shown(self, reader: ResultReader, result: ResultFile) -> Shown:
        """Return a raster's description and the ends of its scale; raise as `png` does."""
        with self._drawing:
            raster, said = _read(reader, result, LARGE)
        exact = result.file.valid_share
        values = raster.values(0)
        known = values[np.isfinite(values)]
        low, high = (float(v) for v in np.percentile(known, _SHOWN)) if known.size else (None, None)
        return Shown(
            said=said,
            nodata=raster.nodata,
            low=low,
            high=high,
            valid=known.size / values.size if exact is None else exact,
        )


def _read(
    reader: ResultReader, result: ResultFile, side: int, band: int = 0
) -> tuple[Raster, Description]:
    from portal.results.picture_reading import read_picture, refused

    if not is_raster(result):
        raise refused(result, "it is not a raster")
    return read_picture(reader, result, side, band)
