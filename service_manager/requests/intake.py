"""Taking requests up: planning them, holding those that take much, writing their plans."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import structlog

from archives.errors import ArchiveError, ProxyUnusableError
from service_manager.dispatch.ledger import Ledger
from service_manager.dispatch.manager_cache import Live
from service_manager.mail import notify
from service_manager.options import ManagerOptions
from service_manager.plans import rehearsal, stored_plan
from service_manager.plans.plan_jobs import MadePlan, PlanJobs, Planner, Run, inline
from service_manager.plans.plan_writer import PlanWriter, Written
from service_manager.requests import ending
from tasks.bag.model import MissingPolicy, RequestOrder, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.errors import RequestRefusedError, StoreError
from tasks.operators import restrictions
from tasks.request.document import First
from tasks.request.library import NO_UPLOADS, Library
from tasks.requests import request_operations
from tasks.requests.request_table import (
    GAPS_ON_ROW,
    PhaseCount,
    Preparation,
    Rehearsal,
    RequestRow,
    RequestTable,
)
from tasks.service import tracing

log = structlog.get_logger("manager.intake")

TRIES = 3  # to plan one request without coming any farther, crashes of the manager included

_GB = 1e9
_HOUR = 3600.0


class Intake:
    """Plans requests, beside the manager's rounds if `run` says so; `slots` are those at work."""

    def __init__(
        self,
        runtime: Runtime,
        options: ManagerOptions,
        plan: Planner,
        run: Run = inline,
        slots: Callable[[], int] = lambda: 0,
        library: Library = NO_UPLOADS,
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._planning = PlanJobs(runtime, options, plan, run, slots, library)
        self._began: dict[str, float] = {}  # when the plans under way were begun
        self._spared: set[str] = set()  # requests whose latest try failed for lack of storage

    @property
    def planning(self) -> tuple[str, ...]:
        """The requests whose plans are under way."""
        return self._planning.requests

    def load(self, request: str) -> Live | None:
        """Return a request in its present state, with its ledger; None when it has ended."""
        row = request_operations.load(self._runtime, request)
        if row.state.ended:
            return None
        live = Live(row=row, policy=MissingPolicy(request_operations.document_of(row).on_missing))
        if not row.state.unplanned and row.state is not RequestState.HELD:
            recount(self._runtime, live)
        return live

    def begin(self, row: RequestRow) -> RequestRow:
        """Begin to plan a request, or begin again: its row afterwards is PLANNING or has ended.

        Raises:
            StoreError: storage failed; it is tried again.
        """
        spared = row.id in self._spared
        tries = TRIES + stored_plan.begun(self._runtime.blobs, row.id)
        if row.attempts >= tries and not spared:
            return self._failed(row, f"planning was tried {TRIES} times and did not end")

        full = request_operations.load(self._runtime, row.id)
        preparation = Preparation(total=request_operations.document_of(full).time.days, unit="days")

        def begun(current: RequestRow) -> RequestRow:
            if not current.state.unplanned:
                return current
            return replace(
                current,
                state=RequestState.PLANNING,
                preparation=preparation,
                attempts=row.attempts + (not spared),
            )

        row = request_operations.change_request(self._runtime, row.id, begun)
        self._spared.discard(row.id)
        if row.state is RequestState.PLANNING:
            self._began[row.id] = self._runtime.clock.now()
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
        has ended. The plan is let go of when the request is not PLANNING any more.

        Raises:
            StoreError: storage failed; it is tried again.
        """
        full = request_operations.load(self._runtime, row.id)
        if full.state is not RequestState.PLANNING:
            self.abandon(row.id)
            return full
        ready = self._ready(full)
        if ready is None:
            return full
        row = ready if isinstance(ready, RequestRow) else self._planned(full, ready)
        now = self._runtime.clock.now()
        tracing.record_for(
            row.id,
            "plan",
            self._began.pop(row.id, now),
            now,
            words=(str(row.attempts),),
            failure=row.message if isinstance(ready, RequestRow) else "",
            attributes={"swathmill.tasks": row.preview.tasks},
        )
        return row

    def abandon(self, request: str) -> None:
        """Let go of a request's plan that may be under way."""
        self._began.pop(request, None)
        self._planning.abandon(request)

    def confirm(self, live: Live) -> RequestRow:
        """Let a HELD request go on that was ordered to. Raises StoreError."""

        def confirmed(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.HELD or current.order is not RequestOrder.CONFIRM:
                return current
            failed = current.rehearsal is Rehearsal.RUNS
            after = Rehearsal.OVER if failed else current.rehearsal
            return _to_write(replace(current, order=None, message="", rehearsal=after))

        return request_operations.change_request(self._runtime, live.id, confirmed)

    def write(self, live: Live) -> Generator[Written]:
        """Write the frozen plan, a batch for each item taken; RUNNING after the last.

        Raises:
            StoreError: storage failed; begin again.
        """
        if live.row.rehearsal is Rehearsal.DUE:
            yield from self._write_rehearsal(live)
            return
        plan = stored_plan.thaw(self._runtime.blobs, live.id)
        if plan is None:
            raise StoreError(f"the plan of {live.id} is not in storage")
        done = RequestTable(self._runtime.store).sections_written(live.id)
        began = self._runtime.clock.now()
        first = self._first(live.id)
        for number, section in enumerate(plan.sections(done), done):
            writer = PlanWriter(self._runtime, live.id, [section], first)
            for written in writer.batches():
                for _, interest in written.tasks:
                    live.note(interest)
                yield written
            # Only now has the manager seen to all that the section came to.
            RequestTable(self._runtime.store).note_written(self._runtime.clock, live.id, number + 1)

        def running(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.WRITING:
                return current
            return replace(current, state=RequestState.RUNNING, preparation=None)

        live.row = request_operations.change_request(self._runtime, live.id, running)
        tracing.record_for(live.id, "write", began, self._runtime.clock.now())

    def _write_rehearsal(self, live: Live) -> Generator[Written]:
        """Write the tasks of the rehearsal alone, a batch for each item taken."""
        tasks = rehearsal.load(self._runtime.blobs, live.id)
        writer = PlanWriter(self._runtime, live.id, [tasks], self._first(live.id))
        for written in writer.batches():
            for _, interest in written.tasks:
                live.note(interest)
            yield written

        def running(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.WRITING:
                return current
            return replace(
                current, state=RequestState.RUNNING, preparation=None, rehearsal=Rehearsal.RUNS
            )

        live.row = request_operations.change_request(self._runtime, live.id, running)

    def _first(self, request: str) -> First:
        """Return which results of a request are to be made first. Raises StoreError."""
        full = request_operations.load(self._runtime, request)
        return request_operations.document_of(full).first

    def rehearsed(self, live: Live, failure: str) -> RequestRow:
        """Go on after the rehearsal, or hold the request if its package failed.

        Raises:
            StoreError: storage failed; it is tried again.
        """
        full = request_operations.load(self._runtime, live.id)

        def held(row: RequestRow) -> RequestRow:
            message = (
                f"the rehearsal failed, and nothing else was run: {failure}. Mend the package and "
                "go on, go on anyway, or give up"
            )
            return replace(row, state=RequestState.HELD, message=message)

        def gone_on(row: RequestRow) -> RequestRow:
            return _to_write(replace(row, rehearsal=Rehearsal.OVER))

        becomes = held if failure else gone_on
        if failure:
            notify.ask(
                self._runtime, held(full), portal_url=self._options.portal_url, kind="rehearsal"
            )

        def after(current: RequestRow) -> RequestRow:
            runs = current.rehearsal is Rehearsal.RUNS and current.state is RequestState.RUNNING
            return becomes(current) if runs else current

        return request_operations.change_request(self._runtime, live.id, after)

    def _ready(self, row: RequestRow) -> MadePlan | RequestRow | None:
        """Return the plan, None while planning is running, or the row of a request that has ended.

        A request ends here when its planning failed.
        """
        try:
            return self._planning.take(row.id)
        except StoreError:
            self._spared.add(row.id)
            raise
        except RequestRefusedError as error:
            return self._end(row, RequestState.REFUSED, str(error))
        except ProxyUnusableError as error:  # until this manager starts in another environment
            return self._end(row, RequestState.REFUSED, f"the archive cannot be searched: {error}")
        except Exception as error:
            log.exception("planning failed", request=row.id, attempt=row.attempts)
            if row.attempts < TRIES:
                raise StoreError(f"planning of {row.id} failed: {error}") from error
            if isinstance(error, ArchiveError):
                return self._failed(row, f"the archive cannot be searched: {error}")
            return self._failed(row, f"planning failed: {type(error).__name__}: {error}")

    def _planned(self, row: RequestRow, ready: MadePlan) -> RequestRow:
        counts = ready.plan.counts
        if counts.tasks > self._options.max_tasks:
            return self._end(
                row,
                RequestState.REFUSED,
                f"the plan has {counts.tasks} tasks; SWATHMILL_MAX_TASKS allows "
                f"{self._options.max_tasks}. Ask for fewer days or a smaller region.",
            )
        much = self._much(row.owner, ready)
        if row.dry_run:
            said = f"It would wait for confirmation: {much}" if much else ""
            return self._end(_counted(row, ready), RequestState.PREVIEWED, said)

        def held(row: RequestRow) -> RequestRow:
            message = f"confirm it to go on: {much}"
            return replace(row, state=RequestState.HELD, message=message, preparation=None)

        becomes = held if much else _to_write
        if much:
            asked = held(_counted(row, ready))
            notify.ask(self._runtime, asked, portal_url=self._options.portal_url)

        def frozen_plan(current: RequestRow) -> RequestRow:
            if current.state is not RequestState.PLANNING:
                return current
            return becomes(_counted(current, ready))

        return request_operations.change_request(self._runtime, row.id, frozen_plan)

    def _much(self, owner: str, ready: MadePlan) -> str:
        """Return why a request waits for confirmation; empty when it does not."""
        confirm, found = self._options.confirm, ready.preview
        said = []
        if ready.plan.counts.tasks > confirm.tasks:
            said.append(
                f"{ready.plan.counts.tasks:,} tasks, more than the {confirm.tasks:,.0f} of "
                "SWATHMILL_CONFIRM"
            )
        if found.size > confirm.gb * _GB:
            said.append(
                f"{found.size / _GB:,.0f} GB to fetch, more than the {confirm.gb:g} of "
                "SWATHMILL_CONFIRM"
            )
        if found.busy > confirm.core_hours * _HOUR:
            said.append(
                f"{found.busy / _HOUR:,.0f} hours of one core, more than the "
                f"{confirm.core_hours:,g} of SWATHMILL_CONFIRM"
            )
        if found.cost > confirm.cost:
            said.append(
                f"an expected cost of {found.cost:,.0f} {found.currency}, more than the "
                f"{confirm.cost:g} of SWATHMILL_CONFIRM"
            )
        return "; ".join([*said, *self._over_budget(owner, ready)])

    def _over_budget(self, owner: str, ready: MadePlan) -> Iterator[str]:
        """Name the quotas of which less is left this month than the request will take."""
        store, now = self._runtime.store, self._runtime.clock.now()
        under = restrictions.budgets_of(owner, ready.plan.packages)
        hours = ready.preview.busy / _HOUR
        for one in restrictions.load(store) if hours else ():
            budget = one.kind, one.subject
            if budget not in under:
                continue
            left = max(0.0, one.value - restrictions.spent_hours(store, budget, now))
            if hours > left:
                yield (
                    f"{hours:,.2g} hours of one slot expected, and {left:,.2g} are left this month "
                    f"of {restrictions.budget_text(one)}; what is over waits for the next month"
                )

    def _failed(self, row: RequestRow, message: str) -> RequestRow:
        return self._end(row, RequestState.FAILED, message)

    def _end(self, row: RequestRow, state: RequestState, message: str) -> RequestRow:
        return ending.end_without_plan(
            self._runtime, row, state, message, portal_url=self._options.portal_url
        )


def recount(runtime: Runtime, live: Live) -> list[Interest]:
    """Fill the ledger again from the interest rows; if storage fails, it stays as it was.

    Returns the rows that decide how the request ends: all but the intermediate ones that were made,
    or are not made yet.
    """
    telling = []
    fresh = replace(live, ledger=Ledger(), run_failures=set(), repeated=set())
    for interest in request_operations.interests(runtime, live.id):
        fresh.note(interest)
        if interest.output or interest.outcome not in (None, TaskOutcome.DONE):
            telling.append(interest)
    live.ledger, live.run_failures, live.changed = fresh.ledger, fresh.run_failures, True
    live.repeated = fresh.repeated
    return telling


def _to_write(row: RequestRow) -> RequestRow:
    """Let the tasks of a plan that was counted be written."""
    return replace(
        row,
        state=RequestState.WRITING,
        preparation=Preparation(total=row.preview.tasks, unit="tasks"),
    )


def _counted(row: RequestRow, ready: MadePlan) -> RequestRow:
    """Return the row with the counts of its plan."""
    plan, reused = ready.plan, ready.reused
    phases = {
        phase: PhaseCount(total=total, done=reused.get(phase, 0), reused=reused.get(phase, 0))
        for phase, total in plan.counts.phases.items()
    }
    return replace(
        row,
        phases=phases,
        outputs=plan.counts.results,
        package=plan.packages,
        rehearsal=Rehearsal.DUE if ready.rehearsed else Rehearsal.NONE,
        preview=ready.preview,
        gaps=plan.gaps[:GAPS_ON_ROW],
        gap_count=len(plan.gaps),
        notes=plan.notes,
    )
