"""Taking requests up: planning them, holding those that take much, writing their plans."""

from collections.abc import Generator
from dataclasses import replace

import structlog
from azure.core.exceptions import AzureError

from archives.errors import ArchiveError
from service_manager.options import Options
from service_manager.plans import frozen
from service_manager.plans.plan_writer import PlanWriter, Written
from service_manager.plans.planning import Planner, Planning, Ready, Run, inline
from service_manager.requests import ending, notify
from service_manager.tasks.ledger import Ledger
from service_manager.tasks.view import Live
from tasks.errors import RequestRefusedError, StoreError
from tasks.model.model import MissingPolicy, RequestOrder, RequestState, WantOutcome
from tasks.tables import requests
from tasks.tables.request_table import GAPS_ON_ROW, PhaseCount, Preparation, Preview, RequestRow
from tasks.tables.rows import Want
from tasks.tables.services import Services

log = structlog.get_logger("manager.intake")

TRIES = 3  # to plan one request without coming any farther, crashes of the manager included

_GB = 1e9


class Intake:
    """Plans requests, beside the manager's rounds if `run` says so."""

    def __init__(
        self, services: Services, options: Options, plan: Planner, run: Run = inline
    ) -> None:
        self._services = services
        self._options = options
        self._planning = Planning(services, options, plan, run)
        self._spared: set[str] = set()  # requests whose latest try failed for want of storage

    @property
    def planning(self) -> tuple[str, ...]:
        """The requests whose plans are under way."""
        return self._planning.requests

    def load(self, request: str) -> Live | None:
        """Return a request in its present state, with its ledger; None when it has ended."""
        row = requests.load(self._services, request)
        if row.state.ended:
            return None
        live = Live(row=row, policy=MissingPolicy(requests.document_of(row).on_missing))
        if not row.state.unplanned and row.state is not RequestState.HELD:
            recount(self._services, live)
        return live

    def begin(self, row: RequestRow) -> RequestRow:
        """Begin to plan a request, or begin again: its row afterwards is PLANNING or has ended.

        Raises:
            StoreError: storage failed; it is tried again.
        """
        spared = row.id in self._spared
        tries = TRIES + frozen.begun(self._services.blobs, row.id)
        if row.attempts >= tries and not spared:
            return self._failed(row, f"planning was tried {TRIES} times and did not end")

        full = requests.load(self._services, row.id)
        preparation = Preparation(total=requests.document_of(full).time.days, unit="days")

        def begun(current: RequestRow) -> RequestRow:
            if not current.state.unplanned:
                return current
            return replace(
                current,
                state=RequestState.PLANNING,
                preparation=preparation,
                attempts=row.attempts + (not spared),
            )

        row = requests.change_request(self._services, row.id, begun)
        self._spared.discard(row.id)
        if row.state is RequestState.PLANNING:
            self._planning.begin(replace(row, document=full.document))
        return row

    def days_searched(self, request: str) -> int:
        """Return how many of the request's days the archives have been searched for."""
        return self._planning.days_searched(request)

    def made(self, patience: float) -> list[str]:
        """List the requests whose plans are made or failed; wait `patience` seconds for one."""
        return self._planning.made(patience)

    def take(self, row: RequestRow) -> RequestRow:
        """Take up the plan of a request that is PLANNING, and return its row afterwards.

        The row is unchanged while planning is running; otherwise the request is WRITING, HELD or
        has ended.

        Raises:
            StoreError: storage failed; it is tried again.
        """
        full = requests.load(self._services, row.id)
        if full.state is not RequestState.PLANNING:
            return full
        ready = self._ready(full)
        if ready is None:
            return full
        return ready if isinstance(ready, RequestRow) else self._planned(full, ready)

    def abandon(self, request: str) -> None:
        """Let go of a request's plan that may be under way."""
        self._planning.abandon(request)

    def confirm(self, live: Live) -> RequestRow:
        """Let a HELD request go on that was ordered to. Raises StoreError."""

        def confirmed(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.HELD or current.order is not RequestOrder.CONFIRM:
                return current
            return _to_write(replace(current, order=None, message=""))

        return requests.change_request(self._services, live.id, confirmed)

    def write(self, live: Live) -> Generator[Written]:
        """Write the frozen plan, a batch for each item taken; RUNNING after the last.

        Raises:
            StoreError: storage failed; begin again.
        """
        plan = frozen.thaw(self._services.blobs, live.id)
        if plan is None:
            raise StoreError(f"the plan of {live.id} is not in storage")
        first = self._services.requests.sections_written(live.id)
        for number, section in enumerate(plan.sections(first), first):
            writer = PlanWriter(self._services, live.id, [section])
            for written in writer.batches():
                for _, want in written.tasks:
                    live.note(want)
                yield written
            # Only now has the manager seen to all that the section came to.
            self._services.requests.note_written(self._services.clock, live.id, number + 1)

        def running(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.WRITING:
                return current
            return replace(current, state=RequestState.RUNNING, preparation=None)

        live.row = requests.change_request(self._services, live.id, running)

    def _ready(self, row: RequestRow) -> Ready | RequestRow | None:
        """Return the plan, None while planning is running, or the row of a request that has ended.

        A request ends here when its planning failed.
        """
        try:
            return self._planning.take(row.id)
        except (StoreError, AzureError):
            self._spared.add(row.id)
            raise
        except RequestRefusedError as error:
            return self._end(row, RequestState.REFUSED, str(error))
        except Exception as error:
            log.exception("planning failed", request=row.id, attempt=row.attempts)
            if row.attempts < TRIES:
                raise StoreError(f"planning of {row.id} failed: {error}") from error
            if isinstance(error, ArchiveError):
                return self._failed(row, f"the archive cannot be searched: {error}")
            return self._failed(row, f"planning failed: {type(error).__name__}: {error}")

    def _planned(self, row: RequestRow, ready: Ready) -> RequestRow:
        counts = ready.plan.counts
        if counts.tasks > self._options.max_tasks:
            return self._end(
                row,
                RequestState.REFUSED,
                f"the plan has {counts.tasks} tasks; SWATHMILL_MAX_TASKS allows "
                f"{self._options.max_tasks}. Ask for fewer days or a smaller region.",
            )
        much = self._much(ready)
        if row.dry_run:
            said = f"{counts.tasks} tasks"
            if much:
                said += f"; it would wait for confirmation: {much}"
            return self._end(_counted(row, ready), RequestState.PREVIEWED, said)

        def held(row: RequestRow) -> RequestRow:
            message = f"confirm it to go on: {much}"
            return replace(row, state=RequestState.HELD, message=message, preparation=None)

        becomes = held if much else _to_write
        if much:
            asked = held(_counted(row, ready))
            notify.ask(self._services, asked, portal_url=self._options.portal_url)

        def frozen_plan(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.PLANNING:
                return current
            return becomes(_counted(current, ready))

        return requests.change_request(self._services, row.id, frozen_plan)

    def _much(self, ready: Ready) -> str:
        """Why a request waits for confirmation; empty when it does not."""
        options, found = self._options, ready.forecast
        said = []
        if ready.plan.counts.tasks > options.confirm_tasks:
            said.append(
                f"{ready.plan.counts.tasks:,} tasks, more than the {options.confirm_tasks:,} of "
                "SWATHMILL_CONFIRM_TASKS"
            )
        if found.download > options.confirm_gb * _GB:
            said.append(
                f"{found.download / _GB:,.0f} GB to fetch, more than the {options.confirm_gb:g} of "
                "SWATHMILL_CONFIRM_GB"
            )
        if found.cost > options.confirm_cost:
            said.append(
                f"an expected cost of {found.cost:,.0f}, more than the {options.confirm_cost:g} of "
                "SWATHMILL_CONFIRM_COST"
            )
        return "; ".join(said)

    def _failed(self, row: RequestRow, message: str) -> RequestRow:
        return self._end(row, RequestState.FAILED, message)

    def _end(self, row: RequestRow, state: RequestState, message: str) -> RequestRow:
        return ending.end_without_plan(
            self._services, row, state, message, portal_url=self._options.portal_url
        )


def recount(services: Services, live: Live) -> list[Want]:
    """Fill the ledger again from the interest rows; if storage fails, it stays as it was.

    Returns the rows that decide how the request ends: all but the intermediate ones that were made,
    or are not made yet.
    """
    telling = []
    fresh = replace(live, ledger=Ledger(), run_failures=set())
    for want in requests.wants(services, live.id):
        fresh.note(want)
        if want.output or want.outcome not in (None, WantOutcome.DONE):
            telling.append(want)
    live.ledger, live.run_failures, live.changed = fresh.ledger, fresh.run_failures, True
    return telling


def _to_write(row: RequestRow) -> RequestRow:
    """Let the tasks of a plan that was counted be written."""
    return replace(
        row,
        state=RequestState.WRITING,
        preparation=Preparation(total=row.preview.tasks, unit="tasks"),
    )


def _counted(row: RequestRow, ready: Ready) -> RequestRow:
    """Return the row with the counts of its plan."""
    plan, found = ready.plan, ready.forecast
    phases = {
        phase: PhaseCount(
            total=total, done=found.reused.get(phase, 0), reused=found.reused.get(phase, 0)
        )
        for phase, total in plan.counts.phases.items()
    }
    return replace(
        row,
        phases=phases,
        outputs=plan.counts.results,
        preview=Preview(
            granules=plan.counts.granules,
            tasks=plan.counts.tasks,
            gaps=len(plan.gaps),
            reused=sum(found.reused.values()),
            size=found.download,
            exact=found.exact,
            stored=found.stored,
            busy=found.busy,
            similar=found.similar,
            unmeasured=found.unmeasured,
            elapsed=found.elapsed,
            cost=found.cost,
        ),
        gaps=plan.gaps[:GAPS_ON_ROW],
        gap_count=len(plan.gaps),
        notes=plan.notes,
    )
