"""What a request is expected to take, through the manager: similar work is an estimate."""

from portal.serving.expected import Expected
from tasks.bag.model import RequestState, Use
from tasks.bag.spec import GridSpec, Input, MosaicSpec
from tasks.operators import prices
from tasks.operators.prices import PriceList, Prices
from tasks.requests import request_operations
from tasks.requests.plan import Plan
from tasks.requests.request_table import Preview
from tests.service_manager.workbench import Bench, collect, document, plan_of

GRANULES = [collect(f"g{i}") for i in range(3)]


def plan_at(resolution: float, side: int) -> Plan:
    """Three granules, and three rasters of them at a resolution."""
    grid = GridSpec(
        crs="EPSG:4326", transform=(resolution, 0, 0, 0, -resolution, 0), width=side, height=side
    )
    rasters = [
        MosaicSpec(name=f"r{i} {resolution}", grid=grid, inputs=(Input(key=granule.key),))
        for i, granule in enumerate(GRANULES)
    ]
    return plan_of(*GRANULES, *rasters, outputs={raster.name: "out" for raster in rasters})


PLANS = {"coarse": plan_at(0.5, 512), "fine": plan_at(0.25, 1024)}


def preview_of(bench: Bench, title: str) -> Preview:
    request = request_operations.submit(bench.runtime, "owner", document(title), dry_run=True)
    row = bench.until_ended(request)
    assert row.state is RequestState.PREVIEWED
    return row.preview


def test_nothing_is_known_at_first_and_that_is_said_once() -> None:
    bench = Bench(PLANS)
    found = preview_of(bench, "coarse")
    assert (found.busy, found.unmeasured) == (0.0, 6)
    said = Expected.of(found)
    assert (said.time, said.cost) == ("not known", "not known")
    assert said.notes == ("Time and cost are not known: no task like these was ever timed here.",)


def test_a_new_resolution_of_a_known_product_has_an_estimate_from_the_old_one() -> None:
    bench = Bench(PLANS)
    bench.until_ended(bench.submit("coarse"))
    without = Expected.of(preview_of(bench, "fine"))
    assert without.cost == "12 s of processors"
    known = PriceList(currency="USD", prices=Prices(core_hour=0.05, storage=0.02))
    prices.put(bench.runtime.store, known)
    found = preview_of(bench, "fine")
    assert (found.reused, found.similar, found.unmeasured) == (3, 3, 0)
    assert found.busy == 3 * 4 * 1.0  # four times the pixels
    assert found.cost > 0
    said = Expected.of(found)
    assert said.time.startswith("12 s of one core")
    assert said.cost == ("less than 0.01 USD, with a month of storage (12 s of processors)")
    (note,) = said.notes
    assert note.startswith("For 3 of 3 tasks (100%), the time is estimated from similar work")


def test_what_cannot_be_estimated_is_said_with_its_share_and_never_costs_nothing() -> None:
    half = Preview(tasks=118, reused=0, busy=2.0, unmeasured=80, use=Use(cpu=2.0))
    said = Expected.of(half)
    assert said.cost == "at least 2 s of processors"
    assert said.notes == (
        "Time and cost leave out 80 of 118 tasks (68%): no task like them was ever timed here.",
    )
    assert Expected.of(Preview(tasks=9, reused=9)).cost == "nothing"
    assert Expected.of(Preview(tasks=9, reused=8, busy=1.0, cost=1.234)).cost == (
        "0 s of processors"  # an earlier build's, of which nobody knows the currency
    )
    use = Use(cpu=7200.0, reads=900, writes=200, received=2 * 10**9)
    partly = Preview(tasks=9, busy=1.0, unmeasured=1, cost=2.0, currency="EUR", use=use)
    assert Expected.of(partly).cost == (
        "at least 2.00 EUR, with a month of storage (2 hours of processors, 1,100 calls to "
        "storage, 2 GB to and from it)"
    )


def test_what_is_not_counted_or_empty_is_told_apart() -> None:
    assert Expected.of(Preview()).notes == ("Nothing is counted yet.",)
    assert Expected.of(Preview(gaps=3)).time == "nothing to do"
    done = Expected.of(Preview(tasks=9, reused=9))
    assert done.time == "nothing to do: all tasks are done already"
