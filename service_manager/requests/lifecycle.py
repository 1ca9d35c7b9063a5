"""Requests from their submission to their end: taken up, planned, obeyed, told of, ended."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import structlog
from azure.core.exceptions import AzureError

from service_manager.options import Options
from service_manager.plans.plan_writer import Written
from service_manager.requests import ending
from service_manager.requests.dropping import Dropping, nothing, what_ended
from service_manager.requests.intake import Intake, recount
from service_manager.requests.reviving import Reviving
from service_manager.tasks.dependents import Dependents, Told
from service_manager.tasks.dispatch import Dispatch
from service_manager.tasks.holders import Holders
from service_manager.tasks.ready import Ready
from service_manager.tasks.view import Live, View
from tasks.errors import FencedError, StoreError
from tasks.model.model import RequestState, State
from tasks.tables import requests
from tasks.tables.requests import RequestRow
from tasks.tables.rows import Want
from tasks.tables.services import Services

log = structlog.get_logger("manager.lifecycle")

TRANSIENT = (StoreError, AzureError)  # storage failed: the same is tried again


class Lifecycle:
    """All requests that have not ended. `hear` takes what telling dependents came to; `epoch`
    guards the requests' progress; `holders` hear who made the inputs of planned tasks."""

    def __init__(
        self,
        services: Services,
        options: Options,
        view: View,
        dispatch: Dispatch,
        ready: Ready,
        intake: Intake,
        dependents: Dependents,
        hear: Callable[[Told], None],
        epoch: int,
        holders: Holders | None = None,
    ) -> None:
        self._services = services
        self._store = services.store
        self._clock = services.clock
        self._options = options
        self._view = view
        self._dispatch = dispatch
        self._ready = ready
        self._intake = intake
        self._hear = hear
        self._reviving = Reviving(services, view, dispatch, dependents, self.find, hear)
        self._epoch = epoch
        self._holders = holders
        self._work: dict[str, Iterator[Written | None]] = {}  # plans and drops under way
        self._after: dict[str, RequestState] = {}  # what a request becomes when its drop is over
        self._look_at: set[str] = set()  # requests whose rows are to be read
        self._all_due = 0.0

    def find(self, request: str) -> Live | None:
        """A request that has not ended, taken into view where it was not."""
        live = self._view.requests.get(request)
        if live is None:
            try:
                live = self._intake.load(request)
            except requests.NoSuchRequestError:
                return None
            if live is not None:
                self._view.requests[request] = live
                self._look_at.add(request)
        return live

    def close(self) -> None:
        """Let go of plans that are under way."""
        for request in self._intake.planning:
            self._intake.abandon(request)

    # --- new ones, orders ---

    def take_up(self) -> bool:
        """Hear of new requests and orders, and see to them. Raises StoreError, AzureError."""
        for request, acknowledge in self._services.queue.receive():
            self._look_at.add(request)
            acknowledge()
        if self._clock.monotonic() >= self._all_due:
            self._look_at.update(requests.live_requests(self._store))
            self._look_at.update(self._view.requests)
            self._all_due = self._clock.monotonic() + self._options.sweep
            self._recount_quiet()
        self._look_at.update(self._intake.planning)
        for request in sorted(self._look_at):
            self._look_at.discard(request)
            try:
                self._look(request)
            except TRANSIENT:
                self._look_at.add(request)
                raise
        return False

    def _recount_quiet(self) -> None:
        """Read again what requests were told that hear nothing: a manager that stalled and is
        fenced by now may have told them. Less and less often while nothing comes of it."""
        for live in self._view.requests.values():
            live.quiet = 0 if live.heard else live.quiet + 1
            live.heard = False
            if live.row.state is RequestState.RUNNING and live.quiet.bit_count() == 1:
                recount(self._services, live)

    def _look(self, request: str) -> None:
        known = request in self._view.requests
        live = self.find(request)
        if live is None:
            return
        if known:
            self._take_row(live, requests.load(self._services, request))
            if live.row.state.ended:
                self._forget(request)
                return
        if live.row.state is RequestState.SUBMITTED:
            self._submitted(live)
        if live.row.state is RequestState.HELD:
            self._held(live)
        if live.row.state is RequestState.PLANNING and request not in self._work:
            self._work[request] = self._intake.write(live)
        if live.row.state is RequestState.RUNNING:
            self._obey(live)

    def _submitted(self, live: Live) -> None:
        if live.row.order == "cancel":
            self._cancel_early(live, "cancelled before it was planned")
            return
        row = self._intake.take(live.row)
        self._take_row(live, row)
        if row.state.ended:
            self._forget(live.id)

    def _held(self, live: Live) -> None:
        if live.row.order == "cancel":
            self._cancel_early(live, "cancelled before it was confirmed")
        elif live.row.order == "confirm":
            self._take_row(live, self._intake.confirm(live))

    def _cancel_early(self, live: Live, message: str) -> None:
        self._intake.abandon(live.id)
        row = ending.end_without_plan(
            self._services,
            live.row,
            RequestState.CANCELLED,
            message,
            portal_url=self._options.portal_url,
        )
        self._take_row(live, row)
        if row.state.ended:
            self._forget(live.id)

    def _obey(self, live: Live) -> None:
        if live.id in self._work:
            return
        if live.row.order == "cancel":
            self._drop(live, RequestState.CANCELLED)
        elif live.id in self._after:  # it broke off
            self._drop(live, self._after[live.id])
        elif live.row.order in ("pause", "resume"):
            paused = live.row.order == "pause"

            def change(row: RequestRow) -> RequestRow:
                if row.order != live.row.order:
                    return row
                return replace(row, paused=paused, order="")

            self._take_row(live, requests.change_request(self._services, live.id, change))
            self._look_at.add(live.id)
        elif live.row.retry_orders:
            self._work[live.id] = self._reviving.batches(live)

    def _drop(self, live: Live, becomes: RequestState) -> None:
        self._after[live.id] = becomes
        live.leaving = True
        keep = what_ended if becomes is RequestState.FAILED else nothing
        self._work[live.id] = Dropping(
            self._services, self._view, self._dispatch, live.id, keep
        ).batches()

    def _take_row(self, live: Live, row: RequestRow) -> None:
        live.row = row
        live.changed = True

    def _forget(self, request: str) -> None:
        self._view.requests.pop(request, None)
        self._work.pop(request, None)
        self._after.pop(request, None)

    # --- plans and drops ---

    def work(self) -> bool:
        """A slice of each plan and drop under way, in turn; whether there is more."""
        until = self._clock.monotonic() + self._options.slice
        while self._work:
            for request in list(self._work):
                self._step(request)
            if self._clock.monotonic() >= until:
                break
        return bool(self._work)

    def _step(self, request: str) -> None:
        live = self._view.requests[request]
        try:
            written = next(self._work[request])
        except StopIteration:
            del self._work[request]
            self._finished(live)
        except (*TRANSIENT, ValueError) as error:
            del self._work[request]
            self._look_at.add(request)  # begins again from the start
            if isinstance(error, TRANSIENT):
                raise
            log.exception("a plan cannot be written", request=request)
            self._after[request] = RequestState.FAILED
            self._finished(live)
        else:
            if written is not None:
                self._note(live, written)

    def _note(self, live: Live, written: Written) -> None:
        if self._holders is not None:
            for made in written.made:
                self._holders.made(*made)
        for task, _ in written.tasks:
            if task.state is State.READY and not task.not_before:
                self._ready.now(task)
        self._hear(Told(ended=written.waiting))
        live.changed = True

    def _finished(self, live: Live) -> None:
        self._look_at.add(live.id)  # a plan is written, and there may be an order; or the end fails
        becomes = self._after.get(live.id)
        if becomes is None:
            return
        if becomes is RequestState.FAILED and live.row.state is RequestState.RUNNING:
            stored = requests.load(self._services, live.id)
            wants = recount(self._services, live)
            self._end(live, stored, [want for want in wants if want.outcome])
            return
        ending.end_without_plan(
            self._services,
            live.with_progress(()),
            becomes,
            "cancelled" if becomes is RequestState.CANCELLED else "its plan is out of order",
            portal_url=self._options.portal_url,
        )
        self._forget(live.id)

    # --- ends and progress ---

    def ends(self) -> bool:
        """End the requests all of whose tasks have. Raises StoreError."""
        for live in list(self._view.requests.values()):
            if live.row.state is not RequestState.RUNNING:
                continue
            if live.id in self._work or live.id in self._after or live.row.order == "cancel":
                continue
            if live.policy == "fail" and live.ledger.failed:
                self._drop(live, RequestState.FAILED)
            elif not live.pending and not live.row.retry_orders:
                stored = requests.load(self._services, live.id)
                wants = recount(self._services, live)
                if not live.pending:
                    self._end(live, stored, wants)
        return False

    def _end(self, live: Live, stored: RequestRow, wants: list[Want]) -> None:
        row = ending.end(
            self._services,
            live,
            stored,
            wants,
            portal_url=self._options.portal_url,
            epoch=self._epoch,
        )
        if row.state.ended:
            self._forget(live.id)
        else:
            self._take_row(live, row)
            self._look_at.add(live.id)

    def progress(self) -> bool:
        """Write the counts of requests that changed. Raises StoreError, FencedError."""
        for live in list(self._view.requests.values()):
            if not live.changed or live.row.state is not RequestState.RUNNING:
                continue
            counted = live.with_progress(self._view.running_of(live))

            def change(row: RequestRow, counted: RequestRow = counted) -> RequestRow:
                if row.state is not RequestState.RUNNING:
                    return row
                if row.epoch > self._epoch:
                    raise FencedError(f"manager epoch {self._epoch} is over; {row.epoch} acts")
                return replace(
                    row,
                    phases=counted.phases,
                    outputs=counted.outputs,
                    delivered=counted.delivered,
                    epoch=self._epoch,
                )

            row = requests.change_request(self._services, live.id, change)
            live.row = replace(row, document=live.row.document)
            live.changed = False
            if row.order or row.retry_orders or row.state.ended:
                self._look_at.add(live.id)
        return False
