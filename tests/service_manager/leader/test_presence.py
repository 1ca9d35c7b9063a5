"""What a manager writes of itself for operators."""

from dataclasses import replace

from service_manager.dispatch.dispatch import Dispatch
from service_manager.leader.leadership import Leadership
from service_manager.leader.presence import Presence
from service_manager.leader.watch import Watch
from tasks.bag.model import Phase
from tasks.operators import manager_rows
from tasks.operators.manager_rows import RefusedMails
from tasks.operators.restrictions import TABLE
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tests.service_manager.leader.test_manager import bench
from tests.service_manager.scene import Meddling


def test_a_manager_writes_what_it_has_in_hand_now_and_then() -> None:
    b = bench()
    b.submit("p")
    for _ in range(3):
        b.manager.tick()
    leadership = Leadership(b.runtime, 30.0)
    leadership.acquire()
    refused = RefusedMails(count=3, error="ConnectionRefusedError: no")
    presence = Presence(b.runtime, "m", 5.0, Watch(), lambda: refused)

    def row() -> manager_rows.ManagerRow:
        (found,) = manager_rows.managers(b.runtime.store, b.runtime.clock.now())
        return found

    presence.acts(leadership, b.manager, 2.0)
    ready = {one.phase: one.ready for one in row().queues}
    assert ready[Phase.COLLECTION] == 4
    assert ready[Phase.REDUCTION] == 0
    assert (row().acts, row().epoch, row().rounds, row().requests) == (True, 1, 2.0, 1)
    assert row().refused == refused
    presence.acts(leadership, b.manager, 7.0)
    assert row().rounds == 2.0, "not in each round"
    b.runtime.clock.sleep(5.0)
    presence.acts(leadership, b.manager, 1.0)
    assert row().rounds == 7.0, "the longest since the row before"
    b.runtime.clock.sleep(5.0)
    presence.stands_by(leadership)
    assert (row().acts, row().queues) == (False, ())
    presence.close()
    assert manager_rows.managers(b.runtime.store, b.runtime.clock.now()) == []


def test_the_rows_of_managers_that_were_killed_are_deleted_after_a_day() -> None:
    runtime = memory_runtime(ManualClock())
    for name in ("killed", "next"):
        Presence(runtime, name, 5.0, Watch()).stands_by(Leadership(runtime, 30.0))
        runtime.clock.sleep(1000.0)
    assert isinstance(runtime.store, MemoryStore)
    assert len(runtime.store.tables()[TABLE]) == 2
    runtime.clock.sleep(86_400.0 - 1500.0)
    Presence(runtime, "third", 5.0, Watch()).stands_by(Leadership(runtime, 30.0))
    found = manager_rows.managers(runtime.store, runtime.clock.now())
    assert [one.name for one in found] == ["next", "third"]
    assert len(runtime.store.tables()[TABLE]) == 2


def test_a_manager_that_ends_again_and_again_leaves_few_rows() -> None:
    runtime = memory_runtime(ManualClock())
    standby = Presence(runtime, "standby", 5.0, Watch())
    for number in range(50):
        standby.stands_by(Leadership(runtime, 30.0))
        Presence(runtime, f"manager-{number}", 5.0, Watch()).stands_by(Leadership(runtime, 30.0))
        runtime.clock.sleep(6.0)
    found = {one.name for one in manager_rows.managers(runtime.store, runtime.clock.now())}
    assert found == {"standby", *(f"manager-{number}" for number in range(40, 50))}


def test_a_manager_that_cannot_write_its_row_goes_on() -> None:
    store = Meddling()
    store.lost = [TABLE]
    runtime = replace(memory_runtime(ManualClock()), store=store)
    Presence(runtime, "m", 5.0, Watch()).stands_by(Leadership(runtime, 30.0))
    assert store.lost == []


def test_a_queue_is_as_old_as_its_first_task() -> None:
    dispatch = Dispatch(window=9, resend=30)
    dispatch.add("k1", "r", "collection A.6")
    assert dispatch.queues(10.0) == {Phase.COLLECTION: (1, 0.0)}
    dispatch.add("k2", "r", "collection A.6")
    assert dispatch.queues(15.0) == {Phase.COLLECTION: (2, 5.0)}
    dispatch.remove("k1")
    assert dispatch.queues(18.0) == {Phase.COLLECTION: (1, 3.0)}
    dispatch.remove("k2")
    assert dispatch.queues(19.0) == {}
