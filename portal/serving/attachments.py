"""Answers that browsers save as files: their header, and tables as CSV, for spreadsheets."""

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from fastapi import Response
from fastapi.responses import StreamingResponse

from tasks.csv_text import cell

_AT_ONCE = 500  # rows


def attachment(name: str) -> str:
    """Build the Content-Disposition header that offers a file under this name (RFC 6266)."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def csv_answer(name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """Build the answer that downloads a table as `name`.csv, row after row as they are read."""
    headers = {
        "Content-Disposition": attachment(f"{name}.csv"),
        "Cache-Control": "no-store",
    }
    lines = itertools.chain([head], rows)
    return StreamingResponse(_text(lines), 200, headers, "text/csv; charset=utf-8")


def _text(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    left = iter(rows)
    while some := list(itertools.islice(left, _AT_ONCE)):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            [cell(value) for value in row] for row in some
        )
        yield out.getvalue()
