"""Tables of results as CSV."""

from pathlib import Path
from typing import Any

from tasks.csv_text import text_cell

_ROWS_AT_ONCE = 20_000


def write_csv(rows: Any, path: Path) -> None:
    """Write rows as CSV, some at a time: their texts take much memory in place of codes.

    Texts and names of columns that a spreadsheet would run get an apostrophe (`tasks/csv_text.py`).
    """
    import pyarrow.csv as pc

    with pc.CSVWriter(path, _as_cells(rows.slice(0, 0)).schema) as file:
        for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
            file.write(_as_cells(rows.slice(first, _ROWS_AT_ONCE)))


def _as_cells(rows: Any) -> Any:
    """Return rows with the texts that CSV gets."""
    import pyarrow as pa

    texts = as_texts(rows)
    columns = [
        pa.chunked_array([_cells(chunk) for chunk in column.chunks], column.type)
        if pa.types.is_string(column.type)
        else column
        for column in texts.columns
    ]
    return pa.table(columns, names=[text_cell(name) for name in texts.column_names])


def _cells(texts: Any) -> Any:
    """Return an array of texts as cells; each different text is looked at once."""
    import pyarrow as pa

    coded = texts.dictionary_encode()
    cells = pa.array(map(text_cell, coded.dictionary.to_pylist()), pa.string())
    return cells.take(coded.indices)


def as_texts(rows: Any) -> Any:
    """Return rows with texts in place of codes."""
    import pyarrow as pa

    fields = [
        one.with_type(pa.string()) if pa.types.is_dictionary(one.type) else one
        for one in rows.schema
    ]
    return rows.cast(pa.schema(fields))
