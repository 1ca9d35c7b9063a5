"""Checkpoints with real workers: a run that is killed goes on elsewhere from its last state."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swathmill.stack import ports
from tasks.bag import protocol, transitions
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.bag.transitions import RetryPolicy
from tasks.storage.blobs import CHECKPOINTS, split_blob
from tests.waiting import until
from tests.worker.processes import Stack, dead, make_stack, reduction
from tests.worker.test_pool import runner

pytestmark = pytest.mark.integration

SOON = 0.3  # seconds, for SWATHMILL_CHECKPOINT_SECONDS
# Counts to three; in its first run it stops after two, until it is killed.
COUNTS = """
import os, pathlib, sys, time
kept = pathlib.Path(os.environ["SWATHMILL_CHECKPOINT"])
found = sorted(path.name for path in kept.iterdir())
begun = n = int((kept / "n").read_text()) if found else 0
print("it found", found, flush=True)
while n < 3:
    n += 1
    (kept / ".n").write_text(str(n))
    (kept / ".n").replace(kept / "n")
    if n == 2:
        time.sleep(600)
pathlib.Path(sys.argv[2], "out.txt").write_text(f"{n}, begun at {begun}")
"""


@pytest.fixture(params=["azurite", "embedded"])
def stack(request: pytest.FixtureRequest, redis_server: str, tmp_path: Path) -> Iterator[Stack]:
    stack = make_stack(request.getfixturevalue(request.param), redis_server, tmp_path)
    yield stack
    stack.end()


def states(stack: Stack, key: str) -> list[str]:
    return list(stack.world.runtime.blobs.names(CHECKPOINTS, f"{key}/"))


def counted_two(stack: Stack, key: str) -> Callable[[], bool]:
    """Whether the state after two is stored: the only one, or the last of those that were."""
    content = b"2".ljust(512, b"\0")

    def stored() -> bool:
        blobs = stack.world.runtime.blobs
        return any(content in blobs.get_bytes(CHECKPOINTS, name) for name in states(stack, key))

    return stored


def made(stack: Stack, key: str) -> str:
    task = stack.settled(key)
    assert task.state is State.DONE, stack.world.runtime.tasks.attempts(key)
    return stack.world.runtime.blobs.get_bytes(*split_blob(task.files[0].blob)).decode()


def lose(stack: Stack, key: str) -> None:
    """What the manager does about an attempt whose worker is silent."""
    runtime, task = stack.world.runtime, stack.world.task(key)
    claimed = protocol.Claimed(task=task, spec=runtime.tasks.spec(key), input_files={})
    lost = claimed.attempt(started=0, ended=1, duration=1, category=Category.WORKER_LOST)
    assert protocol.fail(runtime, lost, RetryPolicy())
    later = stack.world.task(key).not_before
    protocol.change_task(runtime, key, lambda task: transitions.wake(task, later))


@pytest.mark.provokes(Category.WORKER_LOST)
def test_a_run_whose_machine_is_killed_goes_on_elsewhere(stack: Stack) -> None:
    key = reduction(stack, "counts", COUNTS, checkpoint=True)
    victim = stack.worker("victim", CHECKPOINT_SECONDS=SOON)
    stack.send(key)
    until(counted_two(stack, key), 60, "the second state is stored")
    children = victim.tree()
    victim.popen.kill()
    until(dead(children), 10, "the whole tree is gone")
    lose(stack, key)
    stack.worker("other", DATA_DIR=stack.folder / "elsewhere", CHECKPOINT_SECONDS=SOON)
    stack.send(key)
    assert made(stack, key) == "3, begun at 2"
    attempts = stack.world.runtime.tasks.attempts(key)
    assert [one.worker for one in attempts] == ["victim", "other"]
    assert "it goes on from a checkpoint" in attempts[1].log
    assert "it found ['n']" in attempts[1].log
    until(lambda: not states(stack, key), 10, "the states are deleted with the task's end")


@pytest.mark.parametrize("stack", ["azurite"], indirect=True)
@pytest.mark.provokes(Category.WORKER_LOST)
def test_a_run_in_the_pool_goes_on_on_another_runner(stack: Stack) -> None:
    first, second = ports.choose(2, preferred=[])
    key = reduction(stack, "pooled", COUNTS, checkpoint=True)
    victim = runner(stack, "first", first, CHECKPOINT_SECONDS=SOON)
    lender = stack.worker("one", REDUCTION_POOL=f"127.0.0.1:{first}", CHECKPOINT_SECONDS=SOON)
    stack.send(key)
    until(counted_two(stack, key), 60, "the second state is stored")
    victim.popen.kill()
    until(lambda: stack.world.task(key).state is State.READY, 60, "the run is lost")
    lender.popen.send_signal(signal.SIGTERM)
    assert lender.popen.wait(30) == 0
    later = stack.world.task(key).not_before
    protocol.change_task(stack.world.runtime, key, lambda task: transitions.wake(task, later))
    runner(stack, "second", second, CHECKPOINT_SECONDS=SOON)
    stack.worker("two", REDUCTION_POOL=f"127.0.0.1:{second}", CHECKPOINT_SECONDS=SOON)
    stack.send(key)
    assert made(stack, key) == "3, begun at 2"
    (lost, _) = stack.world.runtime.tasks.attempts(key)
    assert lost.category is Category.WORKER_LOST
