"""A worker process at work: real Redis and Celery, one worker for all of these tests."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.bag.task_table import TaskTable
from tasks.messages import celery_app
from tasks.storage.queues import FIRST, address, of_address
from tests.waiting import until
from tests.worker.processes import (
    GOOD,
    Process,
    Stack,
    commands,
    dead,
    hanging,
    make_stack,
    reduction,
)
from tests.worker.world import collect_spec

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("process")]


SECRET = "do-not-show-these-thirty-two-characters"


@pytest.fixture(scope="module")
def stack(
    embedded: str, redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    stack = make_stack(embedded, redis_server, tmp_path_factory.mktemp("runs"))
    yield stack
    stack.end()


@pytest.fixture(scope="module")
def process(stack: Stack) -> Process:
    secrets = dict.fromkeys(("SECRET", "SMTP_PASSWORD", "EARTHDATA_TOKEN"), SECRET)
    return stack.worker("runner", ATTEMPT_MEMORY_GB=0.4, **secrets)


@pytest.mark.proof
@pytest.mark.real_data
def test_granules_are_collected_by_two_slots(stack: Stack, granules: Path) -> None:
    found = sorted(granules.rglob("MCD15A2.A2012*.h17v03.005.*.hdf"))[:4]
    for path in found:
        shutil.copy(path, stack.folder / "archive")
    keys = [
        stack.world.plan(
            collect_spec(
                stack.folder / "archive" / path.name, stack.folder / "archive", "MCD15A2", "5"
            )
        )
        for path in found
    ]
    for key in [*keys, *keys]:
        stack.send(key)
    for key in keys:
        task = stack.settled(key)
        assert task.state is State.DONE, stack.world.runtime.tasks.attempts(key)
        assert task.attempt == 1
        assert len(stack.world.runtime.tasks.attempts(key)) == 1


def test_a_reduction_runs_in_the_sandbox_and_its_output_is_stored(stack: Stack) -> None:
    key = reduction(stack, "good", "print('hello from the package');" + GOOD)
    stack.send(key)
    task = stack.settled(key)
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert task.state is State.DONE, attempt
    assert "hello from the package" in attempt.log
    assert attempt.peak_memory > 0
    container, _, name = task.files[0].blob.partition("/")
    assert stack.world.runtime.blobs.get_bytes(container, name) == b"made"


def test_a_message_to_this_host_is_taken_and_one_to_another_is_not(stack: Stack) -> None:
    mine = reduction(stack, "mine", GOOD)
    other = reduction(stack, "other", GOOD)
    stack.send(other, "another-host")
    stack.send(mine, socket.gethostname())
    assert stack.settled(mine).state is State.DONE
    assert stack.world.task(other).state is State.READY
    with redis.Redis.from_url(stack.settings.redis_url.get_secret_value()) as server:
        assert 0 < int(server.ttl(celery_app.queue_of("another-host"))) <= 3600
    stack.send(other)
    assert stack.settled(other).state is State.DONE


def test_workers_of_a_place_have_queues_of_their_own_that_sort_alike() -> None:
    for place in ("", "gpu"):
        whom = [address(host, place) for host in (FIRST, "host", "")]
        queues = [celery_app.queue_of(one) for one in whom]
        assert sorted(queues) == queues  # the strategy by which workers take from them
        assert [of_address(one) for one in whom] == [(FIRST, place), ("host", place), ("", place)]
    assert celery_app.queue_of(address("", "")) == celery_app.QUEUE
    assert not {*map(celery_app.queue_of, ("", FIRST, "host"))} & {*queues}


def test_messages_that_no_slot_has_taken_are_taken_back_in_order(redis_server: str) -> None:
    database = redis_server.removesuffix("/0") + "/5"  # no worker listens there
    app = celery_app.make_app(database)
    sender = celery_app.Sender(app)
    names = (FIRST, "another-host")
    in_turn = [*map(celery_app.queue_of, names), celery_app.QUEUE]
    assert sorted(in_turn) == in_turn  # the strategy by which workers take from them
    assert sender.recall() == []
    batches = [["a", "b"], ["c"], ["d"]]
    for batch in batches:
        sender(batch)
    sender(["e"], "another-host")
    found = sender.recall()
    assert [key for key in found if key != "e"] == ["a", "b", "c", "d"]
    assert "e" in found
    with redis.Redis.from_url(database) as server:
        assert not server.exists(celery_app.QUEUE, celery_app.queue_of("another-host"))
    assert sender.recall() == []
    app.close()
    stopped = celery_app.make_app("redis://127.0.0.1:1")
    assert celery_app.Sender(stopped).recall() == []
    stopped.close()


@pytest.mark.provokes(Category.USER_CODE_FAILED)
def test_failing_user_code_shows_its_output_and_is_not_repeated(stack: Stack) -> None:
    key = reduction(stack, "failing", "raise SystemExit('the input has no snow')")
    stack.send(key)
    task = stack.settled(key)
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert (task.state, task.category) == (State.FAILED, Category.USER_CODE_FAILED)
    assert attempt.message == "python run.py ended with exit code 1: the input has no snow"
    said, ours = attempt.log.splitlines()
    assert said == "the input has no snow"
    assert ours.startswith("swathmill: it took ")


@pytest.mark.provokes(Category.OUT_OF_MEMORY)
def test_memory_beyond_the_limit_is_out_of_memory(stack: Stack) -> None:
    script = "import os\nheld = []\nwhile True: held.append(bytearray(os.urandom(1 << 20)))"
    key = reduction(stack, "hungry", script, memory_gb=50)
    stack.send(key)
    task = stack.settled(key)
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.OUT_OF_MEMORY, attempt
    assert task.strikes == 1


@pytest.mark.provokes(Category.USER_CODE_TIMED_OUT)
def test_a_package_time_limit_is_its_own_category(stack: Stack) -> None:
    key = reduction(stack, "slow", "import time; time.sleep(60)", timeout_seconds=1)
    stack.send(key)
    task = stack.settled(key, 30)
    assert (task.state, task.category) == (State.FAILED, Category.USER_CODE_TIMED_OUT)


@pytest.mark.provokes(Category.EXECUTION_TIMEOUT)
def test_hanging_user_code_is_killed_by_order(stack: Stack, process: Process) -> None:
    key = hanging(stack, "hang-order", process)
    children = process.tree()
    store, clock = stack.world.runtime.store, stack.world.runtime.clock
    until(
        lambda: any(row.attempts for row in workers.list_workers(store) if row.name == "runner"),
        10,
        "the attempt is in the heartbeat",
    )
    assert workers.order_kill(store, clock, "runner", stack.world.task(key).claim)
    task = stack.settled(key, 20)
    (attempt,) = TaskTable(store).attempts(key)
    assert attempt.category is Category.EXECUTION_TIMEOUT
    assert task.state is State.READY
    assert task.not_before > 0
    kept = set(process.tree())
    until(dead([pid for pid in children if pid not in kept]), 10, "the tree is gone")
    assert not any("hang" in c for c in commands(process))


@pytest.mark.proof  # half a minute of beats; the protocol of holds and moves is in the simulation
def test_a_held_worker_leaves_messages_alone_and_hands_back_what_is_moved(
    stack: Stack, process: Process
) -> None:
    store, clock = stack.world.runtime.store, stack.world.runtime.clock

    def row() -> workers.WorkerRow:
        return next(row for row in workers.list_workers(store) if row.name == "runner")

    def hold(wanted: workers.Hold) -> None:
        assert workers.order_hold(store, clock, "runner", row().started, wanted)
        sequence = row().sequence
        until(lambda: row().sequence > sequence + 1, 20, "the worker has read its hold")
        assert row().hold is wanted

    key = hanging(stack, "hang-move", process)
    claim = stack.world.task(key).claim
    until(lambda: claim in [a.claim for a in row().attempts], 10, "the attempt is listed")
    hold(workers.Hold.DRAINED)
    assert workers.order_move(store, clock, "runner", claim)
    until(lambda: bool(TaskTable(store).attempts(key)), 20, "the attempt is handed back")
    (attempt,) = TaskTable(store).attempts(key)
    assert attempt.category is Category.CANCELLED
    task = stack.world.task(key)
    assert (task.state, task.not_before, task.retries) == (State.READY, 0, 0)
    others = [reduction(stack, f"held{n}", f"x = 'held {n}'\n{GOOD}") for n in range(3)]
    for other in others:
        stack.send(other)
    sequence = row().sequence
    until(lambda: row().sequence > sequence + 2, 20, "beats")
    assert {stack.world.task(other).state for other in others} == {State.READY}
    hold(workers.Hold.NONE)
    for other in others:  # the very messages that waited
        assert stack.settled(other, 30).state is State.DONE


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it has ended


def test_neither_worker_nor_processes_beneath_it_have_a_secret_in_their_environment(
    stack: Stack, process: Process
) -> None:
    key = hanging(stack, "hang-secret", process)
    redis_url = stack.settings.redis_url.get_secret_value()
    all_ = [process.popen.pid, *process.tree()]
    found = [environment for pid in all_ if (environment := environment_of(pid))]
    assert len(found) > 6, "the worker, the forkserver, two guards, two children and the program"
    for secret in (SECRET, redis_url):  # storage is a folder here
        assert not any(secret.encode() in environment for environment in found)
    store, clock = stack.world.runtime.store, stack.world.runtime.clock
    until(
        lambda: (
            workers.order_kill(store, clock, "runner", stack.world.task(key).claim)
            and not any("hang" in c for c in commands(process))
        ),
        20,
        "the program has ended",
    )


def test_full_slots_leave_the_worker_idle_and_take_the_next_at_once(
    stack: Stack, process: Process
) -> None:
    script = "import os, time\nwhile not os.path.exists('/nonexistent'): time.sleep(8); break\n"
    keys = [reduction(stack, f"wait{n}", f"{script}x = {n}\n{GOOD}") for n in range(2)]
    after = [reduction(stack, f"after{n}", f"x = {n}\n{GOOD}") for n in range(2)]
    for key in [*keys, *after]:
        stack.send(key)
    for key in keys:
        stack.running(key)
    before = cpu_seconds(process.popen.pid)
    for key in keys:
        assert stack.settled(key).state is State.DONE
    assert cpu_seconds(process.popen.pid) - before < 2.0, "the loop spins while slots are full"
    for key in after:
        assert stack.settled(key, 8).state is State.DONE


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_forkserver_that_was_killed_is_replaced(stack: Stack, process: Process) -> None:
    first = reduction(stack, "before-fork", f"x = 'before'\n{GOOD}")
    stack.send(first)
    assert stack.settled(first).state is State.DONE
    named = {pid: Path(f"/proc/{pid}/comm").read_text() for pid in process.tree()}
    forked = [pid for pid, name in named.items() if name == "forkserver\n"]
    assert len(forked) == 7, "the forkserver; for each slot a guard, a child, a server of makers"
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
    until(dead(forked), 10, "all are gone")
    second = reduction(stack, "after-fork", f"x = 'after'\n{GOOD}")
    stack.send(second)
    task = stack.settled(second)
    if task.state is State.READY:  # the attempt met the dying one
        stack.world.wake(second)
        stack.send(second)
        task = stack.settled(second)
    assert task.state is State.DONE


@pytest.mark.proof  # twenty seconds of beats; who leaves is chosen in tests of the manager
def test_a_worker_told_to_leave_ends_its_attempt_and_then_itself(stack: Stack) -> None:
    store, clock = stack.world.runtime.store, stack.world.runtime.clock

    def row(name: str) -> workers.WorkerRow | None:
        return next((row for row in workers.list_workers(store) if row.name == name), None)

    def hold(wanted: workers.Hold) -> None:
        runner = row("runner")
        assert runner is not None
        assert workers.order_hold(store, clock, "runner", runner.started, wanted)
        until(
            lambda: (found := row("runner")) is not None and found.sequence > runner.sequence + 1,
            20,
        )

    process = stack.worker("leaver")
    until(lambda: row("leaver") is not None, 30, "it beats")
    hold(workers.Hold.DRAINED)
    key = reduction(stack, "last", f"import time\ntime.sleep(6)\nx = 'last'\n{GOOD}")
    stack.send(key)
    stack.running(key)
    leaver = row("leaver")
    assert leaver is not None
    assert workers.order_leave(store, clock, "leaver", leaver.started)
    assert stack.settled(key).state is State.DONE
    assert process.popen.wait(20) == 0
    assert row("leaver") is None
    hold(workers.Hold.NONE)
