"""Which states of a run are stored, and when."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tasks.bag.checkpoints import latest_state, state_name
from tasks.bag.model import Phase, State, Task
from tasks.errors import StoreError
from tasks.storage.blobs import CHECKPOINTS, MemoryBlobs, StoredBlob
from tasks.storage.clock import ManualClock
from tests.waiting import until
from worker.slots.checkpoints import Checkpoints

TASK = Task(
    key="a1" * 32, phase=Phase.REDUCTION, task_class="c", inputs=1, state=State.RUNNING, attempt=2
)
EVERY = 60.0


@dataclass
class Slow(MemoryBlobs):
    """Blobs of which each takes some time of the clock, and which may be away."""

    clock: ManualClock
    takes: float = 0.0
    away: bool = False
    put: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:
        if self.away:
            raise StoreError("away")
        self.clock.sleep(self.takes)
        self.put.append(path.read_bytes())
        return super().put_file(container, name, path)


@dataclass
class World:
    """One attempt's checkpoints, and its worker."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    stops: bool = False
    blobs: Slow = field(init=False)

    def __post_init__(self) -> None:
        self.blobs = Slow(self.clock)

    def of(self, task: Task = TASK) -> Checkpoints:
        return Checkpoints(self.blobs, task, EVERY, self.clock, lambda: self.stops)

    def reaches(self, checkpoints: Checkpoints, state: bytes) -> None:
        path = self.folder / "state.tar"
        path.write_bytes(state)
        checkpoints.take(path)

    def stored(self, *states: bytes) -> Callable[[], bool]:
        return lambda: self.blobs.put == [*states]

    @property
    def content(self) -> list[bytes]:
        return [self.blobs.get_bytes(CHECKPOINTS, name) for name in self.blobs.names(CHECKPOINTS)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@contextmanager
def attempt(checkpoints: Checkpoints, *, succeeds: bool = False) -> Iterator[None]:
    with checkpoints.during(lambda: succeeds):
        yield


def test_the_newest_state_is_stored_when_the_time_is_over_and_the_one_before_deleted(
    world: World,
) -> None:
    checkpoints = world.of()
    with attempt(checkpoints):
        world.reaches(checkpoints, b"1")
        until(world.stored(b"1"), 10, "the first is stored at once")
        until(lambda: checkpoints._due > 0, 10, "the next time is known")
        world.reaches(checkpoints, b"2")
        world.reaches(checkpoints, b"3")
        assert [path.name for path in world.folder.iterdir()] == ["3.tar"]
        assert world.blobs.put == [b"1"]
        world.clock.sleep(EVERY)
        until(world.stored(b"1", b"3"), 10, "the newest is stored")
    until(lambda: world.content == [b"3"], 10, "one state is left")
    assert not any(world.folder.iterdir())


def test_storing_takes_a_tenth_of_the_time_at_most(world: World) -> None:
    checkpoints, world.blobs.takes = world.of(), 100.0
    with attempt(checkpoints):
        world.reaches(checkpoints, b"1")
        until(lambda: checkpoints._due > 0, 10, "the next time is known")
        assert checkpoints._due - world.clock.monotonic() == pytest.approx(900.0)


def test_a_worker_that_is_asked_to_stop_stores_what_waits_at_once(world: World) -> None:
    checkpoints = world.of()
    with attempt(checkpoints):
        world.reaches(checkpoints, b"1")
        until(lambda: checkpoints._due > 0, 10, "the next time is known")
        world.reaches(checkpoints, b"2")
        world.stops = True
        until(world.stored(b"1", b"2"), 10, "what waited is stored")


def test_an_attempt_that_fails_leaves_its_last_state_and_one_that_succeeds_none(
    world: World,
) -> None:
    for succeeds, put in ((False, [b"1", b"2"]), (True, [b"1", b"2", b"1"])):
        checkpoints = world.of(replace(TASK, key=("b2" if succeeds else "a1") * 32))
        with attempt(checkpoints, succeeds=succeeds):
            world.reaches(checkpoints, b"1")
            until(lambda: checkpoints._due > 0, 10, "the next time is known")  # noqa: B023
            world.reaches(checkpoints, b"2")
        assert world.blobs.put == put
        assert not any(world.folder.iterdir())
        checkpoints.forget()
        assert not any(world.blobs.names(CHECKPOINTS, checkpoints._task.key))


def test_while_storage_is_away_the_last_stored_state_stays(world: World) -> None:
    checkpoints = world.of()
    with attempt(checkpoints):
        world.reaches(checkpoints, b"1")
        until(lambda: checkpoints._due > 0, 10, "the next time is known")
        world.blobs.away = True
        world.reaches(checkpoints, b"2")
    assert world.content == [b"1"]
    assert world.of(replace(TASK, attempt=3)).found() == latest_state(world.blobs, TASK)


def test_a_first_attempt_asks_storage_nothing(world: World) -> None:
    world.blobs.put_bytes(CHECKPOINTS, state_name(replace(TASK, attempt=0), 1, "c" * 64), b"old")
    first = world.of(replace(TASK, attempt=1))
    assert first.found() == ""
    with attempt(first, succeeds=True):
        pass
    first.forget()  # neither does its end
    assert world.content == [b"old"]


def test_a_state_that_is_told_of_and_not_there_is_none(world: World) -> None:
    checkpoints = world.of()
    with attempt(checkpoints):
        checkpoints.take(world.folder / "state.tar")
        world.reaches(checkpoints, b"1")
        until(world.stored(b"1"), 10, "the next one is stored")
    assert [name.split("-")[-2] for name in world.blobs.names(CHECKPOINTS)] == ["000001"]
