"""What a process keeps of granules, within a call and between calls."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from reprojection.errors import UnreadableGranuleError
from reprojection.read import kept
from reprojection.read.granule import Granule, open_granule
from reprojection.read.kept import keep_granules, one_call, opened
from reprojection.sample.hdfeos_write import GranuleToWrite, write_granule
from tests.reprojection.reading_samples import small_tile


def written(folder: Path, granule: GranuleToWrite) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "granule.hdf"
    write_granule(path, granule)
    return path


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    keep_granules(0)


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths of the granules that were opened, in order."""
    found: list[Path] = []

    def counted(path: Path, *, check: bool) -> Granule:
        found.append(path)
        return open_granule(path, check=check)

    monkeypatch.setattr(kept, "open_granule", counted)
    return found


def test_a_call_opens_a_granule_once_and_keeps_nothing(tmp_path: Path, opens: list[Path]) -> None:
    path = written(tmp_path, small_tile())
    for _ in range(2):
        with one_call():
            for _ in range(3):
                with opened(path):
                    pass
    assert opens == [path, path]
    assert kept._STORE.open_files == 0


def test_granules_stay_open_between_calls_only_after_keep(
    tmp_path: Path, opens: list[Path]
) -> None:
    path = written(tmp_path, small_tile())
    keep_granules()
    for _ in range(3):
        with opened(path):
            pass
    assert len(opens) == 1
    keep_granules(0)
    assert kept._STORE.open_files == 0
    with opened(path):
        pass
    assert len(opens) == 2


def test_a_hard_link_is_the_same_granule_and_outlives_the_first_path(
    tmp_path: Path, opens: list[Path]
) -> None:
    first = written(tmp_path, small_tile())
    keep_granules()
    with opened(first) as (granule, _):
        name = next(iter(granule.layers))
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / first.name
    os.link(first, other)
    with open_granule(other) as same:
        expected = same.read(name)
    first.unlink()
    with opened(other) as (granule, _):
        assert np.array_equal(granule.read(name), expected)
    assert opens == [first]


def test_a_replaced_or_changed_file_is_read_again(tmp_path: Path, opens: list[Path]) -> None:
    keep_granules()
    path = written(tmp_path, small_tile())
    with opened(path) as (granule, _):
        before = granule.product
    written(tmp_path / "new", small_tile(product="MOD11A1")).replace(path)
    with opened(path) as (granule, _):
        assert granule.product != before
        assert granule.product == "MOD11A1"
    os.utime(path, ns=(0, 0))
    with opened(path):
        pass
    assert len(opens) == 3
    path.unlink()
    with pytest.raises(UnreadableGranuleError), opened(path):
        pass


def test_a_granule_in_whose_use_an_error_is_raised_is_not_kept(
    tmp_path: Path, opens: list[Path]
) -> None:
    path = written(tmp_path, small_tile())
    keep_granules()
    for _ in range(2):
        with pytest.raises(UnreadableGranuleError), opened(path):
            raise UnreadableGranuleError("damaged")
    assert len(opens) == 2


def test_a_second_user_at_the_same_time_gets_a_granule_of_its_own(
    tmp_path: Path, opens: list[Path]
) -> None:
    path = written(tmp_path, small_tile())
    keep_granules()
    with opened(path) as (first, _), opened(path) as (second, _):
        assert first is not second
    assert len(opens) == 2
    assert kept._STORE.open_files == 1


def test_open_granules_are_bounded_in_number(
    tmp_path: Path, opens: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_MOST_OPEN", 2)
    keep_granules()
    paths = [written(tmp_path / name, small_tile()) for name in "abc"]
    for path in (*paths, paths[2], paths[0]):
        with opened(path):
            pass
    assert opens == [*paths, paths[0]]
    assert kept._STORE.open_files == 2


def test_values_are_bounded_in_bytes_and_the_oldest_used_goes_first(tmp_path: Path) -> None:
    path = written(tmp_path, small_tile())
    made: list[str] = []

    def value(key: str, size: int) -> str:
        def make() -> str:
            made.append(key)
            return key

        with opened(path) as (_, memory):
            return memory.recall(key, make, lambda _: size)

    assert [value("a", 40), value("a", 40)] == ["a", "a"]
    assert made == ["a", "a"]  # nothing is kept before `keep_granules`
    keep_granules(100)
    for key in "ababcab":
        value(key, 40)
    assert made == ["a", "a", "a", "b", "c", "a", "b"]
    assert kept._STORE.held == 80
    value("too large", 101)
    assert kept._STORE.held == 0


def test_values_of_a_closed_granule_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_MOST_OPEN", 1)
    keep_granules(100)
    for name in "ab":
        with opened(written(tmp_path / name, small_tile())) as (_, memory):
            memory.recall("key", lambda: 1, lambda _: 10)
    assert kept._STORE.held == 10


def test_a_fork_starts_with_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, small_tile())
    keep_granules()
    with opened(path):
        pass
    child = os.fork()
    if child == 0:
        os._exit(kept._STORE.open_files)
    assert os.waitpid(child, 0)[1] == 0
    assert kept._STORE.open_files == 1
