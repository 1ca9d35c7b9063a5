"""Whether a manager acts, seen from another process by its row alone."""

import pytest

from service_manager.leader.leadership import Leadership
from tasks.storage.clock import ManualClock
from tasks.storage.store import Delete, Insert
from tasks.tables import manager_lease, request_table
from tasks.tables.manager_lease import ManagerWatch
from tasks.tables.request_table import MANAGER
from tasks.tables.services import Services, memory_services

LEASE = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def services(clock: ManualClock) -> Services:
    return memory_services(clock)


def test_one_that_never_came_is_missed_after_a_lease_and_a_half(
    services: Services, clock: ManualClock
) -> None:
    watch = ManagerWatch(services, LEASE)
    assert watch.look().acts
    clock.sleep(45.0)
    assert watch.look().acts
    clock.sleep(0.1)
    missed = watch.look()
    assert (missed.acts, missed.epoch, missed.renewed) == (False, 0, 0.0)
    assert missed.silence == pytest.approx(45.1)


def test_one_that_renews_acts_and_one_that_is_killed_does_not(
    services: Services, clock: ManualClock
) -> None:
    leader = Leadership(services, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(services, LEASE)
    for _ in range(30):
        clock.sleep(10.1)
        leader.renew()
        assert watch.look().acts
    last = clock.now()
    clock.sleep(50.0)
    missed = watch.look()
    assert (missed.acts, missed.epoch, missed.renewed) == (False, 1, last)

    successor = Leadership(services, LEASE)
    assert not successor.acquire()
    clock.sleep(31.0)
    assert successor.acquire()
    assert (watch.look().acts, watch.look().epoch) == (True, 2)


def test_the_first_look_may_come_late(services: Services, clock: ManualClock) -> None:
    watch = ManagerWatch(services, LEASE)
    leader = Leadership(services, LEASE)
    assert leader.acquire()
    clock.sleep(600.0)
    leader.renew()
    assert watch.look().acts
    clock.sleep(600.0)
    assert not watch.look().acts


def test_a_standby_takes_over_before_one_is_missed(services: Services, clock: ManualClock) -> None:
    leader, standby = Leadership(services, LEASE), Leadership(services, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(services, LEASE)
    for _ in range(40):
        clock.sleep(1.0)
        standby.acquire()
        assert watch.look().acts


def test_a_released_lease_is_missed_like_a_silent_one(
    services: Services, clock: ManualClock
) -> None:
    leader = Leadership(services, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(services, LEASE)
    assert watch.look().acts
    leader.release()
    clock.sleep(3.0)
    assert watch.look().acts
    clock.sleep(46.0)
    assert not watch.look().acts


def test_the_times_of_day_of_two_machines_are_not_compared(services: Services) -> None:
    behind = ManualClock(now=services.clock.now() - 900)
    leader = Leadership(
        Services(
            store=services.store,
            blobs=services.blobs,
            queue=services.queue,
            hints=services.hints,
            clock=behind,
        ),
        LEASE,
    )
    assert leader.acquire()
    watch = ManagerWatch(services, LEASE)
    for _ in range(20):
        behind.sleep(10.1)
        services.clock.sleep(10.1)
        leader.renew()
        assert watch.look().acts


def test_a_row_of_an_earlier_build_has_no_time_and_still_loads(services: Services) -> None:
    old = Insert(row=MANAGER, entity={"schema": 2, "epoch": 7, "holder": "abc", "beat": 3})
    services.store.transact(request_table.TABLE, request_table.PARTITION, [old])
    assert manager_lease.read(services).epoch == 7
    assert ManagerWatch(services, LEASE).look().renewed == 0.0


def test_a_reading_serves_for_two_seconds(services: Services, clock: ManualClock) -> None:
    leader = Leadership(services, LEASE)
    assert leader.acquire()
    watch = ManagerWatch(services, LEASE)
    first = watch.look()
    row = services.store.get(request_table.TABLE, request_table.PARTITION, MANAGER)
    assert row is not None
    services.store.transact(
        request_table.TABLE, request_table.PARTITION, [Delete(row=MANAGER, etag=row.etag)]
    )
    assert watch.look() == first
    clock.sleep(2.0)
    assert watch.look().epoch == 0
