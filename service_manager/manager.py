"""The acting manager: one round after another, each concern on its own.

A concern that fails because storage does not answer is tried again in the next round; none keeps
anything in memory that the tables do not have.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import structlog
from azure.core.exceptions import AzureError

from service_manager import ending
from service_manager.dependents import Dependents
from service_manager.digest import Digest
from service_manager.dispatch import Dispatch
from service_manager.dropping import Dropping
from service_manager.intake import Intake, Planner, recount
from service_manager.monitor import GiveUp, Kill, Monitor
from service_manager.options import Options
from service_manager.plan_writer import Written
from service_manager.retention import Retention
from service_manager.sweep import Sweep
from service_manager.view import Live, Running, View
from tasks import history, protocol, requests, transitions, workers
from tasks.errors import FencedError, StoreError
from tasks.keys import SHARDS, shard
from tasks.model import Attempt, RequestState, State, Task
from tasks.requests import RequestRow
from tasks.rows import News, Want
from tasks.services import Services
from tasks.transitions import Change

log = structlog.get_logger("manager")

Send = Callable[[str], None]

_TRANSIENT = (StoreError, AzureError)  # storage failed: the same is tried again


class SendError(Exception):
    """The broker did not take a message."""


class Manager:
    """Acts until a round raises FencedError. `send` wakes a worker for a task key and raises
    SendError when it cannot; `plan` is the planner."""

    def __init__(
        self, services: Services, options: Options, plan: Planner, send: Send, epoch: int
    ) -> None:
        self._services = services
        self._store = services.store
        self._clock = services.clock
        self._options = options
        self._send = send
        self._epoch = epoch
        self.view = View()
        self._dispatch = Dispatch(options.window, options.resend)
        self._dependents = Dependents(services, self._find)
        self._digest = Digest(services, self.view, self._dependents, epoch)
        self._intake = Intake(services, options, plan)
        self._monitor = Monitor(options, self.view)
        self._sweep = Sweep(services, self.view, self._dispatch, options.sweep)
        self._statistics: dict[str, history.ClassStatistics] = {}
        self._later: list[tuple[float, str]] = []
        self._known_later: set[str] = set()
        self._work: dict[str, Iterator[Written | None]] = {}  # plans and drops under way
        self._after: dict[str, RequestState] = {}  # what a request becomes when its drop is over
        self._look_at: set[str] = set()  # requests whose rows are to be read
        self._retention = Retention(services, self.view, wait=options.orphans)
        self._shards_looked_at = itertools.cycle(SHARDS)
        self._due: dict[str, float] = {"orphans": self._clock.monotonic() + options.orphans}
        self._strays: dict[str, int] = {}  # beats that listed a claim nobody knows

    def tick(self) -> bool:
        """One round; returns whether there is more to do at once.

        Raises:
            FencedError: another manager acts.
        """
        busy = False
        for name, concern, period in (
            ("requests", self._requests, 1.0),
            ("sweep", self._sweeping, 0.0),
            ("digest", self._digesting, 0.0),
            ("work", self._working, 0.0),
            ("wake", self._waking, 0.0),
            ("monitor", self._monitoring, self._options.heartbeat),
            ("ends", self._ends, 0.0),
            ("dispatch", self._dispatching, 0.0),
            ("progress", self._progress, 1.0),
            ("orphans", self._orphans, self._options.orphans / len(SHARDS)),
        ):
            now = self._clock.monotonic()
            if now < self._due.get(name, 0.0):
                continue
            self._due[name] = now + period
            try:
                busy = concern() or busy
            except _TRANSIENT as error:
                log.warning("tried again in the next round", concern=name, error=str(error))
        return busy

    # --- requests: new ones, orders ---

    def _requests(self) -> bool:
        for request, acknowledge in self._services.queue.receive():
            self._look_at.add(request)
            acknowledge()
        if self._clock.monotonic() >= self._due.get("live", 0.0):
            self._look_at.update(requests.live_requests(self._store))
            self._look_at.update(self.view.requests)
            self._statistics = history.class_statistics(self._store)
            self._due["live"] = self._clock.monotonic() + self._options.sweep
            self._recount_quiet()
        for request in sorted(self._look_at):
            self._look_at.discard(request)
            try:
                self._look(request)
            except _TRANSIENT:
                self._look_at.add(request)
                raise
        return False

    def _recount_quiet(self) -> None:
        """Read again what requests were told that hear nothing: a manager that stalled and is
        fenced by now may have told them. Less and less often while nothing comes of it."""
        for live in self.view.requests.values():
            live.quiet = 0 if live.heard else live.quiet + 1
            live.heard = False
            if live.row.state is RequestState.RUNNING and live.quiet.bit_count() == 1:
                recount(self._services, live)

    def _find(self, request: str) -> Live | None:
        """A request that has not ended, taken into view where it was not."""
        live = self.view.requests.get(request)
        if live is None:
            try:
                live = self._intake.load(request)
            except requests.NoSuchRequestError:
                return None
            if live is not None:
                self.view.requests[request] = live
                self._look_at.add(request)
        return live

    def _look(self, request: str) -> None:
        known = request in self.view.requests
        live = self._find(request)
        if live is None:
            return
        if known:
            self._take_row(live, requests.load(self._services, request))
            if live.row.state.ended:
                self._forget(request)
                return
        if live.row.state is RequestState.SUBMITTED:
            self._submitted(live)
        if live.row.state is RequestState.PLANNING and request not in self._work:
            self._work[request] = self._intake.write(live)
        if live.row.state is RequestState.RUNNING:
            self._obey(live)

    def _submitted(self, live: Live) -> None:
        if live.row.order == "cancel":
            row = ending.end_without_plan(
                self._services,
                live.row,
                RequestState.CANCELLED,
                "cancelled before it was planned",
                portal_url=self._options.portal_url,
            )
        else:
            row = self._intake.take(live.row)
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

    def _drop(self, live: Live, becomes: RequestState) -> None:
        self._after[live.id] = becomes
        live.leaving = True
        keep = becomes is RequestState.FAILED
        self._work[live.id] = Dropping(
            self._services, self.view, self._dispatch, live, keep_ended=keep
        ).batches()

    def _take_row(self, live: Live, row: RequestRow) -> None:
        live.row = row
        live.changed = True

    def _forget(self, request: str) -> None:
        self.view.requests.pop(request, None)
        self._work.pop(request, None)
        self._after.pop(request, None)

    # --- sweeping, digesting, waking ---

    def _sweeping(self) -> bool:
        first = "swept" not in self._due
        for _ in range(len(SHARDS) if first else 1):
            number = self._sweep.due()
            if number is None:
                break
            found = self._sweep.run(number)
            for at, key in found.later:
                self._postpone(at, key)
            if found.news:
                self._digest.hint([number])
        self._due["swept"] = 0.0
        return False

    def _digesting(self) -> bool:
        self._digest.hint([shard(key) for key in self._services.hints.drain() if key])
        result = self._digest.run()
        for news in result.ended:
            self._ended(news)
        for task in result.ready:
            self._ready(task)
        for at, key in result.later:
            self._postpone(at, key)
        return result.more

    def _ended(self, news: News) -> None:
        running = self.view.running.get(news.key)
        if running is not None and running.attempt <= news.number:
            del self.view.running[news.key]
        self._dispatch.remove(news.key, self._clock.monotonic())
        if news.state is State.READY and not news.not_before:
            self._dispatch.add(news.key, news.sponsor)

    def _ready(self, task: Task) -> None:
        sponsor = self.view.requests.get(task.sponsor)
        if sponsor is not None and not sponsor.dispatchable:
            for live in self.view.wanted_by(task):
                if live.dispatchable:
                    moved = self._sponsor(task.key, live.id)
                    self._dispatch.add(task.key, moved.sponsor if moved else live.id)
                    return
        self._dispatch.add(task.key, task.sponsor)

    def _sponsor(self, key: str, request: str) -> Task | None:
        def decide(task: Task) -> Change:
            if task.sponsor == request or request not in task.wants:
                return Change(task=task, operations=())
            return transitions.sponsor(task, request)

        return protocol.change_task(self._services, key, decide)

    def _postpone(self, at: float, key: str) -> None:
        if key not in self._known_later:
            # A worker's clock may be far ahead: no wait is longer than the longest back-off.
            longest = self._clock.now() + 2 * self._options.retry.ceiling
            heapq.heappush(self._later, (min(at, longest), key))
            self._known_later.add(key)

    def _waking(self) -> bool:
        now = self._clock.now()
        while self._later and self._later[0][0] <= now:
            key = self._later[0][1]

            def decide(task: Task) -> Change:
                if task.state is not State.READY or not task.not_before:
                    return Change(task=task, operations=())
                return transitions.wake(task, max(now, task.not_before))

            task = protocol.change_task(self._services, key, decide)
            heapq.heappop(self._later)
            self._known_later.discard(key)
            if task is not None and task.state is State.READY:
                self._ready(task)
        return False

    # --- plans and drops ---

    def _working(self) -> bool:
        """A slice of each plan and drop under way, in turn."""
        until = self._clock.monotonic() + self._options.slice
        while self._work:
            for request in list(self._work):
                self._step(request)
            if self._clock.monotonic() >= until:
                break
        return bool(self._work)

    def _step(self, request: str) -> None:
        live = self.view.requests[request]
        try:
            written = next(self._work[request])
        except StopIteration:
            del self._work[request]
            self._finished(live)
        except (*_TRANSIENT, ValueError) as error:
            del self._work[request]
            self._look_at.add(request)  # begins again from the start
            if isinstance(error, _TRANSIENT):
                raise
            log.exception("a plan cannot be written", request=request)
            self._after[request] = RequestState.FAILED
            self._finished(live)
        else:
            if written is not None:
                self._note(live, written)

    def _note(self, live: Live, written: Written) -> None:
        for task, _ in written.tasks:
            if task.state is State.READY and not task.not_before:
                self._ready(task)
        for key in written.examine:
            told = self._dependents.examine(key)
            for task in told.ready:
                self._ready(task)
            self._digest.hint([shard(ended) for ended in told.ended])
        live.changed = True

    def _finished(self, live: Live) -> None:
        self._look_at.add(live.id)  # a plan is written, and there may be an order; or the end fails
        becomes = self._after.get(live.id)
        if becomes is None:
            return
        if becomes is RequestState.FAILED and live.row.state is RequestState.RUNNING:
            wants = recount(self._services, live)
            self._end(live, [want for want in wants if want.outcome])
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

    def _ends(self) -> bool:
        for live in list(self.view.requests.values()):
            if live.row.state is not RequestState.RUNNING:
                continue
            if live.id in self._work or live.id in self._after or live.row.order == "cancel":
                continue
            if live.policy == "fail" and _failed(live):
                self._drop(live, RequestState.FAILED)
            elif not live.pending:
                wants = recount(self._services, live)
                if not live.pending:
                    self._end(live, wants)
        return False

    def _end(self, live: Live, wants: list[Want]) -> None:
        row = ending.end(
            self._services,
            live,
            wants,
            portal_url=self._options.portal_url,
            epoch=self._epoch,
        )
        if row.state.ended:
            self._forget(live.id)
        else:
            self._take_row(live, row)
            self._look_at.add(live.id)

    def _progress(self) -> bool:
        for live in list(self.view.requests.values()):
            if not live.changed or live.row.state is not RequestState.RUNNING:
                continue
            counted = live.with_progress(self.view.running)

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
            if row.order or row.state.ended:
                self._look_at.add(live.id)
        return False

    def _orphans(self) -> bool:
        """Delete blobs of attempts that came to nothing, a shard at a time."""
        deleted = self._retention.collect(next(self._shards_looked_at))
        if deleted:
            log.info("useless blobs deleted", count=deleted)
        return False

    # --- dispatch and monitor ---

    def _dispatching(self) -> bool:
        chosen = self._dispatch.choose(self.view, self._clock.monotonic())
        for number, key in enumerate(chosen):
            try:
                self._send(key)
            except SendError as error:
                log.warning("the broker takes no messages", error=str(error))
                self._dispatch.unsend(chosen[number:])
                return False
        return False

    def _monitoring(self) -> bool:
        now = self._clock.monotonic()
        found = workers.list_workers(self._store)
        self._monitor.hear(found, now)
        self._strays_of(found, now)
        for running in self.view.running.values():
            self._dispatch.remove(running.key, now)
        for live in self.view.requests.values():
            live.changed = True
        kills, given_up = self._monitor.look(self._statistics, now)
        for kill in kills:
            self._kill(kill)
        for verdict in given_up:
            self._give_up(verdict)
        return False

    def _strays_of(self, found: list[workers.WorkerRow], now: float) -> None:
        """Attempts that workers list and the view lacks: new ones, or ones nobody waits for."""
        known = {running.claim for running in self.view.running.values()}
        listed: dict[str, int] = {}
        for worker in found:
            for attempt in worker.attempts:
                if attempt.claim in known or self._monitor.lost(worker.name, now):
                    continue
                task = protocol.read_task(self._store, attempt.key)
                if task is None:
                    continue
                if task.state is State.RUNNING and task.claim == attempt.claim:
                    self.view.running[task.key] = _running_of(task, now - attempt.started_ago)
                elif task.claim != attempt.claim or task.state is State.CANCELLED:
                    beats = listed[attempt.claim] = self._strays.get(attempt.claim, 0) + 1
                    if beats > 1:
                        workers.order_kill(self._store, self._clock, worker.name, attempt.claim)
        self._strays = listed

    def _kill(self, kill: Kill) -> None:
        running = kill.running
        log.warning(
            "attempt runs too long",
            task=running.key,
            attempt=running.attempt,
            worker=running.worker,
            bound=round(kill.bound, 1),
        )
        workers.order_kill(self._store, self._clock, running.worker, running.claim)
        running.ordered = self._clock.monotonic()

    def _give_up(self, verdict: GiveUp) -> None:
        running = verdict.running
        now = self._clock.now()
        attempt = Attempt(
            key=running.key,
            number=running.attempt,
            claim=running.claim,
            phase=running.phase,
            task_class=running.task_class,
            worker=running.worker,
            started=running.claimed_at,
            ended=now,
            duration=self._clock.monotonic() - running.since,
            category=verdict.category,
            message=verdict.message,
            log=verdict.message,
        )
        log.warning("attempt given up", task=running.key, why=verdict.message)
        protocol.fail(self._services, attempt, self._options.retry)
        self.view.running.pop(running.key, None)
        self._digest.hint([shard(running.key)])


def _running_of(task: Task, since: float) -> Running:
    return Running(
        key=task.key,
        claim=task.claim,
        worker=task.worker,
        attempt=task.attempt,
        retries=task.retries,
        phase=task.phase,
        task_class=task.task_class,
        sponsor=task.sponsor,
        claimed_at=task.claimed_at,
        since=since,
    )


def _failed(live: Live) -> bool:
    return any(e.outcome in ("failed", "gap", "superseded") for e in live.ledger.values())
