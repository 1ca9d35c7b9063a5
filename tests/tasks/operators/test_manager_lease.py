"""Whether a manager acts, seen from another process by its row alone."""

import threading
from unittest.mock import Mock

import pytest

from service_manager.leader.leadership import Leadership
from tasks.bag import workers
from tasks.bag.runtime import Runtime
from tasks.bag.workers import WorkerRow
from tasks.errors import StoreError
from tasks.operators.manager_lease import ManagerWatch
from tasks.requests import request_table
from tasks.requests.request_table import MANAGER
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.schema import SCHEMA, OtherSchemaError
from tasks.storage.store import Delete

LEASE = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> Runtime:
    return memory_runtime(clock)


def test_one_that_never_came_is_missed_after_a_lease_and_a_half(
    runtime: Runtime, clock: ManualClock
) -> None:
    watch = ManagerWatch(runtime, LEASE)
    assert watch.look().acts
    clock.sleep(45.0)
    assert watch.look().acts
    clock.sleep(0.1)
    missed = watch.look()
    assert (missed.acts, missed.epoch, missed.renewed) == (False, 0, 0.0)
    assert missed.silence == pytest.approx(45.1)


def test_one_that_renews_acts_and_one_that_is_killed_does_not(
    runtime: Runtime, clock: ManualClock
) -> None:
    leader = Leadership(runtime, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(runtime, LEASE)
    for _ in range(30):
        clock.sleep(10.1)
        leader.renew()
        assert watch.look().acts
    last = clock.now()
    clock.sleep(50.0)
    missed = watch.look()
    assert (missed.acts, missed.epoch, missed.renewed) == (False, 1, last)

    fallback = Leadership(runtime, LEASE)
    assert not fallback.acquire()
    clock.sleep(31.0)
    assert fallback.acquire()
    assert (watch.look().acts, watch.look().epoch) == (True, 2)


def test_the_first_look_may_come_late(runtime: Runtime, clock: ManualClock) -> None:
    watch = ManagerWatch(runtime, LEASE)
    leader = Leadership(runtime, LEASE)
    assert leader.acquire()
    clock.sleep(600.0)
    leader.renew()
    assert watch.look().acts
    clock.sleep(600.0)
    assert not watch.look().acts


def test_a_standby_takes_over_before_one_is_missed(runtime: Runtime, clock: ManualClock) -> None:
    leader, standby = Leadership(runtime, LEASE), Leadership(runtime, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(runtime, LEASE)
    for _ in range(40):
        clock.sleep(1.0)
        standby.acquire()
        assert watch.look().acts


def test_a_released_lease_is_missed_like_a_silent_one(runtime: Runtime, clock: ManualClock) -> None:
    leader = Leadership(runtime, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(runtime, LEASE)
    assert watch.look().acts
    leader.release()
    clock.sleep(3.0)
    assert watch.look().acts
    clock.sleep(46.0)
    assert not watch.look().acts


def test_the_times_of_day_of_two_machines_are_not_compared(runtime: Runtime) -> None:
    behind = ManualClock(now=runtime.clock.now() - 900)
    leader = Leadership(
        Runtime(
            store=runtime.store,
            blobs=runtime.blobs,
            queue=runtime.queue,
            wakeups=runtime.wakeups,
            clock=behind,
        ),
        LEASE,
    )
    assert leader.acquire()
    watch = ManagerWatch(runtime, LEASE)
    for _ in range(20):
        behind.sleep(10.1)
        runtime.clock.sleep(10.1)
        leader.renew()
        assert watch.look().acts


class Stopping(threading.Event):
    """Lets a clock go on while somebody waits, until a time has come."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        super().__init__()
        self._clock = clock
        self._end = clock.now() + seconds

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout
        self._clock.sleep(timeout)
        return self._clock.now() >= self._end


def test_one_that_was_killed_while_nobody_asked_does_not_act(
    runtime: Runtime, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leadership(runtime, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(runtime, LEASE)
    assert watch.look().acts
    clock.sleep(10.0)
    leader.renew()
    watch.keep_looking(Stopping(clock, 90.0))
    assert not watch.look().acts

    for error in (StoreError("gone"), OtherSchemaError("manager", SCHEMA + 2)):
        get = Mock(side_effect=error)
        with monkeypatch.context() as patched:
            patched.setattr(runtime.store, "get", get)
            watch.keep_looking(Stopping(clock, 90.0))
        assert get.call_count > 1, error
    assert not watch.look().acts


def test_a_reading_serves_for_two_seconds(runtime: Runtime, clock: ManualClock) -> None:
    leader = Leadership(runtime, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(runtime, LEASE)
    first = watch.look()
    row = runtime.store.get(request_table.TABLE, request_table.PARTITION, MANAGER)
    assert row is not None
    runtime.store.transact(
        request_table.TABLE, request_table.PARTITION, [Delete(row=MANAGER, etag=row.etag)]
    )
    assert watch.look() == first
    clock.sleep(2.0)
    assert watch.look().epoch == 0


def test_a_worker_of_a_place_does_no_other_work(runtime: Runtime, clock: ManualClock) -> None:
    leadership = Leadership(runtime, LEASE)
    assert leadership.acquire()
    watch, waited = ManagerWatch(runtime, LEASE), []
    for sequence in range(20):
        for name, place in (("gpu", "gpu"), ("other", "")):
            if name == "gpu" or sequence > 15:
                row = WorkerRow(
                    name=name, host="h", slots=2, started=1.0, beat_at=clock.now(),
                    sequence=sequence, place=place,
                )  # fmt: skip
                workers.beat(runtime.store, clock, row)
        leadership.wanted_slots = 1
        leadership.renew()
        waited.append(watch.look().starved > 0)
        clock.sleep(20.0)
    assert (waited[14], waited[19]) == (True, False)
