"""An export while the manager, workers and people go on, and what comes of it elsewhere.

Between any two rows of the file attempts begin, end and fail, and people submit, confirm, pause,
cancel and try again. Whatever the file has must end as it would have, with the same bytes.
"""

import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from service_manager.options import ManagerOptions
from tasks.bag import protocol
from tasks.bag.categories import Category
from tasks.bag.model import RequestOrder, RequestState, Task
from tasks.bag.task_keys import SHARDS
from tasks.bag.transitions import RetryPolicy
from tasks.requests import request_operations, retrying
from tasks.requests.request_table import REQUEST, RequestRow, RequestTable
from tasks.requests.retrying import Scope
from tasks.service import backup
from tasks.service.memory_runtime import memory_runtime
from tasks.setting_values import Confirm
from tasks.storage.blobs import split_blob
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Row, Store
from tests.service_manager.workbench import Bench, collect, document, mosaic, plan_of

G = [collect(f"g{i}") for i in range(12)]
A, B, C = mosaic("a", *G[:4]), mosaic("b", *G[4:8]), mosaic("c", *G[6:11])
TOP, OTHER = mosaic("top", A, B), mosaic("other", B, C)
GONE, LATE = G[9].key, G[0].key
PLANS = {
    "p": plan_of(*G[:8], A, B, TOP, outputs={"top": "out", "a": "out"}),
    "q": plan_of(*G[4:11], B, C, OTHER, outputs={"other": "out", "c": "out"}),
    "r": plan_of(*G[:4], A, outputs={"a": "out"}),
    "s": plan_of(*G[6:11], C, outputs={"c": "out"}),
}
OPTIONS = ManagerOptions(sweep=60.0, retry=RetryPolicy(base=2.0), confirm=Confirm(tasks=10))
ACTS = (("submit", 3), ("cancel", 1), ("pause", 1), ("resume", 1), ("retry", 2), ("none", 12))
SEEDS = range(12)
_PATIENCE = 400  # rounds


class World(Bench):
    """A bench on which a granule is never there, and one only at the second try."""

    def __init__(self) -> None:
        super().__init__(plans=PLANS, options=OPTIONS, decide=self.ends)

    def ends(self, claimed: protocol.Claimed) -> Category | None:
        """Tell how an attempt ends."""
        if claimed.task.key == GONE:
            return Category.SOURCE_NOT_PUBLISHED
        first = claimed.task.key == LATE and claimed.task.attempt == 1
        return Category.SERVER_BUSY if first else None

    def requests(self) -> list[RequestRow]:
        """All requests."""
        return [REQUEST.load(row) for row in RequestTable(self.runtime.store).request_rows()]

    def until_all_ended(self) -> None:
        """Confirm and resume what waits, until every request has ended."""
        for _ in range(_PATIENCE):
            live = [row for row in self.requests() if not row.state.ended]
            if not live:
                return
            for row in live:
                if row.state is RequestState.HELD:
                    request_operations.order(self.runtime, row.id, RequestOrder.CONFIRM)
                elif row.paused or row.order is RequestOrder.PAUSE:
                    request_operations.order(self.runtime, row.id, RequestOrder.RESUME)
            self.rounds(1, seconds=4.0)
        raise AssertionError(f"not ended: {live}")

    def results(self, request: str) -> dict[str, str]:
        """Return a request's results by name, each with the checksum of its bytes in storage."""
        found = {}
        for interest in request_operations.results(self.runtime, request):
            for file in interest.files:
                data = self.runtime.blobs.get_bytes(*split_blob(file.blob))
                assert hashlib.sha256(data).hexdigest() == file.sha256
                found[f"{interest.output}/{interest.name}/{file.name}"] = file.sha256
        return found

    def tasks(self) -> list[Task]:
        """All tasks."""
        return [task for shard in SHARDS for task in self.runtime.tasks.all_tasks(shard)]


@dataclass
class People:
    """Who submit, cancel, pause and try again, and a fleet of which some work goes on."""

    world: World
    chance: random.Random
    cancelled: set[str] = field(default_factory=set)

    def act(self) -> None:
        """Let something happen."""
        kinds, weights = zip(*ACTS, strict=True)
        kind = self.chance.choices(kinds, weights)[0]
        rows = self.world.requests()
        runtime = self.world.runtime
        if kind == "submit":
            self.world.submit(self.chance.choice([*PLANS]))
        elif kind != "none" and rows:
            row = self.chance.choice(rows)
            match kind:
                case "cancel":
                    request_operations.order(runtime, row.id, RequestOrder.CANCEL)
                case "pause":
                    request_operations.order(runtime, row.id, RequestOrder.PAUSE)
                case "resume":
                    held = row.state is RequestState.HELD
                    order = RequestOrder.CONFIRM if held else RequestOrder.RESUME
                    request_operations.order(runtime, row.id, order)
                case _ if row.state in (RequestState.RUNNING, RequestState.GAPS):
                    retrying.retry(runtime, row.id, Scope())
        if self.chance.random() < 0.7:
            self.world.manager.tick()
        if self.chance.random() < 0.7:
            some = [key for key in self.world.sent if self.chance.random() < 0.6]
            rest = [key for key in self.world.sent if key not in some]
            self.world.sent[:] = some
            self.world.work()
            self.world.sent += rest
        runtime.clock.sleep(self.chance.choice((0.2, 2.0, 9.0)))


class OneByOne(MemoryStore):
    """Another store, of which each row is read when it is asked for: an account reads by pages."""

    def __init__(self, other: Store) -> None:
        self.__dict__ = other.__dict__

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        """Yield rows that there are when they are asked for."""
        assert limit is None
        while row := next(super().scan(table, partition, start, end, 1), None):
            yield row
            start = f"{row.row}\0"


@cache
def quiet() -> dict[str, tuple[RequestState, dict[str, str]]]:
    """Return how each plan ends where nothing else happens, and its results."""
    found = {}
    for title in PLANS:
        world = World()
        request = world.submit(title)
        world.until_all_ended()
        found[title] = world.row(request).state, world.results(request)
    return found


def in_the_file(file: Path) -> dict[str, RequestState]:
    """Return the requests that a file has, with their states."""
    lines = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    rows = [line for line in lines if line.get("t") == "requests" and line["r"].startswith("q|")]
    return {line["r"][2:]: RequestState(line["e"]["state"]) for line in rows}


def export(world: World, file: Path) -> Iterator[backup.Totals]:
    """Export a world's tables, a row for each item taken."""
    store = OneByOne(world.runtime.store)
    return backup.export(store, world.runtime.blobs, world.runtime.clock, file)


def exported(world: World, file: Path, between: Callable[[], None]) -> World:
    """Export while `between` happens after each row; return a world that goes on from the copy."""
    for _ in export(world, file):
        between()
    other = World()
    other.runtime = memory_runtime(world.runtime.clock)
    backup.restore(other.runtime.store, other.runtime.blobs, other.runtime.clock, file)
    (*_,) = backup.copy_blobs(world.runtime.blobs, other.runtime.blobs, file.parent)
    other.restart(epoch=9)
    return other


def ends_as_quiet(world: World) -> None:
    """Each request ends as its plan does, with the same bytes, or was cancelled with some."""
    for row in world.requests():
        state, results = quiet()[row.title]
        found = world.results(row.id)
        if row.state is RequestState.CANCELLED:
            assert found.items() <= results.items()
        else:
            assert (row.state, found) == (state, results), row
            assert not sum(count.left for count in row.phases.values())
        assert row.delivered == len(found)
    assert not [task for task in world.tasks() if task.state.live]


def test_the_quiet_world_makes_all_but_what_is_gone() -> None:
    ends = {title: (state.value, len(results)) for title, (state, results) in quiet().items()}
    gaps = RequestState.GAPS.value
    assert ends == {"p": ("complete", 2), "q": (gaps, 2), "r": ("complete", 1), "s": (gaps, 1)}


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_goes_on_meanwhile_the_copy_ends_as_its_plans_do(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    world = World()
    people = People(world, chance)
    for title in chance.sample([*PLANS], k=3):
        world.submit(title)
    for _ in range(chance.randrange(12)):
        people.act()
    before = {row.id: row for row in world.requests()}
    every = chance.choice((1, 4, 15))
    rows = 0

    def between() -> None:
        nonlocal rows
        rows += 1
        if rows % every == 0:
            people.act()

    other = exported(world, tmp_path / "tables.gz", between)
    found = in_the_file(tmp_path / "tables.gz")
    assert before.keys() <= found.keys()
    for name, row in before.items():
        assert found[name] is row.state or not row.state.ended
    other.until_all_ended()
    ends_as_quiet(other)
    for name, state in found.items():
        if state.ended:
            assert other.row(name).state is state
    world.until_all_ended()  # nothing of it was disturbed
    ends_as_quiet(world)


def test_a_request_that_goes_on_from_one_in_the_file_is_there(tmp_path: Path) -> None:
    """It came while requests were read, and its row was passed already; the other one names it."""
    world = World()
    first, last = sorted((world.submit("r"), world.submit("s")))
    begun = export(world, tmp_path / "tables.gz")
    next(begun)  # the first one is written
    follower = request_operations.submit(
        world.runtime, "owner", document("q"), request_id="0", continues=last
    )

    def names(row: RequestRow) -> RequestRow:
        return replace(row, continued_as=follower)

    request_operations.change_request(world.runtime, last, names)
    (*_,) = begun
    assert in_the_file(tmp_path / "tables.gz").keys() == {first, last, follower}


def test_a_request_that_was_being_cancelled_keeps_the_results_that_it_had(tmp_path: Path) -> None:
    world = World()
    request = world.submit("q")
    while not (had := world.results(request)):
        world.rounds(1, seconds=4.0)
    request_operations.order(world.runtime, request, RequestOrder.CANCEL)
    assert world.row(request).state is RequestState.CANCELLING
    other = exported(world, tmp_path / "tables.gz", lambda: None)
    other.until_all_ended()
    assert other.row(request).state is RequestState.CANCELLED
    assert other.results(request) == had
