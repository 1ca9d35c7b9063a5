"""Slots: each takes one task at a time, supervises its child, and settles the attempt."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

import structlog

from tasks.errors import StoreError
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile, Attempt, State
from tasks.run.classify import Diagnosis, classify, classify_exit
from tasks.settings import Settings
from tasks.tables import protocol
from tasks.tables.protocol import Claimed
from tasks.tables.runtime import Runtime
from tasks.tables.transitions import RetryPolicy
from tasks.tables.workers import Hold, RunningAttempt
from worker.files.scratch import Scratch
from worker.sandbox.children import AttemptProcess
from worker.sandbox.messages import Ended, Failed, Job, Message, Progress, Succeeded
from worker.sandbox.sandbox import Tier
from worker.slots import attempt

_GB = 10**9
_SETTLE_TRIES = 30  # with the pauses below, enough for some minutes without the table
_SETTLE_PAUSE = 5.0


class AttemptOrder(Enum):
    """Why an attempt's child is killed."""

    KILL = "kill order"  # from the manager: too slow, or nobody wants the task
    MOVE = "move order"  # from the manager: this machine is slow, others will finish sooner
    FENCE = "fence"  # the table was unreachable for a lease: others may have taken over
    HAND_BACK = "hand back"  # the worker is shutting down


@dataclass(kw_only=True)
class _Slot:
    """One running attempt. `child` is None until it is started."""

    claimed: Claimed
    since: float  # monotonic
    started: float  # POSIX
    child: AttemptProcess | None = None
    progress: float = 0.0
    note: str = ""
    order: AttemptOrder | None = None
    report: Succeeded | Failed | None = None

    def hear(self, message: Message) -> None:
        if isinstance(message, Progress):
            self.progress, self.note = message.fraction, message.note
        elif isinstance(message, Succeeded | Failed):
            self.report = message


@dataclass(frozen=True, kw_only=True)
class _End:
    """The end of an attempt: with files, or with a diagnosis."""

    files: tuple[ArtifactFile, ...] = ()
    diagnosis: Diagnosis | None = None
    log: str = ""
    peak_memory: int = 0


@dataclass(kw_only=True)
class Supervisor:
    """The attempts of one worker; as many threads as there are slots call `execute`."""

    runtime: Runtime
    settings: Settings
    name: str
    sandbox: Tier
    scratch: Scratch
    cache: Path
    start: Callable[[Job], AttemptProcess] = field(default=lambda job: start_child(job))
    draining: bool = False
    hold: Hold = Hold.NONE
    _slots: dict[str, _Slot] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._log = structlog.get_logger("worker")
        self._policy = RetryPolicy(
            budget=self.settings.retry_budget,
            base=self.settings.retry_base,
            ceiling=self.settings.retry_ceiling,
            longest=self.settings.retry_longest,
        )

    def execute(self, key: str) -> None:
        """Claim the task and supervise its attempt to the end; ignore a stale message."""
        if not self.takes():
            return  # the manager sends the message again, to a worker that stays
        try:
            claimed = protocol.claim(self.runtime, key, self.name, self._policy)
        except StoreError as error:
            self._log.warning("not claimed", task=key, error=str(error))
            return
        if claimed is None:
            return
        clock = self.runtime.clock
        slot = _Slot(claimed=claimed, since=clock.monotonic(), started=clock.now())
        with self._lock:
            self._slots[claimed.claim] = slot
        log = self._log.bind(task=key, attempt=claimed.task.attempt, claim=claimed.claim)
        log.info("attempt started", task_class=claimed.task.task_class)
        try:
            self._settle(slot, self._run(slot), log)
        finally:
            with self._lock:
                del self._slots[claimed.claim]

    def takes(self) -> bool:
        """Whether another attempt may begin."""
        if self.draining or self.hold is Hold.DRAINED:
            return False
        return self.hold is Hold.NONE or not self._slots

    def running(self) -> tuple[RunningAttempt, ...]:
        """List the running attempts, for the heartbeat."""
        now = self.runtime.clock.monotonic()
        with self._lock:
            slots = tuple(self._slots.values())
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

    def kill(self, claim: str, order: AttemptOrder) -> None:
        """Have an attempt's process tree killed; its slot then settles the attempt."""
        with self._lock:
            slot = self._slots.get(claim)
            if slot is None or slot.order is not None:
                return
            slot.order = order
            child = slot.child
        self._log.info("killing an attempt", task=slot.claimed.task.key, order=order.value)
        if child is not None:
            child.kill()

    def kill_all(self, order: AttemptOrder) -> None:
        """Have every attempt killed."""
        with self._lock:
            claims = tuple(self._slots)
        for claim in claims:
            self.kill(claim, order)

    def _run(self, slot: _Slot) -> _End:
        try:
            with self.scratch.attempt(slot.claimed.claim) as folder:
                ended = self._follow(slot, folder)
        except EOFError:
            ended = None  # the forkserver died; the next start creates a new one
        except Exception as error:  # noqa: BLE001 - a claimed attempt must be settled in any case
            diagnosis = classify(error)
            return _End(diagnosis=diagnosis, log=diagnosis.traceback)
        if ended is None:
            lost = "the attempt's guard, or the forkserver it came from, was killed from outside"
            return _End(diagnosis=Diagnosis(category=Category.WORKER_LOST, message=lost))
        return self._judge(slot, ended)

    def _follow(self, slot: _Slot, folder: Path) -> Ended | None:
        claimed = slot.claimed
        job = Job(
            key=claimed.task.key,
            claim=claimed.claim,
            spec=claimed.spec,
            inputs=claimed.input_files,
            scratch=folder.resolve(),
            cache=self.cache.resolve(),
            settings=self.settings,
            sandbox=self.sandbox,
        )
        child = self.start(job)
        with self._lock:
            slot.child = child
            killed = slot.order is not None
        if killed:
            child.kill()
        return child.follow(slot.hear)

    def _judge(self, slot: _Slot, ended: Ended) -> _End:
        """Decide how the attempt ended: by the child's report, by an order, or by how it died."""
        said = slot.report
        if isinstance(said, Succeeded):
            return _End(files=said.files, log=ended.log, peak_memory=ended.peak_memory)
        if slot.order is not None:
            diagnosis = self._ordered(slot, slot.order)
        elif ended.over_memory:
            limit = self.settings.attempt_memory_gb
            message = f"used {ended.peak_memory / _GB:.2f} GB of memory, the limit is {limit:g} GB"
            diagnosis = Diagnosis(category=Category.OUT_OF_MEMORY, message=message)
        elif said is not None:
            diagnosis = Diagnosis(
                category=said.category,
                message=said.message,
                asked=said.asked,
                healing=said.healing,
            )
        else:
            diagnosis = _without_report(ended)
        return _End(diagnosis=diagnosis, log=ended.log, peak_memory=ended.peak_memory)

    def _ordered(self, slot: _Slot, order: AttemptOrder) -> Diagnosis:
        if order is AttemptOrder.HAND_BACK:
            message = "the worker was told to stop and handed the task back"
            return Diagnosis(category=Category.CANCELLED, message=message)
        if order is AttemptOrder.MOVE:
            message = "the worker's machine is slow: handed back, for another worker to run"
            return Diagnosis(category=Category.CANCELLED, message=message)
        if order is AttemptOrder.FENCE:
            message = "the worker did not reach the table for a lease and ended its attempts"
            return Diagnosis(category=Category.WORKER_LOST, message=message)
        ran = self.runtime.clock.monotonic() - slot.since
        if self._still_ours(slot.claimed):
            message = f"killed after {ran:.1f} s: longer than attempts of its class may take"
            return Diagnosis(category=Category.EXECUTION_TIMEOUT, message=message)
        return Diagnosis(
            category=Category.CANCELLED, message=f"killed after {ran:.1f} s: nobody wants it"
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

    def _fail(self, claimed: Claimed, attempt: Attempt, diagnosis: Diagnosis) -> bool:
        if diagnosis.category is Category.CORRUPT_BLOB_READ:
            protocol.lose_inputs(self.runtime, claimed, diagnosis.healing)
        return protocol.fail(
            self.runtime,
            attempt,
            self._policy,
            asked=diagnosis.asked,
            healing=diagnosis.healing,
        )

    def _settle(self, slot: _Slot, end: _End, log: structlog.stdlib.BoundLogger) -> None:
        """Write the end into the table; retry for minutes while the table is unreachable."""
        clock = self.runtime.clock
        diagnosis = end.diagnosis
        attempt = slot.claimed.attempt(
            started=slot.started,
            ended=clock.now(),
            duration=clock.monotonic() - slot.since,
            category=diagnosis.category if diagnosis else None,
            message=diagnosis.message if diagnosis else "",
            log=end.log,
            peak_memory=end.peak_memory,
        )
        if diagnosis is None:
            write = partial(
                protocol.commit, self.runtime, attempt, end.files, first=slot.claimed.task
            )
        else:
            write = partial(self._fail, slot.claimed, attempt, diagnosis)
        for left in reversed(range(_SETTLE_TRIES)):
            try:
                ours = write()
            except StoreError as error:
                log.warning("attempt not settled", error=str(error), tries_left=left)
                clock.sleep(min(_SETTLE_PAUSE, self.settings.lease_seconds / 4))
                continue
            outcome = diagnosis.category.value if diagnosis else "success"
            log.info(
                "attempt ended" if ours else "attempt fenced",
                outcome=outcome,
                seconds=round(attempt.duration, 3),
                peak_memory=end.peak_memory,
                message=attempt.message,
            )
            return
        log.error("attempt given up: the monitor will find it", task=attempt.key)


def _without_report(ended: Ended) -> Diagnosis:
    """Diagnose a child that did not report, from how it ended and its last output."""
    diagnosis = classify_exit(ended.exit_code or 0)
    words = ended.log.strip().splitlines()
    if diagnosis.category is not Category.UNKNOWN or not words:
        return diagnosis
    return replace(diagnosis, message=f"{diagnosis.message}: {words[-1][:300]}")


def start_child(job: Job) -> AttemptProcess:
    """Start a child from the forkserver, with the attempt's memory limit."""
    limit = int(job.settings.attempt_memory_gb * _GB)
    return AttemptProcess.start(partial(attempt.run, job), limit)
