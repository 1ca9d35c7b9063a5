"""A real stack on Azurite with two managers: one is killed or stalled, a request is cancelled while
it hangs, storage falls silent. Nothing is lost, nothing is doubled."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from bench.chaos.audit import audit, is_settled, runtime_of
from bench.chaos.proxy import Proxy, Weather
from processes import proctree
from swathmill.access import local_client
from swathmill.client import Client
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack, StackOptions
from swathmill.stack.storage import Storage
from tasks.bag import workers
from tasks.request.document import parse_request
from tasks.requests import outbox
from tasks.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.integration]

LIMIT = 300.0  # seconds
LEASE = 5.0
HANG = """import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execvp("sleep", ["sleep", "87654.321"])
print("asleep", flush=True)
time.sleep(86400)
"""
SMALL: dict[str, Any] = {
    "title": "Under faults",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [1.0, 52.0, 3.0, 54.0]},
    "time": {"start": "2012-04-13", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.05},
    "notify": "scientist@example.org",
}


class Watched:
    """A stack, looked after while a test waits."""

    def __init__(self, folder: DataFolder, stack: Stack, proxy: Proxy) -> None:
        self.folder = folder
        self.stack = stack
        self.proxy = proxy
        self.runtime = runtime_of(folder)

    @cached_property
    def client(self) -> Client:
        return local_client(self.folder)

    def submit(self, **changes: object) -> str:
        return self.client.submit(parse_request({**SMALL, **changes})).id

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait for a condition; the seconds it took."""
        start = time.monotonic()
        while not condition():
            self.stack.tick()
            assert time.monotonic() - start < LIMIT, f"never: {what}"
            time.sleep(0.05)
        return time.monotonic() - start

    def until_complete(self, request: str) -> None:
        self.until(lambda: self.client.status(request).state.ended, f"{request} has ended")
        status = self.client.status(request)
        assert (status.state.value, status.gap_count) == ("complete", 0), status
        # A manager that ends between the mail server's answer and its note of it sends it again.
        self.until(lambda: not any(outbox.unsent(self.runtime.store)), "its mail has gone")

    def acting(self) -> tuple[int, str]:
        """The highest epoch that a manager acted in, and the manager."""
        found = [(0, "")]
        for name in self.stack.manager_names:
            for event in self.events(name):
                if event["event"] == "acting":
                    found.append((int(event["epoch"]), name))
        return max(found)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self.folder.log(name).read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def pid(self, name: str) -> int:
        pid = self.stack.supervisor.child(name).pid
        assert pid is not None
        return pid

    def asleep(self) -> set[int]:
        """The hanging package's detached processes."""
        return {
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and b"87654.321" in _command(process)
        }

    def listed(self) -> int:
        return sum(len(row.attempts) for row in workers.list_workers(self.runtime.store))


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path) -> Iterator[Watched]:
    place = tmp_path_factory.mktemp("faults")
    package = place / "packages" / "hang"
    package.mkdir(parents=True)
    (package / "hang.py").write_text(HANG)
    (package / "package.yaml").write_text(
        "name: hang\ncommand: [python, hang.py]\noutputs: ['{layer}_mean.tif']\n"
        "resources: {timeout_seconds: 86400}\n"
    )
    proxy = Proxy(1, lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWATHMILL_LEASE_SECONDS", str(LEASE))
        patch.setenv("SWATHMILL_RETRY_BASE", "0.2")
        patch.setenv("SWATHMILL_PACKAGES", str(place / "packages"))
        options = StackOptions(
            folder=DataFolder(path=place / "data"),
            archive=str(sample_archive),
            storage=Storage.AZURITE,
            managers=2,
            slots=2,
            grace_seconds=2.0,
            via=proxy.port_before,
            settings=Settings(),
        )
        stack = Stack(options, say=lambda _: None)
        try:
            stack.start()
            one = Watched(options.folder, stack, proxy)
            one.until(lambda: one.acting()[0] > 0, "a manager acts")
            yield one
        finally:
            stack.stop()
            proxy.close()


def test_a_manager_that_is_killed_is_followed_by_the_other(watched: Watched) -> None:
    request = watched.submit()
    watched.until(
        lambda: watched.client.status(request).state.value == "running", "the plan is written"
    )
    epoch, name = watched.acting()
    os.kill(watched.pid(name), signal.SIGKILL)
    took = watched.until(lambda: watched.acting()[0] > epoch, "another manager acts")
    assert took < 60.0
    watched.until_complete(request)


@pytest.mark.proof
def test_a_manager_that_stalls_is_followed_and_stands_by_when_it_wakes(watched: Watched) -> None:
    watched.until(
        lambda: all(watched.stack.supervisor.child(n).exit_code() is None for n in NAMES),
        "both managers run",
    )
    request = watched.submit(grid={"crs": "EPSG:4326", "resolution": 0.045})
    epoch, name = watched.acting()
    stalled = watched.pid(name)
    os.kill(stalled, signal.SIGSTOP)
    try:
        took = watched.until(lambda: watched.acting()[0] > epoch, "another manager acts")
        assert took < 60.0
        watched.until_complete(request)
    finally:
        os.kill(stalled, signal.SIGCONT)
    watched.until(lambda: watched.events(name)[-1]["event"].startswith("standing by"), "it is over")
    later = watched.submit(grid={"crs": "EPSG:4326", "resolution": 0.04})
    watched.until_complete(later)
    assert watched.acting()[1] != name
    assert watched.pid(name) == stalled


NAMES = ("manager", "manager-2")


def test_cancelling_frees_slots_and_leaves_no_process(watched: Watched) -> None:
    request = watched.submit(
        reduction={"package": "hang", "group_by": ["cell", "month"], "rehearse": False}
    )
    watched.until(lambda: bool(watched.asleep()), "the package hangs")
    watched.until(lambda: watched.listed() > 0, "its attempt is in the heartbeat")
    tree = watched.asleep()
    watched.client.cancel(request)
    took = watched.until(
        lambda: not any(proctree.alive(pid) for pid in tree), "its detached processes are gone"
    )
    took += watched.until(lambda: watched.listed() == 0, "the slots are free")
    assert took < 10.0
    assert not watched.asleep()


@pytest.mark.proof
def test_a_worker_that_cannot_reach_the_table_ends_its_attempts(watched: Watched) -> None:
    request = watched.submit(
        reduction={"package": "hang", "group_by": ["cell", "month"], "rehearse": False},
        grid={"crs": "EPSG:4326", "resolution": 0.035},
    )
    watched.until(lambda: bool(watched.asleep()), "the package hangs")
    tree = watched.asleep()
    _, _, table = watched.folder.state().azurite_ports
    watched.proxy.set(table, Weather(kind="hole"))
    try:
        watched.until(
            lambda: not any(proctree.alive(pid) for pid in tree), "its attempts are ended"
        )
    finally:
        watched.proxy.set(table, Weather())
    fenced = [e for e in watched.events("worker-1") if "no beat for a lease" in e["event"]]
    assert fenced[-1]["seconds"] >= LEASE
    watched.client.cancel(request)
    watched.until(lambda: watched.client.status(request).state.ended, "it has ended")


def test_nothing_was_lost_or_doubled(watched: Watched) -> None:
    watched.until(lambda: is_settled(watched.runtime), "nothing is under way")
    found = audit(watched.runtime)
    assert found.violations == []
    assert found.outcomes["success"] == found.tasks["done"]
    mails = [path.read_text() for path in (watched.folder.path / "mail").glob("*.eml")]
    numbers = [line for mail in mails for line in mail.splitlines() if line.startswith("Message-I")]
    assert len(set(numbers)) == len(numbers)
