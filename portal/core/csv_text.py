"""Tables as CSV, for spreadsheets."""

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence

from fastapi import Response
from fastapi.responses import StreamingResponse

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a text that begins so


_AT_ONCE = 500  # rows


def csv_answer(name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """Build the answer that downloads a table as `name`.csv, row after row as they are read."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.csv"',
        "Cache-Control": "no-store",
    }
    lines = itertools.chain([head], rows)
    return StreamingResponse(_text(lines), 200, headers, "text/csv; charset=utf-8")


def _text(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    left = iter(rows)
    while some := list(itertools.islice(left, _AT_ONCE)):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            [_cell(value) for value in row] for row in some
        )
        yield out.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
