"""The manager reacts to what it is told, without the time of a look."""

from concurrent.futures import Future

from service_manager.leader.manager import Manager
from service_manager.plans.plan_jobs import Job, MadePlan
from tasks.errors import StoreError
from tasks.messages.wakeups import LOOK
from tests.service_manager.workbench import Bench, collect, plan_of


def all_rounds(manager: Manager) -> None:
    """Rounds until there is no more to do at once; the clock stands still."""
    while manager.tick():
        pass


def test_a_request_is_planned_and_sent_when_it_comes() -> None:
    b = Bench({"a": plan_of(collect("g0")), "b": plan_of(collect("g1"))})
    b.submit("a")
    all_rounds(b.manager)
    assert len(b.sent) == 1
    b.submit("b")  # in the second of the last look
    all_rounds(b.manager)
    assert len(b.sent) == 2


def test_a_request_is_taken_up_although_its_wake_up_is_lost() -> None:
    b = Bench({"a": plan_of(collect("g0"))})
    all_rounds(b.manager)
    b.submit("a")
    b.runtime.wakeups.drain()
    all_rounds(b.manager)
    assert not b.sent
    b.runtime.clock.sleep(1.0)
    all_rounds(b.manager)
    assert len(b.sent) == 1


def test_a_plan_that_is_made_beside_the_rounds_wakes_the_manager() -> None:
    b = Bench({"a": plan_of(collect("g0")), "b": plan_of(collect("g1"))})
    under_way: list[tuple[Job, Future[MadePlan]]] = []

    def beside(job: Job) -> Future[MadePlan]:
        under_way.append((job, Future()))
        return under_way[-1][1]

    # A round waits for plans by the real clock, which is not to be tested here.
    options = b.options.__class__(slice=0.0)
    b.manager = Manager(b.runtime, options, b.plan_of_request, b.sent.extend, 1, beside)
    b.submit("a")
    b.submit("b")
    all_rounds(b.manager)
    assert b.runtime.wakeups.drain() == []
    (job, good), (_, bad) = under_way
    bad.set_exception(StoreError("storage does not answer"))
    assert b.runtime.wakeups.drain() == []  # no reason to be quick
    good.set_result(job())
    assert b.runtime.wakeups.drain() == [LOOK]
