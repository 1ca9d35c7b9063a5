"""Draw tiles and count values, in a process that reads granules and has no network.

What is drawn is what a request makes on the same grid: the same kernels, masks and rules.
"""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from modis.axes import Pixel
from portal.results.statistics import histogram, known_of
from reprojection.errors import UnreadableGranuleError
from reprojection.explain.explain import Explanation, explain_pixel
from reprojection.grid.grids import Grid
from reprojection.read.raster import Raster
from reprojection.reproject import Options, keep_granules, reproject
from reprojection.write.palette import Scale, class_colour, ramp
from reprojection.write.picture import encode_png

Form = Literal["png", "npy", "tif"]

_SHOWN = (2.0, 98.0)  # percentiles at the ends of the colour scale, as in pictures of results
_MOST_CLASSES = 64
_NICE = 10  # workers come before maps
_KEPT = 400_000_000  # bytes of decoded layers


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A layer of granules on a grid.

    `files` are paths as text; `folders` hold them, and are all that the process may read. So one
    process serves tiles of many granules.
    """

    files: tuple[str, ...]
    folders: tuple[Path, ...]
    layer: str
    grid: Grid
    options: Options


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a layer holds on a grid, with its quality rule and before it.

    `low` and `high` are the ends of a colour scale, None where there is no value or values are not
    continuous. `valid` is the share of pixels with a value, `covered` the share that any granule
    reaches with a value before quality rules; `mean` and `mean_before` are their means.
    `bins` and `bins_before` are shares of all pixels, between the values `edges`; what lies beyond
    is counted in the outer ones. `classes` are (value, meaning, share of what has a value, colour
    as #rrggbb, share before the rule).
    """

    kind: str
    units: str
    valid: float
    covered: float
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    mean_before: float | None = None
    edges: tuple[float, float] = (0.0, 1.0)
    bins: tuple[float, ...] = ()
    bins_before: tuple[float, ...] = ()
    classes: tuple[tuple[int, str, float, str, float], ...] = ()


def draw(
    asked: Asked, form: Form, low: float | None, high: float | None, scale: Scale = "swathmill"
) -> bytes:
    """Draw a tile. Raises what `reproject` raises."""
    return drawn(_raster(asked), form, low, high, scale)


def drawn(raster: Raster, form: Form, low: float | None, high: float | None, scale: Scale) -> bytes:
    """Write the first band of a raster as a tile.

    A PNG is transparent where there is no value. `.npy` and GeoTIFF hold float32, NaN where there
    is none.
    """
    if form == "png":
        return encode_png(_coloured(raster, low, high, scale))
    values = raster.values(0).astype(np.float32)
    if form == "npy":
        file = io.BytesIO()
        np.save(file, values)
        return file.getvalue()
    return _geotiff(values, raster)


def survey(asked: Asked) -> Survey:
    """Count what a layer holds on a grid. Raises what `reproject` raises.

    Stored numbers are read, so that each bin of the histogram holds equally many of them.
    """
    if asked.options.units == "physical":
        asked = replace(asked, options=replace(asked.options, units="stored"))
    raster = _raster(asked)
    plain = raster
    if asked.options.qa is not None:
        plain = _raster(replace(asked, options=replace(asked.options, qa=None)))
    pixels = raster.data[0].size
    known, before = known_of(raster), known_of(plain)
    said = Survey(
        kind=raster.kind,
        units=raster.units,
        valid=known.size / pixels,
        covered=before.size / pixels,
    )
    if not before.size:
        return said
    if raster.kind != "continuous":
        return replace(said, classes=_classes(raster, known, before))
    low, high = (float(end) for end in np.percentile(known if known.size else before, _SHOWN))
    high = high if high > low else low + 1.0
    kept, every = (histogram(values, raster, low, high) for values in (known, before))
    return replace(
        said,
        low=low,
        high=high,
        mean=float(known.mean()) if known.size else None,
        mean_before=float(before.mean()),
        edges=every.edges,
        bins=tuple(count / pixels for count in kept.counts),
        bins_before=tuple(count / pixels for count in every.counts),
    )


def _classes(
    raster: Raster, known: npt.NDArray[np.float64], before: npt.NDArray[np.float64]
) -> tuple[tuple[int, str, float, str, float], ...]:
    """Return the most frequent classes, in order of their numbers."""
    codes, counts = np.unique(before.astype(np.int64), return_counts=True)
    kept = dict(zip(*np.unique(known.astype(np.int64), return_counts=True), strict=True))
    most = np.sort(np.argsort(-counts, kind="stable")[:_MOST_CLASSES])
    return tuple(
        (
            int(codes[at]),
            raster.codes.get(int(codes[at]), ""),
            float(kept.get(codes[at], 0) / max(known.size, 1)),
            "#{:02x}{:02x}{:02x}".format(*_colour(raster, int(codes[at]))[:3]),
            float(counts[at] / before.size),
        )
        for at in most
    )


def value(asked: Asked) -> Explanation:
    """Explain the pixel of a grid of one pixel: value, source pixel, quality decoded.

    Raises:
        ReprojectionError: as `reproject`.
    """
    _settle()
    files = [Path(one) for one in asked.files]
    return explain_pixel(files, asked.layer, asked.grid, asked.options, Pixel(row=0, col=0))


def _raster(asked: Asked) -> Raster:
    _settle()
    files = [Path(one) for one in asked.files]
    return _without_damaged(files, asked)


def _without_damaged(files: Sequence[Path], asked: Asked) -> Raster:
    """Reproject, leaving out granules that cannot be decoded, as a request does."""
    try:
        return reproject(files, asked.layer, asked.grid, asked.options)
    except UnreadableGranuleError:
        good = [one for one in files if _decodes(one, asked)]
        if len(good) in (0, len(files)):
            raise
        return reproject(good, asked.layer, asked.grid, asked.options)


def _decodes(file: Path, asked: Asked) -> bool:
    try:
        reproject([file], asked.layer, asked.grid, asked.options)
    except UnreadableGranuleError:
        return False
    except Exception:  # noqa: BLE001 - whatever else is wrong with it, it is not damage
        return True
    return True


@cache
def _settle() -> None:
    """Make this process a quiet one that keeps what it decoded."""
    os.nice(_NICE)
    keep_granules(_KEPT)


def _coloured(
    raster: Raster, low: float | None, high: float | None, scale: Scale
) -> npt.NDArray[np.uint8]:
    """Colour the first band, shape (height, width, 4), transparent where it has no value."""
    values = raster.values(0)
    known = np.isfinite(values)
    picture = np.zeros((*values.shape, 4), np.uint8)
    if raster.kind == "continuous" and low is not None and high is not None:
        picture[known, :3] = ramp((values[known] - low) / (high - low), scale)
        picture[known, 3] = 255
        return picture
    found, place = np.unique(values[known].astype(np.int64), return_inverse=True)
    if found.size:
        table = [_colour(raster, int(code)) for code in found]
        picture[known] = np.array(table, np.uint8)[place]
    return picture


def _colour(raster: Raster, code: int) -> tuple[int, int, int, int]:
    return raster.colours.get(code) or class_colour(code)


def _geotiff(values: npt.NDArray[np.float32], raster: Raster) -> bytes:
    import rasterio
    from rasterio.io import MemoryFile
    from rasterio.transform import Affine

    height, width = values.shape
    with MemoryFile() as memory:
        with memory.open(
            driver="GTiff", height=height, width=width, count=1, dtype="float32",
            crs=rasterio.CRS.from_user_input(raster.grid.crs),
            transform=Affine(*raster.grid.transform), nodata=float("nan"), compress="deflate",
        ) as dataset:  # fmt: skip
            dataset.write(values, 1)
            dataset.units = (raster.units,)
        return bytes(memory.read())
