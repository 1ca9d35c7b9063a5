"""What a request's page draws of values at sites: a chart of each layer, of a few sites at once.

The values are read from the table of the results, as far as the sites that are shown need it.
"""

import datetime as dt
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from modis.collection import versioned
from portal.results.charts import Chart, Line, Mark, chart
from portal.results.result_files import BlobFile, ResultFile, ResultReader
from portal.serving.quantities import unit_text

TABLE = "sites/sites.csv"
ROWS = "sites/sites.parquet"
AT_ONCE = 6  # sites in a chart: so many lines can be told apart
MOST_MARKS = 1200  # of a chart
_MOST_ROWS = 2**22  # of a table that are looked at for sites with a value
_READ_BYTES = 2**18  # per call to storage
_LAYER = ("product", "collection", "layer", "units")
_EPOCH = dt.date(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class SiteChart:
    """The values of one layer at the sites that are shown; `left_out` counts what has no room."""

    layer: str
    chart: Chart
    left_out: int


def sites_with_a_value(reader: ResultReader, table: ResultFile) -> tuple[str, ...]:
    """List the sites at which any layer has a value, in the order of the table.

    Raises the errors of `ResultReader.part`.
    """
    import pyarrow.compute as pc

    names: dict[str, None] = {}
    looked = 0
    for part in parts_of_table(reader, table, ("site", "value")):
        there = part.filter(pc.is_valid(part["value"]))
        names |= dict.fromkeys(pc.unique(there["site"]).to_pylist())
        looked += part.num_rows
        if looked >= _MOST_ROWS:
            break
    return tuple(names)


def site_charts(
    reader: ResultReader, table: ResultFile, sites: Sequence[str]
) -> tuple[SiteChart, ...]:
    """Draw each layer at some sites. Raises the errors of `ResultReader.part`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = ("site", *_LAYER, "date", "time", "value", "mean")
    wanted = pa.array(sites, pa.string())
    parts = [
        part.filter(pc.and_(pc.is_in(part["site"], wanted), pc.is_valid(part["value"])))
        for part in parts_of_table(reader, table, columns, sites)
    ]
    if not parts:
        return ()
    rows = pa.concat_tables(parts)
    layers = rows.group_by(list(_LAYER), use_threads=False).aggregate([]).to_pylist()
    return tuple(_drawn(layer, _of(rows, layer), sites) for layer in layers)


def _of(rows: Any, said: dict[str, Any]) -> Any:
    """Return the rows that have some values in some columns."""
    import pyarrow.compute as pc

    for name, value in said.items():
        rows = rows.filter(pc.is_null(rows[name]) if value is None else pc.equal(rows[name], value))
    return rows


def _drawn(layer: dict[str, Any], rows: Any, sites: Sequence[str]) -> SiteChart:
    """Draw a layer's first rows, of each site equally many."""
    of_sites = {site: _of(rows, {"site": site}) for site in sites}
    there = {site: of for site, of in of_sites.items() if of.num_rows}
    units = unit_text(layer["units"])
    lines = [
        Line(
            name=site,
            marks=[_mark(row, units) for row in of.slice(0, MOST_MARKS // len(there)).to_pylist()],
            # Bit fields and classes have no mean: no line leads from one to the next.
            is_points=rows["mean"].null_count == rows.num_rows,
        )
        for site, of in there.items()
    ]
    named = versioned(layer["product"], layer["collection"])
    return SiteChart(
        layer=f"{named} {layer['layer']}",
        chart=chart(lines, units),
        left_out=rows.num_rows - sum(len(line.marks) for line in lines),
    )


def _mark(row: dict[str, Any], units: str) -> Mark:
    """Return a row's mark: at its time where one is known."""
    time, day = row["time"], row["date"]
    minutes = (day - _EPOCH).days * 24 * 60 if time is None else time.timestamp() / 60
    return Mark(
        name=str(day) if time is None else f"{time:%Y-%m-%d %H:%M}",
        moment=minutes,
        value=row["value"],
        text=f"{row['value']:.6g} {units}".rstrip(),
    )


def parts_of_table(
    reader: ResultReader, table: ResultFile, columns: Sequence[str], sites: Sequence[str] = ()
) -> Iterator[Any]:
    """Yield the parts of a table that may have rows of some sites, of all if none is named."""
    import pyarrow.parquet as pq

    source = io.BufferedReader(BlobFile(reader, table), _READ_BYTES)
    with pq.ParquetFile(source) as file:
        place = file.schema_arrow.get_field_index("site")
        for number in range(file.num_row_groups):
            ends = file.metadata.row_group(number).column(place).statistics
            if not sites or ends is None or any(ends.min <= site <= ends.max for site in sites):
                yield file.read_row_group(number, columns=[*columns], use_threads=False)
