"""Many small requests submitted together: planning and running alternate, owners take turns."""

import pytest

from service_manager.plans import plan_turns
from service_manager.plans.plan_turns import PlanTurns
from tasks.bag.model import RequestState
from tasks.request.document import Request
from tasks.requests.request_table import RequestRow
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

NUMBER = 100
PLANS = {
    f"small {i}": plan_of(
        collect("g"),
        mosaic(f"top {i}", collect("g")),
        outputs={f"top {i}": "out"},
    )
    for i in range(NUMBER)
}


class Slow(Bench):
    """A bench whose planner takes a second for each plan."""

    def plan_of_request(self, request: Request):  # type: ignore[no-untyped-def]
        self.runtime.clock.sleep(1.0)
        return super().plan_of_request(request)


def test_the_first_of_a_hundred_requests_ends_while_others_wait_for_their_plans() -> None:
    bench = Slow(PLANS)
    submitted = [bench.submit(title) for title in PLANS]
    began = bench.runtime.clock.now()
    ended: dict[str, float] = {}
    waiting: dict[int, int] = {}  # requests not planned yet, by how many have ended
    for _ in range(400):
        bench.rounds(1)
        states = {one: bench.row(one).state for one in submitted if one not in ended}
        for request, state in states.items():
            if state.ended:
                assert state is RequestState.COMPLETE
                ended[request] = bench.runtime.clock.now() - began
        unplanned = sum(state is RequestState.SUBMITTED for state in states.values())
        waiting.setdefault(len(ended), unplanned)
        if len(ended) == NUMBER:
            break
    assert len(ended) == NUMBER
    first, last = min(ended.values()), max(ended.values())
    assert first < 20.0 < NUMBER <= last  # a plan a second, and little more than a few plans
    assert any(unplanned > NUMBER / 2 for done, unplanned in waiting.items() if done)
    half = sorted(ended.values())[NUMBER // 2]
    assert half < 0.6 * last  # they end one after another, not all at the end


def row(owner: str, number: int) -> RequestRow:
    return RequestRow(
        id=f"{owner}{number}", owner=owner, state=RequestState.SUBMITTED, submitted=float(number)
    )


def test_another_owner_s_request_does_not_wait_for_a_hundred_plans() -> None:
    turns = PlanTurns()
    for number in range(100):
        turns.add(row("many", number))
    assert [turns.next(), turns.next()] == ["many0", "many1"]
    turns.add(row("one", 1000))
    assert [turns.next() for _ in range(3)] == ["one1000", "many2", "many3"]
    turns.add(row("two", 2000))
    turns.add(row("two", 2001))
    assert [turns.next() for _ in range(5)] == ["two2000", "many4", "two2001", "many5", "many6"]
    turns.drop("many7")
    assert turns.next() == "many8"
    assert len(turns) == 91


def test_an_owner_with_one_request_after_another_does_not_go_first_each_time() -> None:
    turns = PlanTurns()
    for number in range(10):
        turns.add(row("many", number))
    taken = []
    for number in range(6):
        turns.add(row("one", 100 + number))
        taken.append(turns.next())
    assert taken == ["many0", "one100", "many1", "one101", "many2", "one102"]


def test_the_owner_whose_turn_is_longest_ago_is_forgotten_and_counts_as_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_turns, "_OWNERS", 2)
    turns = PlanTurns()
    for number, owner in enumerate(["a", "b", "a", "c"]):  # now a and c are known
        turns.add(row(owner, number))
        turns.next()
    assert len(turns) == 0
    for number, owner in enumerate(["c", "a", "b", "new"]):
        turns.add(row(owner, 10 + number))
    assert turns.next() == "b12"
