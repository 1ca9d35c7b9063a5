"""Storage that fails while a request is planned spends none of the tries to plan it."""

from service_manager.requests.intake import TRIES
from tasks.bag.model import RequestState
from tasks.errors import StoreError
from tasks.request.document import Request
from tasks.requests.plan import Plan
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

GRANULE = collect("g")
PLAN = plan_of(GRANULE, mosaic("a", GRANULE), outputs={"a": "out"})


def test_a_request_outlives_storage_that_is_away() -> None:
    failures = [StoreError("away")] * (3 * TRIES)

    class Away(Bench):
        def plan_of_request(self, request: Request) -> Plan:
            if failures:
                raise failures.pop()
            return super().plan_of_request(request)

    b = Away(plans={"p": PLAN})
    row = b.until_ended(b.submit("p"))
    assert row.state is RequestState.COMPLETE
    assert failures == []
    assert row.attempts == 1


def test_a_planner_that_fails_by_itself_is_tried_so_often_and_no_more() -> None:
    class Broken(Bench):
        tries = 0

        def plan_of_request(self, request: Request) -> Plan:
            self.tries += 1
            raise KeyError(request.title)

    b = Broken(plans={})
    row = b.until_ended(b.submit("p"))
    assert row.state is RequestState.FAILED
    assert b.tries == TRIES
