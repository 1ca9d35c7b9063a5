"""Requests from their submission to their end: taken up, planned, obeyed, reported, ended."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import NamedTuple

import structlog
from structlog.contextvars import bound_contextvars

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import Live, ManagerCache
from service_manager.dispatch.ready import ReadyTasks
from service_manager.events.dependents import Dependents, Informed
from service_manager.options import ManagerOptions
from service_manager.plans.plan_turns import PlanTurns
from service_manager.plans.plan_writer import Written
from service_manager.plans.rehearsal import PROGRAM
from service_manager.requests import ending
from service_manager.requests.intake import Intake, recount
from service_manager.requests.release import Dropping, what_ended
from service_manager.requests.retrying import Retrying
from tasks.bag.model import Phase, RequestOrder, RequestState, State
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.errors import FencedError, StoreError
from tasks.requests import request_operations
from tasks.requests.request_table import Rehearsal, RequestRow, RequestTable

log = structlog.get_logger("manager.lifecycle")

PLANNERS = 2  # plans made at once: a large one does not keep a small one waiting
PLANS = 4  # taken up in one round, while the others wait for their turn
_GLANCE = 0.05  # seconds that a round waits for a plan while there is other work


class _Work(NamedTuple):
    """What is done for a request, a step in each turn, until the steps end.

    It may break off at any step. `withdraws`: its unfinished interests are withdrawn, and it ends.
    """

    steps: Generator[Written | None]
    withdraws: bool = False


class Lifecycle:
    """All requests that have not ended.

    `hear` gets the results of informing dependents; `epoch` guards the requests' progress;
    `locations` learns who made the inputs of planned tasks.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: ManagerOptions,
        cache: ManagerCache,
        dispatch: FleetDispatch,
        ready: ReadyTasks,
        intake: Intake,
        dependents: Dependents,
        hear: Callable[[Informed], None],
        epoch: int,
        locations: InputLocations | None = None,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._options = options
        self._cache = cache
        self._dispatch = dispatch
        self._ready = ready
        self._intake = intake
        self._dependents = dependents
        self._hear = hear
        self._retrying = Retrying(runtime, cache, dispatch, dependents, self.find, hear)
        self._epoch = epoch
        self._locations = locations
        self._work: dict[str, _Work] = {}  # what is under way, by request
        self._look_at: set[str] = set()  # requests whose rows are to be read
        self._all_due = 0.0
        self._turns = PlanTurns()

    def find(self, request: str) -> Live | None:
        """Return a request that has not ended, loaded into the cache if necessary."""
        live = self._cache.requests.get(request)
        if live is None:
            try:
                live = self._intake.load(request)
            except request_operations.NoSuchRequestError:
                return None
            if live is not None:
                live.stopped = self._cache.restrictions.stop(live.row.owner, live.row.package)
                self._cache.requests[request] = live
                self._look_at.add(request)
        return live

    def close(self) -> None:
        """Let go of plans that are under way."""
        for request in self._intake.planning:
            self._intake.abandon(request)

    # --- new ones, orders ---

    def take_up(self) -> None:
        """Hear of new requests and orders, and see to them. Raises StoreError."""
        for request, acknowledge in self._runtime.queue.receive():
            self._look_at.add(request)
            acknowledge()
        if self._clock.monotonic() >= self._all_due:
            self._look_at.update(RequestTable(self._runtime.store).live())
            self._look_at.update(self._cache.requests)
            self._all_due = self._clock.monotonic() + self._options.sweep
            self._recount_quiet()
        self._look_at.update(self._intake.planning)
        for request in sorted(self._look_at):
            self._look_at.discard(request)
            try:
                with bound_contextvars(request=request):
                    self._look(request)
            except StoreError:
                self._look_at.add(request)
                raise

    def _recount_quiet(self) -> None:
        """Read again the recorded outcomes of requests for which no events come.

        A manager that stalled and is fenced by now may have recorded them. The intervals grow while
        nothing is found. Of a request with tasks that run or are ready, events are still to come,
        however long its tasks take.
        """
        at_work = {one.sponsor for one in self._cache.running.values()}
        for live in self._cache.requests.values():
            if live.id in at_work or self._dispatch.has(live.id):
                continue
            live.quiet += 1
            if live.row.state is RequestState.RUNNING and live.quiet.bit_count() == 1:
                recount(self._runtime, live)

    def _look(self, request: str) -> None:
        known = request in self._cache.requests
        live = self.find(request)
        if live is None:
            return
        if known:
            live.row = request_operations.row_of(self._runtime, request)
            if live.row.state.ended:
                self._forget(request)
                return
        if live.row.state.unplanned:
            self._unplanned(live)
        if live.row.state is RequestState.HELD:
            self._held(live)
        self._write(live)
        if live.row.state is RequestState.RUNNING:
            self._obey(live)
        if live.row.state is RequestState.CANCELLING:
            self._withdraw(live)

    def _unplanned(self, live: Live) -> None:
        if live.id not in self._intake.planning:
            self._turns.add(live.row)

    def plan(self) -> bool:
        """Start the plans whose turn it is and take up finished ones; return whether there is more.

        It takes a few in each round, so that requests run while others are planned.
        """
        until = self._clock.monotonic() + self._options.slice
        taken = 0
        while taken < PLANS:
            while self._turns and len(self._intake.planning) < PLANNERS:
                self._plan(self._turns.next(), self._intake.begin)
            left = max(0.0, until - self._clock.monotonic())
            made = self._intake.made(_GLANCE if self._work or self._cache.running else left)
            for request in made:
                self._plan(request, self._intake.take)
            taken += len(made)
            if not made or not left:
                break
        return taken > 0 and bool(self._turns or self._intake.planning)

    def _plan(self, request: str, step: Callable[[RequestRow], RequestRow]) -> None:
        live = self._cache.requests[request]
        try:
            with bound_contextvars(request=request):
                live.row = step(live.row)
        except StoreError:
            self._look_at.add(request)
            raise
        if live.row.state.ended:
            self._forget(request)
        self._write(live)

    def _write(self, live: Live) -> None:
        if live.row.state is RequestState.WRITING and live.id not in self._work:
            self._work[live.id] = _Work(self._intake.write(live))

    def _held(self, live: Live) -> None:
        if live.row.order is RequestOrder.CONFIRM:
            live.row = self._intake.confirm(live)

    def _obey(self, live: Live) -> None:
        if live.id in self._work:
            return
        if live.row.order in (RequestOrder.PAUSE, RequestOrder.RESUME):
            paused = live.row.order is RequestOrder.PAUSE

            def change(row: RequestRow) -> RequestRow:
                if row.order != live.row.order:
                    return row
                return replace(row, paused=paused, order=None)

            live.row = request_operations.change_request(self._runtime, live.id, change)
            self._look_at.add(live.id)
        elif live.row.retry_orders:
            self._work[live.id] = _Work(self._retrying.batches(live))

    def _withdraw(self, live: Live) -> None:
        """Begin to withdraw a request's unfinished interests, instead of other work for it."""
        work = self._work.get(live.id)
        if work is None or not work.withdraws:
            dropping = Dropping(self._runtime, self._cache, self._dispatch, live.id, what_ended)
            self._work[live.id] = _Work(dropping.batches(), withdraws=True)

    def _forget(self, request: str) -> None:
        self._intake.abandon(request)
        del self._cache.requests[request]
        self._turns.drop(request)
        self._work.pop(request, None)

    # --- plans, retries and withdrawals under way ---

    def work(self) -> bool:
        """Do a slice of the work under way, in turns; return whether there is more."""
        until = self._clock.monotonic() + self._options.slice
        while self._work:
            request = next(iter(self._work))
            self._work[request] = self._work.pop(request)  # the others' turns come first
            self._step(request)
            if self._clock.monotonic() >= until:
                break
        return bool(self._work)

    def _step(self, request: str) -> None:
        live, work = self._cache.requests[request], self._work[request]
        try:
            with bound_contextvars(request=request):
                written = next(work.steps)
        except StopIteration:
            del self._work[request]
            self._look_at.add(request)  # there may be an order; or the end fails
            if work.withdraws:
                self._withdrawn(live)
        except (StoreError, ValueError) as error:
            del self._work[request]
            self._look_at.add(request)  # begins again from the start
            if isinstance(error, StoreError):
                raise
            log.exception("a plan cannot be written", request=request)
            ending.end_without_plan(
                self._runtime,
                live.with_progress(()),
                RequestState.FAILED,
                f"its plan could not be stored: {error}. Ask for fewer days or a smaller region.",
                portal_url=self._options.portal_url,
            )
            self._forget(request)
        else:
            if written is not None:
                self._note(live, written)

    def _note(self, live: Live, written: Written) -> None:
        if self._locations is not None:
            for made in written.made:
                self._locations.made(*made)
        for task in written.rows:
            self._dependents.remember(task)
        for task, _ in written.tasks:
            if task.state is State.READY and not task.not_before:
                self._ready.now(task)
        self._hear(Informed(ended=written.waiting))
        live.changed = True

    def _withdrawn(self, live: Live) -> None:
        stored = request_operations.load(self._runtime, live.id)
        interests = recount(self._runtime, live)
        self._end(live, stored, [interest for interest in interests if interest.outcome])

    # --- ends and progress ---

    def ends(self) -> None:
        """End the requests all of whose tasks have. Raises StoreError."""
        for live in list(self._cache.requests.values()):
            if live.row.state is not RequestState.RUNNING or live.id in self._work:
                continue
            if live.row.rehearsal is Rehearsal.RUNS:
                self._rehearsed(live)
            elif live.fails:
                self._withdraw(live)
            elif not live.pending and not live.row.retry_orders:
                stored = request_operations.load(self._runtime, live.id)
                interests = recount(self._runtime, live)
                if not live.pending:
                    self._end(live, stored, interests)

    def _rehearsed(self, live: Live) -> None:
        """Once the rehearsal has ended, go on or hold the request."""
        if live.pending or live.row.retry_orders:
            return
        interests = recount(self._runtime, live)
        if live.pending:
            return
        failed = [
            interest
            for interest in interests
            if interest.phase is Phase.REDUCTION and interest.category in PROGRAM
        ]
        why = f"{failed[0].category}: {failed[0].message}" if failed else ""
        live.row = self._intake.rehearsed(live, why)
        self._look_at.add(live.id)

    def _end(self, live: Live, stored: RequestRow, interests: list[Interest]) -> None:
        with bound_contextvars(request=live.id):
            row = ending.end(
                self._runtime,
                live,
                stored,
                interests,
                portal_url=self._options.portal_url,
                result_days=self._options.result_days,
                epoch=self._epoch,
            )
        if row.state.ended:
            self._forget(live.id)
        else:
            live.row = row
            self._look_at.add(live.id)

    def progress(self) -> None:
        """Write the counts of requests that changed. Raises StoreError, FencedError."""
        for live in list(self._cache.requests.values()):
            state = live.row.state
            if not live.changed or state not in (RequestState.RUNNING, RequestState.CANCELLING):
                continue
            self._write_counts(live, live.with_progress(self._cache.running_of(live)))
            live.changed = False

    def prepare(self) -> None:
        """Write how far the planning and writing of requests are.

        Raises StoreError, FencedError.
        """
        for live in list(self._cache.requests.values()):
            before = live.row.preparation
            if before is None:
                continue
            if live.row.state is RequestState.PLANNING:
                done = self._intake.days_searched(live.id)
            else:
                done = min(len(live.ledger), before.total)
            if done != before.done:
                self._write_counts(live, replace(live.row, preparation=replace(before, done=done)))

    def _write_counts(self, live: Live, counted: RequestRow) -> None:
        """Write a request's counts while its state is the one that they were counted in."""

        def change(row: RequestRow) -> RequestRow:
            if row.state is not counted.state:
                return row
            if row.epoch > self._epoch:
                raise FencedError(f"manager epoch {self._epoch} is over; {row.epoch} acts")
            return replace(
                row,
                preparation=counted.preparation,
                phases=counted.phases,
                outputs=counted.outputs,
                delivered=counted.delivered,
                epoch=self._epoch,
            )

        live.row = request_operations.change_request(self._runtime, live.id, change)
        if live.row.order or live.row.retry_orders or live.row.state is not counted.state:
            self._look_at.add(live.id)
