"""Write rasters to Cloud Optimized GeoTIFF, and read them back.

Layout: `reprojection.write.tiff`. The tag SWATHMILL holds `Raster.description()` as JSON, the
metadata of a band of classes their names; a file does not depend on when or where it was written.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.crs import CRS
from rasterio.enums import ColorInterp
from rasterio.errors import RasterioIOError
from rasterio.io import MemoryFile
from rasterio.transform import Affine

from reprojection.errors import BadFormatError, GridError
from reprojection.files import AnyPath
from reprojection.grid.grids import Grid
from reprojection.read.description import Description
from reprojection.read.raster import Pixels, Raster, share_of
from reprojection.write.band_statistics import BandStatistics, band_statistics, read_statistics
from reprojection.write.meanings import class_tags
from reprojection.write.overviews import averaged, picked
from reprojection.write.sizes import STRIPE_BYTES, TILE
from reprojection.write.stripe_statistics import StripeStatistics
from reprojection.write.tiff import StripedTiles, deflate_halves, write_tiff

Compression = Literal["deflate", "zstd", "none", "quick"]

TAG = "SWATHMILL"


def write_cog(
    raster: Raster,
    path: AnyPath,
    *,
    overviews: bool = True,
    statistics: bool = True,
    compress: Compression = "deflate",
    threads: int = 1,
) -> None:
    """Write a raster as a Cloud Optimized GeoTIFF.

    Equal rasters give equal bytes with the C kernels, and other equal bytes without them. The file
    appears under its name only when it is complete. Layout: TIFF 6.0, BigTIFF where needed,
    tiles of 512 x 512; DEFLATE as in RFC 1950 and 1951.

    Args:
        raster: The raster.
        path: The file, which is replaced.
        overviews: Whether halved levels are added, True by default. They average continuous values,
            leaving nodata out, and pick single pixels of everything else (with "zstd", of all
            bands if one of them is not of values).
        statistics: Whether bands of values and of classes say what all their pixels hold, True by
            default (`band_statistics`): least, greatest, mean and standard deviation as GDAL keeps
            them, quartiles, and how often each class occurs.
        compress: "deflate" (the default), "none", "zstd", which GDAL writes, or "quick" for a file
            that is soon read again: DEFLATE where it about halves the pixels, otherwise none.
        threads: How many threads compress, 1 by default. The bytes do not depend on it.

    Raises:
        OSError: the file cannot be written; nothing of it remains.
    """
    # First, as it orders a copy of each band: then there are no overviews yet.
    found = _statistics(raster) if statistics else [None] * len(raster.bands)
    _write(raster, Path(path), found, overviews=overviews, compress=compress, threads=threads)


def write_result(raster: Raster, path: Path) -> tuple["Opened", float]:
    """Write a raster as `write_cog` does by default.

    Returns:
        What `open_raster` would of the file, and the raster's valid share.

    Raises:
        OSError: as `write_cog`.
    """
    found = _statistics(raster)
    _write(raster, path, found, overviews=True, compress="deflate", threads=1)
    return _made(raster, path, found), _valid_share(raster, found[0])


def _valid_share(raster: Raster, first: BandStatistics | None) -> float:
    """Return the valid share, which statistics of integers have counted."""
    alone = [band.role for band in raster.bands].count(raster.bands[0].role) == 1
    if first is None or not alone or raster.data.dtype.kind not in "iu":
        return raster.valid_share
    return share_of(first.valid, raster.grid.pixels)


def write_stripes(
    about: Raster, rows: Callable[[int, int], Pixels], path: Path
) -> tuple["Opened", float]:
    """Write a raster stripe by stripe, as `write_result` writes one that is in memory.

    Args:
        about: The raster; of its pixels only number and type count.
        rows: Returns the pixels from one row to before another; called up to four times for each.
        path: The file, which is replaced. Its folder has room for it twice.

    Returns:
        What `open_raster` would of the file, and the raster's valid share.

    Raises:
        OSError: as `write_cog`.
    """
    height, width = about.grid.shape
    many = TILE * max(1, STRIPE_BYTES // (about.data.itemsize * len(about.bands) * width * TILE))
    halve = [_halving(about, band) for band in range(len(about.bands))]
    statistics = [StripeStatistics(about, band) for band in range(len(about.bands))]
    valid = 0
    with StripedTiles((height, width), about.data.dtype, halve, path.parent) as tiles:
        for turn in range(max([1, *(one.turns for one in statistics)])):
            wanted = [n for n, one in enumerate(statistics) if turn < one.turns]
            for band in wanted:
                statistics[band].begin(turn)
            for start in range(0, height, many):
                data = rows(start, min(start + many, height))
                for band in wanted:
                    statistics[band].add(turn, data[band])
                if turn == 0:
                    valid += replace(about, data=data).valid_pixels
                    for first in range(0, data.shape[1], TILE):
                        tiles.add([*data[:, first : first + TILE]])
        found = [one.found() for one in statistics]
        with _whole_file(path) as beside, beside.open("w+b") as file:
            tiles.write(file, _template(about, found))
    return _made(about, path, found), share_of(valid, about.grid.pixels)


def _made(about: Raster, path: Path, found: Sequence[BandStatistics | None]) -> "Opened":
    pixels = about.grid.pixels
    return Opened(
        path=path,
        said=about.description(),
        nodata=about.nodata,
        dtype=about.data.dtype,
        # As their text in the file has them.
        statistics=tuple(
            None if one is None else read_statistics(one.tags(), pixels) for one in found
        ),
    )


def _halving(about: Raster, band: int) -> Callable[[Pixels], Pixels]:
    """Return how the overviews of a band are made."""
    if about.kind == "continuous" and about.bands[band].role == "data":
        return partial(averaged, nodata=about.nodata)
    return picked


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside another, whose file takes that name if the block ends well."""
    beside = path.with_name(f"{path.name}.part")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # report the first of the two problems
            beside.unlink(missing_ok=True)
        raise


def _statistics(raster: Raster) -> list[BandStatistics | None]:
    return [band_statistics(raster, band) for band in range(len(raster.bands))]


def _write(
    raster: Raster,
    whole: Path,
    found: Sequence[BandStatistics | None],
    *,
    overviews: bool,
    compress: Compression,
    threads: int,
) -> None:
    """Write a raster with statistics of its bands; as `write_cog`."""
    with _whole_file(whole) as beside:
        if compress == "zstd":
            _write_by_gdal(raster, beside, found, overviews=overviews)
            return
        with beside.open("w+b") as file:
            quick = compress == "quick"
            write_tiff(
                file,
                _levels(raster) if overviews else [list(raster.data)],
                _template(raster, found),
                deflate=deflate_halves(list(raster.data)) if quick else compress == "deflate",
                threads=threads,
            )


def _levels(raster: Raster) -> list[list[Pixels]]:
    """Return the planes at full size, then halved until they fit into one tile."""
    levels = [list(raster.data)]
    halve = [_halving(raster, band) for band in range(len(raster.bands))]
    while max(levels[-1][0].shape) > TILE:
        levels.append([half(plane) for half, plane in zip(halve, levels[-1], strict=True)])
    return levels


def _profile(raster: Raster) -> dict[str, object]:
    return {
        "driver": "GTiff",
        "dtype": raster.data.dtype.name,
        "count": len(raster.bands),
        "crs": CRS.from_user_input(raster.grid.crs),
        "transform": Affine(*raster.grid.transform),
        "nodata": raster.nodata,
        "interleave": "pixel",
    }


def _template(raster: Raster, found: Sequence[BandStatistics | None]) -> bytes:
    """Make a GeoTIFF of one pixel with all of a raster's metadata."""
    with MemoryFile() as memory:
        with memory.open(**_profile(raster), width=1, height=1) as dataset:
            _describe(dataset, raster, found)
        return bytes(memory.getbuffer())


def _write_by_gdal(
    raster: Raster, path: Path, found: Sequence[BandStatistics | None], *, overviews: bool
) -> None:
    plain = raster.kind == "continuous" and all(band.role == "data" for band in raster.bands)
    height, width = raster.grid.shape
    with rasterio.Env(GDAL_NUM_THREADS="1"), MemoryFile() as memory:
        with memory.open(**_profile(raster), width=width, height=height) as dataset:
            dataset.write(raster.data)
            _describe(dataset, raster, found)
        with memory.open() as dataset, MemoryFile() as packed:
            rasterio.shutil.copy(
                dataset,
                packed.name,
                driver="COG",
                BLOCKSIZE=TILE,
                COMPRESS="ZSTD",
                PREDICTOR="YES",
                OVERVIEWS="AUTO" if overviews else "NONE",
                OVERVIEW_RESAMPLING="AVERAGE" if plain else "NEAREST",
                BIGTIFF="IF_SAFER",
            )
            # Python writes the file: its errors state the cause, GDAL's have no public type.
            path.write_bytes(packed.getbuffer())


def _describe(
    dataset: "rasterio.io.DatasetWriter", raster: Raster, found: Sequence[BandStatistics | None]
) -> None:
    said = raster.description()
    dataset.update_tags(
        **{TAG: said.model_dump_json(), "TIFFTAG_SOFTWARE": said.provenance.software}
    )
    if near := said.provenance.near_real_time:
        dataset.update_tags(NEAR_REAL_TIME=f"{near} of {len(said.provenance.files)} granules")
    valued = [band.role == "data" for band in raster.bands]
    dataset.scales = [raster.scale if one else 1.0 for one in valued]
    dataset.offsets = [raster.offset if one else 0.0 for one in valued]
    dataset.units = [raster.units if one else "" for one in valued]
    for number, band in enumerate(raster.bands, 1):
        dataset.set_band_description(number, band.name)
        if (record := said.provenance.record) is not None:
            dataset.update_tags(
                number, RECORD=record.record, LAYER=record.layer, SENSOR=record.sensor
            )
        if names := class_tags(said, band.role):
            dataset.update_tags(number, **names)
        if (statistics := found[number - 1]) is not None:
            dataset.update_tags(number, **statistics.tags())
    if raster.colours and raster.data.dtype == np.uint8 and len(raster.bands) == 1:
        dataset.write_colormap(1, dict(raster.colours))
    else:
        dataset.colorinterp = [ColorInterp.gray] + [ColorInterp.undefined] * (len(valued) - 1)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The file of a raster, whose description is read and whose pixels are not.

    `statistics` has those of each band that the file holds, else None.
    """

    path: Path
    said: Description
    nodata: float | int | None
    dtype: np.dtype[np.generic]
    statistics: tuple[BandStatistics | None, ...]


def open_raster(path: Path) -> Opened:
    """Read a raster's description without its pixels.

    Raises BadFormatError for a file that is not a GeoTIFF of Swathmill.
    """
    with _dataset(path) as dataset:
        return _opened(path, dataset)


@contextlib.contextmanager
def _dataset(path: Path) -> Iterator["rasterio.io.DatasetReader"]:
    try:
        dataset = rasterio.open(path, driver="GTiff")
    except RasterioIOError as problem:
        raise BadFormatError(
            f"{path} cannot be opened as a GeoTIFF ({problem}); name one that Swathmill wrote"
        ) from problem
    with dataset:
        yield dataset


def _opened(path: Path, dataset: "rasterio.io.DatasetReader") -> Opened:
    text = dataset.tags().get(TAG)
    nodata, dtype = dataset.nodata, np.dtype(dataset.dtypes[0])
    if text is None:
        raise BadFormatError(f"{path} was not written by Swathmill: it has no {TAG} tag")
    if nodata is not None and dtype.kind != "f":
        nodata = int(nodata)
    said = Description.model_validate_json(text)
    return Opened(
        path=path, said=said, nodata=nodata, dtype=dtype, statistics=statistics_in(dataset)
    )


def statistics_in(dataset: "rasterio.io.DatasetReader") -> tuple[BandStatistics | None, ...]:
    """Read the statistics of each band that a raster's file holds, without its pixels."""
    pixels = dataset.width * dataset.height
    return tuple(read_statistics(dataset.tags(number), pixels) for number in dataset.indexes)


def read_raster(path: AnyPath) -> Raster:
    """Read a raster that `write_cog` wrote, with its metadata.

    Args:
        path: The file.

    Returns:
        The raster, equal to the one that was written.

    Raises:
        BadFormatError: the file is not a GeoTIFF of Swathmill.
    """
    with _dataset(Path(path)) as dataset:
        opened = _opened(Path(path), dataset)
        return Raster.of(opened.said, dataset.read(), opened.nodata)


def read_grid(path: AnyPath) -> Grid:
    """Read the grid of any raster that GDAL opens, to put granules on.

    Args:
        path: The file.

    Returns:
        The grid; of one of Swathmill's rasters, exactly the grid that it was made on.

    Raises:
        BadFormatError: the file is no raster.
        GridError: the raster does not say where it lies.
    """
    try:
        with rasterio.open(path) as dataset:
            text = dataset.tags().get(TAG)
            crs, transform, shape = dataset.crs, dataset.transform, dataset.shape
    except RasterioIOError as problem:
        raise BadFormatError(
            f"{path} cannot be opened as a raster ({problem}); name one that GDAL opens"
        ) from problem
    if text is not None:
        return Description.model_validate_json(text).grid.grid()
    if not crs or transform == Affine.identity():
        raise GridError(f"{path} does not say where it lies: name a raster with CRS and transform")
    authority = crs.to_authority()
    a, b, c, d, e, f = tuple(transform)[:6]
    return Grid(
        crs=":".join(authority) if authority else crs.to_wkt(),
        transform=(a, b, c, d, e, f),
        width=shape[1],
        height=shape[0],
    )
