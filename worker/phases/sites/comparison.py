"""Compare what was read at sites with measurements: pairs and statistics.

A value is joined by overpass, with the measurement whose time is nearest to it, or by day, with the
mean of the measurements of its days. Days are those of the measurements' time zone.

The regression is ordinary least squares of the value on the measurement: value = intercept +
slope x measured. `rmse` is the root of the mean square difference, `bias` the mean of value less
measurement, `r` Pearson's correlation.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modis.composites import composite_end
from tasks.comparison import Comparison, Pair
from tasks.request.compared import measured
from tasks.request.measurements import UTC_OFFSET, Series, offset_text, time_zone
from tasks.request.sites import SiteChoice
from worker.phases.sites.table_csv import write_csv

PAIRS, STATISTICS = "comparison", "comparison-statistics.csv"
ALL = "all"
REGRESSION = "ordinary least squares, value on measured"

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.datetime64]
Whole = npt.NDArray[np.int64]

_DAY = np.timedelta64(1, "D")
_MINUTE = np.timedelta64(1, "m")


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """How values agree with measurements, at one site or at `all`; NaN where it is not defined."""

    product: str
    collection: str
    layer: str
    units: str
    column: str
    site: str
    n: int
    bias: float
    rmse: float
    r: float
    slope: float
    intercept: float
    regression: str = REGRESSION


def statistics(value: Floats, against: Floats) -> tuple[int, float, float, float, float, float]:
    """Return n, bias, RMSE, r, slope and intercept of values on measurements.

    Bias and RMSE need one pair; the others two, and measurements that differ.
    """
    n = value.size
    if not n:
        return 0, math.nan, math.nan, math.nan, math.nan, math.nan
    off = value - against
    bias, rmse = float(off.mean()), float(np.sqrt((off**2).mean()))
    x, y = against - against.mean(), value - value.mean()
    across, up = float((x**2).sum()), float((y**2).sum())
    if n < 2 or not across:
        return n, bias, rmse, math.nan, math.nan, math.nan
    both = float((x * y).sum())
    slope = both / across
    r = both / math.sqrt(across * up) if up else math.nan
    return n, bias, rmse, r, slope, float(value.mean() - slope * against.mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """The measurements of one column at one site, in the order of time.

    `start` and `end` are in UTC; `offset` is the time zone whose days count.
    """

    start: Times
    end: Times
    values: Floats
    offset: int
    said_by: str
    step: timedelta | None

    @classmethod
    def of(cls, series: Sequence[Series], said: str, site: SiteChoice) -> "Measured":
        """Join the series of a column at a site, in the time zone that counts there."""
        offset, said_by = time_zone(series, said, site.columns, site.lon)
        start = _times([t for one in series for t in one.start], offset)
        end = _times([t for one in series for t in one.end], offset)
        order = np.argsort(start, kind="stable")
        return cls(
            start=start[order],
            end=end[order],
            values=np.array([v for one in series for v in one.values], np.float64)[order],
            offset=offset,
            said_by=said_by,
            step=next((one.step for one in series if one.values), None),
        )

    @property
    def is_daily(self) -> bool:
        """True if a value stands for a day or more."""
        return self.step is not None and self.step >= timedelta(days=1)

    def nearest(self, times: Times) -> tuple[Whole, Floats]:
        """Return the measurement nearest to each time, and how many minutes lie between.

        A time within a measurement's own span is 0 minutes away.
        """
        after = np.searchsorted(self.start, times, "right")
        before = np.clip(after - 1, 0, None)
        after = np.clip(after, None, self.start.size - 1)
        away = [
            np.maximum(np.maximum(self.start[n] - times, times - self.end[n]), 0 * _MINUTE)
            / _MINUTE
            for n in (before, after)
        ]
        found = np.where(away[0] <= away[1], before, after)
        return found.astype(np.int64), np.minimum(away[0], away[1]).astype(np.float64)

    def by_day(self, least_share: float) -> tuple[Times, Floats, Whole]:
        """Return the days with enough measurements, the mean of each, and their number."""
        local = (self.start + self.offset * _MINUTE).astype("M8[D]")
        days, where, count = np.unique(local, return_inverse=True, return_counts=True)
        sums = np.bincount(where, self.values, days.size)
        expected = 1.0
        if self.step is not None and not self.is_daily:
            expected = timedelta(days=1) / self.step
        enough = count >= least_share * expected if self.step is not None else count > 0
        return days[enough], (sums / count)[enough], count[enough].astype(np.int64)


def _times(local: Sequence[datetime], offset: int) -> Times:
    """Return times in UTC, of those in a time zone so many minutes ahead of it."""
    return _earlier(np.array(local, "M8[s]"), offset)


def _earlier(times: Times, minutes: int) -> Times:
    return np.asarray(times - minutes * _MINUTE, "M8[s]")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Joined:
    """Which rows have a measurement, and what it is."""

    rows: Whole
    measured: Floats
    start: Times
    end: Times
    count: Whole
    away: Floats
    by: str


def pairs(rows: Any, sites: Sequence[SiteChoice], comparison: Comparison) -> Any:
    """Join the rows of a table of sites with the measurements: a table with a row for each pair."""
    import pyarrow as pa
    import pyarrow.compute as pc

    series = measured(comparison, tuple(sites))
    there = rows.filter(pc.is_valid(rows["value"]))
    parts = [
        part
        for pair in comparison.pairs
        for of_layer in [there.filter(_of_pair(there, pair))]
        for site in sites
        for columns in [[one for one in series.get(site.name, ()) if one.column == pair.column]]
        if any(one.values for one in columns)
        for here in [of_layer.filter(pc.equal(of_layer["site"], site.name))]
        if here.num_rows
        for part in _of_site(
            here, pair, Measured.of(columns, comparison.time_zone, site), comparison
        )
    ]
    own = [name for name in dict.fromkeys(n for site in sites for n, _ in site.columns)]
    empty = _table(there.slice(0, 0), comparison.pairs[0], _NOTHING, None, own)
    made = [_table(here, pair, found, known, own) for here, pair, found, known in parts]
    return pa.concat_tables([empty, *made])


_NOTHING = _Joined(
    rows=np.empty(0, np.int64),
    measured=np.empty(0),
    start=np.empty(0, "M8[s]"),
    end=np.empty(0, "M8[s]"),
    count=np.empty(0, np.int64),
    away=np.empty(0),
    by="day",
)


def _of_pair(rows: Any, pair: Pair) -> Any:
    import pyarrow.compute as pc

    return pc.and_(
        pc.and_(pc.equal(rows["product"], pair.product), pc.equal(rows["layer"], pair.layer)),
        pc.equal(rows["collection"], pair.collection),
    )


def _of_site(
    here: Any, pair: Pair, known: Measured, comparison: Comparison
) -> Iterator[tuple[Any, Pair, _Joined, Measured]]:
    """Yield the pairs of one layer at one site: those by overpass, and those by day."""
    time = here["time"].to_numpy().astype("M8[s]")
    join = comparison.join
    timed = ~np.isnat(time)
    if join == "day" or (join == "auto" and known.is_daily):
        timed[:] = False
    by_overpass = np.flatnonzero(timed)
    if by_overpass.size:
        found = _by_overpass(time, by_overpass, known, pair, comparison.tolerance)
        yield here, pair, found, known
    if join != "overpass" and not timed.all():
        rows = np.flatnonzero(~timed)
        yield here, pair, _by_day(here, rows, known, pair, comparison.least_share), known


def _by_overpass(time: Times, rows: Whole, known: Measured, pair: Pair, tolerance: int) -> _Joined:
    nearest, away = known.nearest(time[rows])
    near = away <= tolerance
    nearest = nearest[near]
    return _Joined(
        rows=rows[near],
        measured=pair.scale * known.values[nearest] + pair.offset,
        start=known.start[nearest],
        end=known.end[nearest],
        count=np.ones(nearest.size, np.int64),
        away=away[near],
        by="overpass",
    )


def _by_day(here: Any, rows: Whole, known: Measured, pair: Pair, least_share: float) -> _Joined:
    days, means, counts = known.by_day(least_share)
    kept, values, number = [], [], []
    spans = _spans(here, pair)
    for row in rows.tolist():
        first, last = spans[0][row], spans[1][row]
        low, high = np.searchsorted(days, [first, last + _DAY])
        asked = int((last - first) / _DAY) + 1
        least = asked if pair.statistic == "sum" else max(1, least_share * asked)
        if high - low < least:
            continue
        own = means[low:high]
        kept.append(row)
        values.append(own.sum() if pair.statistic == "sum" else own.mean())
        number.append(counts[low:high].sum())
    found = np.array(kept, np.int64)
    return _Joined(
        rows=found,
        measured=pair.scale * np.array(values, np.float64) + pair.offset,
        start=_earlier(spans[0][found], known.offset),
        end=_earlier(spans[1][found] + _DAY, known.offset),
        count=np.array(number, np.int64),
        away=np.full(found.size, np.nan),
        by="day",
    )


def _spans(here: Any, pair: Pair) -> tuple[Times, Times]:
    """Return the first and last day that each value stands for."""
    first = here["date"].to_numpy().astype("M8[D]")
    ends = [composite_end(day, pair.period) for day in first.tolist()]
    said = here["last"].to_numpy().astype("M8[D]")
    return first, np.where(np.isnat(said), np.array(ends, "M8[D]"), said)


def _table(
    here: Any, pair: Pair, found: _Joined, known: Measured | None, own: Sequence[str]
) -> Any:
    """Return the table of the pairs of one layer and site; `own` are the sites' columns."""
    import pyarrow as pa

    rows, count = here.take(found.rows), found.rows.size
    first, last = _spans(rows, pair)
    value = rows["value"].to_numpy()
    zone = "" if known is None else offset_text(known.offset)
    columns: dict[str, Any] = {
        **{n: rows[n] for n in ("site", "latitude", "longitude", "product", "collection", "layer")},
        "first_day": pa.array(first, pa.date32()),
        "last_day": pa.array(last, pa.date32()),
        **{name: rows[name] for name in ("time", "value", "units", "mean", "std", "valid")},
        "column": pa.repeat(pair.column, count),
        "measured": pa.array(found.measured, pa.float64()),
        "difference": pa.array(value - found.measured, pa.float64()),
        "joined_by": pa.repeat(found.by, count),
        "measured_from": pa.array(found.start, pa.timestamp("s", "UTC")),
        "measured_to": pa.array(found.end, pa.timestamp("s", "UTC")),
        "measured_n": pa.array(found.count, pa.int32()),
        "minutes_away": pa.array(found.away.round(2), pa.float64(), from_pandas=True),
        UTC_OFFSET: pa.repeat(zone, count),
        "utc_offset_by": pa.repeat("" if known is None else known.said_by, count),
    }
    for name in own:
        columns[name if name not in columns else f"site_{name}"] = rows[name]
    return pa.table(columns)


def summaries(joined: Any, comparison: Comparison) -> list[Statistics]:
    """Return the statistics of each layer: in all, then at each site with a pair."""
    import pyarrow.compute as pc

    found = []
    for pair in comparison.pairs:
        of_layer = joined.filter(
            pc.and_(_of_pair(joined, pair), pc.equal(joined["column"], pair.column))
        )
        units = of_layer["units"][0].as_py() if of_layer.num_rows else ""
        parts = {
            name: of_layer.filter(pc.equal(of_layer["site"], name))
            for name in dict.fromkeys(of_layer["site"].to_pylist())
        }
        for site, here in ((ALL, of_layer), *parts.items()):
            numbers = statistics(here["value"].to_numpy(), here["measured"].to_numpy())
            n, bias, rmse, r, slope, intercept = numbers
            found.append(
                Statistics(
                    product=pair.product,
                    collection=pair.collection,
                    layer=pair.layer,
                    units=units,
                    column=pair.column,
                    site=site,
                    n=n,
                    bias=bias,
                    rmse=rmse,
                    r=r,
                    slope=slope,
                    intercept=intercept,
                )
            )
    return found


def write_comparison(
    rows: Any, sites: Sequence[SiteChoice], comparison: Comparison, folder: Path
) -> None:
    """Write the pairs as CSV and Parquet, and their statistics."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    joined = pairs(rows, sites, comparison)
    write_csv(joined, folder / f"{PAIRS}.csv")
    pq.write_table(joined, folder / f"{PAIRS}.parquet")
    found = summaries(joined, comparison)
    columns = {
        one.name: pa.array([getattr(s, one.name) for s in found], from_pandas=True)
        for one in fields(Statistics)
    }
    write_csv(pa.table(columns), folder / STATISTICS)
