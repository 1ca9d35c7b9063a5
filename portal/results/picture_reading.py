"""Read a result raster where it is stored, by byte ranges, as far as a picture or a pixel needs.

Imported when the first picture is asked for: GDAL takes long to load.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import rasterio
from pydantic import ValidationError
from rasterio.enums import Resampling
from rasterio.errors import RasterioError
from rasterio.windows import Window

from portal.results.result_files import BlobFile, ResultFile, ResultReader
from portal.serving.problems import NotFoundError
from reprojection.grid.pixel_at import pixel_at
from reprojection.read.description import Description
from reprojection.read.raster import Raster
from reprojection.write.band_statistics import BandStatistics
from reprojection.write.write import TAG, statistics_in

_READ_BYTES = 2**18  # per call to storage
_NAME = "result.tif"

Windows = Callable[[Description], Sequence[tuple[int, int, int, int] | None]]


def read_picture(
    reader: ResultReader, result: ResultFile, side: int, band: int = 0
) -> tuple[Raster, Description]:
    """Read a band, at most `side` pixels long, and the description of the raster.

    `band` counts from 0. What is no data, such as the number of granules, is described as classes.

    Raises NotFoundError for a file that is no raster of Swathmill, or has no such band, and what
    the reader raises.
    """
    with opened(reader, result) as (dataset, said):
        return _read_band(dataset, said, result, side, band)


def read_counted(
    reader: ResultReader, result: ResultFile, most: int, side: int, band: int
) -> tuple[Raster, Description]:
    """Read a band whole if it has at most `most` pixels, else as `read_picture` does."""
    with opened(reader, result) as (dataset, said):
        whole = dataset.width * dataset.height <= most
        longest = max(dataset.width, dataset.height) if whole else side
        return _read_band(dataset, said, result, longest, band)


def _read_band(
    dataset: "rasterio.io.DatasetReader",
    said: Description,
    result: ResultFile,
    side: int,
    band: int,
) -> tuple[Raster, Description]:
    share = min(1.0, side / max(dataset.height, dataset.width))
    shape = max(1, round(dataset.height * share)), max(1, round(dataset.width * share))
    one = band_of(said, result, band)
    smooth = one.kind == "continuous"
    data = dataset.read(
        [band + 1],
        out_shape=(1, *shape),
        resampling=Resampling.average if smooth else Resampling.nearest,
    )
    plain = said.bands[band].role != "data"
    told = said if not plain else said.model_copy(update={"kind": "class", "units": ""})
    return Raster.of(one, data, nodata_of(dataset)), told


def band_of(said: Description, result: ResultFile, band: int) -> Description:
    """Describe one band; what is no data is classes. Raises NotFoundError where there is none."""
    if band >= len(said.bands):
        raise refused(result, f"it has no band {band + 1}")
    chosen = said.bands[band]
    plain = {"kind": "class", "units": ""} if chosen.role != "data" else {}
    return said.model_copy(update={"bands": (chosen,), **plain})


def read_statistics(reader: ResultReader, result: ResultFile, band: int) -> BandStatistics | None:
    """Read what a raster's file says of all pixels of a band, which counts from 0.

    None where the file says nothing. Raises as `read_picture` does.
    """
    with opened(reader, result) as (dataset, _):
        if band >= dataset.count:
            raise refused(result, f"it has no band {band + 1}")
        return statistics_in(dataset)[band]


def read_pixel(
    reader: ResultReader, result: ResultFile, lon: float, lat: float
) -> tuple[Raster, Description] | None:
    """Read all bands of the pixel at a place in degrees, as a raster of one pixel.

    Return None for a place outside the raster. Raises as `read_picture` does.
    """
    with opened(reader, result) as (dataset, said):
        pixel = pixel_at(said.grid.grid(), lon, lat)
        if pixel is None:
            return None
        data = dataset.read(window=Window(pixel.col, pixel.row, 1, 1))
        nodata = nodata_of(dataset)
    return Raster.of(said, data, nodata), said


def read_windows(
    reader: ResultReader, result: ResultFile, windows: Windows
) -> tuple[Description, list[Raster | None]]:
    """Read parts of the first band, each as a raster of its own pixels.

    `windows` gives for the description of the raster the first row and column, and the numbers of
    rows and columns, of each part; None is no part. Raises as `read_picture` does.
    """
    with opened(reader, result) as (dataset, said):
        one = said.model_copy(update={"bands": said.bands[:1]})
        nodata = nodata_of(dataset)
        parts = [
            None
            if window is None
            else Raster.of(one, dataset.read([1], window=_window(*window)), nodata)
            for window in windows(said)
        ]
    return said, parts


def _window(row: int, column: int, rows: int, columns: int) -> Window:
    return Window(column, row, columns, rows)


def nodata_of(dataset: "rasterio.io.DatasetReader") -> float | int | None:
    """Return what a pixel without a value holds, as a whole number where pixels are."""
    nodata: float | int | None = dataset.nodata
    return int(nodata) if nodata is not None and dataset.dtypes[0][0] != "f" else nodata


@contextmanager
def opened(
    reader: ResultReader, result: ResultFile, overview: int | None = None
) -> Iterator[tuple["rasterio.io.DatasetReader", Description]]:
    """Open a result where it is stored, or one of its overviews, numbered from 0.

    Raises as `read_picture` does.
    """
    failures: list[Exception] = []

    def opener(path: str, _mode: str = "rb", **_: object) -> io.BufferedReader:
        if path != _NAME:
            raise FileNotFoundError(path)
        return io.BufferedReader(BlobFile(reader, result, failures), _READ_BYTES)

    level = {} if overview is None else {"overview_level": overview}
    try:
        with (
            rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"),
            rasterio.open(_NAME, opener=opener, driver="GTiff", **level) as dataset,
        ):
            yield dataset, Description.model_validate_json(dataset.tags().get(TAG, ""))
    except (RasterioError, ValidationError) as error:
        if failures:
            raise failures[0] from error
        for _ in reader.whole(result):
            continue  # raises if the file is damaged
        raise refused(result, "it is not a raster of Swathmill") from error


def refused(result: ResultFile, why: str) -> NotFoundError:
    """Return the error that says why a result has no picture."""
    return NotFoundError(
        f"{result.path} has no picture: {why}.",
        "Download it and open it in a program for this format.",
    )
