"""The manager reacts to what it is told, without the time of a look."""

from dataclasses import replace

from service_manager.leader.manager import AT_REST, Manager
from service_manager.requests import ending
from tasks.bag import protocol, task_table
from tasks.bag.categories import Category
from tasks.bag.model import RequestOrder, RequestState, TaskOutcome
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow
from tasks.storage.store import Delete
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
    b.runtime.clock.sleep(AT_REST)
    all_rounds(b.manager)
    assert len(b.sent) == 1


G0 = collect("g0")


def ready_again(b: Bench, handed_back: bool) -> tuple[str, str]:
    """A request's task that is ready anew, after an attempt or without one."""
    request = b.submit("a")
    all_rounds(b.manager)
    (key,) = b.sent
    b.sent.clear()
    claimed = protocol.claim(b.runtime, key, "w", b.options.retry)
    assert claimed is not None
    if handed_back:
        attempt = claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=Category.CANCELLED)
        assert protocol.fail(b.runtime, attempt, b.options.retry)
    else:
        protocol.give_back(b.runtime, {key: claimed.claim})
    all_rounds(b.manager)
    return request, key


def test_what_is_given_back_is_sent_before_the_sweep() -> None:
    b = Bench({"a": plan_of(G0)})
    request, key = ready_again(b, handed_back=False)
    assert b.sent == [key]
    again = b.manager._dispatch.places[""]._tasks[key]
    assert (again.sponsor, again.task_class) == (request, G0.task_class)
    assert not again.alone


def test_what_failed_goes_alone_the_next_time() -> None:
    b = Bench({"a": plan_of(G0)})
    _, key = ready_again(b, handed_back=True)
    assert b.sent == [key]
    assert b.manager._dispatch.places[""]._tasks[key].alone


def made_unseen(b: Bench) -> str:
    """A request whose only task is made, and whose event the manager has not processed."""
    request = b.submit("a")
    all_rounds(b.manager)
    b.work()
    return request


def test_a_request_ends_by_what_the_table_says() -> None:
    """Another manager has obeyed a retry while this one stalled, and cleared an outcome."""
    b = Bench({"a": plan_of(G0)}, decide=lambda _: Category.BAD_IMAGE_FORMAT)
    request = made_unseen(b)
    b.manager._hear_wakeups()
    b.manager._process_events()
    assert not b.manager.cache.requests[request].pending
    interest = b.runtime.tasks.interest(request, G0.key)
    assert interest is not None
    cleared = task_table.put_interest(replace(interest, outcome=None))
    b.runtime.tasks.transact(G0.key[0], [cleared])
    b.manager._lifecycle.ends()
    assert not b.row(request).state.ended


def test_an_outcome_that_a_stalled_manager_recorded_is_found() -> None:
    """It deleted the event, too; this one hears nothing of the task."""
    b = Bench({"a": plan_of(G0)})
    request = made_unseen(b)
    (event,) = b.runtime.tasks.events(G0.key[0], 10)
    done = task_table.record_outcome(request, G0.key, TaskOutcome.DONE, files=event.files)
    b.runtime.tasks.transact(G0.key[0], [done, Delete(row=event.row)])
    b.runtime.wakeups.drain()
    assert b.until_ended(request, limit=200).state is RequestState.COMPLETE


def ending_of(b: Bench, request: str) -> RequestRow:
    """Have a request end by what was read of it now."""
    stored = request_operations.load(b.runtime, request)
    live = b.manager.cache.requests[request]
    request_operations.order(b.runtime, request, RequestOrder.PAUSE)
    interests = list(request_operations.interests(b.runtime, request))
    return ending.end(b.runtime, live, stored, interests, portal_url="", result_days=30.0, epoch=1)


def test_an_order_that_comes_while_a_request_ends_goes_first() -> None:
    b = Bench({"a": plan_of(G0)})
    request = made_unseen(b)
    b.manager._hear_wakeups()
    b.manager._process_events()
    assert not ending_of(b, request).state.ended
    assert b.until_ended(request).state is RequestState.COMPLETE


def test_a_request_ends_once() -> None:
    b = Bench({"a": plan_of(G0)})
    row = b.until_ended(b.submit("a"))
    again = ending.write_end(b.runtime, replace(row, state=RequestState.FAILED))
    assert (again.state, b.row(row.id).state) == (RequestState.COMPLETE, RequestState.COMPLETE)
