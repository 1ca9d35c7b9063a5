"""The spans of an attempt say where its time went."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.contextvars import bound_contextvars, clear_contextvars, get_contextvars

from tasks.bag import protocol
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, Attempt, Phase
from tasks.bag.spec import CollectSpec
from tasks.service import tracing
from tasks.service.memory_runtime import memory_runtime
from tasks.service.tracing import Span, attempt_of, root_of, trace_of
from tasks.settings import Settings
from tasks.storage.clock import ManualClock
from tests.worker.world import World
from worker.files.scratch import Scratch
from worker.phases.context import STEPS, Spent
from worker.sandbox.children import AttemptProcess
from worker.sandbox.messages import Ended, Job, Message, Succeeded
from worker.slots import child
from worker.slots.child import WarmChild
from worker.slots.spans import Course, attempt_spans
from worker.slots.supervisor import Supervisor

FILE = ArtifactFile(name="g.hdf", blob="granules/k/c/g.hdf", size=3, sha256="0" * 64)
SPEC = CollectSpec(product="MOD", collection="61", granule="g.hdf", production="1")


def attempt(category: Category | None = None) -> Attempt:
    return Attempt(
        key="key",
        number=2,
        claim="c",
        phase=Phase.REPROJECTION,
        task_class="reprojection x",
        worker="w",
        started=10.0,
        ended=20.0,
        duration=10.0,
        category=category,
        message="why" if category else "",
    )


def spans(
    steps: Sequence[tuple[str, float, float]], *, own: bool = True, failed: Category | None = None
) -> list[Span]:
    course = Course(asked=7.0, claimed=8.0, steps=steps)
    return list(attempt_spans("r", attempt(failed), course, (21.0, 21.5), own=own))


def test_parts_cover_the_attempt_without_a_gap() -> None:
    whole, *parts = spans([("fetch", 10.0, 12.0), ("fetch", 13.0, 14.0), ("store", 18.0, 20.0)])
    assert [part.name for part in parts] == [
        *("claim", "wait", "fetch", "compute", "fetch", "compute", "store", "settle", "commit")
    ]
    assert (whole.began, whole.ended) == (7.0, 21.5)
    assert [one.began for one in parts] == [whole.began, *(one.ended for one in parts[:-1])]
    assert parts[-1].ended == whole.ended
    assert {part.parent for part in parts} == {whole.id}
    assert whole.parent == root_of("r")
    assert whole.id == attempt_of("r", "key", 2)
    assert len({one.id for one in (whole, *parts)}) == 10


def test_a_failure_and_a_lost_claim_are_told() -> None:
    assert spans([])[0].failure == ""
    assert spans([], own=False)[0].failure.startswith("fenced")
    failed = spans([], failed=Category.OUT_OF_DISK)[0]
    assert failed.failure == "out of disk: why"
    assert failed.attributes["swathmill.outcome"] == "out of disk"


def test_an_attempt_notes_when_it_fetched_and_stored() -> None:
    spent = Spent()
    for _ in range(3):  # without a pause: one stretch
        with spent.fetch():
            pass
    with spent.store():
        pass
    assert [part for part, _, _ in spent.steps] == ["fetch", "store"]
    assert all(began <= ended for _, began, ended in spent.steps)
    for _ in range(STEPS):
        with spent.fetch():
            pass
        with spent.store():
            pass
    assert len(spent.steps) == STEPS


@dataclass(kw_only=True)
class Child(AttemptProcess):
    """A child that takes ten seconds of the test's clock, and says when it fetched."""

    clock: ManualClock

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        now = self.clock.now()
        self.clock.sleep(10.0)
        heard(Succeeded(files=(FILE,), fetching=4.0, steps=(("fetch", now, now + 4.0),)))
        return Ended(exit_code=0, peak_memory=7, over_memory=False, log="")


@pytest.fixture
def recorded() -> Iterator[list[Span]]:
    found: list[Span] = []
    tracing.tell(found.append)
    yield found
    tracing.forget(found.append)


def test_a_worker_records_what_it_has_committed(tmp_path: Path, recorded: list[Span]) -> None:
    clock = ManualClock()
    runtime = memory_runtime(clock)
    scratch = Scratch(tmp_path, "w")
    supervisor = Supervisor(
        runtime=runtime,
        settings=Settings(data_dir=tmp_path),
        name="w",
        scratch=scratch,
        start=lambda _job: Child(clock=clock),
    )
    supervisor.lease.renew(clock.monotonic())
    began = clock.now()
    key = World(runtime=runtime).plan(SPEC)
    sponsor = runtime.tasks.task(key)
    assert sponsor is not None
    supervisor.execute([key])
    scratch.close()
    whole, *parts = recorded
    assert whole.trace == trace_of(sponsor.sponsor)
    assert whole.attributes["swathmill.task"] == key
    assert whole.attributes["swathmill.outcome"] == "success"
    times = {part.name: (part.began - began, part.ended - began) for part in parts}
    assert times["fetch"] == (0.0, 4.0)
    assert times["compute"] == (4.0, 10.0)
    assert times["commit"] == (10.0, 10.0)


class Pipe:
    """Takes what a child reports."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)


def test_calls_of_a_child_and_of_the_commit_name_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of storage take the name from there (tasks/service/azure_clients.py)."""
    named: list[str] = []

    def note() -> None:
        named.append(str(get_contextvars().get("request", "")))

    def perform(*_given: object) -> Succeeded:
        note()
        return Succeeded(files=(FILE,))

    monkeypatch.setattr(child, "perform", perform)
    warm = object.__new__(WarmChild)  # its limits are for a process of its own
    vars(warm).update(_given=None, _apart=None)
    job = Job(request="r-1", key="k", claim="c", spec=SPEC, inputs={}, scratch=tmp_path)
    with bound_contextvars():
        assert warm(pickle.dumps(job), cast(Connection, Pipe())) == 0
        clear_contextvars()

    end_batch = protocol.end_batch

    def ended(*given: Any) -> list[bool]:
        note()
        return end_batch(*given)

    monkeypatch.setattr(protocol, "end_batch", ended)
    clock = ManualClock()
    runtime = memory_runtime(clock)
    scratch = Scratch(tmp_path, "w")
    supervisor = Supervisor(
        runtime=runtime,
        settings=Settings(data_dir=tmp_path),
        name="w",
        scratch=scratch,
        start=lambda _job: Child(clock=clock),
    )
    supervisor.lease.renew(clock.monotonic())
    key = World(runtime=runtime).plan(SPEC)
    task = runtime.tasks.task(key)
    supervisor.execute([key])
    scratch.close()
    assert task is not None
    assert named == ["r-1", task.sponsor]
    assert get_contextvars() == {}
