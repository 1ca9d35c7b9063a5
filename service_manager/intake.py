"""Taking requests up: planning them, freezing the plan, writing it; and obeying their orders."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import structlog
from azure.core.exceptions import AzureError

from service_manager import ending, frozen
from service_manager.options import Options
from service_manager.plan_writer import PlanWriter, Written
from service_manager.planner.preview import Preview as Counted
from service_manager.planner.preview import preview
from service_manager.view import Live
from tasks import requests
from tasks.errors import RequestRefusedError, StoreError
from tasks.model import RequestState, State
from tasks.plan import Plan
from tasks.protocol import read_task
from tasks.request import Request
from tasks.requests import PhaseCount, Preview, RequestRow
from tasks.rows import Want
from tasks.services import Services

log = structlog.get_logger("manager.intake")

TRIES = 3  # to plan one request, crashes of the manager included

Planner = Callable[[Request], Plan]


class Intake:
    """Plans requests. `plan` is the planner; it may raise what it likes."""

    def __init__(self, services: Services, options: Options, plan: Planner) -> None:
        self._services = services
        self._options = options
        self._plan = plan

    def load(self, request: str) -> Live | None:
        """A request as it stands, with its ledger; None when it has ended."""
        row = requests.load(self._services, request)
        if row.state.ended:
            return None
        live = Live(row=row, policy=requests.document_of(row).on_missing)
        if row.state in (RequestState.PLANNING, RequestState.RUNNING):
            recount(self._services, live)
        return live

    def take(self, row: RequestRow) -> RequestRow:
        """Plan a SUBMITTED request: its row afterwards is PLANNING or has ended.

        Raises:
            StoreError: storage failed; it is tried again.
        """
        if row.attempts >= TRIES:
            return self._failed(row, f"planning was tried {TRIES} times and did not end")

        def begin(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.SUBMITTED:
                return current
            return replace(current, attempts=row.attempts + 1)

        row = requests.change_request(self._services, row.id, begin)
        if row.state is not RequestState.SUBMITTED:
            return row
        full = requests.load(self._services, row.id)
        planned = self._planned(full)
        if isinstance(planned, RequestRow):
            return planned
        plan = planned
        if len(plan.tasks) > self._options.max_tasks:
            return self._end(
                full,
                RequestState.REFUSED,
                f"the plan has {len(plan.tasks)} tasks; SWATHMILL_MAX_TASKS allows "
                f"{self._options.max_tasks}. Ask for fewer days or a smaller region.",
            )
        if row.dry_run:
            return self._preview(full, plan)
        try:
            plan = frozen.freeze(self._services.blobs, row.id, plan)
        except AzureError as error:
            raise StoreError(f"the plan of {row.id} could not be stored: {error}") from error

        def frozen_plan(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.SUBMITTED:
                return current
            return replace(
                _counted(current, preview(plan)),
                state=RequestState.PLANNING,
                gaps=plan.gaps[: requests.GAPS_ON_ROW],
                gap_count=len(plan.gaps),
                notes=plan.notes,
            )

        return requests.change_request(self._services, row.id, frozen_plan)

    def _planned(self, row: RequestRow) -> Plan | RequestRow:
        """The plan, or the row of the request that ended for want of one."""
        try:
            return self._plan(requests.document_of(row))
        except RequestRefusedError as error:
            return self._end(row, RequestState.REFUSED, str(error))
        except Exception as error:
            log.exception("planning failed", request=row.id, attempt=row.attempts)
            if row.attempts < TRIES:
                raise StoreError(f"planning of {row.id} failed: {error}") from error
            return self._failed(row, f"planning failed: {type(error).__name__}: {error}")

    def write(self, live: Live) -> Iterator[Written]:
        """Write the frozen plan, a batch for each item taken; RUNNING after the last.

        Raises:
            StoreError: storage failed; begin again.
        """
        plan = frozen.thaw(self._services.blobs, live.id)
        if plan is None:
            raise StoreError(f"the plan of {live.id} is not in storage")
        for written in PlanWriter(self._services, live.id, plan.tasks).batches():
            for _, want in written.tasks:
                live.note(want)
            yield written

        def running(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.PLANNING:
                return current
            return replace(current, state=RequestState.RUNNING)

        live.row = requests.change_request(self._services, live.id, running)

    def _preview(self, row: RequestRow, plan: Plan) -> RequestRow:
        def there(key: str) -> bool:
            task = read_task(self._services.store, key)
            return task is not None and task.state is State.DONE

        found = preview(plan, there)
        new = replace(
            _counted(row, found),
            preview=Preview(
                granules=found.granules,
                tasks=len(plan.tasks),
                gaps=len(plan.gaps),
                reused=sum(found.reused.values()),
                size=found.download,
            ),
            gaps=plan.gaps[: requests.GAPS_ON_ROW],
            gap_count=len(plan.gaps),
            notes=plan.notes,
        )
        return self._end(new, RequestState.PREVIEWED, f"{len(plan.tasks)} tasks")

    def _failed(self, row: RequestRow, message: str) -> RequestRow:
        return self._end(row, RequestState.FAILED, message)

    def _end(self, row: RequestRow, state: RequestState, message: str) -> RequestRow:
        return ending.end_without_plan(
            self._services, row, state, message, portal_url=self._options.portal_url
        )


def recount(services: Services, live: Live) -> list[Want]:
    """Fill the ledger anew from the want rows, which are returned."""
    wants = list(requests.wants(services, live.id))
    live.ledger.clear()
    live.pending = 0
    for want in wants:
        live.note(want)
    return wants


def _counted(row: RequestRow, found: Counted) -> RequestRow:
    phases = {
        phase: PhaseCount(total=total, done=found.reused[phase], reused=found.reused[phase])
        for phase, total in found.tasks.items()
        if total
    }
    return replace(row, phases=phases, outputs=found.results)
