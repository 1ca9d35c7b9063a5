"""However many want a granule, the archive is asked for it once."""

import shutil
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from archives.errors import ServerBusyError
from archives.fetch.download import Downloader
from archives.fetch.limits import LocalLimits
from archives.model import Fetched, GranuleRecord, Holding, Progress
from archives.sources import Sources
from modis.box import LonLatBox
from service_manager.options import ManagerOptions
from tasks.bag import protocol
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.blobs import GRANULES
from tasks.storage.clock import ManualClock
from tests.archives.downloads import NO_CREDENTIALS
from tests.archives.servers import FileServer, Served, cut, file_server, granule, status
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of
from worker.files.cache import Cache
from worker.phases.collect import _progress as progress_of
from worker.phases.collect import fetch
from worker.phases.context import Context

DATA = granule(500_000)
GRANULE = "MOD13A2.A2020001.h18v04.061.2020020001122.hdf"


class WebFolder:
    """An archive that is one server's folder; only fetching is of interest here."""

    def __init__(self, server: FileServer, name: str = "folder") -> None:
        self.name = name
        self._url = server.url
        self._downloader = Downloader(NO_CREDENTIALS, LocalLimits())

    authoritative = True

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        raise NotImplementedError

    def holdings(self, product: str) -> list[Holding]:
        raise NotImplementedError

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        return self._downloader.get(
            [f"{self._url}/{record.name}"],
            to,
            size=len(DATA),
            checksum=record.checksum,
            checksum_type=record.checksum_type,
            progress=progress,
        )


def context(
    folder: Path, slot: str, runtime: Runtime | None = None, key: str = "", claim: str = ""
) -> Context:
    """A slot's surroundings: scratch of its own, data folder and cache shared."""
    scratch = folder / slot
    scratch.mkdir()
    return Context(
        key=key,
        claim=claim,
        inputs={},
        scratch=scratch,
        settings=Settings(data_dir=folder / "data"),
        blobs=(runtime or memory_runtime(ManualClock())).blobs,
        cache=Cache(folder / "cache", 10**9),
        tell=lambda _fraction, _note: None,
        sandbox="limits",
    )


def attempt(bench: Bench, key: str, archive: WebFolder, folder: Path, slot: str) -> None:
    """What a slot does with a message: claim, fetch, store, commit."""
    claimed = protocol.claim(bench.runtime, key, slot, bench.options.retry)
    if claimed is None:
        return
    own = context(folder, slot, bench.runtime, key, claimed.claim)
    path = own.scratch / GRANULE
    assert isinstance(claimed.spec, CollectSpec)
    fetch(Sources([archive]), claimed.spec, own, path)
    file = own.upload(path, container=GRANULES)
    done = claimed.attempt(started=0.0, ended=1.0, duration=1.0, category=None)
    protocol.commit(bench.runtime, done, [file])


@pytest.mark.slow
def test_two_hundred_requests_for_a_granule_are_one_download(tmp_path: Path) -> None:
    spec = collect(GRANULE)
    plans = {f"p{n}": plan_of(spec, mosaic(f"m{n}", spec)) for n in range(200)}
    bench = Bench(plans=plans, options=ManagerOptions())
    requests = [bench.submit(title, owner=f"owner{title}") for title in plans]
    with file_server() as server:
        server.files[f"/{GRANULE}"] = Served(data=DATA)
        archive = WebFolder(server)
        for _ in range(100):
            bench.manager.tick()
            bench.runtime.clock.sleep(1.0)
            if spec.key in bench.sent:
                break
        assert set(bench.sent) == {spec.key}
        slots = [
            threading.Thread(
                target=attempt, args=(bench, spec.key, archive, tmp_path, f"worker-{n}")
            )
            for n in range(16)  # the message came sixteenfold
        ]
        for slot in slots:
            slot.start()
        for slot in slots:
            slot.join()
        assert server.paths() == [f"/{GRANULE}"]
    for request in requests:
        assert bench.until_ended(request).state is RequestState.COMPLETE
    assert bench.ran.count(spec.key) == 0
    assert len(bench.ran) == 200
    assert len(bench.runtime.tasks.attempts(spec.key)) == 1


def test_a_quick_fetch_tells_of_its_begin_and_end_and_a_slow_one_ten_times_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("worker.phases.collect.time.monotonic", lambda: now)
    told: list[float] = []
    about = context(tmp_path, "slot")
    about.tell = lambda fraction, _note: told.append(round(fraction, 3))
    quick = progress_of(about, collect(GRANULE))
    for done in range(1, 101):
        quick(done, 100)
    assert told == [0.006, 0.6]
    told.clear()
    slow = progress_of(about, collect(GRANULE))
    for done in range(1, 101):
        now += 0.0625
        slow(done, 100)
    assert len(told) == 51  # every second one, and the end


def test_an_attempt_goes_on_where_the_last_one_was_cut(tmp_path: Path) -> None:
    spec = collect(GRANULE).model_copy(update={"source": "web"})
    with file_server() as server:
        server.files[f"/{GRANULE}"] = Served(data=DATA)
        server.acts[f"/{GRANULE}"] = [cut(200_000), status(503)]
        archive = Sources([WebFolder(server, "web")])
        with pytest.raises(ServerBusyError):
            fetch(archive, spec, context(tmp_path, "first"), tmp_path / "first" / GRANULE)
        assert list((tmp_path / "first").glob("*.hdf")) == []
        shutil.rmtree(tmp_path / "first")  # as the supervisor does with an attempt's folder
        to = tmp_path / "second" / GRANULE
        again = context(tmp_path, "second")
        told: list[float] = []
        again.tell = lambda fraction, _note: told.append(fraction)
        fetch(archive, spec, again, to)
        assert told == sorted(set(told))
        assert 0.6 * 0.4 < told[0] < told[-1] == 0.6
        assert to.read_bytes() == DATA
        assert server.asked[-1].headers["range"] == "bytes=200000-"
    assert list((tmp_path / "data" / "downloads").iterdir()) == []


@pytest.mark.parametrize("source", ["", "folder"])
def test_a_file_of_a_folder_is_no_download(source: str, tmp_path: Path) -> None:
    spec = collect(GRANULE).model_copy(update={"source": source})
    with file_server() as server:
        server.files[f"/{GRANULE}"] = Served(data=DATA)
        to = tmp_path / "slot" / GRANULE
        fetch(Sources([WebFolder(server)]), spec, context(tmp_path, "slot"), to)
    assert to.read_bytes() == DATA
    assert not (tmp_path / "data").exists()
