"""The statistics of a raster's band as the map shows them, and its histogram."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from portal.results.charts import Bar, Chart, bars
from portal.results.legends import Legend
from reprojection.read.raster import Raster
from reprojection.write.band_statistics import BandStatistics

_BINS = 24
_PARTS = ("least", "25th percentile", "median", "75th percentile", "greatest")


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """How many pixels have values within each bin; what lies beyond is counted in the outer ones.

    `edges` are the values at the two ends, in units.
    """

    counts: tuple[int, ...]
    edges: tuple[float, float]

    def bins(self) -> Iterator[tuple[float, float, int]]:
        """Yield the ends of each bin and its count."""
        low, step = self.edges[0], (self.edges[1] - self.edges[0]) / len(self.counts)
        for number, count in enumerate(self.counts):
            yield low + step * number, low + step * (number + 1), count

    def chart(self) -> Chart:
        """Draw the counts over the values."""
        drawn = [
            Bar(
                name=f"{low:.4g}",
                parts=[("", count)],
                text=f"{low:.4g} to {high:.4g}: {count:,} pixels",
            )
            for low, high, count in self.bins()
        ]
        return bars(drawn, "pixels", least=1, edges=self.edges)


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The values of a band: its valid share, facts, histogram, and the shares of its classes."""

    valid: float
    facts: tuple[tuple[str, str], ...] = ()
    histogram: Histogram | None = None
    classes: tuple[tuple[str, float], ...] = ()


def known_of(raster: Raster) -> npt.NDArray[np.float64]:
    """Return the values of the first band, without the pixels that have none."""
    values = raster.values(0)
    return values[np.isfinite(values)]


def statistics_of(raster: Raster, whole: BandStatistics | None, legend: Legend) -> Statistics:
    """Return the statistics of a band.

    Args:
        raster: All of its pixels, or a reduced copy: the histogram is counted in it.
        whole: What the file says of all pixels; without it, all numbers are those of `raster`.
        legend: How the layer is drawn on all dates.
    """
    values = known_of(raster)
    valid = whole.share if whole is not None else values.size / raster.data[0].size
    if whole is not None and whole.counts:
        return Statistics(valid=valid, classes=_classes(whole, legend))
    if legend.low is None or legend.high is None:
        total = max(values.size, 1)
        classes = tuple(
            (f"{entry.value} {entry.text}".strip(), float((values == entry.value).sum()) / total)
            for entry in legend.entries
        )
        return Statistics(valid=valid, classes=classes)
    facts = _whole_facts(whole, legend) if whole is not None else _facts(values)
    counted = histogram(values, raster, legend.low, legend.high) if values.size else None
    return Statistics(valid=valid, facts=_in_text(facts), histogram=counted)


def _classes(whole: BandStatistics, legend: Legend) -> tuple[tuple[str, float], ...]:
    """Name every class, also those that the legend lacks: it is made of pictures of a few dates."""
    known = {entry.value: entry.text for entry in legend.entries}
    return tuple(
        (
            f"{value} {known.get(value) or legend.said.codes.get(value) or ''}".strip(),
            count / whole.valid,
        )
        for value, count in whole.counts
    )


def _whole_facts(whole: BandStatistics, legend: Legend) -> list[tuple[str, float]]:
    if whole.mean is None or not whole.quartiles:
        return []
    value = legend.said.physical
    ends = sorted(value(end) for end in (whole.least or 0.0, whole.greatest or 0.0))
    quartiles = sorted(map(value, whole.quartiles))
    deviation = abs(legend.said.scale) * (whole.deviation or 0.0)
    facts = [("mean", value(whole.mean)), ("standard deviation", deviation)]
    return facts + list(zip(_PARTS, (ends[0], *quartiles, ends[1]), strict=True))


def _facts(values: npt.NDArray[np.float64]) -> list[tuple[str, float]]:
    if not values.size:
        return []
    parts = np.percentile(values, (0, 25, 50, 75, 100)).tolist()
    facts = [("mean", float(values.mean())), ("standard deviation", float(values.std()))]
    return facts + list(zip(_PARTS, parts, strict=True))


def _in_text(facts: Iterable[tuple[str, float]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"{value:.5g}") for name, value in facts)


def histogram(
    values: npt.NDArray[np.float64], raster: Raster, low: float, high: float
) -> Histogram:
    """Count values in bins; of stored whole numbers each bin holds equally many."""
    step = abs(raster.scale) if raster.data.dtype.kind in "iu" else 0.0
    bins = _BINS
    if step:
        first, last = round((low - raster.offset) / step), round((high - raster.offset) / step)
        wide = max(1, -(-(last - first + 1) // _BINS))
        bins = -(-(last - first + 1) // wide)
        low = raster.offset + step * (first - 0.5)
        high = low + step * wide * bins
    elif not high > low:  # one value
        half = max(0.5, abs(low) * 1e-6)
        low, high = low - half, low + half
    places = np.floor((values - low) / (high - low) * bins).clip(0, bins - 1).astype(np.int64)
    counts = np.bincount(places, minlength=bins)
    return Histogram(counts=tuple(counts.tolist()), edges=(low, high))
