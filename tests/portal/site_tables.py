"""Tables of values at sites, as a request's results have them."""

import datetime as dt
import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = {"product": "MCD15A2", "collection": "5", "units": "m2/m2"}


def parquet(rows: Sequence[dict[str, object]], at_once: int = 2**16) -> bytes:
    """A table as the worker writes it: texts are texts."""
    fields = {"value": pa.float64(), "mean": pa.float64(), "measured": pa.float64()}
    fields |= {"date": pa.date32(), "first_day": pa.date32(), "time": pa.timestamp("ms", "UTC")}
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema([(name, fields.get(name, pa.string())) for name in names])
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), out, row_group_size=at_once)
    return out.getvalue()


def site_rows(
    site: str, values: Sequence[float | None], layer: str = "Lai_1km", *, is_class: bool = False
) -> list[dict[str, object]]:
    days = (dt.date(2012, 4, 13) + dt.timedelta(days=8 * n) for n in range(len(values)))
    return [
        {
            **TEXTS,
            "site": site,
            "layer": layer,
            "date": day,
            "time": None,
            "value": value,
            "mean": None if is_class else value,
        }
        for day, value in zip(days, values, strict=True)
    ]
