"""A manager keeps the lease through a round longer than it, but not for ever."""

import threading
from collections.abc import Callable

import pytest

from service_manager.leader.leadership import Leadership
from service_manager.leader.lease_keeper import LONGEST_ROUND, Keeper, beside_rounds
from tasks.bag.runtime import Runtime
from tasks.errors import FencedError
from tasks.operators import manager_lease
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tests.waiting import until

LEASE = 30.0


@pytest.fixture
def runtime() -> Runtime:
    return memory_runtime(ManualClock())


@pytest.fixture
def acting(runtime: Runtime) -> Leadership:
    one = Leadership(runtime, LEASE)
    assert one.acquire()
    return one


def test_a_round_longer_than_the_lease_keeps_it(runtime: Runtime, acting: Leadership) -> None:
    keeper = Keeper(acting, runtime.clock, LEASE)
    standby = Leadership(runtime, LEASE)
    for _ in range(int(3 * LONGEST_ROUND)):
        runtime.clock.sleep(LEASE / 6)
        keeper.look()
        assert not standby.acquire()
    keeper.turn()


def test_a_round_without_end_does_not_keep_it_for_ever(
    runtime: Runtime, acting: Leadership
) -> None:
    keeper = Keeper(acting, runtime.clock, LEASE)
    standby = Leadership(runtime, LEASE)
    took = 0.0
    while not standby.acquire():
        runtime.clock.sleep(LEASE / 6)
        keeper.look()
        took += LEASE / 6
        assert took < 2 * LONGEST_ROUND * LEASE
    assert took > LONGEST_ROUND * LEASE
    keeper.turn()  # it goes on without knowing, until the next look
    keeper.look()
    with pytest.raises(FencedError, match="epoch 2 acts"):
        keeper.turn()


def test_it_looks_while_the_context_lasts(runtime: Runtime, acting: Leadership) -> None:
    looks = threading.Semaphore(0)

    class Told(Keeper):
        def look(self) -> None:
            super().look()
            looks.release()

    def others() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "keeper"]

    keeper: Callable[..., Keeper] = Told
    with keeper(acting, runtime.clock, 0.06).beside() as turn:
        assert looks.acquire(timeout=30)
        assert looks.acquire(timeout=30)
        turn()
        assert others()
    assert not others()


def test_who_was_taken_over_from_gives_nothing_up(runtime: Runtime, acting: Leadership) -> None:
    standby = Leadership(runtime, LEASE)
    assert not standby.acquire()
    runtime.clock.sleep(LEASE + 1)
    assert standby.acquire()
    acting.release()
    third = Leadership(runtime, LEASE)
    assert not third.acquire()
    standby.renew()
    assert (acting.epoch, standby.epoch) == (1, 2)


def test_a_lease_that_is_given_up_is_free_at_once(runtime: Runtime, acting: Leadership) -> None:
    standby = Leadership(runtime, LEASE)
    assert not standby.acquire()
    acting.release()
    assert standby.acquire()
    runtime.clock.sleep(LEASE)
    with pytest.raises(FencedError):
        acting.renew()


def test_it_gives_up_only_after_the_longest_round(runtime: Runtime, acting: Leadership) -> None:
    keeper = Keeper(acting, runtime.clock, LEASE)
    runtime.clock.sleep(LONGEST_ROUND * LEASE)
    keeper.look()
    assert manager_lease.read(runtime).beat == 1


def test_it_looks_six_times_in_a_lease(runtime: Runtime, acting: Leadership) -> None:
    waits: list[float] = []

    class End(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return len(waits) == 3

    keeper = Keeper(acting, runtime.clock, LEASE)
    keeper._end = End()
    keeper._go_on()
    assert waits == [LEASE / 6] * 3


def test_a_manager_of_its_own_process_renews_beside_its_rounds(
    runtime: Runtime, acting: Leadership
) -> None:
    with beside_rounds(runtime.clock, 0.06)(acting) as turn:
        runtime.clock.sleep(LEASE / 3)
        turn()
        until(lambda: manager_lease.read(runtime).beat > 0, 30, "the lease is renewed")
