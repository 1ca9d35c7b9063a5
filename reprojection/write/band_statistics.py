"""Statistics of a band over all its pixels, kept in its file where GDAL keeps its own.

The items STATISTICS_* are those of GDAL, of stored values (`gdalinfo`, QGIS read them); further
items hold quartiles and how often each class occurs. They are of pixels, not of areas: on a grid of
degrees a pixel near a pole counts as much as one at the equator.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reprojection.read.raster import Raster

_DIGITS = 9  # sums of floats may differ between machines after these
_ROWS = 256
COUNTED = 2
"""Bytes: integers of so many are counted by value."""
CLASSES = 256
"""Counts of more values than these are of no use to people."""
_PAIRS = 1 << 17  # bytes from which on to count pairs of them costs less
_AT_ONCE = 1 << 14  # numbers whose squares are summed together: they stay in the cache

QUARTILES, COUNTS = "SWATHMILL_QUARTILES", "SWATHMILL_COUNTS"


@dataclass(frozen=True, kw_only=True)
class BandStatistics:
    """What all pixels of a band hold.

    Attributes:
        pixels: How many pixels the band has.
        valid: How many of them have a value.
        least: The least stored value; None, as all that follow, without any, and of classes.
        greatest: The greatest.
        mean: Their mean.
        deviation: Their standard deviation, of the pixels as a whole (as GDAL's).
        quartiles: The values below which 25%, 50% and 75% lie, by linear interpolation.
        counts: How many pixels have each value, of a class layer with at most 256 values.
    """

    pixels: int
    valid: int
    least: float | None = None
    greatest: float | None = None
    mean: float | None = None
    deviation: float | None = None
    quartiles: tuple[float, ...] = ()
    counts: tuple[tuple[int, int], ...] = ()

    @property
    def share(self) -> float:
        """The share of pixels with a value."""
        return self.valid / self.pixels if self.pixels else 0.0

    def tags(self) -> dict[str, str]:
        """Return them as metadata items of the band."""
        found = {"STATISTICS_VALID_PERCENT": _text(100 * self.share)}
        if self.mean is not None:
            found |= {
                "STATISTICS_MINIMUM": _text(self.least),
                "STATISTICS_MAXIMUM": _text(self.greatest),
                "STATISTICS_MEAN": _text(self.mean),
                "STATISTICS_STDDEV": _text(self.deviation),
                QUARTILES: json.dumps([float(_text(one)) for one in self.quartiles]),
            }
        if self.counts:
            found[COUNTS] = json.dumps({str(value): count for value, count in self.counts})
        return found


def read_statistics(tags: Mapping[str, str], pixels: int) -> BandStatistics | None:
    """Read what `tags` wrote; None where a file has none, or another program's alone.

    A band without any value, and one of many classes, has its share of valid pixels alone; other
    programs write that beside a mean.
    """
    if "STATISTICS_VALID_PERCENT" not in tags:
        return None
    if "STATISTICS_MEAN" in tags and QUARTILES not in tags:
        return None
    counts = {int(k): int(n) for k, n in json.loads(tags.get(COUNTS, "{}")).items()}
    share = float(tags["STATISTICS_VALID_PERCENT"]) / 100
    valid = sum(counts.values()) or round(share * pixels)
    return BandStatistics(
        pixels=pixels,
        valid=valid,
        least=_number(tags, "STATISTICS_MINIMUM"),
        greatest=_number(tags, "STATISTICS_MAXIMUM"),
        mean=_number(tags, "STATISTICS_MEAN"),
        deviation=_number(tags, "STATISTICS_STDDEV"),
        quartiles=tuple(json.loads(tags.get(QUARTILES, "[]"))),
        counts=tuple(sorted(counts.items())),
    )


def band_statistics(raster: Raster, band: int) -> BandStatistics | None:
    """Compute the statistics of a band of values or of classes.

    None of a band of counts, of numbers of granules or of reasons, and of bit fields, whose values
    are many and mean nothing as numbers.
    """
    role, continuous = raster.bands[band].role, raster.kind == "continuous"
    if raster.bands[band].is_index or (role == "data" and raster.kind == "bitfield"):
        return None
    plane = raster.data[band]
    values = continuous and role == "data"
    if plane.dtype.kind in "iu" and plane.dtype.itemsize <= COUNTED:
        numbers, counts = counted_in(plane)
        if raster.nodata is not None:
            kept = numbers != raster.nodata
            numbers, counts = numbers[kept], counts[kept]
        return of_counts(numbers, counts, plane.size, values=values)
    if values:
        return _of_values(plane, raster.nodata)
    return _of_classes(plane, raster.valid(band)) if plane.dtype.kind in "iu" else None


def counted_in(
    plane: npt.NDArray[np.generic],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the values that occur in integers of one or two bytes, and how often each does."""
    unsigned = np.ascontiguousarray(plane).view(f"u{plane.dtype.itemsize}")
    size = 1 << 8 * plane.dtype.itemsize
    counts = np.zeros(size, np.int64)
    for start in range(0, len(plane), _ROWS):
        counts += _counted(unsigned[start : start + _ROWS].ravel(), size)
    numbers = np.arange(size, dtype=unsigned.dtype).view(plane.dtype).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    numbers, counts = numbers[order], counts[order]
    return numbers[counts > 0], counts[counts > 0]


def _counted(values: npt.NDArray[np.generic], size: int) -> npt.NDArray[np.int64]:
    """Count unsigned integers below `size`; many bytes in pairs, which takes two thirds."""
    if values.dtype.itemsize > 1 or values.size < _PAIRS:
        return np.bincount(values, minlength=size)
    even = values.size // 2 * 2
    pairs = np.bincount(values[:even].view(np.uint16), minlength=size * size).reshape(size, size)
    counts: npt.NDArray[np.int64] = pairs.sum(axis=0) + pairs.sum(axis=1)
    return counts + np.bincount(values[even:], minlength=size)


def of_counts(
    numbers: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], pixels: int, *, values: bool
) -> BandStatistics:
    valid = int(counts.sum())
    if not values:
        listed = zip(numbers.tolist(), counts.tolist(), strict=True)
        few = tuple(listed) if len(numbers) <= CLASSES else ()
        return BandStatistics(pixels=pixels, valid=valid, counts=few)
    if not valid:
        return BandStatistics(pixels=pixels, valid=0)
    # Whole numbers: the sums are exact.
    total = sum(n * c for n, c in zip(numbers.tolist(), counts.tolist(), strict=True))
    squares = sum(n * n * c for n, c in zip(numbers.tolist(), counts.tolist(), strict=True))
    until = np.cumsum(counts)

    def at(place: int) -> float:
        return float(numbers[np.searchsorted(until, place, side="right")])

    return BandStatistics(
        pixels=pixels,
        valid=valid,
        least=float(numbers[0]),
        greatest=float(numbers[-1]),
        mean=total / valid,
        deviation=((squares * valid - total * total) / (valid * valid)) ** 0.5,
        quartiles=tuple(between(at, (valid - 1) * part / 4, valid) for part in (1, 2, 3)),
    )


def between(at: Callable[[int], float], place: float, valid: int) -> float:
    """Interpolate between the two values around a place in the order of all."""
    low = int(place)
    first, second = at(low), at(min(low + 1, valid - 1))
    return first + (second - first) * (place - low)


def _of_classes(plane: npt.NDArray[np.generic], known: npt.NDArray[np.bool_]) -> BandStatistics:
    """Count integers of more than two bytes, strip by strip, as long as they are few."""
    counts: Counter[int] = Counter()
    for start in range(0, len(plane), _ROWS):
        rows = slice(start, start + _ROWS)
        values, times = np.unique(plane[rows][known[rows]], return_counts=True)
        counts.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
        if len(counts) > CLASSES:
            return BandStatistics(pixels=plane.size, valid=int(np.count_nonzero(known)))
    valid = sum(counts.values())
    return BandStatistics(pixels=plane.size, valid=valid, counts=tuple(sorted(counts.items())))


def _of_values(plane: npt.NDArray[np.generic], nodata: float | int | None) -> BandStatistics:
    ordered, valid = _copied(plane, nodata)
    if not valid:
        return BandStatistics(pixels=plane.size, valid=0)
    places = [(valid - 1) * part / 4 for part in (1, 2, 3)]
    lows = [int(place) for place in places]
    # The middle first, then each half: half the time of all at once.
    ordered.partition(lows[1])
    if lows[0] < lows[1]:
        ordered[: lows[1]].partition(lows[0])
    if lows[1] < lows[2]:
        ordered[lows[1] + 1 :].partition(lows[2] - lows[1] - 1)
    values = ordered[:valid]
    mean = float(values.mean(dtype=np.float64))
    squares = 0.0
    for start in range(0, valid, _AT_ONCE):
        around = np.subtract(values[start : start + _AT_ONCE], mean, dtype=np.float64)
        squares += float(np.multiply(around, around, out=around).sum())

    def at(place: int) -> float:
        # What follows a place in the order is the least of what stands behind it.
        return float(values[place] if place in lows else values[place:].min())

    return BandStatistics(
        pixels=plane.size,
        valid=valid,
        least=float(values.min()),
        greatest=float(values.max()),
        mean=mean,
        deviation=(squares / valid) ** 0.5,
        quartiles=tuple(between(at, place, valid) for place in places),
    )


def _copied(
    plane: npt.NDArray[np.generic], nodata: float | int | None
) -> tuple[npt.NDArray[np.generic], int]:
    """Return a flat copy to be ordered, and how many values it has; made strip by strip.

    Floats keep their places, with NaN where there is no value: NaN is ordered behind all values,
    and that is faster than to take the others out. Of integers it has the values alone.
    """
    copy, at, valid = np.empty(plane.size, plane.dtype), 0, 0
    for start in range(0, len(plane), _ROWS):
        strip = plane[start : start + _ROWS].flatten()
        known = np.isfinite(strip)
        if nodata is not None and not np.isnan(nodata):
            known &= strip != nodata
        if plane.dtype.kind == "f":
            strip[~known] = np.nan
        else:
            strip = strip[known]
        copy[at : at + strip.size] = strip
        at += strip.size
        valid += int(np.count_nonzero(known))
    return copy[:at], valid


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.{_DIGITS}g}"


def _number(tags: Mapping[str, str], name: str) -> float | None:
    return float(tags[name]) if name in tags else None
