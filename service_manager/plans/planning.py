"""Plans under way beside the manager's rounds: planned, frozen and counted, perhaps for minutes."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

import structlog

from service_manager.options import Options
from service_manager.planner.course import Course
from service_manager.plans import frozen
from service_manager.plans.forecast import LOOKED_AT, Forecast, forecast, prices
from tasks.model.model import State
from tasks.model.plan import Plan
from tasks.request.request import Request
from tasks.tables import history, requests, workers
from tasks.tables.expectation import Times
from tasks.tables.request_table import RequestRow
from tasks.tables.services import Services, new_id

log = structlog.get_logger("manager.planning")

COLLECT = (50_000, 20, 50)
"""`gc.set_threshold` for a process that plans: plans are very many small objects without a cycle,
which the usual thresholds have looked at again and again, for a third of the time."""

Planner = Callable[[Request], Plan | Course]
Job = Callable[[], "Ready"]
Run = Callable[[Job], "Future[Ready]"]
"""Has a job done, now or beside; `inline` does it now."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A plan that is frozen, and what it will take."""

    plan: frozen.Frozen
    forecast: Forecast


def inline(job: Job) -> "Future[Ready]":
    """Do a job at once."""
    future: Future[Ready] = Future()
    try:
        future.set_result(job())
    except Exception as error:  # noqa: BLE001 - whoever takes the result gets it
        future.set_exception(error)
    return future


@dataclass
class _UnderWay:
    future: "Future[Ready]" = field(init=False)
    stop: threading.Event = field(default_factory=threading.Event)
    course: Course | None = None


class Planning:
    """Plans requests, each once at a time. `plan` is the planner; it may raise what it likes."""

    def __init__(self, services: Services, options: Options, plan: Planner, run: Run) -> None:
        self._services = services
        self._options = options
        self._plan = plan
        self._run = run
        self._jobs: dict[str, _UnderWay] = {}

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests whose plans are under way."""
        return tuple(self._jobs)

    def begin(self, row: RequestRow) -> None:
        """Begin with a request, of whose plan nothing is under way; its row has the document."""
        job = _UnderWay()
        run = new_id(self._services.random)
        job.future = self._run(lambda: self._freeze(row, run, job))
        self._jobs[row.id] = job

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

    def take(self, request: str) -> Ready | None:
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

    def _freeze(self, row: RequestRow, run: str, job: _UnderWay) -> Ready:
        planned = self._plan(requests.document_of(row))
        if isinstance(planned, Course):
            job.course = planned
        plan = frozen.freeze(self._services.blobs, row.id, planned, run, job.stop.is_set)
        store, tasks = self._services.store, self._services.tasks

        def there(key: str) -> bool:
            task = tasks.task(key)
            return task is not None and task.state is State.DONE

        slots = sum(worker.slots for worker in workers.list_workers(store))
        return Ready(
            plan=plan,
            forecast=forecast(
                plan.counts,
                plan.sample(LOOKED_AT),
                there,
                Times(history.class_statistics(store)),
                prices(self._options),
                slots,
            ),
        )
