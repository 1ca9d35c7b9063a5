"""Faults put into the product on purpose. The simulation must find each of them.

`mutants.json` holds the seed of the first history that found each of them: the search begins there.
A change of the product changes the histories, and the search then takes longer;
`python -m tests.simulation.run --mutants` writes the seeds again.
"""

import datetime as dt
import heapq
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from service_manager.dispatch import brake
from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import Live, WatchedAttempt
from service_manager.dispatch.ready import ReadyTasks
from service_manager.fleet.machines import Machines
from service_manager.fleet.monitor import Monitor
from service_manager.leader.leadership import Leadership
from service_manager.mail.notify import Postman
from service_manager.plans import plan_writer
from service_manager.plans.plan_writer import PlanWriter, Written
from service_manager.requests import ending, lifecycle, release
from service_manager.requests.continuing import Continuing, continued_id
from service_manager.storage.retention import Retention
from tasks.bag import (
    batch,
    history,
    protocol,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import RULES, Category, Retry
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, Attempt, State, Task
from tasks.bag.runtime import Runtime, new_id
from tasks.bag.task_rows import CompletionEvent, Edge, Interest, ReadyMarker
from tasks.bag.task_table import RowKind, kind_of
from tasks.bag.transitions import Change
from tasks.bag.workers import WorkerRow
from tasks.errors import StoreError
from tasks.request.document import Request
from tasks.requests import outbox, request_operations, retrying
from tasks.requests.request_table import RequestRow
from tasks.storage.blobs import split_blob
from tasks.storage.clock import Clock
from tasks.storage.store import Delete, Operation, Store, Upsert
from tests.simulation.history import Mutant, Outcome, simulate
from tests.simulation.noise_mutants import NOISE_MUTANTS
from tests.simulation.patching import Undo, patch
from worker.slots.fitness import Fitness
from worker.slots.lease import Lease

SEEDS = Path(__file__).with_name("mutants.json")
LIMIT = 1000  # seeds within which a mutant must be caught


def _no_fencing() -> Undo:
    def unguarded(_task: Task, _claim: str) -> None:
        return

    return patch(transitions, "_fence", unguarded)


def _claim_ignored() -> Undo:
    """Whoever ends an attempt ends the one that runs, whichever claim it is."""
    original = transitions.commit

    def commit(task: Task, attempt: Attempt, files: Sequence[ArtifactFile]) -> Change:
        taken = replace(attempt, claim=task.claim, number=task.attempt)
        return original(task, taken, files)

    return patch(transitions, "commit", commit)


def _attempt_restarted() -> Undo:
    original = transitions.claim

    def claim(task: Task, fencing_token: str, worker: str, now: float, place: int = 0) -> Change:
        return original(replace(task, attempt=task.retries), fencing_token, worker, now, place)

    return patch(transitions, "claim", claim)


def _linked(edges: Sequence[Edge], task: Task) -> Change:
    return transitions.link(task, edges)


def _edge_read_before_write() -> Undo:
    """The inputs' states are read first, the edges written afterwards."""
    create, interest, batches = transitions.create, transitions.add_interest, PlanWriter.batches

    def create_alone(
        spec: Spec, first: Interest, missing: int, _edges: Sequence[Edge] = ()
    ) -> Change:
        return create(spec, first, missing)

    def interest_alone(
        task: Task, one: Interest, missing: int, _edges: Sequence[Edge] = ()
    ) -> Change:
        return interest(task, one, missing)

    def late(self: PlanWriter) -> Iterator[Written]:
        yield from batches(self)
        steps = (level for section in self._sections for level in plan_writer._levels(section))
        for step in itertools.chain.from_iterable(steps):
            if step.edges:
                protocol.change_task(self._runtime, step.key, partial(_linked, step.edges))

    undo = [
        patch(transitions, "create", create_alone),
        patch(transitions, "add_interest", interest_alone),
        patch(PlanWriter, "batches", late),
    ]
    return lambda: [call() for call in undo].clear()


def _count_not_idempotent() -> Undo:
    numbers = itertools.count()

    def unknown(event: CompletionEvent) -> str:
        return f"{event.key[:8]}.{next(numbers)}"

    return patch(history, "attempt_id", unknown)


def _epoch_ignored() -> Undo:
    original = history.load_cursor

    def load_cursor(store: Store) -> history.Cursor:
        return replace(original(store), epoch=0)

    def renew(_self: Leadership) -> None:
        return

    undo = [patch(history, "load_cursor", load_cursor), patch(Leadership, "renew", renew)]
    return lambda: [call() for call in undo].clear()


def _cancel_leaves_the_interest() -> Undo:
    original = transitions.drop

    def drop(task: Task, request: str, ended: Callable[[str], bool] = lambda _: False) -> Change:
        change = original(task, request, ended)
        left = tuple(
            op
            for op in change.operations
            if not (isinstance(op, Delete) and kind_of(op.row) is RowKind.INTEREST)
        )
        return replace(change, operations=left)

    return patch(transitions, "drop", drop)


def _cancel_forgets_results() -> Undo:
    return patch(lifecycle, "what_ended", release.nothing)


def _cancel_counts_what_is_left() -> Undo:
    original = Live.with_progress

    def with_progress(self: Live, running: Iterable[str]) -> RequestRow:
        return original(replace(self, row=replace(self.row, phases={})), running)

    return patch(Live, "with_progress", with_progress)


def _retention_without_expired() -> Undo:
    def expire(self: Retention, shard: str) -> int:
        blobs = self._runtime.blobs
        for task in list(self._runtime.tasks.all_tasks(shard)):
            if task.state is State.DONE and not task.interests:
                for file in task.files:
                    blobs.delete(*split_blob(file.blob))
        return 0

    return patch(Retention, "expire", expire)


def _lost_input_forgotten() -> Undo:
    original = transitions.heal

    def heal(task: Task, missing: int, edges: Sequence[Edge] = ()) -> Change:
        if task.state is State.EXPIRED:
            return Change(task=task)
        return original(task, missing, edges)

    return patch(transitions, "heal", heal)


def _success_ignored() -> Undo:
    """The brake stops runs although others of the request have ended well."""

    def common(live: Live) -> brake.Failure | None:
        if not live.run_failures:
            return None
        category, message = min(live.run_failures)
        return brake.Failure(category=category, message=message)

    return patch(brake, "common_failure", common)


def _retry_overruled() -> Undo:
    """The brake stops what somebody has asked to be tried again."""

    def asked_for(_self: brake.Brake, _live: Live, _task: Task) -> bool:
        return False

    return patch(brake.Brake, "_asked_for", asked_for)


def _stopped_without_event() -> Undo:
    original = transitions.stop

    def stop(task: Task, category: Category, reason: str, said: str) -> Change:
        change = original(task, category, reason, said)
        left = tuple(
            op for op in change.operations if kind_of(op.row) is not RowKind.COMPLETION_EVENT
        )
        return replace(change, operations=left)

    return patch(transitions, "stop", stop)


def _waiting_charged() -> Undo:
    """Of a lost worker's batch, what waited is charged like what was in hand."""
    return patch(WatchedAttempt, "in_hand", True)


def _waiting_timed() -> Undo:
    """The time limit of a task runs while it waits in a batch."""
    original = Monitor._listed

    def listed(
        self: Monitor, worker: WorkerRow, running: Iterable[WatchedAttempt], now: float
    ) -> None:
        before = [(one, one.since) for one in running]
        original(self, worker, [one for one, _ in before], now)
        for one, since in before:
            one.begun, one.since = True, min(one.since, since)

    return patch(Monitor, "_listed", listed)


def _rest_dropped() -> Undo:
    """A batch whose transaction met a conflict takes all of its tasks for lost."""
    original = batch._Work._write

    def write(self: batch._Work, part: Mapping[str, Change]) -> bool:
        refused = self.refused
        answered = original(self, part)
        if self.refused > refused and len(part) > 1:
            for key in part:
                self.found[key] = None
                del self.left[key]
        return answered

    return patch(batch._Work, "_write", write)


def _given_back_without_marker() -> Undo:
    original = transitions.give_back

    def give_back(
        task: Task, fencing_token: str, category: Category | None = None, why: str = ""
    ) -> Change:
        change = original(task, fencing_token, category, why)
        left = tuple(op for op in change.operations if kind_of(op.row) is not RowKind.READY)
        return replace(change, operations=left)

    return patch(transitions, "give_back", give_back)


def _claimed_twice() -> Undo:
    """A batch claims tasks that are running already."""
    original = transitions.claim

    def claim(task: Task, fencing_token: str, worker: str, now: float, place: int = 0) -> Change:
        if task.state is State.RUNNING:
            new = replace(task, claim=fencing_token, worker=worker, claimed_at=now, place=place)
            marker = task_table.markers(new)[task_table.running_row(task.key)]
            upsert = Upsert(row=task_table.running_row(task.key), entity=marker)
            return Change(task=new, operations=(task_table.replace_task(new, task.etag), upsert))
        return original(task, fencing_token, worker, now, place)

    def claimable(task: Task) -> bool:
        return task.state in (State.READY, State.RUNNING) and not task.not_before

    undo = [patch(transitions, "claim", claim), patch(protocol, "_claimable", claimable)]
    return lambda: [call() for call in undo].clear()


def _lease_ignored() -> Undo:
    """A worker claims and begins whether its beats succeed or not."""
    return patch(Lease, "fresh", True)


def _beat_dated_late() -> Undo:
    """The lease counts from the answer to a beat."""

    def renew(self: Lease, _sent: float) -> None:
        self._since = self.clock.monotonic()

    return patch(Lease, "renew", renew)


def _failed_beat_counts() -> Undo:
    """A beat renews the lease although storage did not answer."""
    original = workers.beat

    def beat(store: Store, clock: Clock, row: WorkerRow, until: float) -> workers.Orders:
        try:
            return original(store, clock, row, until)
        except StoreError:
            return workers.Orders(hold=row.hold)

    return patch(workers, "beat", beat)


def _loss_charged() -> Undo:
    """An attempt lost with its worker costs its task a retry."""
    rule = RULES[Category.WORKER_LOST]
    RULES[Category.WORKER_LOST] = replace(rule, retry=Retry.BACK_OFF)

    def undo() -> None:
        RULES[Category.WORKER_LOST] = rule

    return undo


def _host_charged() -> Undo:
    """An attempt that its host could not begin costs its task a try."""
    rule = RULES[Category.HOST_FAILED]
    RULES[Category.HOST_FAILED] = replace(rule, retry=Retry.BACK_OFF)

    def undo() -> None:
        RULES[Category.HOST_FAILED] = rule

    return undo


def _full_disk_charged() -> Undo:
    """An attempt that found a disk filled by others costs its task a try."""
    rule = RULES[Category.DISK_SHARED]
    RULES[Category.DISK_SHARED] = replace(rule, retry=Retry.BACK_OFF)

    def undo() -> None:
        RULES[Category.DISK_SHARED] = rule

    return undo


def _goes_on_untested() -> Undo:
    """A worker whose host failed an attempt goes on without a self-test."""
    return patch(Fitness, "failed", lambda _self, _why: None)


def _last_stays_drained() -> Undo:
    """Nobody looks at who is left when others leave or a probe was slow."""

    def keep(_self: Machines, _now: float) -> None:
        return

    return patch(Machines, "_keep_some", keep)


def _unread_are_gone() -> Undo:
    """Workers whose rows cannot be read count as lost."""
    original = workers.list_workers

    def list_workers(store: Store) -> list[WorkerRow]:
        try:
            return original(store)
        except StoreError:
            return []

    return patch(workers, "list_workers", list_workers)


def _wait_by_the_wall() -> Undo:
    """A back-off ends when the manager's wall clock shows what the worker's clock said."""

    def later(self: ReadyTasks, at: float, key: str) -> None:
        if key not in self._known_later:
            wait = at - self._clock.now()
            heapq.heappush(self._later, (self._clock.monotonic() + wait, key))
            self._known_later.add(key)

    return patch(ReadyTasks, "later", later)


def _order_outlives_a_cancel() -> Undo:
    """A request that is being cancelled does not end while an order to try again waits."""

    def goes_on(stored: RequestRow, live: Live) -> bool:
        return stored.state is not live.row.state or bool(stored.retry_orders)

    return patch(ending, "_goes_on", goes_on)


def _gone_on_first() -> Undo:
    """A standing request is marked as gone on before its successor is submitted."""
    original = Continuing._go_on

    def go_on(self: Continuing, row: RequestRow, document: Request, newest: dt.date) -> None:
        def mark(current: RequestRow) -> RequestRow:
            return replace(current, standing=0, continued_as=continued_id(row.id))

        request_operations.change_request(self._runtime, row.id, mark)
        original(self, row, document, newest)

    return patch(Continuing, "_go_on", go_on)


def _named_twice() -> Undo:
    """Whoever tries an ended request again names the next one, even if it has a name."""

    def named(runtime: Runtime, row: RequestRow) -> RequestRow:
        name = f"{row.id[:23]}-{new_id(runtime.random)}"
        return request_operations.change_request(
            runtime, row.id, lambda found: replace(found, retried_as=name)
        )

    return patch(retrying, "_named", named)


def _refused_counts_as_sent() -> Undo:
    def put_off(self: Postman, mail: outbox.Mail, _error: Exception) -> None:
        outbox.mark_sent(self._store, self._clock, mail, self._clock.now())

    return patch(Postman, "_put_off", put_off)


def _owners_not_counted() -> Undo:
    original = history._days

    def days(
        store: Store, fresh: Sequence[CompletionEvent], _owners: Mapping[str, str]
    ) -> Iterator[Operation]:
        return original(store, fresh, {})

    return patch(history, "_days", days)


def _places_not_counted() -> Undo:
    """The manager sends what is ready, whatever connections the archive's host allows."""
    original = Dispatch.__init__

    def init(self: Dispatch, *some: Any, **more: Any) -> None:
        original(self, *some, **{**more, "places": 0})

    return patch(Dispatch, "__init__", init)


def _breadth_first() -> Undo:
    """What becomes ready first is sent first, whatever result it serves."""
    original = Dispatch.add

    def add(self: Dispatch, *some: Any, **more: Any) -> None:
        original(self, *some, **{**more, "rank": 0})

    return patch(Dispatch, "add", add)


def _given_back_charged() -> Undo:
    """What a worker had no place for costs its task a try."""
    original = transitions.give_back

    def give_back(
        task: Task, fencing_token: str, category: Category | None = None, why: str = ""
    ) -> Change:
        charged = replace(task, retries=task.retries + (not task.place))
        return original(charged, fencing_token, category, why)

    return patch(transitions, "give_back", give_back)


def _place_forgotten() -> Undo:
    """The message of a task with a place goes to all workers that have none."""

    def place(_self: FleetDispatch, _key: str) -> str:
        return ""

    return patch(FleetDispatch, "place", place)


def _places_not_swept() -> Undo:
    """A sweep tells of work without a place alone."""
    original = FleetDispatch._by_place

    def by_place(
        self: FleetDispatch, found: Iterable[ReadyMarker]
    ) -> Iterator[tuple[Dispatch, list[ReadyMarker]]]:
        for one, mine in original(self, found):
            yield one, mine if one is self.places[""] else []

    return patch(FleetDispatch, "_by_place", by_place)


MUTANTS = (
    Mutant(name="no fencing", apply=_no_fencing),
    Mutant(name="fencing token ignored", apply=_claim_ignored),
    Mutant(name="attempt number restarted", apply=_attempt_restarted),
    Mutant(name="lost answer read as failure", lost_is_failure=True),
    Mutant(name="edge read before write", apply=_edge_read_before_write),
    Mutant(name="blob deleted on a conflict", delete_on_conflict=True),
    Mutant(name="marker outside the transaction", split_markers=True),
    Mutant(name="count that is not idempotent", apply=_count_not_idempotent),
    Mutant(name="epoch ignored", apply=_epoch_ignored),
    Mutant(name="cancel that leaves the interest row", apply=_cancel_leaves_the_interest),
    Mutant(name="cancel that forgets results", apply=_cancel_forgets_results),
    Mutant(name="cancel that counts what is left", apply=_cancel_counts_what_is_left),
    Mutant(name="retention without EXPIRED", apply=_retention_without_expired),
    Mutant(name="runs stopped although some end well", apply=_success_ignored),
    Mutant(name="runs stopped that were asked for", apply=_retry_overruled),
    Mutant(name="run stopped without an event", apply=_stopped_without_event),
    Mutant(name="waiting tasks charged with their worker", apply=_waiting_charged),
    Mutant(name="time limit runs while a task waits", apply=_waiting_timed),
    Mutant(name="batch dropped after a conflict", apply=_rest_dropped),
    Mutant(name="task given back without its marker", apply=_given_back_without_marker),
    Mutant(name="batch claims what runs", apply=_claimed_twice),
    Mutant(name="claims without a lease", apply=_lease_ignored),
    Mutant(name="beat dated by its answer", apply=_beat_dated_late),
    Mutant(name="failed beat renews the lease", apply=_failed_beat_counts),
    Mutant(name="lost worker charged to the task", apply=_loss_charged),
    Mutant(name="last worker stays drained", apply=_last_stays_drained),
    Mutant(name="workers unread count as lost", apply=_unread_are_gone),
    Mutant(name="back-off by another's clock", apply=_wait_by_the_wall),
    Mutant(name="order that outlives a cancel", apply=_order_outlives_a_cancel),
    Mutant(name="standing request gone on too early", apply=_gone_on_first),
    Mutant(name="retry named twice", apply=_named_twice),
    Mutant(name="refused mail counts as sent", apply=_refused_counts_as_sent),
    Mutant(name="owners not counted", apply=_owners_not_counted),
    Mutant(name="input known to be lost not made again", apply=_lost_input_forgotten),
    Mutant(name="places of a host not counted", apply=_places_not_counted),
    Mutant(name="no place charged to the task", apply=_given_back_charged),
    *NOISE_MUTANTS,
    Mutant(name="host that failed charged to the task", apply=_host_charged),
    Mutant(name="full disk charged to the task", apply=_full_disk_charged),
    Mutant(name="worker goes on after its host failed", apply=_goes_on_untested),
    Mutant(name="results made all at the end", apply=_breadth_first, rasters=True),
    Mutant(name="work of a place sent to all", apply=_place_forgotten),
    Mutant(name="places left out by a sweep", apply=_places_not_swept),
)


def _simulate(seed: int, mutant: Mutant) -> Outcome:
    return simulate(seed, mutant, noisy=mutant.noisy)


def caught_by(mutant: Mutant, first: int) -> int | None:
    """Return the seed of a history that finds a mutant, searched from `first` on and then from 0;
    None when no history finds it."""
    seeds = itertools.chain(range(first, LIMIT), range(first))
    return next((seed for seed in seeds if _simulate(seed, mutant).violation), None)


def noted_seeds() -> dict[str, int]:
    """Return the noted seed of each mutant by the mutant's name."""
    seeds: dict[str, int] = json.loads(SEEDS.read_text("utf-8"))
    return seeds


def note_seeds(seeds: Mapping[str, int]) -> None:
    """Write the seeds that `noted_seeds` returns."""
    SEEDS.write_text(json.dumps(dict(seeds), indent=2) + "\n", "utf-8")
