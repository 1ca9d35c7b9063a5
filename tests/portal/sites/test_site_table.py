"""Rows of sites in a table of the results: found as spans of bytes, and read alone."""

from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import pytest

from portal.results.result_files import ResultFile
from portal.sites import site_table
from portal.sites.site_table import index_of, records, rows_of, rows_of_sites
from tasks.bag.model import ArtifactFile
from tests.portal.site_tables import site_csv, site_rows

NAMES = ("Moor", "Moor, upper", "=1+1", '"Fen"', "two\nlines", "Carr", "'quoted'", "-3.5")


class Stored:
    """A table in storage, which gives parts of some bytes; counts what was read of it."""

    def __init__(self, content: bytes, at_once: int = 2**22) -> None:
        self.content, self.at_once, self.read = content, at_once, 0
        file = ArtifactFile(name="sites.csv", blob="b/c", size=len(content), sha256="")
        self.table = ResultFile(path="sites/sites.csv", file=file, key="k")
        self.reader = Mock(**{"part.side_effect": self.part})

    def part(
        self, _table: ResultFile, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        found = self.content[start : None if length is None else start + length]
        for place in range(0, len(found), self.at_once):
            self.read += len(found[place : place + self.at_once])
            yield found[place : place + self.at_once]


def table(names: Sequence[str], values: Sequence[float | None] = (1.0, None, 2.5)) -> bytes:
    return site_csv([row for name in names for row in site_rows(name, values)])


@pytest.mark.parametrize("at_once", [1, 7, 64, 2**22])
def test_sites_are_found_however_they_are_called_and_their_rows_alone_read(at_once: int) -> None:
    stored = Stored(table(NAMES), at_once)
    index = index_of(stored.reader, stored.table)
    assert tuple(index.spans) == NAMES
    for name in NAMES:
        before = stored.read
        rows = [*rows_of_sites(stored.reader, stored.table, index, [name])]
        assert [(row["site"], row["value"]) for row in rows] == [
            (name, "1"),
            (name, ""),
            (name, "2.5"),
        ]
        begin, end = index.spans[name]
        assert stored.read - before == end - begin < len(stored.content) / 4
    assert [row["site"] for row in rows_of(stored.reader, stored.table)][::3] == [*NAMES]


def test_a_site_without_a_value_is_not_found() -> None:
    rows = [*site_rows("Moor", [1.0]), *site_rows("Sea", [None]), *site_rows("Fen", [None, 0.0])]
    stored = Stored(site_csv(rows))
    index = index_of(stored.reader, stored.table)
    assert [*index.spans] == ["Moor", "Fen"]
    fen = rows_of_sites(stored.reader, stored.table, index, ["Fen"])
    assert [row["value"] for row in fen] == ["", "0"]


def test_the_last_rows_count_with_or_without_an_end_of_line() -> None:
    content = table(["Moor", "Fen"])
    for some in (content, content.rstrip(b"\n")):
        stored = Stored(some)
        index = index_of(stored.reader, stored.table)
        rows = [*rows_of_sites(stored.reader, stored.table, index, ["Fen"])]
        assert [row["value"] for row in rows] == ["1", "", "2.5"]


@pytest.mark.parametrize("more", [0, 1])
def test_a_table_is_looked_at_for_so_many_bytes(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    content = table(["Moor", "Fen", "Carr"])
    of_carr = content.index(b'"Carr"')
    monkeypatch.setattr(site_table, "MOST_BYTES", of_carr - more)
    stored = Stored(content, 50)
    found = index_of(stored.reader, stored.table)
    assert tuple(found.spans) == (("Moor", "Fen") if more else ("Moor", "Fen", "Carr"))


def test_records_are_whole_wherever_parts_end() -> None:
    content = b'a,b\n"x\ny","1\n\n2"\n,"""\n"""\nlast,'
    for size in range(1, len(content) + 1):
        parts = [content[n : n + size] for n in range(0, len(content), size)]
        assert [*records(parts)] == [b"a,b", b'"x\ny","1\n\n2"', b',"""\n"""', b"last,"]


def test_a_table_of_no_site_has_none() -> None:
    for content in (b"", b"site,value\n", b"site\n"):
        stored = Stored(content)
        assert index_of(stored.reader, stored.table).spans == {}
