"""The portal fetches for maps in haste, and shares what it learns of granules with all machines."""

import datetime as dt
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest
from numpy.typing import NDArray

from archives.fetch.files import LocalFiles
from archives.sources import Sources
from portal.views import state
from reprojection.sample.hdfeos_write import write_granule
from tasks.bag.runtime import Runtime
from tasks.holdings import parts
from tasks.holdings.parts import PartsFolder
from tasks.storage.blobs import GRANULES
from tests.portal.scripted import live_portal, live_runtime, settings
from tests.reprojection.reading_samples import noisy_tile
from tests.service_manager.shelf import tile_granule

TILE = "/tiles/MCD15A2/Lai_1km/2012-03-05/5/15/10.npy"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the granule count as a large one that is not on this machine."""
    monkeypatch.setattr(parts, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(Sources, "path_of", lambda *_: None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each part that is fetched."""
    found: list[int] = []
    part = LocalFiles.part

    def counted(files: LocalFiles, name: str, begin: int, end: int) -> bytes:
        found.append(end - begin)
        return part(files, name, begin, end)

    monkeypatch.setattr(LocalFiles, "part", counted)
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    tile = noisy_tile(900)
    folder = tmp_path / "archive"
    folder.mkdir()
    write_granule(folder / tile.local_name, tile)
    return folder


@pytest.fixture
def drawn(archive: Path, tmp_path: Path) -> Callable[[Runtime, str], NDArray[np.float32]]:
    """Draws a tile in a portal of its own, with a data folder of its own."""

    def draw(runtime: Runtime, name: str) -> NDArray[np.float32]:
        made = settings(archive=str(archive), data_dir=str(tmp_path / name), sources="folder")
        with live_portal(runtime, made) as portal, portal.client() as client:
            answer = client.get(TILE)
        assert answer.status_code == 200, answer.text
        values: NDArray[np.float32] = np.load(io.BytesIO(answer.content))
        assert np.isfinite(values).any()
        return values

    return draw


def test_what_one_portal_learns_of_a_granule_serves_another(
    drawn: Callable[[Runtime, str], NDArray[np.float32]], calls: list[int]
) -> None:
    runtime = live_runtime()
    first = drawn(runtime, "first")
    learning = calls.copy()
    calls.clear()
    (_,) = runtime.blobs.names(GRANULES, "structures/")
    second = drawn(runtime, "second")
    np.testing.assert_array_equal(second, first)
    assert len(calls) <= 2 < len(learning)


def test_maps_are_in_haste_and_hold_two_gigabytes(
    drawn: Callable[[Runtime, str], NDArray[np.float32]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What haste comes to: `tests/tasks/holdings/test_granule_parts.py`."""
    made: list[PartsFolder] = []

    class Seen(PartsFolder):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            made.append(self)

    monkeypatch.setattr(state, "PartsFolder", Seen)
    drawn(live_runtime(), "portal")
    (folder,) = made
    assert (folder.in_haste, folder.most, folder.copies) == (True, 2 * 10**9, False)


def test_what_is_read_lies_in_the_data_folder(
    drawn: Callable[[Runtime, str], NDArray[np.float32]], archive: Path, tmp_path: Path
) -> None:
    drawn(live_runtime(), "portal")
    (held,) = (tmp_path / "portal" / "views").rglob("*.hdf")
    assert held.name == next(archive.iterdir()).name
    assert held.stat().st_blocks * 512 < held.stat().st_size


def test_a_file_in_the_place_of_another_is_drawn_anew() -> None:
    """It may have the same name, size and time of production."""
    record = tile_granule(dt.date(2012, 3, 5), 17, 3)
    views = create_autospec(state.Views)
    first, other = (
        state.Views.identity(views, [replace(record, stamp=stamp)]) for stamp in ("3 1", "3 2")
    )
    assert first != other
