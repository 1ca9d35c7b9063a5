"""Each manager has an index of its own."""

from pathlib import Path

from service_manager.tasks.index_file import IndexFile


def test_a_second_manager_takes_another_index_until_the_first_is_free(tmp_path: Path) -> None:
    first = IndexFile.take(tmp_path / "data")
    second = IndexFile.take(tmp_path / "data")
    assert first.path == tmp_path / "data" / "archive-index.sqlite"
    assert second.path == tmp_path / "data" / "archive-index-2.sqlite"
    first.close()
    third = IndexFile.take(tmp_path / "data")
    assert third.path == first.path
    for index in (second, third):
        index.close()
