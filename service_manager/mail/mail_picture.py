"""The picture in the mail about a request's end: the fullest of its rasters, drawn small."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import structlog

from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tasks.requests.data_results import is_data
from tasks.storage.blobs import split_blob

_SIDE = 480  # pixels at most
_MOST_BYTES = 64 * 2**20  # a larger raster is not fetched for a picture

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class MailPicture:
    """A PNG, and the path of the result that it shows."""

    png: bytes
    path: str


def draw(runtime: Runtime, request: str) -> MailPicture | None:
    """Draw the raster of a request's results that has most values, of data if there is one.

    None if there is none, or it cannot be had now: the mail goes without a picture. Only rasters
    that Swathmill wrote are opened: their share of values was counted.
    """
    try:
        return _drawn(runtime, request)
    except Exception as error:  # whatever it is, the mail is not to wait for it
        log.error("the mail has no picture", request=request, exc_info=error)
        return None


def _drawn(runtime: Runtime, request: str) -> MailPicture | None:
    rasters = [
        (file, f"{result.output.strip('/')}/{file.name}")
        for result in request_operations.results(runtime, request)
        for file in result.files
        if file.name.endswith(".tif") and file.valid_share and file.size <= _MOST_BYTES
    ]
    if not rasters:
        return None
    from reprojection.write.picture import write_png  # here: most managers draw seldom

    file, path = max(rasters, key=lambda raster: (is_data(raster[1]), raster[0].valid_share or 0.0))
    with tempfile.TemporaryDirectory(prefix="swathmill-") as folder:
        raster, picture = Path(folder, "raster.tif"), Path(folder, "picture.png")
        runtime.blobs.get_file(*split_blob(file.blob), raster, file.sha256)
        write_png(raster, picture, _SIDE)
        return MailPicture(png=picture.read_bytes(), path=path)
