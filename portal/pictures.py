"""Small pictures of result rasters, drawn when first asked for and kept for a while."""

import tempfile
import threading
from collections import OrderedDict
from pathlib import Path, PurePosixPath

from portal.downloads import ResultFile
from portal.problems import NotFoundError
from reprojection.errors import ReprojectionError
from reprojection.picture import write_png
from tasks.blobs import Blobs, split_blob

SMALL, LARGE = 144, 1024
"""Longest sides in pixels: beside a file's name, and on a page of its own."""

MOST_BYTES = 256 * 10**6
_KEPT_BYTES = 32 * 10**6
_AT_ONCE = 2


class Pictures:
    """Draws and remembers pictures. Safe between threads; few are drawn at once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._drawing = threading.BoundedSemaphore(_AT_ONCE)

    def png(self, blobs: Blobs, result: ResultFile, side: int) -> bytes:
        """A PNG of a raster, its longer side at most `side` pixels.

        Raises:
            NotFoundError: the file is no raster of Swathmill, or too large to draw here.
        """
        if not has_picture(result):
            raise NotFoundError(
                f"{result.path} ({result.file.size:,} bytes) has no picture.",
                "Download it and open it in a GIS.",
            )
        name = (result.file.sha256, side)
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        with self._drawing:
            drawn = _draw(blobs, result, side)
        with self._lock:
            self._kept[name] = drawn
            while sum(map(len, self._kept.values())) > _KEPT_BYTES and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return drawn


def has_picture(result: ResultFile) -> bool:
    """Whether a picture can be drawn of a result: a GeoTIFF of bounded size."""
    suffix = PurePosixPath(result.path).suffix.lower()
    return suffix in (".tif", ".tiff") and result.file.size <= MOST_BYTES


def _draw(blobs: Blobs, result: ResultFile, side: int) -> bytes:
    container, name = split_blob(result.file.blob)
    with tempfile.TemporaryDirectory(prefix="swathmill-picture-") as folder:
        raster, picture = Path(folder, "raster.tif"), Path(folder, "picture.png")
        blobs.get_file(container, name, raster, result.file.sha256)
        try:
            write_png(raster, picture, side)
        except ReprojectionError as error:
            raise NotFoundError(
                f"{result.path} has no picture: {error}.", "Download it and open it in a GIS."
            ) from error
        return picture.read_bytes()
