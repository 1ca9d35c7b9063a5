"""A worker that finds no connection to an archive's host gives the task back; it costs no try."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from archives.errors import NoPlaceError, NotPublishedError, ServerBusyError, soonest
from archives.fetch.limits import LocalLimits
from tasks.bag.spec import CollectSpec
from tasks.service import sources
from tasks.service.sources import PATIENCE
from tasks.settings import Settings
from tasks.storage.blobs import MemoryBlobs
from worker.sandbox.messages import ChildSettings, Failed, Job, Postponed
from worker.slots.child import perform


class Full:
    """Limits of a host all of whose connections are in use."""

    @contextmanager
    def place(self, host: str) -> Iterator[None]:
        raise NoPlaceError(f"no connection to {host} came free")
        yield


def fetch(tmp_path: Path) -> object:
    spec = CollectSpec(
        product="MOD13A2",
        collection="6",
        granule="MOD13A2.A2012001.h18v04.006.2015214002548.hdf",
        production="2015214002548",
        source="pool+http://127.0.0.1:9/MOTA",
        url="http://127.0.0.1:9/MOTA/MOD13A2.006/2012.01.01/g.hdf",
    )
    job = Job(request="r", key=spec.key, claim="c", spec=spec, inputs={}, scratch=tmp_path)
    settings = Settings(data_dir=tmp_path, sources="pool+http://127.0.0.1:9/MOTA")
    given = ChildSettings(
        settings=settings, cache=tmp_path / "cache", sandbox="limits", reading="none"
    )
    return perform(job, given, lambda *_: None, MemoryBlobs)


def test_a_collection_without_a_place_is_postponed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "host_limits", lambda _settings, _patience: Full())
    said = fetch(tmp_path)
    assert isinstance(said, Postponed), said
    assert "no connection to 127.0.0.1:9 came free" in said.message


def test_a_worker_waits_for_less_than_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that waits does nothing; a search that ends has to begin anew."""
    asked: list[float] = []

    def limits(_settings: Settings, patience: float) -> LocalLimits:
        asked.append(patience)
        return LocalLimits()

    monkeypatch.setattr(sources, "host_limits", limits)
    assert isinstance(fetch(tmp_path), Failed)
    assert asked == [20.0]
    assert asked[0] < PATIENCE


def test_no_place_comes_before_every_other_failure() -> None:
    """Of several sources that fail, it is the one that costs nothing."""
    full = NoPlaceError("full")
    assert soonest([NotPublishedError("gone"), ServerBusyError("busy"), full]) is full
