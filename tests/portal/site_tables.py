"""Tables of values at sites, as a request's results have them."""

import datetime as dt
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from worker.phases.sites.table_csv import write_csv

TEXTS = {"product": "MCD15A2", "collection": "5", "units": "m2/m2"}


def site_csv(rows: Sequence[dict[str, object]]) -> bytes:
    """A table as the worker writes it."""
    fields = {"value": pa.float64(), "mean": pa.float64(), "measured": pa.float64()}
    fields |= {"date": pa.date32(), "first_day": pa.date32(), "time": pa.timestamp("ms", "UTC")}
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema([(name, fields.get(name, pa.string())) for name in names])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        write_csv(pa.Table.from_pylist(rows, schema), path)
        return path.read_bytes()


def site_rows(
    site: str, values: Sequence[float | None], layer: str = "Lai_1km", *, is_class: bool = False
) -> list[dict[str, object]]:
    days = (dt.date(2012, 4, 13) + dt.timedelta(days=8 * n) for n in range(len(values)))
    return [
        {
            "site": site,
            **TEXTS,
            "layer": layer,
            "date": day,
            "time": None,
            "value": value,
            "mean": None if is_class else value,
        }
        for day, value in zip(days, values, strict=True)
    ]
