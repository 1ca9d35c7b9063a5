"""Find the rows of sites in a table of the results, and read those alone.

The table is read as CSV: its rows are in the order of the sites, so a site's are one span of bytes.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from portal.results.result_files import ResultFile, ResultReader
from tasks.csv_text import text_of_cell

MOST_BYTES = 2**29
"""Of a table that are looked at for sites with a value: about two million rows."""
_SITE, _VALUE = "site", "value"
_FIRST_CELL = re.compile(rb'(?:"(?:[^"]|"")*"|[^",]*)(?:,|$)')


@dataclass(frozen=True, kw_only=True)
class SiteIndex:
    """Where the rows of each site with a value lie in a table, as first and last byte but one."""

    columns: tuple[str, ...]
    spans: Mapping[str, tuple[int, int]]


def index_of(reader: ResultReader, table: ResultFile) -> SiteIndex:
    """Find the rows of each site that has a value, in the order of the table.

    Raises the errors of `ResultReader.part`.
    """
    found = records(reader.part(table))
    head = next(found, b"")
    columns = tuple(next(csv.reader([head.decode()]), ()))
    spans: dict[str, tuple[int, int]] = {}
    place = columns.index(_VALUE) if _VALUE in columns else 0
    begin = end = len(head) + 1
    cell, name, has_value = b"", "", False
    for record in found:
        # A table has up to 5,000 sites and many rows of each: most rows are only counted.
        if not cell or not record.startswith(cell):
            if has_value:
                spans[name] = begin, end
            if end > MOST_BYTES:
                return SiteIndex(columns=columns, spans=spans)
            begin, has_value = end, False
            first = _FIRST_CELL.match(record)
            cell = first[0] if first is not None else record
        if not has_value:
            (cells,) = csv.reader([record.decode()])
            name, has_value = text_of_cell(cells[0]), bool(cells[place])
        end += len(record) + 1
    if has_value:
        spans[name] = begin, end
    return SiteIndex(columns=columns, spans=spans)


def rows_of_sites(
    reader: ResultReader, table: ResultFile, index: SiteIndex, sites: Sequence[str]
) -> Iterator[dict[str, str]]:
    """Yield the rows of some sites; what has no value is "".

    Raises the errors of `ResultReader.part`.
    """
    for site in sites:
        begin, end = index.spans[site]
        yield from as_rows(records(reader.part(table, begin, end - begin)), index.columns)


def rows_of(reader: ResultReader, table: ResultFile) -> Iterator[dict[str, str]]:
    """Yield all rows of a table. Raises the errors of `ResultReader.part`."""
    found = records(reader.part(table))
    (columns,) = csv.reader([next(found, b"").decode()])
    yield from as_rows(found, columns)


def as_rows(found: Iterable[bytes], columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield records as rows by column."""
    for cells in csv.reader(record.decode() for record in found):
        row = dict(zip(columns, cells, strict=True))
        yield row | {_SITE: text_of_cell(row[_SITE])}


def records(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the records of CSV without their ends; a cell may have ends of lines in its quotes."""
    rest = b""
    for part in stream:
        *lines, rest = (rest + part).split(b"\n")
        held: list[bytes] = []
        for line in lines:
            if held or line.count(b'"') % 2:
                held.append(line)
                record = b"\n".join(held)
                if record.count(b'"') % 2:
                    continue
                yield record
                held = []
            else:
                yield line
        if held:
            rest = b"\n".join((*held, rest))
    if rest:
        yield rest
