"""A stack on one machine whose reductions have a place: they wait for it, and run nowhere else."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import pytest

from bench.chaos.audit import audit, is_settled, runtime_of
from bench.chaos.fleet import WORKER
from processes import proctree
from swathmill.access import local_client
from swathmill.client import Client
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack, StackOptions
from tasks.bag.model import Attempt, Phase
from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.integration]

LIMIT = 300.0  # seconds
PLACE = "big"
# A run lasts for several beats of a slow machine, so that it is seen and killed while it runs.
SLOW = """import pathlib, sys, time
time.sleep(15)
pathlib.Path(sys.argv[2], "out.txt").write_text("made")
"""
PACKAGE = "name: slow\ncommand: [python, slow.py]\noutputs: [out.txt]\n"
REQUEST = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [1.0, 52.0, 3.0, 54.0]},
    "time": {"start": "2012-04-13", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.05},
    "reduction": {"package": "slow", "group_by": ["cell", "month"], "rehearse": False},
}


class Placed:
    """A stack with one worker that has no place, and workers that have."""

    def __init__(self, folder: DataFolder, stack: Stack) -> None:
        self.stack = stack
        self.folder = folder
        self.runtime: Runtime = runtime_of(folder)
        self.workers: list[subprocess.Popen[bytes]] = []

    @cached_property
    def client(self) -> Client:
        return local_client(self.folder)

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        """Start another worker of the same machine, at the place."""
        given = self.stack.supervisor.child("worker-1").given
        env = {key: value for key, value in given.items() if value is not None}
        env |= {"SWATHMILL_WORKER_NAME": name, "SWATHMILL_WORKER_PLACE": PLACE}
        with (self.folder.path / f"{name}.log").open("wb") as log:
            one = subprocess.Popen(WORKER, env={**os.environ, **env}, stdout=log, stderr=log)
        self.workers.append(one)
        return one

    def end(self) -> None:
        for one in self.workers:
            if one.poll() is None:
                one.terminate()
                one.wait(30)

    def waits(self) -> str:
        """What the place's work waits for, as operators are told."""
        places = self.client.operations()["places"]
        return next((str(one["waits_because"]) for one in places if one["place"] == PLACE), "")

    def attempts(self, request: str) -> list[Attempt]:
        tasks = self.runtime.tasks
        keys = [one.key for one in request_operations.interests(self.runtime, request)]
        return [attempt for key in keys for attempt in tasks.attempts(key)]

    def running(self) -> list[str]:
        """The workers that run a reduction, as their beats say."""
        running = self.client.operations()["running"]
        return [str(one["worker"]) for one in running if one["phase"] == Phase.REDUCTION.value]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        start = time.monotonic()
        while not condition():
            self.stack.tick()
            assert time.monotonic() - start < LIMIT, f"never: {what}"
            time.sleep(0.05)


@pytest.fixture
def placed(tmp_path: Path, sample_archive: Path) -> Iterator[Placed]:
    package = tmp_path / "packages" / "slow"
    package.mkdir(parents=True)
    (package / "slow.py").write_text(SLOW)
    (package / "package.yaml").write_text(PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWATHMILL_LEASE_SECONDS", "5")
        patch.setenv("SWATHMILL_PACKAGES", str(tmp_path / "packages"))
        patch.setenv("SWATHMILL_WORK_PLACES", f"{PLACE}=reduction/slow")
        options = StackOptions(
            folder=DataFolder(path=tmp_path / "data"),
            archive=str(sample_archive),
            slots=2,
            grace_seconds=2.0,
            settings=Settings(),
        )
        stack = Stack(options, say=lambda _: None)
        one: Placed | None = None
        try:
            stack.start()
            one = Placed(options.folder, stack)
            yield one
        finally:
            if one is not None:
                one.end()
            stack.stop()


def test_reductions_wait_for_their_place_and_go_on_there_after_its_worker_is_killed(
    placed: Placed,
) -> None:
    request = placed.client.submit(parse_request({**REQUEST, "title": "At a place"})).id
    never = f"waits for a worker of place {PLACE}: none has been here"
    placed.until(lambda: placed.waits().startswith(never), "its runs wait for a worker")
    victim = placed.worker("big-1")
    placed.until(lambda: "big-1" in placed.running(), "a run has begun at the place")
    tree = proctree.descendants(victim.pid)
    victim.kill()
    victim.wait()
    placed.until(lambda: not any(map(proctree.alive, tree)), "its whole tree is gone")
    # What operators are told is older by a round than what workers do.
    placed.until(lambda: placed.waits().endswith("the last one is gone"), "the rest waits again")
    placed.worker("big-2")
    placed.until(lambda: placed.client.status(request).state.ended, "the request has ended")
    status = placed.client.status(request)
    assert (status.state.value, status.gap_count) == ("complete", 0), status
    where = {(one.phase is Phase.REDUCTION, one.worker) for one in placed.attempts(request)}
    assert where == {(False, "worker-1"), (True, "big-1"), (True, "big-2")}
    placed.until(lambda: is_settled(placed.runtime), "nothing is under way")
    assert audit(placed.runtime).violations == []
