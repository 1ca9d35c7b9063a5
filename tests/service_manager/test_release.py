"""What a request wants after its end: what its pages show, and no more."""

from tasks.model.categories import Category
from tasks.model.model import RequestOrder, RequestState
from tasks.tables import requests
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
    return {want.name for want in requests.wants(b.services, request)}


def test_an_ended_request_lets_its_intermediates_go() -> None:
    b = bench(0)
    request = b.submit("p")
    row = b.until_ended(request)
    assert row.state is RequestState.GAPS
    assert b.services.requests.unsettled() == [request]
    shown = [w.output for w in requests.results(b.services, request)]
    lost = [w.name for w in requests.failures(b.services, request)]
    b.rounds(60)
    assert b.services.requests.unsettled() == []
    assert wanted(b, request) == {"g0", "a", "top"}
    assert [w.output for w in requests.results(b.services, request)] == shown
    assert [w.name for w in requests.failures(b.services, request)] == lost
    for spec, wants in ((G[1], ()), (TOP, (request,)), (G[0], (request,))):
        task = b.services.tasks.task(spec.key)
        assert task is not None
        assert task.wants == wants
    assert b.row(request) == row


def test_another_request_keeps_what_it_wants() -> None:
    b = bench()
    first = b.submit("p")
    b.until_ended(first)
    second = b.submit("p", owner="other")
    while not wanted(b, second):
        b.manager.tick()
    task = b.services.tasks.task(G[0].key)
    assert task is not None
    assert second in task.wants
    b.rounds(60)
    assert b.ran.count(G[0].key) == 1


def test_a_manager_that_dies_meanwhile_is_followed_by_one_that_goes_on() -> None:
    b = bench()
    request = b.submit("p")
    b.until_ended(request)
    b.restart(epoch=2)
    b.rounds(60)
    assert b.services.requests.unsettled() == []
    assert wanted(b, request) == {"a", "top"}


def test_a_cancelled_request_wants_nothing_and_is_let_go() -> None:
    b = bench()
    request = b.submit("p")
    b.rounds(1)
    requests.order(b.services, request, RequestOrder.CANCEL)
    b.until_ended(request)
    b.rounds(40)
    assert wanted(b, request) == set()
    assert b.services.requests.unsettled() == []
