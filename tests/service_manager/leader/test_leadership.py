"""The row of the manager that acts: taken after a lease of silence, renewed, seized, given up."""

from dataclasses import replace

import pytest

from service_manager.leader.leadership import Leadership
from tasks.bag.runtime import Runtime
from tasks.errors import FencedError, StoreError
from tasks.operators import manager_lease
from tasks.operators.manager_lease import Lease
from tasks.requests import request_table
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.store import Row
from tests.service_manager.scene import Meddling

LEASE = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> Runtime:
    return replace(memory_runtime(clock), store=Meddling())


@pytest.fixture
def acting(runtime: Runtime) -> Leadership:
    one = Leadership(runtime, LEASE)
    assert one.acquire()
    return one


def row(runtime: Runtime) -> Lease:
    return manager_lease.read(runtime)


def test_who_takes_the_lease_has_it_until_another_saw_it_silent_for_longer(
    runtime: Runtime, clock: ManualClock, acting: Leadership
) -> None:
    first = row(runtime)
    assert (first.epoch, first.beat, first.wanted_slots) == (1, 0, 0)
    assert first.holder
    assert acting.acquire()
    assert row(runtime) == first
    standby = Leadership(runtime, LEASE)
    assert not standby.acquire()
    assert standby.epoch == 0
    clock.sleep(LEASE)
    assert not standby.acquire()
    clock.sleep(0.5)
    assert standby.acquire()
    assert (standby.epoch, row(runtime).epoch) == (2, 2)
    assert row(runtime).holder not in ("", first.holder)


def test_the_lease_is_renewed_without_reading_it(
    runtime: Runtime, clock: ManualClock, acting: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = runtime.store.get

    def get(table: str, partition: str, name: str) -> Row | None:
        read.append(name)
        return original(table, partition, name)

    monkeypatch.setattr(runtime.store, "get", get)
    for _ in range(3):
        clock.sleep(LEASE / 2)
        acting.renew()
    assert read == [request_table.MANAGER], "the first time only"
    other = Leadership(runtime, LEASE)
    assert not other.acquire()
    clock.sleep(LEASE + 1.0)
    assert other.acquire()
    with pytest.raises(FencedError):
        acting.renew()
    assert not acting.acquire(), "it reads who acts"


def test_an_own_row_whose_writing_was_not_answered_is_not_taken_again(
    runtime: Runtime, acting: Leadership
) -> None:
    assert isinstance(runtime.store, Meddling)
    other = Leadership(runtime, LEASE)
    acting.release()
    runtime.store.lost = [request_table.TABLE]
    assert other.acquire()
    assert runtime.store.lost == []
    assert (other.epoch, row(runtime).epoch) == (2, 2)


def test_a_renewal_is_written_at_each_third_of_the_lease_and_tells_the_wanted_slots(
    runtime: Runtime, clock: ManualClock, acting: Leadership
) -> None:
    before = row(runtime)
    clock.sleep(9.5)
    acting.renew()
    assert row(runtime) == before
    acting.wanted_slots = 7
    for beat in (1, 2, 3):
        clock.sleep(0.5 if beat == 1 else 10.0)
        acting.renew()
        assert row(runtime) == replace(before, beat=beat, wanted_slots=7, renewed=clock.now())
        acting.renew()
        assert row(runtime).beat == beat
    clock.sleep(9.5)
    acting.renew()
    assert row(runtime).beat == 3


def test_a_renewal_before_the_fleet_was_looked_at_wants_no_slots(
    runtime: Runtime, clock: ManualClock, acting: Leadership
) -> None:
    clock.sleep(10.0)
    acting.renew()
    assert row(runtime).wanted_slots == 0


@pytest.mark.parametrize("given_up", [True, False])
def test_the_next_manager_wants_as_many_slots_as_the_last_until_it_has_counted(
    runtime: Runtime, clock: ManualClock, acting: Leadership, given_up: bool
) -> None:
    clock.sleep(10.0)
    acting.wanted_slots = 7
    acting.renew()
    before = row(runtime)
    standby = Leadership(runtime, LEASE)
    if given_up:
        acting.release()
        assert row(runtime) == replace(before, holder="")
    assert standby.acquire() is given_up
    clock.sleep(LEASE + 1.0)
    assert standby.acquire()
    assert (standby.epoch, row(runtime).wanted_slots) == (2, 7)
    clock.sleep(10.0)
    standby.renew()
    assert row(runtime).wanted_slots == 7
    standby.wanted_slots = 3
    clock.sleep(10.0)
    standby.renew()
    assert row(runtime).wanted_slots == 3


def test_what_storage_did_not_answer_confirms_nothing(
    clock: ManualClock, acting: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else readiness would say that all is well while storage is away."""

    def away(*_: object) -> None:
        raise StoreError("storage is away")

    before = acting.confirmed
    monkeypatch.setattr(manager_lease, "change", away)
    clock.sleep(LEASE / 2)
    with pytest.raises(StoreError):
        acting.renew()
    with pytest.raises(StoreError):
        acting.acquire()
    assert acting.confirmed == before


def test_a_renewal_that_storage_did_not_answer_is_tried_again_at_once(
    runtime: Runtime, clock: ManualClock, acting: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its lease would have two thirds left, and after the next failure one."""

    def away(*_: object) -> None:
        raise StoreError("storage is away")

    clock.sleep(LEASE / 3)
    with monkeypatch.context() as patched:
        patched.setattr(manager_lease, "change", away)
        with pytest.raises(StoreError):
            acting.renew()
    acting.renew()
    assert row(runtime).beat == 1


def test_each_answer_of_storage_is_dated(runtime: Runtime, clock: ManualClock) -> None:
    clock.sleep(100.0)
    one, standby = Leadership(runtime, LEASE), Leadership(runtime, LEASE)
    assert one.confirmed == clock.monotonic()
    assert one.acquire()
    clock.sleep(5.0)
    assert not standby.acquire()
    assert (one.confirmed, standby.confirmed) == (clock.monotonic() - 5.0, clock.monotonic())
