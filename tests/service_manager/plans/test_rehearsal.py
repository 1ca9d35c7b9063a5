"""The rehearsal: one run first with its own inputs; if the package fails, the request is held."""

from datetime import date

import pytest

from service_manager.plans import rehearsal
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import Phase, RequestOrder, RequestState
from tasks.bag.protocol import Claimed
from tasks.bag.spec import CollectSpec, GroupSpec, Input, ReduceSpec
from tasks.requests import outbox
from tasks.requests import request_operations as operations
from tasks.requests.plan import Plan, PlannedTask
from tasks.requests.request_table import Rehearsal
from tasks.spec_parts import Band
from tests.service_manager.workbench import Bench, collect

RUNS = (3, 1, 2)  # granules of each run
ENDS = tuple(state for state in RequestState if state.ended)
PACKAGE = "ada@example.org/own@1 " + "d" * 64


def specs() -> list[Spec]:
    """Three runs over groups of different sizes, inputs first."""
    made: list[Spec] = []
    for place, number in enumerate(RUNS):
        granules = [collect(f"g{place}{n}") for n in range(number)]
        group = GroupSpec(
            inputs=tuple(Input(key=one.key, name=one.granule) for one in granules),
            group=f"r{place} 2012-01",
            cell=f"r{place}",
            window="2012-01",
            grid=None,
            bands=tuple(
                Band(product="P", collection="5", layer="L", day=date(2012, 1, 1), cell=f"r{place}")
                for _ in granules
            ),
        )
        run = ReduceSpec(
            inputs=(Input(key=group.key, name=group.group),),
            package="own",
            digest="d" * 64,
            outputs=("L.tif",),
        )
        made += [*granules, group, run]
    return made


def plan(package: str = PACKAGE) -> Plan:
    tasks = tuple(
        PlannedTask(
            spec=spec, output="own/cells" if isinstance(spec, ReduceSpec) else "", key=spec.key
        )
        for spec in specs()
    )
    return Plan(tasks=tasks, packages=package)


def bench_of(failing: Category | None = None, package: str = PACKAGE) -> tuple[Bench, list[Spec]]:
    """A bench whose runs fail, and the specifications of what ran, in order."""
    ran: list[Spec] = []

    def decide(claimed: Claimed) -> Category | None:
        spec = bench.runtime.tasks.spec(claimed.task.key)
        ran.append(spec)
        return failing if isinstance(spec, ReduceSpec) else None

    bench = Bench({"p": plan(package)}, decide=decide, say=lambda _: "exit code 1: the reason")
    return bench, ran


def submit(bench: Bench, **more: object) -> str:
    reduction = {"package": "own", **more}
    return bench.submit("p", reduction=reduction)


def until(bench: Bench, request: str, *states: RequestState) -> RequestState:
    for _ in range(60):
        bench.rounds(1)
        bench.work()
        bench.runtime.clock.sleep(1)
        if bench.row(request).state in states:
            break
    return bench.row(request).state


def test_the_smallest_run_and_its_inputs_alone_go_first() -> None:
    bench, ran = bench_of()
    request = submit(bench)
    assert until(bench, request, RequestState.COMPLETE) is RequestState.COMPLETE
    first = [type(spec) for spec in ran[:3]]
    assert first == [CollectSpec, GroupSpec, ReduceSpec]
    assert ran[0] == collect("g10")
    assert len(ran) == len(specs())
    assert bench.row(request).rehearsal is Rehearsal.OVER
    counts = bench.row(request).phases[Phase.REDUCTION]
    assert (counts.total, counts.done) == (3, 3)


@pytest.mark.parametrize("category", [Category.USER_CODE_FAILED, Category.USER_CODE_TIMED_OUT])
def test_a_package_that_fails_holds_its_request_before_anything_else(category: Category) -> None:
    bench, ran = bench_of(category)
    request = submit(bench)
    assert until(bench, request, RequestState.HELD) is RequestState.HELD
    assert len(ran) == 3
    row = bench.row(request)
    assert f"{category}: exit code 1: the reason" in row.message
    (mail,) = outbox.mails(bench.runtime.store)
    assert "the reason" in " ".join(mail.body.split())
    bench.restart(2)
    bench.rounds(5)
    assert bench.row(request).state is RequestState.HELD
    assert len(ran) == 3


def test_told_to_go_on_anyway_all_is_run() -> None:
    bench, ran = bench_of(Category.USER_CODE_FAILED)
    request = submit(bench)
    until(bench, request, RequestState.HELD)
    bench.decide = lambda _: None
    operations.order(bench.runtime, request, RequestOrder.CONFIRM)
    assert until(bench, request, *ENDS) is RequestState.GAPS
    assert bench.row(request).phases[Phase.REDUCTION].done == 2
    assert len(ran) == 3


def test_given_up_nothing_more_is_run_and_nothing_is_wanted() -> None:
    bench, ran = bench_of(Category.USER_CODE_FAILED)
    request = submit(bench)
    until(bench, request, RequestState.HELD)
    operations.order(bench.runtime, request, RequestOrder.CANCEL)
    assert until(bench, request, *ENDS) is RequestState.CANCELLED
    for _ in range(20):
        bench.rounds(1)
        bench.runtime.clock.sleep(10)
    assert len(ran) == 3
    for spec in specs():
        task = bench.runtime.tasks.task(spec.key)
        assert task is None or not task.interests or task.category is not None


def test_what_is_not_the_packages_fault_holds_nothing() -> None:
    bench, ran = bench_of(Category.BAD_IMAGE_FORMAT)
    request = submit(bench)
    assert until(bench, request, *ENDS) is RequestState.FAILED
    assert {spec.key for spec in ran} == {spec.key for spec in specs()}


@pytest.mark.parametrize(
    ("more", "package"),
    [({"rehearse": False}, PACKAGE), ({}, "swathmill/mean@2 " + "d" * 64)],
    ids=["told not to", "shipped"],
)
def test_without_a_rehearsal_all_goes_at_once(more: dict[str, object], package: str) -> None:
    bench, ran = bench_of(package=package)
    request = submit(bench, **more)
    assert until(bench, request, *ENDS) is RequestState.COMPLETE
    assert {spec.kind for spec in ran[: sum(RUNS)]} == {"collect"}
    assert bench.row(request).rehearsal is Rehearsal.NONE


def test_a_plan_with_one_run_is_its_own_rehearsal() -> None:
    assert rehearsal.choose(plan().tasks[:5], {"d" * 64}) == []
    chosen = rehearsal.choose(plan().tasks, {"d" * 64})
    assert [task.spec.kind for task in chosen] == ["collect", "group", "reduce"]


def test_a_manager_that_takes_over_goes_on_with_the_rehearsal() -> None:
    bench, ran = bench_of()
    request = submit(bench)
    for epoch in range(2, 12):
        bench.rounds(2)
        bench.work()
        bench.runtime.clock.sleep(60)
        bench.restart(epoch)
    assert until(bench, request, *ENDS) is RequestState.COMPLETE
    assert [spec.kind for spec in ran[:3]] == ["collect", "group", "reduce"]
    assert len(ran) == len(specs())
