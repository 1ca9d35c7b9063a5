"""Answers about requests and their tasks that failed."""

import datetime as dt
from typing import Literal

from pydantic import Field

from tasks.answers.answer import Answer
from tasks.answers.results import GapAnswer
from tasks.bag.model import Phase


class PhaseAnswer(Answer):
    """The tasks of one phase, counted by state.

    `done` includes `reused`: tasks whose artifact existed already. `cancelled` counts the tasks
    that were unfinished when the request was cancelled or failed.
    """

    total: int
    done: int
    failed: int
    running: int
    reused: int
    cancelled: int = 0

    @property
    def left(self) -> int:
        """Number of tasks that have neither ended nor been cancelled."""
        return self.total - self.done - self.failed - self.cancelled


class PreparationAnswer(Answer):
    """How far a request is before its tasks run.

    It counts days searched while the request is `planning`, tasks written while it is `writing`.
    """

    done: int
    total: int
    unit: Literal["days", "tasks"]

    @property
    def text(self) -> str:
        """Say it in words: "12 of 366 days"."""
        return f"{self.done:,} of {self.total:,} {self.unit}"


class FailureAnswer(Answer):
    """A task that failed for good, or a result that could not be made."""

    key: str
    phase: Phase
    name: str
    output: str
    category: str
    message: str
    cause: str
    remedy: str
    attempts_url: str


class RequestAnswer(Answer):
    """The state of a request. `outputs` counts the results planned, `delivered` those made."""

    id: str
    title: str
    owner: str
    state: str
    paused: bool
    submitted: dt.datetime
    ended: dt.datetime | None
    message: str
    preparation: PreparationAnswer | None = Field(
        None, description="While it is `planning` or `writing`: how far that is."
    )
    phases: dict[Phase, PhaseAnswer]
    outputs: int
    delivered: int
    gap_count: int
    gaps: tuple[GapAnswer, ...] = ()
    failures: tuple[FailureAnswer, ...] = ()
    package: str = Field("", description="The version that its reduction runs: OWNER/NAME@VERSION.")
    package_digest: str = Field("", description="SHA-256 of that version's archive.")
    retry_of: str = Field("", description="The ended request that this one tries again.")
    retried_as: str = Field("", description="The request that tries this one again.")
    labels: tuple[str, ...] = ()
    group: str = Field("", description="Name of the group whose members may read it.")
    standing: int = Field(
        0, description="Days after which it goes on with new data, at the earliest; 0: never."
    )
    continues: str = Field("", description="The request that this one goes on from.")
    continued_as: str = Field("", description="The request that goes on from this one.")
    url: str
