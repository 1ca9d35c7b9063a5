"""Requests that take much wait until they are confirmed, through a restart, or are cancelled."""

import pytest

from service_manager.options import ManagerOptions
from tasks.bag.model import RequestOrder, RequestState
from tasks.requests import outbox, request_operations
from tasks.setting_values import Confirm, Prices
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

PLAN = plan_of(collect("g"), mosaic("top", collect("g")), outputs={"top": "out"})


def held(**limits: Confirm | Prices) -> tuple[Bench, str]:
    """A request that waits, by these limits."""
    bench = Bench({"p": PLAN}, ManagerOptions(**limits))  # type: ignore[arg-type]
    request = bench.submit("p")
    bench.rounds(5)
    return bench, request


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"confirm": Confirm(tasks=1)}, "2 tasks, more than the 1 of SWATHMILL_CONFIRM"),
        ({"confirm": Confirm(gb=1e-9)}, "0 GB to fetch, more than the 1e-09 of SWATHMILL_CONFIRM"),
        (
            {"confirm": Confirm(cost=1e-12), "prices": Prices(download=1.0)},
            "an expected cost of 0, more than the 1e-12 of SWATHMILL_CONFIRM",
        ),
    ],
)
def test_beyond_a_limit_a_request_waits_says_why_and_what_it_takes(
    limits: dict[str, Confirm | Prices], says: str
) -> None:
    bench, request = held(**limits)
    row = bench.row(request)
    assert row.state is RequestState.HELD
    assert says in row.message
    assert (row.preview.tasks, row.preview.granules, row.preview.size) == (2, 1, 10)
    assert bench.sent == bench.ran == []
    (mail,) = outbox.mails(bench.runtime.store)
    assert says in " ".join(mail.body.split())


def test_confirmed_it_goes_on_to_its_end() -> None:
    bench, request = held(confirm=Confirm(tasks=1))
    request_operations.order(bench.runtime, request, RequestOrder.CONFIRM)
    assert bench.until_ended(request).state is RequestState.COMPLETE


def test_it_waits_through_a_restart_and_may_be_cancelled() -> None:
    bench, request = held(confirm=Confirm(tasks=1))
    bench.restart(2)
    bench.rounds(5)
    assert bench.row(request).state is RequestState.HELD
    request_operations.order(bench.runtime, request, RequestOrder.CANCEL)
    assert bench.until_ended(request).state is RequestState.CANCELLED
    assert bench.ran == []


def test_within_the_limits_nothing_waits_and_nothing_can_be_confirmed() -> None:
    bench = Bench({"p": PLAN}, ManagerOptions(confirm=Confirm(tasks=2)))
    request = bench.submit("p")
    bench.rounds(2)
    request_operations.order(bench.runtime, request, RequestOrder.CONFIRM)
    assert bench.row(request).order is None
    assert bench.until_ended(request).state is RequestState.COMPLETE
