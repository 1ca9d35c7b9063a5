"""A granule that arrives damaged is fetched once more, where its source may have it whole."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from archives.model import Fetched, GranuleRecord, Holding, Progress
from archives.sources import Sources
from modis.box import LonLatBox
from reprojection.errors import UnreadableGranuleError
from reprojection.read import kept
from reprojection.read.granule import open_granule
from reprojection.read.kept import keep_granules, opened
from reprojection.sample.hdfeos_write import write_granule
from tasks.bag.spec import CollectSpec
from tests.reprojection.reading_samples import small_tile
from tests.worker.mill import Mill
from worker.phases import collect as phase
from worker.sandbox.messages import Failed, Succeeded

NAME = small_tile().local_name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / NAME
    write_granule(path, small_tile(side=240))
    return path.read_bytes()


@pytest.fixture(scope="module")
def damaged(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The granule with one byte of compressed values inverted, which only reading them tells."""
    folder = tmp_path_factory.mktemp("damaged")
    for place in range(400, len(whole), 97):
        data = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        path = folder / f"{place}.hdf"
        path.write_bytes(data)
        try:
            phase.check_granule(path)
        except UnreadableGranuleError:
            continue
        try:
            with open_granule(path) as granule:
                granule.verify()
        except UnreadableGranuleError:
            return data
    raise AssertionError("no byte of compressed values was found")


@dataclass(kw_only=True)
class Source:
    """Gives the answers in turn, the last one from then on."""

    answers: list[bytes]
    name: str = "laads"
    asked: int = field(default=0)
    authoritative: bool = True

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        del product, collection, start_day, end_day, box
        return iter(())

    def holdings(self, product: str) -> list[Holding]:
        raise NotImplementedError

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        del record, progress
        to.write_bytes(self.answers[min(self.asked, len(self.answers) - 1)])
        self.asked += 1
        return Fetched(path=to, size=to.stat().st_size)


Attempt = Callable[..., Succeeded | Failed]


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    def run(given: Source, **changes: Any) -> Succeeded | Failed:
        monkeypatch.setattr(phase, "open_archive", lambda *_: Sources([given]))
        spec = CollectSpec(
            product="MCD15A2",
            collection="5",
            granule=NAME,
            production="2012153130500",
            **{"source": "laads", **changes},
        )
        return Mill(tmp_path / "mill", tmp_path).attempt(spec)

    return run


def test_a_damaged_file_is_fetched_once_more(
    attempt: Attempt, whole: bytes, damaged: bytes
) -> None:
    source = Source(answers=[damaged, whole])
    said = attempt(source)
    assert isinstance(said, Succeeded)
    assert source.asked == 2
    assert said.files[0].size == len(whole)


def test_a_file_that_stays_damaged_is_refused(attempt: Attempt, damaged: bytes) -> None:
    source = Source(answers=[damaged])
    said = attempt(source)
    assert isinstance(said, Failed)
    assert said.category.value == "unreadable input file"
    assert source.asked == 2


def test_a_folders_file_is_what_it_is(attempt: Attempt, whole: bytes, damaged: bytes) -> None:
    source = Source(answers=[damaged, whole], name="folder")
    said = attempt(source, source="folder")
    assert isinstance(said, Succeeded)  # reading its values refuses them, when they are needed
    assert source.asked == 1


def test_a_granule_that_was_checked_is_open_for_the_next_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = tmp_path / "granule.hdf"
    write_granule(checked, small_tile())
    (tmp_path / "next").mkdir()
    keep_granules()
    try:
        phase.check_granule(checked)
        linked = tmp_path / "next" / checked.name
        os.link(checked, linked)
        checked.unlink()
        monkeypatch.setattr(kept, "open_granule", None)  # what is opened again fails
        with opened(linked) as (granule, _):
            assert granule.read(next(iter(granule.layers))).size
    finally:
        keep_granules(0)
