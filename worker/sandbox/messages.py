"""What a supervisor tells the child of an attempt, and what comes back over the pipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.spec import Spec
from tasks.settings import Settings
from worker.sandbox.sandbox import Tier


@dataclass(frozen=True, kw_only=True)
class Job:
    """All a child needs for one attempt. `inputs` are the artifact's files by input index.

    `scratch` is the attempt's own empty folder; `cache` the folder of the local cache.
    """

    key: str
    claim: str
    spec: Spec
    inputs: Mapping[int, tuple[ArtifactFile, ...]]
    scratch: Path
    cache: Path
    settings: Settings
    sandbox: Tier


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Progress(_Message):
    """How far the attempt is, 0 to 1, and what it is doing."""

    kind: Literal["progress"] = "progress"
    fraction: float = Field(ge=0, le=1)
    note: str = ""


class Succeeded(_Message):
    """The artifact is in storage."""

    kind: Literal["succeeded"] = "succeeded"
    files: tuple[ArtifactFile, ...]


class Failed(_Message):
    """The attempt failed; `log` is the traceback where it helps. `asked` is the delay in seconds a
    server asked for, `healing` the bits of the inputs to make again."""

    kind: Literal["failed"] = "failed"
    category: Category
    message: str
    log: str = ""
    asked: float = 0.0
    healing: int = 0


class Ended(_Message):
    """The guard's last word: the whole tree is gone.

    `exit_code` is the child's (negative: the signal that ended it), None when it was killed here.
    """

    kind: Literal["ended"] = "ended"
    exit_code: int | None
    peak_memory: int  # bytes
    over_memory: bool
    log: str  # the tail of what the tree printed


Message = Annotated[Progress | Succeeded | Failed | Ended, Field(discriminator="kind")]
_adapter: TypeAdapter[Message] = TypeAdapter(Message)


def encode(message: Message) -> bytes:
    """A message as JSON."""
    return message.model_dump_json().encode("utf-8")


def decode(data: bytes) -> Message:
    """A message from its JSON; pydantic.ValidationError when it is none."""
    return _adapter.validate_json(data)
