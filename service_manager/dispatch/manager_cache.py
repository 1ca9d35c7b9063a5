"""What the manager keeps in memory. All of it can be read again from the tables."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from service_manager.dispatch.attempt_statistics import AttemptProgress
from service_manager.dispatch.ledger import Entry, Ledger
from tasks.bag.categories import Category
from tasks.bag.model import MissingPolicy, Phase, RequestState, Task, TaskOutcome
from tasks.bag.task_rows import CompletionEvent, Interest
from tasks.operators.restrictions import Restrictions
from tasks.requests.request_table import PhaseCount, RequestRow
from tasks.setting_values import WorkPlaces

_FEW = 1000  # running tasks


@dataclass
class Live:
    """A request that has not ended."""

    row: RequestRow  # without a document over 60 kB
    policy: MissingPolicy
    ledger: Ledger = field(default_factory=Ledger)
    stopped: bool = False  # its owner is paused, or a quota that it is under is spent
    changed: bool = True  # since its progress was written
    quiet: int = -1  # sweeps since something of its tasks was heard, less the first
    run_failures: set[tuple[Category, str]] = field(default_factory=set)
    """In how many ways runs of its reduction have failed: category and message, two at most."""
    unsure: set[str] = field(default_factory=set)
    """Keys of tasks whose outcome may be recorded, though storage gave no answer."""
    repeated: set[str] = field(default_factory=set)
    """Keys of runs of its reduction that had a fallback task and have begun again."""
    in_place: dict[str, str] = field(default_factory=dict)
    """The key of each fallback task, and of the task in whose place it is."""

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def fails(self) -> bool:
        """True if it is to fail, because it asked to when anything is missing."""
        return self.policy is MissingPolicy.FAIL and self.ledger.failed

    @property
    def leaving(self) -> bool:
        """True if its interests in unfinished tasks are being withdrawn."""
        return self.row.state is RequestState.CANCELLING or self.fails

    @property
    def dispatchable(self) -> bool:
        """True if its tasks may be sent to workers."""
        return not self.row.paused and not self.leaving and not self.stopped

    @property
    def pending(self) -> int:
        """Tasks whose outcome is not recorded yet."""
        return self.ledger.pending

    def wants(self, key: str) -> bool:
        """Tell whether it waits for the outcome of a task."""
        entry = self.ledger.get(key)
        return entry is not None and not entry.outcome

    def note(self, interest: Interest) -> None:
        """Take an interest row into the ledger, in place of what was there."""
        entry = Entry(interest.phase, interest.outcome, interest.reused, bool(interest.output))
        self.ledger.put(interest.key, entry)
        self.in_place.update(dict.fromkeys(interest.fallbacks, interest.key))
        self.changed = True
        self.repeated.discard(interest.key)
        if interest.phase is Phase.REDUCTION and interest.fallbacks and not interest.outcome:
            self.repeated.add(interest.key)
        if interest.outcome is TaskOutcome.FAILED and not interest.stopped:
            self._failed(interest.phase, interest.category, interest.message)

    def record(self, key: str, outcome: TaskOutcome, event: CompletionEvent | None = None) -> None:
        """Record what became of a task; `event` is the event that ended its attempt, if any."""
        entry = self.ledger.get(key)
        if entry is None or entry.outcome:
            return
        self.ledger.put(key, replace(entry, outcome=outcome))
        self.repeated.discard(key)
        self.changed = True
        self.quiet = -1
        if outcome is TaskOutcome.FAILED and event is not None and event.number:
            self._failed(event.phase, event.category, event.message)

    def _failed(self, phase: Phase, category: Category | None, message: str) -> None:
        if phase is Phase.REDUCTION and len(self.run_failures) < 2:
            self.run_failures.add((category or Category.UNKNOWN, message))

    def forget(self, key: str) -> None:
        """Forget a task in which the request has no interest any more."""
        self.ledger.remove(key)
        self.in_place.pop(key, None)
        self.repeated.discard(key)
        self.changed = True

    def with_progress(self, running: Iterable[str]) -> RequestRow:
        """Return the request's row with its counts; `running` are the keys of running tasks.

        While a request is being cancelled, its withdrawn interests are out of the ledger: of the
        tasks that the row has counted, those are cancelled.
        """
        counts = {phase: [0, 0, 0, 0, 0] for phase in Phase}
        outputs = delivered = 0
        for entry, number in self.ledger.counts():
            if entry.outcome is TaskOutcome.SUPERSEDED:
                continue
            count = counts[entry.phase]
            count[0] += number
            count[1] += number * (entry.outcome is TaskOutcome.DONE)
            count[2] += number * (entry.outcome in (TaskOutcome.FAILED, TaskOutcome.GAP))
            count[4] += number * entry.reused
            outputs += number * entry.output
            delivered += number * (entry.output and entry.outcome is TaskOutcome.DONE)
        for entry, fallback in self._twice():
            outputs -= 1
            delivered -= entry.outcome is fallback.outcome is TaskOutcome.DONE
        for key in running:
            found = self.ledger.get(key)
            if found is not None and not found.outcome:
                counts[found.phase][3] += 1
        planned: Mapping[Phase, PhaseCount] = {}
        if self.leaving:
            planned, outputs = self.row.phases, max(outputs, self.row.outputs)
        phases: dict[Phase, PhaseCount] = {}
        for phase, (wanted, done, failed, runs, reused) in counts.items():
            total = max(wanted, planned[phase].total if phase in planned else 0)
            if total:
                phases[phase] = PhaseCount(
                    total=total,
                    done=done,
                    failed=failed,
                    running=runs,
                    reused=reused,
                    cancelled=total - wanted,
                )
        return replace(self.row, phases=phases, outputs=outputs, delivered=delivered)

    def _twice(self) -> Iterator[tuple[Entry, Entry]]:
        """Yield tasks that another request's retry has revived, each with its fallback task.

        Both are to make one result.
        """
        for key in self.in_place:
            fallback, entry = self.ledger.get(key), None
            while key in self.in_place and (
                entry is None or entry.outcome is TaskOutcome.SUPERSEDED
            ):
                key = self.in_place[key]
                entry = self.ledger.get(key)
            if fallback is None or entry is None or not fallback.output or not entry.output:
                continue
            if TaskOutcome.SUPERSEDED not in (entry.outcome, fallback.outcome):
                yield entry, fallback


@dataclass(slots=True)
class WatchedAttempt:
    """A running attempt as the manager sees it. Times are on the manager's monotonic clock."""

    key: str
    claim: str
    worker: str
    attempt: int
    retries: int
    phase: Phase
    task_class: str
    sponsor: str
    claimed_at: float  # the worker's wall clock
    since: float
    ordered: float | None = None  # when its kill was ordered
    place: int = 0  # in the batch that was claimed with it
    begun: bool | None = None  # whether it is in hand; None: its worker has not listed it yet
    missed: int = 0  # beats of its worker that did not list it
    course: AttemptProgress = field(default_factory=AttemptProgress)

    @property
    def in_hand(self) -> bool:
        """True if its slot works at it, as far as is known; it may wait in a batch instead."""
        return not self.place if self.begun is None else self.begun


@dataclass
class ManagerCache:
    """Requests that have not ended, and attempts that run."""

    requests: dict[str, Live] = field(default_factory=dict)
    running: dict[str, WatchedAttempt] = field(default_factory=dict)  # by key
    slots: int = 0
    workers: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Host, and slots that take attempts, of each worker that beats,
    does not leave, and was drained by no operator."""
    worker_places: dict[str, str] = field(default_factory=dict)  # of those that have one, by name
    elsewhere: dict[str, WatchedAttempt] = field(default_factory=dict)
    """In a view of one place: the attempts that run at others, by key."""
    restrictions: Restrictions = field(default_factory=Restrictions)  # of operators
    retrying: set[str] = field(default_factory=set)  # requests whose retry orders are being obeyed

    def view(self, place: str, places: WorkPlaces) -> "ManagerCache":
        """Return what there is of one place: its slots, and the attempts of its work."""
        if not places.rules and not self.worker_places:
            return self
        here: dict[str, WatchedAttempt] = {}
        elsewhere: dict[str, WatchedAttempt] = {}
        for key, one in self.running.items():
            (here if places.of(one.task_class) == place else elsewhere)[key] = one
        workers = {
            name: worker
            for name, worker in self.workers.items()
            if self.worker_places.get(name, "") == place
        }
        return ManagerCache(
            requests=self.requests,
            running=here,
            slots=sum(slots for _, slots in workers.values()),
            workers=workers,
            elsewhere=elsewhere,
            restrictions=self.restrictions,
            retrying=self.retrying,
        )

    @property
    def all_running(self) -> Iterator[WatchedAttempt]:
        """The attempts that run at any place."""
        return itertools.chain(self.running.values(), self.elsewhere.values())

    @property
    def at_rest(self) -> bool:
        """True while no request goes on and no attempt runs."""
        return not self.requests and not self.running

    @property
    def idle(self) -> int:
        """Slots that take attempts and have none."""
        return max(0, self.slots - self.busy)

    @property
    def busy(self) -> int:
        """Slots that work at an attempt."""
        return sum(one.in_hand for one in self.running.values())

    def interested_in(self, task: Task) -> list[Live]:
        """List the live requests with an interest in a task."""
        return [self.requests[w] for w in task.interests if w in self.requests]

    def running_of(self, live: Live) -> list[str]:
        """List the keys of running tasks that may belong to a request.

        All of them while they are few, otherwise those that run on its account.
        """
        if len(self.running) <= _FEW:
            return list(self.running)
        return [key for key, one in self.running.items() if one.sponsor == live.id]
