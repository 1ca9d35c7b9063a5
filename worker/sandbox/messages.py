"""The messages between a supervisor and a child."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, RunUse
from tasks.settings import Settings
from tasks.storage.traffic import Traffic
from tasks.strict_model import StrictModel
from worker.sandbox.makers import ReadingTier
from worker.sandbox.sandbox import Tier


@dataclass(frozen=True, kw_only=True)
class ChildSettings:
    """What all attempts of a child share; `cache` is the folder of the local cache.

    `reading` is the tier in which a maker opens granules and what was made of them.
    """

    settings: Settings
    cache: Path
    sandbox: Tier | None
    reading: ReadingTier


@dataclass(frozen=True, kw_only=True)
class LentFile:
    """A blob that a runner may read: by a link, or, without one, as a file beside the order."""

    blob: str
    size: int = 0
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything else a child needs for one attempt.

    `inputs` are the artifact's files by input index, `scratch` the attempt's own empty folder.
    `request` is the one on whose account it runs, which calls of storage name. With `lent` files
    the child has no other storage than these. `struck` has the SHA-256 of copies of the artifact
    that turned out to be damaged. `after_crash`: the attempt has crashed once already, so granules
    are first read apart. `state` is the blob of the checkpoint from which it goes on, if any.
    """

    request: str = ""
    key: str
    claim: str
    spec: Spec
    inputs: Mapping[int, tuple[ArtifactFile, ...]]
    scratch: Path
    struck: tuple[str, ...] = ()
    lent: tuple[LentFile, ...] = ()
    after_crash: bool = False
    state: str = ""


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """What a child is given instead of a `Job`: to do all that an attempt begins with.

    `scratch` is an empty folder. With `sandbox`, a program is run in it.
    """

    scratch: Path
    sandbox: bool = True


class Begun(StrictModel):
    """The child is ready and begins the attempt's own work: what fails before is the machine's."""

    kind: Literal["begun"] = "begun"


class Progress(StrictModel):
    """The attempt's progress, 0 to 1, and its current activity."""

    kind: Literal["progress"] = "progress"
    fraction: float = Field(ge=0, le=1)
    note: str = ""


class Saved(StrictModel):
    """A newer state of the run's checkpoint lies in the attempt's folder: `size` are its bytes."""

    kind: Literal["saved"] = "saved"
    size: int = Field(ge=0)


def state_path(scratch: Path) -> Path:
    """Return where the newest state of a run lies, in its attempt's folder, until it is taken."""
    return scratch / "states" / "state.tar"


class _Outcome(StrictModel):
    """How an attempt ended: `fetching` and `storing` are the seconds that it spent on that.

    `steps` are when: part, begin and end in POSIX seconds. `traffic` is what it called of storage.
    """

    fetching: float = 0.0
    storing: float = 0.0
    steps: tuple[tuple[str, float, float], ...] = ()
    traffic: Traffic = Traffic()


class Succeeded(_Outcome):
    """The artifact is in storage."""

    kind: Literal["succeeded"] = "succeeded"
    files: tuple[ArtifactFile, ...]
    used: RunUse | None = None


class Failed(_Outcome):
    """The attempt failed.

    `log` is the traceback if it helps. `asked` is the delay in seconds that a server asked for,
    `healing` the bits of the inputs to make again.
    """

    kind: Literal["failed"] = "failed"
    category: Category
    message: str
    log: str = ""
    asked: float = 0.0
    healing: int = 0
    used: RunUse | None = None


class Postponed(StrictModel):
    """The attempt was not begun: its machine has no room for it now. `message` says for what.

    With a `tier` of the sandbox, the machine lacks that: only another one can run it.
    """

    kind: Literal["postponed"] = "postponed"
    message: str
    tier: str = ""


class Ended(StrictModel):
    """The guard's message at the end of an attempt: no process is left but, at most, the child.

    `exit_code` is the child's (negative: the signal that ended it), None if the guard killed it.
    `no_room`: it ended by SIGBUS, and its disk was full: a file that it had mapped could not grow.
    """

    kind: Literal["ended"] = "ended"
    exit_code: int | None
    peak_memory: int  # bytes
    over_memory: bool
    log: str  # the tail of what the attempt printed
    kept: bool = False  # whether the child lives and takes another job
    no_room: bool = False
    cpu: float = 0.0  # processor seconds of the attempt's processes


Message = Annotated[
    Begun | Progress | Saved | Succeeded | Failed | Postponed | Ended,
    Field(discriminator="kind"),
]
_adapter: TypeAdapter[Message] = TypeAdapter(Message)


POLL_SECONDS = 0.1
"""Between two looks at a tree's memory, and two reports of progress that are passed on."""

PROGRESS = b'{"kind":"progress"'
"""How an encoded `Progress` begins."""


def encode(message: Message, leave_out: frozenset[str] = frozenset()) -> bytes:
    """Encode a message as JSON, without some of its fields."""
    return message.model_dump_json(exclude=set(leave_out)).encode("utf-8")


def decode(data: bytes) -> Message:
    """Decode a message from JSON; raise pydantic.ValidationError if it is invalid."""
    return _adapter.validate_json(data)
