"""What a folder says of where its granules lie, at its bound."""

import datetime as dt
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from archives.kinds import folder
from archives.kinds.coverage import MOST_PLACED, Coverage
from archives.kinds.folder import FolderArchive
from modis.collection import Collection
from reprojection.read.outline import read_outlines
from tests.service_manager.shelf import swath_granule


@pytest.mark.parametrize("more", [0, 1])
def test_where_there_are_more_outlines_than_are_compared_granules_may_lie_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    assert MOST_PLACED == 5_000
    monkeypatch.setattr(folder, "MOST_PLACED", 2)
    start = dt.datetime(2007, 4, 13, 10, tzinfo=dt.UTC)
    found = [
        swath_granule(start + number * dt.timedelta(minutes=5), (2, 2, 8, 8))
        for number in range(2 + more)
    ]
    archive = FolderArchive(tmp_path, tmp_path / "index.sqlite", read_outlines)
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE TABLE files (product, collection, start_day, url, record)")
        for one in found:
            row = ("P", "6", str(one.start_day), one.url, json.dumps(one.to_json()))
            index.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", row)
        made: Coverage = archive._covered(index, "P", Collection("6"), len(found))
    assert made.anywhere == bool(more)
    assert len(made.cells) == (0 if more else 1)
    assert made.granules == len(found)
