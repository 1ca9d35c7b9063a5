"""What a process keeps of granules, within a call and between calls."""

import gc
import itertools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from reprojection.catalogue.layers import Layer
from reprojection.errors import UnreadableGranuleError
from reprojection.grid.grids import Grid
from reprojection.read import kept
from reprojection.read.granule import Granule, open_granule
from reprojection.read.kept import keep_granules, one_call, opened
from reprojection.reproject import Driver, Options, reproject
from reprojection.sample.hdfeos_write import GranuleToWrite, write_granule
from reprojection.sample.sample import swath_granules, tile_granules
from tests.reprojection.reading_samples import small_tile


def written(folder: Path, granule: GranuleToWrite) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "granule.hdf"
    write_granule(path, granule)
    return path


@pytest.fixture(autouse=True, scope="module")
def _nothing_of_others() -> None:
    """Datasets of other tests keep granules as long as they are there."""
    gc.collect()


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


def leaf_area(folder: Path) -> Path:
    """Write a tile of the sample archive with its QA."""
    path = folder / "tile.hdf"
    write_granule(path, next(tile_granules()))
    return path


GRID = Grid(crs="EPSG:4326", transform=(0.05, 0.0, -20.0, 0.0, -0.05, 60.0), width=400, height=200)
OPTIONS = (
    Options(resampling="nearest", qa="good"),
    Options(resampling="bilinear", units="physical"),
    Options(codes="keep", resampling="nearest", extra_bands=("reason", "source", "count")),
    Options(mask=False, resampling="nearest"),
)


def test_rasters_are_equal_whatever_is_kept(tmp_path: Path) -> None:
    path = leaf_area(tmp_path)
    expected = [reproject([path], "Lai_1km", GRID, options) for options in OPTIONS]
    for memory in (1, 3_000_000, 200_000_000):
        keep_granules(memory)
        for _ in range(2):
            for options, wanted in zip(OPTIONS, expected, strict=True):
                found = reproject([path], "Lai_1km", GRID, options)
                assert found.data.tobytes() == wanted.data.tobytes()
                assert found.description() == wanted.description()
        assert kept._STORE.held <= memory


def test_swaths_are_equal_whatever_is_kept(tmp_path: Path) -> None:
    paths = []
    for number, granule in enumerate(itertools.islice(swath_granules(), 2)):
        paths.append(tmp_path / f"{number}.hdf")
        write_granule(paths[-1], granule)
    with open_granule(paths[0]) as found:
        layers = [name for name, layer in found.layers.items() if not layer.bands][-2:]
        place = found.geolocation(layers[0])
    west, north = round(float(np.nanmin(place.lon))), round(float(np.nanmax(place.lat)))
    transform = (0.1, 0.0, west, 0.0, -0.1, north)
    grid = Grid(crs="EPSG:4326", transform=transform, width=200, height=200)
    options = (
        Options(extra_bands=("source", "reason")),
        Options(driver=Driver(layer=layers[0])),
        Options(search="valid"),
    )
    expected = [reproject(paths, name, grid, one).data for name in layers for one in options]
    assert any((data != data.flat[0]).any() for data in expected)
    keep_granules()
    for _ in range(2):
        again = [reproject(paths, name, grid, one).data for name in layers for one in options]
        assert [one.tobytes() for one in again] == [one.tobytes() for one in expected]


def test_layers_of_one_granule_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = leaf_area(tmp_path)
    read: list[str] = []
    plain = Granule.read

    def counted(granule: Granule, layer: Layer | str) -> npt.NDArray[np.generic]:
        read.append(layer if isinstance(layer, str) else layer.name)
        return plain(granule, layer)

    monkeypatch.setattr(Granule, "read", counted)
    keep_granules()
    other = replace(GRID, transform=(0.05, 0.0, -10.0, 0.0, -0.05, 60.0))
    for layer in ("Lai_1km", "Fpar_1km"):
        for grid in (GRID, other):
            reproject([path], layer, grid, OPTIONS[0])
    assert sorted(read) == ["FparLai_QC", "Fpar_1km", "Lai_1km"]


def test_damage_gives_the_same_error_each_time(tmp_path: Path) -> None:
    path = leaf_area(tmp_path)
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 4, len(data) * 3 // 4, 500):
        data[at] ^= 0xFF
    path.write_bytes(data)
    keep_granules()
    said = set()
    for _ in range(3):
        with pytest.raises(UnreadableGranuleError) as refused:
            reproject([path], "Lai_1km", GRID, Options(resampling="nearest"))
        said.add(str(refused.value))
    assert len(said) == 1


def test_of_two_threads_that_want_a_value_one_makes_it(tmp_path: Path) -> None:
    """And what is remembered stays when the second one brings its granule back."""
    path = leaf_area(tmp_path)
    keep_granules(1_000_000)
    made = list[int]()

    def make() -> int:
        made.append(1)
        return 7

    def use() -> int:
        with opened(path) as (_, memory):
            return memory.recall("key", make, lambda _: 8)

    with opened(path) as (_, memory), ThreadPoolExecutor(2) as others:
        assert memory.recall("key", make, lambda _: 8) == 7
        assert [one.result() for one in [others.submit(use) for _ in range(4)]] == [7] * 4
    with opened(path) as (_, memory):
        assert memory.recall("key", make, lambda _: 8) == 7
    assert made == [1]
    assert kept._STORE._making == {}


def test_a_value_is_made_once_while_others_wait_for_it(tmp_path: Path) -> None:
    keep_granules(1_000_000)
    memory = kept.Memory(kept.FileIdentity.of(leaf_area(tmp_path)))
    going, go_on, made = threading.Event(), threading.Event(), list[int]()

    def make() -> int:
        made.append(1)
        going.set()
        assert go_on.wait(60)
        return 7

    with ThreadPoolExecutor(2) as others:
        first = others.submit(memory.recall, "key", make, lambda _: 8)
        assert going.wait(60)
        lock = kept._STORE._making[cast("kept.FileIdentity", memory.identity), "key"]
        assert lock.locked()
        second = others.submit(memory.recall, "key", make, lambda _: 8)
        go_on.set()
        assert (first.result(), second.result()) == (7, 7)
    assert made == [1]
