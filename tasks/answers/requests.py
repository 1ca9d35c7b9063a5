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


class SpendingAnswer(Answer):
    """What was executed on account of a request so far.

    Tasks that several requests want are executed on account of one.
    """

    attempts: int
    failed: int
    slot_hours: float = Field(description="Hours for which slots were held.")
    wasted_hours: float = Field(description="Of these, in attempts that failed.")
    processor_hours: float = Field(description="Measured, of all processes of the attempts.")
    reads: int = Field(description="Calls that read storage; embedded storage has none.")
    writes: int = Field(description="Calls that change storage.")
    received: int = Field(description="Bytes from storage.")
    sent: int = Field(description="Bytes to storage.")
    made: int = Field(description="Bytes of the artifacts that were made.")
    currency: str = Field("", description="Empty: operators gave no prices, and there is no cost.")
    cost: float | None = Field(None, description="By processor hours, calls and bytes.")
    cost_held: float | None = Field(None, description="By slot hours, calls and bytes.")
    text: str = Field(description="All of it in a sentence.")


class WindowAnswer(Answer):
    """One window of a step of the reduction."""

    step: str
    window: str
    runs: int = Field(description="The cells in which the package runs; 0: it is not run.")
    has: str = Field(description="The number of dates of each product and earlier step.")
    lacks: str = Field(description="What is missing, by name; empty: nothing.")
    first: str = Field("", description="Its first day; of all years that of the first year.")
    last: str = Field("", description="Its last day; of all years that of the last year.")


class PreviewAnswer(Answer):
    """What a request would take, counted by a dry run. `bytes` is the volume to be fetched."""

    id: str
    state: str
    granules: int
    tasks: int
    reused: int
    bytes: int
    gaps: int
    stored: int = Field(0, description="Bytes to keep, at most.")
    raster: str = Field(
        "", description="Size of the largest raster and reach of the region; empty: none is made."
    )
    exact: bool = Field(True, description="False: `reused` is estimated from a sample.")
    core_hours: float = Field(0, description="Expected, from the duration of such tasks.")
    similar: int = Field(0, description="Tasks in `core_hours` estimated from similar ones.")
    unmeasured: int = Field(
        0, description="Tasks without an estimate: not in `core_hours`, `elapsed` and `cost`."
    )
    elapsed: float = Field(0, description="Expected seconds with all workers; 0: unknown.")
    cost: float = Field(0, description="Expected, with a month of storage.")
    currency: str = Field("", description="Of `cost`; empty: operators gave no prices.")
    processor_hours: float = Field(0, description="Expected, by what such tasks were measured to.")
    calls: int = Field(0, description="Expected calls to storage.")
    moved: int = Field(0, description="Expected bytes to and from storage.")
    expected_time: str = Field("", description="`core_hours` and `elapsed` in words.")
    expected_cost: str = Field("", description="`cost` in words; says when it is not known.")
    notes: tuple[str, ...] = Field(
        (),
        description="What both are based on and leave out, what is made and fetched and how, and "
        "what the archive's granules state and was not understood.",
    )
    message: str = Field("", description="Says if it would wait for confirmation, and why.")
    missing: tuple[str, ...] = Field((), description="The first gaps, each with its reason.")
    windows: tuple[WindowAnswer, ...] = Field(
        (), description="The first windows of the reduction's steps."
    )
    window_count: int = Field(0, description="The number of all windows.")
