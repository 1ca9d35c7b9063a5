"""Plans under way beside the manager's rounds: planned, frozen and counted, perhaps for minutes."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

import structlog
from structlog.contextvars import bound_contextvars

from service_manager.options import ManagerOptions
from service_manager.planner.plan_stream import PlanStream
from service_manager.plans import rehearsal, stored_plan
from service_manager.plans.forecast import LOOKED_AT, forecast
from tasks.bag import history
from tasks.bag.expectation import Times
from tasks.bag.model import Phase
from tasks.bag.runtime import Runtime, new_id
from tasks.messages.wakeups import LOOK
from tasks.operators import prices
from tasks.request.document import Request
from tasks.request.library import NO_UPLOADS, Library
from tasks.requests import request_operations
from tasks.requests.plan import Plan, PlannedTask
from tasks.requests.request_table import Preview, RequestRow

log = structlog.get_logger("manager.plan_jobs")

COLLECT = (50_000, 20, 50)
"""`gc.set_threshold` for a process that plans: plans are very many small objects without a cycle,
which the usual thresholds have looked at again and again, for a third of the time."""

Planner = Callable[[Request], Plan | PlanStream]
Job = Callable[[], "MadePlan"]
Run = Callable[[Job], "Future[MadePlan]"]
"""Has a job done, now or beside; `inline` does it now."""


@dataclass(frozen=True, kw_only=True)
class MadePlan:
    """A plan that is frozen, what it will take, and whether one run of it goes first.

    `reused` counts, by phase, the tasks whose artifact exists.
    """

    plan: stored_plan.Frozen
    preview: Preview
    reused: Mapping[Phase, int]
    rehearsed: bool = False


def inline(job: Job) -> "Future[MadePlan]":
    """Do a job at once."""
    future: Future[MadePlan] = Future()
    try:
        future.set_result(job())
    except Exception as error:  # noqa: BLE001 - whoever takes the result gets it
        future.set_exception(error)
    return future


@dataclass
class _UnderWay:
    future: "Future[MadePlan]" = field(init=False)
    stop: threading.Event = field(default_factory=threading.Event)
    course: PlanStream | None = None


class PlanJobs:
    """Plans requests, each once at a time. `plan` is the planner; it may raise what it likes.

    `slots` returns how many slots are at work; `library` says what names in requests mean.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: ManagerOptions,
        plan: Planner,
        run: Run,
        slots: Callable[[], int] = lambda: 0,
        library: Library = NO_UPLOADS,
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._plan = plan
        self._run = run
        self._slots = slots
        self._library = library
        self._jobs: dict[str, _UnderWay] = {}

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests whose plans are under way."""
        return tuple(self._jobs)

    def begin(self, row: RequestRow) -> None:
        """Begin with a request, of whose plan nothing is under way; its row has the document."""
        job = _UnderWay()
        run = new_id(self._runtime.random)

        def freeze() -> MadePlan:
            with bound_contextvars(request=row.id):
                return self._freeze(row, run, job)

        job.future = self._run(freeze)
        job.future.add_done_callback(self._ended)
        self._jobs[row.id] = job

    def _ended(self, made: "Future[MadePlan]") -> None:
        """Wake the manager for a plan; a failed one waits for its next look."""
        if not made.cancelled() and made.exception() is None:
            self._runtime.wakeups.publish(LOOK)

    def days_searched(self, request: str) -> int:
        """Return how many of the request's days the archives have been searched for."""
        job = self._jobs.get(request)
        return job.course.days_searched if job is not None and job.course is not None else 0

    def made(self, patience: float) -> list[str]:
        """List the requests whose plans are made or failed; wait `patience` seconds for one."""
        if self._jobs:
            jobs = [job.future for job in self._jobs.values()]
            wait(jobs, timeout=patience, return_when=FIRST_COMPLETED)
        return [request for request, job in self._jobs.items() if job.future.done()]

    def take(self, request: str) -> MadePlan | None:
        """Return the plan; None while it is being made. Raises what planning raised."""
        job = self._jobs[request]
        if not job.future.done():
            return None
        del self._jobs[request]
        return job.future.result()

    def abandon(self, request: str) -> None:
        """Let go of a request's plan. What is stored of it stays."""
        job = self._jobs.pop(request, None)
        if job is not None:
            job.stop.set()

    def _freeze(self, row: RequestRow, run: str, job: _UnderWay) -> MadePlan:
        request = request_operations.document_of(row)
        exact = self._library.pinned(row.owner, request)
        planned = self._plan(self._library.described(row.owner, exact))
        if isinstance(planned, PlanStream):
            job.course = planned
        plan = stored_plan.freeze(self._runtime.blobs, row.id, planned, run, job.stop.is_set)
        rehearsed: list[PlannedTask] = []
        own = rehearsal.wanted(request, plan.packages)
        if own and not row.dry_run:
            rehearsed = rehearsal.choose(plan.tasks(), own)
            rehearsal.store(self._runtime.blobs, row.id, rehearsed)
        preview, reused = forecast(
            plan.counts,
            plan.sample(LOOKED_AT),
            self._runtime.tasks.done,
            Times(history.class_statistics(self._runtime.store)),
            prices.load(self._runtime.store),
            self._slots(),
        )
        preview = replace(
            preview, gaps=len(plan.gaps), windows=plan.windows, window_count=plan.window_count
        )
        return MadePlan(plan=plan, preview=preview, reused=reused, rehearsed=bool(rehearsed))
