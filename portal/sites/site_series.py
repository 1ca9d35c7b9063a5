"""What a request's page draws of values at sites: a chart of each layer, of a few sites at once."""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from modis.collection import versioned
from portal.results.charts import Chart, Line, Mark, chart
from portal.results.result_files import ResultFile, ResultReader
from portal.serving.quantities import unit_text
from portal.sites.site_table import SiteIndex, rows_of_sites

TABLE = "sites/sites.csv"
AT_ONCE = 6  # sites in a chart: so many lines can be told apart
MOST_MARKS = 1200  # of a chart
_LAYER = ("product", "collection", "layer", "units")
_EPOCH = dt.date(1970, 1, 1)

Rows = list[dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class SiteChart:
    """The values of one layer at the sites that are shown; `left_out` counts what has no room."""

    layer: str
    chart: Chart
    left_out: int


def site_charts(
    reader: ResultReader, table: ResultFile, index: SiteIndex, sites: Sequence[str]
) -> tuple[SiteChart, ...]:
    """Draw each layer at some sites. Raises the errors of `ResultReader.part`."""
    rows = (row for row in rows_of_sites(reader, table, index, sites) if row["value"])
    return tuple(_drawn(layer) for layer in _by(rows, _LAYER))


def _by(rows: Iterable[dict[str, str]], columns: Sequence[str]) -> Iterable[Rows]:
    """Return the rows that have the same in some columns, in the order of the first ones."""
    found: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in columns), []).append(row)
    return found.values()


def _drawn(rows: Rows) -> SiteChart:
    """Draw a layer's first rows, of each site equally many."""
    of_sites = [*_by(rows, ("site",))]
    units = unit_text(rows[0]["units"])
    # Bit fields and classes have no mean: no line leads from one to the next.
    has_means = any(row["mean"] for row in rows)
    lines = [
        Line(
            name=of[0]["site"],
            marks=[_mark(row, units) for row in of[: MOST_MARKS // len(of_sites)]],
            is_points=not has_means,
        )
        for of in of_sites
    ]
    named = versioned(rows[0]["product"], rows[0]["collection"])
    return SiteChart(
        layer=f"{named} {rows[0]['layer']}",
        chart=chart(lines, units),
        left_out=len(rows) - sum(len(line.marks) for line in lines),
    )


def _mark(row: dict[str, str], units: str) -> Mark:
    """Return a row's mark: at its time where one is known."""
    day = dt.date.fromisoformat(row["date"])
    time = dt.datetime.fromisoformat(row["time"]) if row["time"] else None
    value = float(row["value"])
    return Mark(
        name=str(day) if time is None else f"{time:%Y-%m-%d %H:%M}",
        moment=(day - _EPOCH).days * 24 * 60 if time is None else time.timestamp() / 60,
        value=value,
        text=f"{value:.6g} {units}".rstrip(),
    )
