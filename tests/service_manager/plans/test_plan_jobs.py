"""Plans under way: each once at a time, taken when it is made, and let go of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
import structlog

from service_manager.options import ManagerOptions
from service_manager.planner.plan_stream import Planned, PlanStream
from service_manager.plans import plan_jobs
from service_manager.plans.plan_jobs import PlanJobs, Planner
from service_manager.plans.stored_plan import WINDOWS_TOLD, AbandonedError
from tasks.bag.categories import Category
from tasks.errors import StoreError
from tasks.messages.wakeups import LOOK
from tasks.operators import prices
from tasks.operators.prices import PriceList, Prices
from tasks.packages.packages import Packages
from tasks.request.document import Request
from tasks.request.library import Library
from tasks.requests import request_operations
from tasks.requests.plan import Gap, Plan, PlannedWindow
from tasks.requests.request_table import RequestRow
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import Beside, collect, document, mosaic, plan_of

A, B = collect("a"), collect("b")
PLAN = plan_of(A, B, mosaic("top", A, B))


@dataclass
class Planning:
    """Jobs over a scene's storage."""

    plan: Planner = lambda _request: PLAN
    scene: Scene = field(default_factory=Scene)
    beside: Beside = field(default_factory=Beside)
    options: ManagerOptions = field(default_factory=ManagerOptions)
    library: Library = field(default_factory=lambda: Library(Packages(())))

    def __post_init__(self) -> None:
        runtime = self.scene.runtime
        self.jobs = PlanJobs(
            runtime, self.options, self.plan, self.beside.run, lambda: 4, self.library
        )

    def begin(self, title: str = "a") -> str:
        runtime = self.scene.runtime
        request = request_operations.submit(runtime, "owner", document(title))
        runtime.wakeups.drain()
        self.jobs.begin(self.row(request))
        return request

    def row(self, request: str) -> RequestRow:
        return request_operations.load(self.scene.runtime, request)


def test_a_plan_is_taken_once_it_is_made() -> None:
    planning = Planning()
    jobs, request = planning.jobs, planning.begin()
    assert (jobs.requests, jobs.made(0.0), jobs.take(request)) == ((request,), [], None)
    planning.beside.end()
    assert planning.scene.runtime.wakeups.drain() == [LOOK]
    assert jobs.made(0.0) == [request]
    made = jobs.take(request)
    assert made is not None
    assert tuple(made.plan.tasks()) == PLAN.tasks
    assert not made.rehearsed
    assert jobs.requests == ()


def test_a_preview_counts_gaps_and_names_the_first_windows() -> None:
    windows = tuple(
        PlannedWindow.of("", f"window-{number}", 4, {"MCD15A2.005": 4}, [])
        for number in range(WINDOWS_TOLD + 2)
    )
    gaps = (Gap(what="MCD15A2.005", reason="absent"), Gap(what="MOD13A2.005", reason="absent"))
    planning = Planning(lambda _request: replace(PLAN, gaps=gaps, windows=windows))
    request = planning.begin()
    planning.beside.end()
    made = planning.jobs.take(request)
    assert made is not None
    assert (made.preview.gaps, made.preview.window_count) == (2, WINDOWS_TOLD + 2)
    assert made.preview.windows == windows[:WINDOWS_TOLD]


def test_packages_and_rasters_are_those_of_the_requests_owner() -> None:
    asked: list[tuple[str, str]] = []

    class Noting(Library):
        def pinned(self, owner: str, request: Request) -> Request:
            asked.append(("packages", owner))
            return request

        def described(self, owner: str, request: Request) -> Request:
            asked.append(("rasters", owner))
            return request

    planning = Planning(library=Noting(Packages(())))
    planning.begin()
    planning.beside.end()
    assert asked == [("packages", "owner"), ("rasters", "owner")]


def test_each_run_stores_its_stretches_under_a_name_of_its_own() -> None:
    planning = Planning()
    first = planning.begin()
    second = planning.begin()
    planning.beside.end(0)
    planning.beside.end(1)
    names = []
    for request in (first, second):
        made = planning.jobs.take(request)
        assert made is not None
        owner, run, _ = made.plan.stretches[0].name.split("/")
        assert owner == request
        names.append(run)
    assert len({*names}) == 2
    assert "None" not in names


def test_one_that_failed_raises_when_it_is_taken_and_wakes_nobody() -> None:
    def broken(_request: Request) -> Plan:
        raise StoreError("no answer")

    planning = Planning(broken)
    request = planning.begin()
    planning.beside.end()
    assert planning.scene.runtime.wakeups.drain() == []
    assert planning.jobs.made(0.0) == [request]
    with pytest.raises(StoreError, match="no answer"):
        planning.jobs.take(request)
    assert planning.jobs.requests == ()


def test_one_that_was_cancelled_before_it_began_wakes_nobody() -> None:
    planning = Planning()
    planning.begin()
    ((_, future),) = planning.beside.jobs
    assert future.cancel()
    assert planning.scene.runtime.wakeups.drain() == []


def test_the_manager_waits_for_the_first_plan_as_long_as_it_has_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, float, str]] = []

    def wait(jobs: Sequence[object], timeout: float, return_when: str) -> None:
        asked.append((len(jobs), timeout, return_when))

    monkeypatch.setattr(plan_jobs, "wait", wait)
    planning = Planning()
    assert planning.jobs.made(3.0) == []
    requests = [planning.begin(), planning.begin()]
    planning.beside.end(1)
    assert planning.jobs.made(3.0) == requests[1:]
    assert asked == [(2, 3.0, "FIRST_COMPLETED")]


@dataclass
class Stream:
    """A planner that streams, with an empty stretch."""

    days_searched: int = 5
    archives: tuple[()] = ()
    identity: str = "i"

    def stamp(self) -> str:
        return ""

    def stretches(self, known: Sequence[Planned], *, trusted: bool) -> Iterator[Planned | None]:
        assert (known, trusted) == ([], False)
        yield None


def test_a_plan_that_is_let_go_of_stops_at_its_next_stretch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_jobs, "PlanStream", Stream)
    planning = Planning(lambda _request: cast(PlanStream, Stream()))
    request = planning.begin()
    assert planning.jobs.days_searched(request) == planning.jobs.days_searched("unknown") == 0
    planning.jobs.abandon("unknown")
    planning.jobs.abandon(request)
    assert planning.jobs.requests == ()
    planning.beside.end()
    ((_, future),) = planning.beside.jobs
    with pytest.raises(AbandonedError):
        future.result()


def test_a_stream_says_how_many_days_it_has_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_jobs, "PlanStream", Stream)
    planning = Planning(lambda _request: cast(PlanStream, Stream()))
    request = planning.begin()
    planning.beside.end()  # it fails for want of counts, with its course known
    assert planning.jobs.days_searched(request) == 5


def test_the_planner_is_given_the_request_and_its_log_lines_name_it() -> None:
    seen: list[tuple[str, object]] = []

    def plan(request: Request) -> Plan:
        bound = structlog.contextvars.get_contextvars()
        seen.append((request.title, bound.get("request")))
        return PLAN

    planning = Planning(plan)
    request = planning.begin("title")
    planning.beside.end()
    assert seen == [("title", request)]


def test_a_forecast_counts_what_is_there_and_the_slots_at_work() -> None:
    planning = Planning()
    scene = planning.scene
    known = PriceList(currency="EUR", prices=Prices(core_hour=3600.0))
    prices.put(scene.runtime.store, known)
    scene.write(A, "earlier")
    scene.run(A)
    scene.write(B, "earlier")
    scene.run(B, Category.BAD_IMAGE_FORMAT)
    scene.process()
    request = planning.begin()
    planning.beside.end()
    made = planning.jobs.take(request)
    assert made is not None
    found = made.preview
    assert (made.reused, found.reused, found.exact) == ({A.phase: 1}, 1, True)
    assert (found.busy, found.elapsed) == (1.0, 0.25)
    assert (found.cost, found.currency) == (1.0, "EUR")
