"""Tasks, attempts and requests as values. What may change them is in `transitions`."""

from dataclasses import dataclass, field
from enum import StrEnum

from reprojection.read.completeness import WHOLE, Completeness
from tasks.bag.categories import Category
from tasks.storage.codec import Form
from tasks.storage.traffic import Traffic


class Phase(StrEnum):
    """The four phases of a request."""

    COLLECTION = "collection"
    REPROJECTION = "reprojection"
    AGGREGATION = "aggregation"
    REDUCTION = "reduction"


class State(StrEnum):
    """Where a task is. See docs/architecture.md for the arrows."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def live(self) -> bool:
        """True if the task may still run."""
        return self in (State.WAITING, State.READY, State.RUNNING)


class TaskOutcome(StrEnum):
    """The outcome of a task that is recorded in a request's interest."""

    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"  # by a task planned over the inputs that exist
    GAP = "gap"  # not made, because none of its inputs was


class RequestOrder(StrEnum):
    """What the manager is to do about a request."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    CONFIRM = "confirm"


class MissingPolicy(StrEnum):
    """What becomes of a request when an input is missing."""

    SKIP = "skip"  # it goes on, and lists the gap
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class ArtifactFile:
    """One file of an artifact: its name within the artifact, and the blob that holds it.

    `valid_share` is the share of a raster's pixels that have a value; None for other files, and
    where it was not counted.
    """

    name: str
    blob: str
    size: int
    sha256: str
    completeness: Completeness = WHOLE  # as its row has it: `rows.NAMED` missing inputs by name
    valid_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """The task row, the only truth about a task.

    `missing` has bit i set while input i has not ended; `lacking` has bit i set when it ended
    without an artifact. `attempt` is the number of the latest attempt and never restarts;
    `retries` counts the budget spent in this generation; `strikes` the times killed for memory,
    `losses` the attempts lost with their workers.
    `fallback` is the key of the task planned in this one's place when inputs were lacking.
    `reason` says why the task FAILED, for people: in its own words, or the first cause of an input.
    `place` is the task's place in the batch of its latest claim, from 0.
    `struck` has the SHA-256 of each copy of the artifact that its readers found damaged since
    somebody last asked for another try: it is not to be made of the same bytes again.
    `rank` is the place of the first result that the task serves, among those of the requests that
    asked for it: tasks of the lowest rank are sent first.
    `spec` is its specification, packed, empty where that has rows of its own. `given` has the files
    of inputs by their index, as they were told when these ended: until the next attempt has ended,
    and not of all inputs.
    """

    key: str
    phase: Phase
    task_class: str
    inputs: int
    state: State
    generation: int = 1
    attempt: int = 0
    claim: str = ""
    worker: str = ""
    claimed_at: float = 0.0
    place: int = 0
    retries: int = 0
    strikes: int = 0
    losses: int = 0
    not_before: float = 0.0
    missing: int = 0
    lacking: int = 0
    has_dependents: bool = False
    interests: tuple[str, ...] = ()
    sponsor: str = ""
    category: Category | None = None
    fallback: str = ""
    reason: str = ""
    files: tuple[ArtifactFile, ...] = ()
    struck: tuple[str, ...] = ()
    rank: int = 0
    spec: bytes = b""
    given: tuple[tuple[int, tuple[ArtifactFile, ...]], ...] = ()
    etag: str = field(default="", compare=False)

    @property
    def alone(self) -> bool:
        """True if it goes into no batch, because its latest attempt failed or was lost.

        Then only this task is charged when it takes its worker down with it.
        """
        return self.category is not None


@dataclass(frozen=True, kw_only=True)
class RunUse:
    """What a package's run has used, in seconds and bytes, and what it might have used.

    `seconds` are those of the run alone, after it had its `cores`; `waited` those before. `tier`
    is the tier of the sandbox that it ran in: `none` for a package that comes with Swathmill, empty
    for a run of a build that did not note it.
    """

    seconds: float
    cpu_seconds: float
    written: int
    cores: int
    waited: float
    most_seconds: float
    most_written: int
    most_memory: int
    tier: str = ""


@dataclass(frozen=True, kw_only=True)
class Use:
    """What attempts took of processors and of a storage account, measured.

    `cpu` are the processor seconds of all processes of the attempts. Calls and bytes are those of
    the process that fetches inputs and stores files; see `Traffic`. Embedded storage has no calls.
    """

    cpu: float = 0.0
    reads: int = 0
    writes: int = 0
    received: int = 0
    sent: int = 0

    @classmethod
    def of(cls, cpu: float, traffic: Traffic) -> "Use":
        """Put both together."""
        return cls(cpu=cpu, **vars(traffic))

    def __add__(self, other: "Use") -> "Use":
        """Return both together."""
        return Use(
            cpu=self.cpu + other.cpu,
            reads=self.reads + other.reads,
            writes=self.writes + other.writes,
            received=self.received + other.received,
            sent=self.sent + other.sent,
        )

    def times(self, factor: float) -> "Use":
        """Return so many times as much."""
        return Use(
            cpu=self.cpu * factor,
            reads=round(self.reads * factor),
            writes=round(self.writes * factor),
            received=round(self.received * factor),
            sent=round(self.sent * factor),
        )


NO_USE = Use()


def _use_text(use: Use) -> str:
    return f"{use.cpu:.3f} {use.reads} {use.writes} {use.received} {use.sent}"


def _use_read(text: str) -> Use:
    cpu, reads, writes, received, sent = text.split()
    return Use(
        cpu=float(cpu),
        reads=int(reads),
        writes=int(writes),
        received=int(received),
        sent=int(sent),
    )


USE = Form(write=_use_text, read=_use_read, sparse=True)
"""How it is stored; rows of a build that did not measure it are read as nothing."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One execution of a task that has ended; kept for good.

    `reading` is the tier in which its granules, or what was made of them, were opened: `limits`, or
    `none` where the machine has no Landlock. It is empty for a run of a package, which opens none,
    and for an attempt of a build that did not note it.
    """

    key: str
    number: int
    claim: str
    phase: Phase
    task_class: str
    worker: str
    started: float  # POSIX seconds, worker's clock
    ended: float
    duration: float  # seconds on one monotonic clock
    category: Category | None = None  # None: success
    message: str = ""  # one line for people
    log: str = ""  # the tail of what the attempt printed, traceback included
    peak_memory: int = 0  # bytes, the attempt's whole process tree
    used: RunUse | None = None  # of a reduction: what the package's run has used
    reading: str = ""
    use: Use = NO_USE


class RequestState(StrEnum):
    """Where a request is. COMPLETE, GAPS, FAILED, CANCELLED and REFUSED are ends."""

    SUBMITTED = "submitted"  # accepted; nobody works on it yet
    PLANNING = "planning"  # the archives are being searched for its granules
    PREVIEWED = "previewed"  # a dry run: counted, and not to be carried out
    HELD = "waiting for confirmation"  # planned; it takes more than the settings let pass unasked
    WRITING = "writing"  # its plan is being written into the table of tasks
    RUNNING = "running"
    CANCELLING = "cancelling"  # ordered to be cancelled; what is unfinished is withdrawn
    COMPLETE = "complete"
    GAPS = "complete with gaps"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def ended(self) -> bool:
        """True if the request will not change any more."""
        return self not in (
            RequestState.SUBMITTED,
            RequestState.PLANNING,
            RequestState.HELD,
            RequestState.WRITING,
            RequestState.RUNNING,
            RequestState.CANCELLING,
        )

    def text(self, *, paused: bool) -> str:
        """Return the state as people read it: "running", or "running (paused)".

        Args:
            paused: Whether the request is paused; an ended one is not.
        """
        return f"{self} (paused)" if paused and not self.ended else self.value

    @property
    def unplanned(self) -> bool:
        """True if the request has not ended and its plan is not made yet."""
        return self in (RequestState.SUBMITTED, RequestState.PLANNING)
