"""Slots: each takes a batch of tasks and runs one after another, each attempt in a child.

Ends are written together. What a batch has not begun goes back to the table when the worker stops
or is held, or when the batch takes long: other slots may be idle. So does a task for which this
machine has no room.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Protocol

import structlog
from structlog.contextvars import bound_contextvars

from tasks.bag import protocol, task_table
from tasks.bag.categories import Category
from tasks.bag.model import NO_USE, ArtifactFile, Phase, RunUse, State, Use
from tasks.bag.protocol import NOT_HERE, Claimed
from tasks.bag.runtime import Runtime
from tasks.bag.transitions import RetryPolicy
from tasks.bag.workers import Hold, RunningAttempt, list_workers
from tasks.errors import StoreError
from tasks.service import tracing
from tasks.service.classify import FULL_WHILE_MAPPED, Diagnosis, classify, classify_exit
from tasks.settings import Settings
from tasks.shown_text import in_one_line
from tasks.storage.schema import OtherSchemaError
from tasks.storage.traffic import Traffic
from worker.files.scratch import Scratch
from worker.sandbox.guard import LOG_BYTES
from worker.sandbox.messages import (
    Begun,
    Ended,
    Failed,
    Job,
    Message,
    Postponed,
    Progress,
    Saved,
    Succeeded,
    state_path,
)
from worker.slots.checkpoints import Checkpoints
from worker.slots.crash import may_be_a_granules
from worker.slots.fitness import Fitness
from worker.slots.lease import Lease
from worker.slots.spans import Course, attempt_spans

_GB = 10**9
_SETTLE_TRIES = 30  # with the pauses below, enough for some minutes without the table
_SETTLE_PAUSE = 5.0
_UNWRITTEN = 1.0  # seconds that the end of an attempt waits for others, to be written with them
_LONG = 10.0  # seconds after which a batch gives back what it has not begun


class AttemptOrder(Enum):
    """Why an attempt's child is killed."""

    KILL = "kill order"  # from the manager: too slow, or nobody wants the task
    MOVE = "move order"  # this machine is slow, others will finish sooner; or an operator's kill
    FENCE = "fence"  # the table was unreachable for a lease: others may have taken over
    HAND_BACK = "hand back"  # the worker is shutting down


@dataclass(frozen=True, kw_only=True)
class EndedAttempt:
    """An attempt that ended; `parts` are the seconds of wait, fetch, compute and store."""

    phase: Phase
    outcome: str
    parts: Mapping[str, float]


class RunningProcess(Protocol):
    """An attempt under way, in a child of this worker or elsewhere."""

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        """Pass each report to `heard` until the end; None if it was killed from outside."""
        ...

    def kill(self) -> None:
        """Have it killed; `follow` returns soon after. Any thread may call this."""
        ...


@dataclass(kw_only=True)
class _Slot:
    """One running attempt. `child` is None until it is started."""

    claimed: Claimed
    since: float  # monotonic
    asked: float  # POSIX, when the claim was sent
    waited: float  # seconds between the claim and the begin
    started: float  # POSIX
    child: RunningProcess | None = None
    begun: bool = False  # its own work: what fails before is the machine's
    progress: float = 0.0
    note: str = ""
    order: AttemptOrder | None = None
    by: str = ""  # the operator who ordered it
    report: Succeeded | Failed | None = None
    postponed: str = ""  # why the attempt was not begun
    lacks: str = ""  # the tier of the sandbox without which it cannot be run here
    crashed: bool = False  # once already: it is being done again
    checkpoints: Checkpoints | None = None  # of a reduction
    folder: Path | None = None  # the attempt's own, while it runs

    def hear(self, message: Message) -> None:
        if isinstance(message, Begun):
            self.begun = True
        elif isinstance(message, Saved):
            if self.checkpoints is not None and self.folder is not None:
                self.checkpoints.take(state_path(self.folder))
        elif isinstance(message, Progress):
            self.progress, self.note = message.fraction, message.note
        elif isinstance(message, Succeeded | Failed):
            self.report = message
        elif isinstance(message, Postponed):
            self.postponed, self.lacks = message.message, message.tier

    def parts(self, duration: float) -> dict[str, float]:
        """Say where the time went: what was neither fetching nor storing was computing."""
        fetching, storing = 0.0, 0.0
        if self.report is not None:
            fetching, storing = self.report.fetching, self.report.storing
        return {
            "wait": self.waited,
            "fetch": fetching,
            "compute": max(0.0, duration - fetching - storing),
            "store": storing,
        }


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """An attempt that has ended, with its end as it is to be written."""

    at: float  # monotonic
    claimed: Claimed
    end: protocol.End
    parts: Mapping[str, float]
    course: Course
    log: structlog.stdlib.BoundLogger
    checkpoints: Checkpoints | None


@dataclass(kw_only=True)
class _Batch:
    """The tasks that a slot has claimed: one in hand, others that wait or have ended."""

    waiting: deque[Claimed]
    since: float  # monotonic
    asked: float  # POSIX, when the claim was sent
    in_hand: _Slot | None = None
    begun: int = 0
    stopped: bool = False  # begins no further task
    ended: list[_Ended] = field(default_factory=list)  # not written yet
    writing: threading.Lock = field(default_factory=threading.Lock)

    def unwritten(self, now: float) -> float:
        """Seconds for which an end has waited to be written. The caller holds the lock."""
        return now - self.ended[0].at if self.ended else 0.0


@dataclass(frozen=True, kw_only=True)
class _End:
    """The end of an attempt: with files, or with a diagnosis."""

    files: tuple[ArtifactFile, ...] = ()
    diagnosis: Diagnosis | None = None
    log: str = ""
    peak_memory: int = 0
    used: RunUse | None = None
    use: Use = NO_USE


@dataclass(kw_only=True)
class Supervisor:
    """The attempts of one worker; as many threads as there are slots call `execute`."""

    runtime: Runtime
    settings: Settings
    name: str
    scratch: Scratch
    start: Callable[[Job], RunningProcess]
    reading: str = ""  # the tier in which makers open granules here
    heard: Callable[[EndedAttempt], None] = lambda _ended: None
    draining: bool = False
    leaving: bool = False  # the manager wants it to end when it runs nothing
    grace: float = field(init=False)  # seconds that attempts have, once it is asked to stop
    hold: Hold = Hold.NONE
    _batches: list[_Batch] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._log = structlog.get_logger("worker")
        self.lease = Lease(self.runtime.clock, self.settings.lease_seconds)
        self.fitness = Fitness(self.runtime.clock)
        self._policy = RetryPolicy.of(self.settings)
        self.grace = self.settings.grace_seconds

    def execute(self, keys: Sequence[str]) -> None:
        """Claim a batch and supervise its attempts to the end; ignore a stale message."""
        if not self.takes():
            return  # the manager sends the message again, to a worker that stays
        asked = self.runtime.clock.now()
        try:
            claimed = protocol.claim_batch(self.runtime, keys, self.name, self._policy)
        except (StoreError, OtherSchemaError) as error:
            self._log.warning("not claimed", tasks=len(keys), first=keys[0], error=str(error))
            return
        if not claimed:
            return
        batch = _Batch(waiting=deque(claimed), since=self.runtime.clock.monotonic(), asked=asked)
        with self._lock:
            self._batches.append(batch)
        try:
            while (slot := self._begin(batch)) is not None:
                self._run_one(batch, slot)
        finally:
            self._give_back(batch)
            self._write(batch)
            with self._lock:
                self._batches.remove(batch)

    def tend(self) -> None:
        """Write ends that have waited, and give back what batches do not begin soon."""
        now = self.runtime.clock.monotonic()
        with self._lock:
            batches = tuple(self._batches)
        for batch in batches:
            if self._stops(batch) or now - batch.since > _LONG:
                self._give_back(batch)
            with self._lock:
                waits = batch.unwritten(now)
            if waits >= _UNWRITTEN:
                self._write(batch)

    def _stops(self, batch: _Batch) -> bool:
        """Tell whether a batch begins no further task."""
        if batch.stopped or self.draining or self.hold is Hold.DRAINED or not self._able():
            return True
        return self.hold is Hold.PROBE and batch.begun > 0

    def _begin(self, batch: _Batch) -> _Slot | None:
        """Take the next task of a batch in hand."""
        clock = self.runtime.clock
        with self._lock:
            if not batch.waiting or self._stops(batch):
                return None
            claimed = batch.waiting.popleft()
            now = clock.monotonic()
            slot = _Slot(
                claimed=claimed,
                since=now,
                asked=batch.asked,
                waited=now - batch.since,
                started=clock.now(),
                checkpoints=self._checkpoints(claimed),
            )
            batch.in_hand = slot
            batch.begun += 1
        return slot

    def _run_one(self, batch: _Batch, slot: _Slot) -> None:
        task = slot.claimed.task
        log = self._log.bind(
            request=task.sponsor, task=task.key, attempt=task.attempt, claim=task.claim
        )
        log.info("attempt started", task_class=task.task_class)
        end = self._run(slot)
        if slot.postponed and slot.order is None:
            log.info("attempt postponed", why=slot.postponed)
            with self._lock:
                batch.in_hand = None
                batch.waiting.appendleft(slot.claimed)
            before = NOT_HERE if slot.lacks else ""
            self._give_back(batch, slot.claimed.claim, f"{before}{slot.postponed}")
            return
        if end.diagnosis is None:
            self.fitness.succeeded()
        elif end.diagnosis.category is Category.HOST_FAILED:
            self.fitness.failed(end.diagnosis.message)  # before others may claim the task
        elif end.diagnosis.category is Category.UNKNOWN:
            self.fitness.unknown(end.diagnosis.message)
        ended = self._ended(slot, end, log)
        with self._lock:
            batch.ended.append(ended)
            batch.in_hand = None
            waits = batch.unwritten(ended.at)
        if waits >= _UNWRITTEN:
            self._write(batch)

    def _give_back(self, batch: _Batch, claim: str = "", why: str = "") -> None:
        """Make waiting tasks of a batch READY again: all, or the one of a claim.

        It is tried once, because the monitor finds them, too.
        """
        with self._lock:
            back = [one for one in batch.waiting if claim in ("", one.claim)]
            batch.waiting = deque(one for one in batch.waiting if claim not in ("", one.claim))
        if not back:
            return
        try:
            claims = {one.task.key: one.claim for one in back}
            protocol.give_back(self.runtime, claims, why=why)
        except StoreError as error:
            self._log.warning("tasks not given back", tasks=len(back), error=str(error))
        else:
            self._log.info("tasks given back", tasks=len(back))

    def takes(self) -> bool:
        """Tell whether another attempt may begin: with a fresh lease and a self-test passed."""
        if self.draining or self.hold is Hold.DRAINED or not self._able():
            return False
        return self.hold is Hold.NONE or not self._batches

    def _able(self) -> bool:
        return self.lease.fresh and self.fitness.fit

    def running(self) -> tuple[RunningAttempt, ...]:
        """List the attempts in hand, for the heartbeat."""
        now = self.runtime.clock.monotonic()
        slots = self._in_hand()
        return tuple(
            RunningAttempt(
                key=slot.claimed.task.key,
                claim=slot.claimed.claim,
                started_ago=round(now - slot.since, 3),
                phase=slot.claimed.task.phase,
                task_class=slot.claimed.task.task_class,
                progress=round(slot.progress, 3),
                note=slot.note[:120],
            )
            for slot in slots
        )

    def waiting(self) -> tuple[str, ...]:
        """List the claims of tasks that are not begun, or whose ends are not written yet."""
        with self._lock:
            return tuple(
                one.claim
                for batch in self._batches
                for one in (*batch.waiting, *(ended.claimed for ended in batch.ended))
            )

    def busy(self) -> bool:
        """Tell whether any task is claimed."""
        return bool(self._batches)

    def kill(self, claim: str, order: AttemptOrder, by: str = "") -> None:
        """Have an attempt's process tree killed; its slot then settles the attempt.

        A task that waits in a batch is given back. `by` is the operator who ordered it.
        """
        with self._lock:
            batches = tuple(self._batches)
        for batch in batches:
            self._give_back(batch, claim)
        for slot in self._in_hand():
            if slot.claimed.claim == claim:
                self._kill(slot, order, by)

    def kill_all(self, order: AttemptOrder) -> None:
        """Have every attempt killed; the slots give back what waits."""
        with self._lock:
            for batch in self._batches:
                batch.stopped = True
        for slot in self._in_hand():
            self._kill(slot, order)

    def _in_hand(self) -> tuple[_Slot, ...]:
        with self._lock:
            return tuple(batch.in_hand for batch in self._batches if batch.in_hand is not None)

    def _kill(self, slot: _Slot, order: AttemptOrder, by: str = "") -> None:
        with self._lock:
            if slot.order is not None:
                return
            slot.order, slot.by = order, by
            child = slot.child
        self._log.info("killing an attempt", task=slot.claimed.task.key, order=order.value)
        if child is not None:
            child.kill()

    def _run(self, slot: _Slot) -> _End:
        if absent := slot.claimed.absent:
            category = Category.SOURCE_BLOB_MISSING
            lacks = Diagnosis(category=category, message=protocol.INPUT_ABSENT, healing=absent)
            return _End(diagnosis=lacks)
        try:
            with self.scratch.attempt(slot.claimed.claim) as folder:
                ended = self._follow(slot, folder)
            if ended is not None and self._may_have_crashed_on_a_granule(slot, ended):
                ended = self._once_more(slot, ended)
        except Exception as error:  # noqa: BLE001 - a claimed attempt must be settled in any case
            diagnosis = classify(error)
            if diagnosis.category is Category.OUT_OF_DISK:  # it has written nothing itself
                diagnosis = replace(diagnosis, category=Category.DISK_SHARED)
            return _End(diagnosis=diagnosis, log=diagnosis.traceback)
        if ended is None:
            lost = "the attempt's guard, or the forkserver it came from, was killed from outside"
            return _End(diagnosis=Diagnosis(category=Category.WORKER_LOST, message=lost))
        if slot.lacks and slot.order is None and not self._others_have(slot.lacks):
            refused = Diagnosis(category=Category.CHOICE_REFUSED, message=slot.postponed)
            slot.postponed = ""
            return _End(diagnosis=refused, log=ended.log)
        return self._judge(slot, ended)

    def _others_have(self, tier: str) -> bool:
        """Tell whether a worker of another host, and of this place, runs packages in a tier.

        One that is silent counts until its row goes: it may come back.
        """
        try:
            rows = list_workers(self.runtime.store)
        except StoreError:
            return True  # it is given back, and asked again
        hosts = {row.host for row in rows if row.name == self.name}
        return any(
            row.runs_packages(tier) and not row.draining
            for row in rows
            if row.host not in hosts and row.place == self.settings.worker_place
        )

    def _may_have_crashed_on_a_granule(self, slot: _Slot, ended: Ended) -> bool:
        if slot.order is not None or slot.report is not None or not slot.begun:
            return False
        return may_be_a_granules(slot.claimed, ended)

    def _once_more(self, slot: _Slot, crashed: Ended) -> Ended | None:
        """Do a crashed attempt again, granules first read apart: that tells which is damaged."""
        self._log.warning(
            "the child crashed: granules are read apart",
            task=slot.claimed.task.key,
            claim=slot.claimed.claim,
            exit_code=crashed.exit_code,
        )
        slot.crashed = True
        with self.scratch.attempt(slot.claimed.claim) as folder:
            ended = self._follow(slot, folder)
        if ended is None:
            return None
        peak, cpu = max(crashed.peak_memory, ended.peak_memory), crashed.cpu + ended.cpu
        log = (crashed.log + ended.log)[-LOG_BYTES:]
        return ended.model_copy(update={"log": log, "peak_memory": peak, "cpu": cpu})

    def _follow(self, slot: _Slot, folder: Path) -> Ended | None:
        claimed = slot.claimed
        job = Job(
            request=claimed.task.sponsor,
            key=claimed.task.key,
            claim=claimed.claim,
            spec=claimed.spec,
            inputs=claimed.input_files,
            struck=claimed.task.struck,
            scratch=folder.resolve(),
            after_crash=slot.crashed,
            state=slot.checkpoints.found() if slot.checkpoints else "",
        )
        slot.begun, slot.folder = False, folder
        child = self.start(job)
        with self._lock:
            slot.child = child
            killed = slot.order is not None
        if killed:
            child.kill()
        if slot.checkpoints is None:
            return child.follow(slot.hear)
        with slot.checkpoints.during(lambda: isinstance(slot.report, Succeeded)):
            return child.follow(slot.hear)

    def _checkpoints(self, claimed: Claimed) -> Checkpoints | None:
        """Return what stores the states of an attempt that runs a package."""
        if claimed.task.phase is not Phase.REDUCTION:
            return None
        return Checkpoints(
            self.runtime.blobs,
            claimed.task,
            self.settings.checkpoint_seconds,
            self.runtime.clock,
            lambda: self.draining,
        )

    def _judge(self, slot: _Slot, ended: Ended) -> _End:
        """Decide how the attempt ended: by the child's report, by an order, or by how it died."""
        said = slot.report
        use = _use(ended, said)
        if isinstance(said, Succeeded):
            return _End(
                files=said.files,
                log=ended.log,
                peak_memory=ended.peak_memory,
                used=said.used,
                use=use,
            )
        if slot.order is not None:
            diagnosis = self._ordered(slot, slot.order)
        elif ended.over_memory:
            diagnosis = self._over_memory(slot.claimed.task.phase, ended.peak_memory)
        elif said is not None:
            diagnosis = Diagnosis(
                category=said.category,
                message=said.message,
                asked=said.asked,
                healing=said.healing,
            )
        else:
            diagnosis = _without_report(ended, crashed_before=slot.crashed)
            if not slot.begun:
                diagnosis = replace(diagnosis, category=Category.HOST_FAILED)
        return _End(
            diagnosis=diagnosis,
            log=ended.log,
            peak_memory=ended.peak_memory,
            used=said.used if said is not None else None,
            use=use,
        )

    def _over_memory(self, phase: Phase, peak: int) -> Diagnosis:
        limit = self.settings.attempt_memory_gb
        message = f"used {peak / _GB:.2f} GB of memory, the limit is {limit:g} GB"
        if phase is Phase.REDUCTION:
            # The package's own bound is not reached: what it wrote is being read and stored.
            message += (
                " of a whole attempt, with the package's rasters as they are stored: write fewer "
                "bands into each raster, or a smaller type of pixels"
            )
        return Diagnosis(category=Category.OUT_OF_MEMORY, message=message)

    def _ordered(self, slot: _Slot, order: AttemptOrder) -> Diagnosis:
        if order is AttemptOrder.HAND_BACK:
            message = "the worker was asked to stop and handed the task back"
            return Diagnosis(category=Category.CANCELLED, message=message)
        if order is AttemptOrder.MOVE:
            why = f"killed by {slot.by}" if slot.by else "ended, as its machine is slow"
            return Diagnosis(category=Category.CANCELLED, message=f"{why}: handed back")
        if order is AttemptOrder.FENCE:
            message = "the worker did not reach the table for a lease and ended its attempts"
            return Diagnosis(category=Category.WORKER_LOST, message=message)
        ran = self.runtime.clock.monotonic() - slot.since
        if self._still_ours(slot.claimed):
            message = f"killed after {ran:.1f} s: longer than attempts of its class may take"
            return Diagnosis(category=Category.EXECUTION_TIMEOUT, message=message)
        return Diagnosis(
            category=Category.CANCELLED, message=f"killed after {ran:.1f} s: no request needs it"
        )

    def _still_ours(self, claimed: Claimed) -> bool:
        """Tell whether the table still has the task running under our claim.

        If so, the order is about time. A task that nobody wants is CANCELLED before the order is
        written.
        """
        try:
            task = self.runtime.tasks.task(claimed.task.key)
        except StoreError:
            return True  # the settling transaction is fenced in any case
        return task is not None and task.state is State.RUNNING and task.claim == claimed.claim

    def _ended(self, slot: _Slot, end: _End, log: structlog.stdlib.BoundLogger) -> _Ended:
        """Make the record of an attempt."""
        clock = self.runtime.clock
        diagnosis = end.diagnosis
        if diagnosis is None and not task_table.holds(end.files):
            message = f"made {len(end.files)} files: more than its row in the table can name"
            diagnosis = Diagnosis(category=Category.UNKNOWN, message=message)
        attempt = slot.claimed.attempt(
            started=slot.started,
            ended=clock.now(),
            duration=clock.monotonic() - slot.since,
            category=diagnosis.category if diagnosis else None,
            message=in_one_line(diagnosis.message) if diagnosis else "",
            log=end.log,
            peak_memory=end.peak_memory,
            used=end.used,
            use=end.use,
            reading="" if slot.claimed.task.phase is Phase.REDUCTION else self.reading,
        )
        ended = protocol.End(
            attempt=attempt,
            files=() if diagnosis else end.files,
            asked=diagnosis.asked if diagnosis else 0.0,
            healing=diagnosis.healing if diagnosis else 0,
            first=slot.claimed.task,
        )
        summary = EndedAttempt(
            phase=slot.claimed.task.phase,
            outcome=attempt.category.value if attempt.category else "success",
            parts=slot.parts(attempt.duration),
        )
        self.heard(summary)
        return _Ended(
            at=clock.monotonic(),
            claimed=slot.claimed,
            end=ended,
            parts=summary.parts,
            course=Course(
                asked=slot.asked,
                claimed=slot.started - slot.waited,
                steps=slot.report.steps if slot.report is not None else (),
            ),
            log=log,
            checkpoints=slot.checkpoints,
        )

    def _write(self, batch: _Batch) -> None:
        """Write what has ended into the table; retry for minutes while it is unreachable."""
        with batch.writing:
            some = tuple(batch.ended)
            if not some:
                return
            for left in reversed(range(_SETTLE_TRIES)):
                began = self.runtime.clock.now()
                try:
                    ours = self._end(some)
                except StoreError as error:
                    self._log.warning("attempts not settled", error=str(error), tries_left=left)
                    self.runtime.clock.sleep(min(_SETTLE_PAUSE, self.settings.lease_seconds / 4))
                    continue
                commit = began, self.runtime.clock.now()
                for one, own in zip(some, ours, strict=True):
                    _report(one, commit, own=own)
                    if own and one.checkpoints and one.end.attempt.category is None:
                        one.checkpoints.forget()
                break
            else:
                self._log.error(
                    "attempts given up: the monitor will find them",
                    tasks=[one.end.attempt.key for one in some],
                )
            with self._lock:
                del batch.ended[: len(some)]

    def _end(self, some: Sequence[_Ended]) -> list[bool]:
        with bound_contextvars(request=some[0].claimed.task.sponsor):
            for one in some:
                protocol.lose_damaged_inputs(self.runtime, one.claimed, one.end)
            return protocol.end_batch(self.runtime, [one.end for one in some], self._policy)


def _report(one: _Ended, commit: tuple[float, float], *, own: bool) -> None:
    attempt = one.end.attempt
    if tracing.is_on():
        sponsor = one.claimed.task.sponsor
        for span in attempt_spans(sponsor, attempt, one.course, commit, own=own):
            tracing.record(span)
    one.log.info(
        "attempt ended" if own else "attempt fenced",
        outcome=attempt.category.value if attempt.category else "success",
        seconds=round(attempt.duration, 3),
        parts={part: round(seconds, 3) for part, seconds in one.parts.items()},
        peak_memory=attempt.peak_memory,
        message=attempt.message,
    )


def _use(ended: Ended, said: Succeeded | Failed | None) -> Use:
    """Return what an attempt used; a runner says only what the package's run did."""
    cpu = ended.cpu
    if said is None:
        return Use.of(cpu, Traffic())
    if said.used is not None:
        cpu = max(cpu, said.used.cpu_seconds)
    return Use.of(cpu, said.traffic)


def _without_report(ended: Ended, *, crashed_before: bool) -> Diagnosis:
    """Diagnose a child that did not report, from how it ended and its last output."""
    if ended.no_room:
        return Diagnosis(category=Category.DISK_SHARED, message=FULL_WHILE_MAPPED)
    diagnosis = classify_exit(ended.exit_code or 0)
    if crashed_before:
        twice = ", twice, the second time with its granules read apart"
        diagnosis = replace(diagnosis, message=diagnosis.message + twice)
    words = ended.log.strip().splitlines()
    if diagnosis.category is not Category.UNKNOWN or not words:
        return diagnosis
    return replace(diagnosis, message=f"{diagnosis.message}: {words[-1][:300]}")
