"""Each manager has an index of its own."""

from pathlib import Path

import pytest

from archives.kinds import folder
from service_manager.dispatch.index_file import IndexFile


def test_a_second_manager_takes_another_index_until_the_first_is_free(tmp_path: Path) -> None:
    first = IndexFile.take(tmp_path / "data")
    second = IndexFile.take(tmp_path / "data")
    assert first.path == tmp_path / "data" / "archive-index-v4.sqlite"
    assert second.path == tmp_path / "data" / "archive-index-2-v4.sqlite"
    first.close()
    third = IndexFile.take(tmp_path / "data")
    assert third.path == first.path
    for index in (second, third):
        index.close()


def test_a_build_with_another_schema_has_another_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = IndexFile.take(tmp_path)
    monkeypatch.setattr(folder, "INDEX_SCHEMA", folder.INDEX_SCHEMA + 1)
    other = IndexFile.take(tmp_path)
    assert other.path == tmp_path / "archive-index-v5.sqlite"
    for index in (one, other):
        index.close()
