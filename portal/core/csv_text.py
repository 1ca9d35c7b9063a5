"""Tables as CSV, for spreadsheets."""

import csv
import io
from collections.abc import Iterable, Sequence

from fastapi import Response

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a text that begins so


def csv_answer(name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """Build the answer that downloads a table as `name`.csv."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.csv"',
        "Cache-Control": "no-store",
    }
    return Response(out.getvalue(), 200, headers, "text/csv; charset=utf-8")


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
