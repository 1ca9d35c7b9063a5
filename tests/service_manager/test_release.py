"""The interests of a request after its end: what its pages show, and no more."""

from tasks.model.categories import Category
from tasks.model.model import RequestOrder, RequestState
from tasks.tables import request_operations
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

G = [collect(f"g{i}") for i in range(3)]
A, TOP = mosaic("a", G[0], G[1]), mosaic("top", G[2])
PLAN = plan_of(*G, A, TOP, outputs={"a": "out", "top": "out"})


def bench(*broken: int) -> Bench:
    lost = {G[i].key for i in broken}
    return Bench(
        plans={"p": PLAN},
        decide=lambda c: Category.BAD_IMAGE_FORMAT if c.task.key in lost else None,
    )


def wanted(b: Bench, request: str) -> set[str]:
    return {interest.name for interest in request_operations.interests(b.runtime, request)}


def test_an_ended_request_lets_its_intermediates_go() -> None:
    b = bench(0)
    request = b.submit("p")
    row = b.until_ended(request)
    assert row.state is RequestState.GAPS
    assert b.runtime.requests.unsettled() == [request]
    shown = [w.output for w in request_operations.results(b.runtime, request)]
    lost = [w.name for w in request_operations.failures(b.runtime, request)]
    b.rounds(60)
    assert b.runtime.requests.unsettled() == []
    assert wanted(b, request) == {"g0", "a", "top"}
    assert [w.output for w in request_operations.results(b.runtime, request)] == shown
    assert [w.name for w in request_operations.failures(b.runtime, request)] == lost
    for spec, interests in ((G[1], ()), (TOP, (request,)), (G[0], (request,))):
        task = b.runtime.tasks.task(spec.key)
        assert task is not None
        assert task.interests == interests
    assert b.row(request) == row


def test_another_request_keeps_what_it_wants() -> None:
    b = bench()
    first = b.submit("p")
    b.until_ended(first)
    second = b.submit("p", owner="other")
    while not wanted(b, second):
        b.manager.tick()
    task = b.runtime.tasks.task(G[0].key)
    assert task is not None
    assert second in task.interests
    b.rounds(60)
    assert b.ran.count(G[0].key) == 1


def test_a_manager_that_dies_meanwhile_is_followed_by_one_that_goes_on() -> None:
    b = bench()
    request = b.submit("p")
    b.until_ended(request)
    b.restart(epoch=2)
    b.rounds(60)
    assert b.runtime.requests.unsettled() == []
    assert wanted(b, request) == {"a", "top"}


def test_a_cancelled_request_wants_nothing_and_is_let_go() -> None:
    b = bench()
    request = b.submit("p")
    b.rounds(1)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    b.until_ended(request)
    b.rounds(40)
    assert wanted(b, request) == set()
    assert b.runtime.requests.unsettled() == []
