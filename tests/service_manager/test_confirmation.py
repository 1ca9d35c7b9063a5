"""Requests that take much wait until they are confirmed, through a restart, or are cancelled."""

import pytest

from service_manager.options import ManagerOptions
from tasks.bag.model import RequestOrder, RequestState
from tasks.operators import prices, restrictions
from tasks.operators.prices import PriceList, Prices
from tasks.operators.restrictions import Kind, Restriction
from tasks.requests import outbox, request_operations
from tasks.setting_values import Confirm
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

PLAN = plan_of(collect("g"), mosaic("top", collect("g")), outputs={"top": "out"})
MORE = plan_of(*(collect(f"m{number}") for number in range(4)))


def held(confirm: Confirm) -> tuple[Bench, str]:
    """A request that waits, by these limits."""
    bench = Bench({"p": PLAN}, ManagerOptions(confirm=confirm))
    known = PriceList(currency="USD", prices=Prices(download=1.0))
    prices.put(bench.runtime.store, known)
    request = bench.submit("p")
    bench.rounds(5)
    return bench, request


@pytest.mark.parametrize(
    ("confirm", "says"),
    [
        (Confirm(tasks=1), "2 tasks, more than the 1 of SWATHMILL_CONFIRM"),
        (Confirm(gb=1e-9), "0 GB to fetch, more than the 1e-09 of SWATHMILL_CONFIRM"),
        (
            Confirm(cost=1e-12),
            "an expected cost of 0 USD, more than the 1e-12 of SWATHMILL_CONFIRM",
        ),
    ],
)
def test_beyond_a_limit_a_request_waits_says_why_and_what_it_takes(
    confirm: Confirm, says: str
) -> None:
    bench, request = held(confirm)
    row = bench.row(request)
    assert row.state is RequestState.HELD
    assert says in row.message
    assert (row.preview.tasks, row.preview.granules, row.preview.size) == (2, 1, 10)
    assert bench.sent == bench.ran == []
    (mail,) = outbox.mails(bench.runtime.store)
    assert says in " ".join(mail.body.split())


def test_confirmed_it_goes_on_to_its_end() -> None:
    bench, request = held(Confirm(tasks=1))
    request_operations.order(bench.runtime, request, RequestOrder.CONFIRM)
    assert bench.until_ended(request).state is RequestState.COMPLETE


def test_it_waits_through_a_restart_and_may_be_cancelled() -> None:
    bench, request = held(Confirm(tasks=1))
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


def test_what_a_quota_will_not_do_is_asked_before_it_begins() -> None:
    bench = Bench({"p": PLAN, "more": MORE})
    bench.until_ended(bench.submit("p"))  # two tasks of a second each
    quota = Restriction(kind=Kind.QUOTA_ALL, subject=restrictions.ALL, value=3 / 3600)
    restrictions.put(bench.runtime.store, quota)
    request = bench.submit("more")
    bench.rounds(5)
    row = bench.row(request)
    assert row.state is RequestState.HELD
    assert (
        "0.0011 hours of one slot expected, and 0.00028 are left this month of the" in row.message
    )
    assert row.message.endswith("what is over waits for the next month")
    request_operations.order(bench.runtime, request, RequestOrder.CONFIRM)
    assert bench.until_ended(request).state is RequestState.COMPLETE
