"""The models of the HTTP API's answers about requests, tasks and attempts."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from portal.results.answers import GapAnswer
from portal.serving.expected import Expected
from portal.serving.quantities import moment
from tasks.accounts.group_table import name_of
from tasks.bag.categories import RULES
from tasks.bag.model import Attempt, Phase, RunUse, State, Task
from tasks.bag.task_rows import Interest
from tasks.requests.plan import named_packages
from tasks.requests.request_table import RequestRow


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class PhaseAnswer(_Answer):
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


class PreparationAnswer(_Answer):
    """How far a request is before its tasks run.

    It counts days searched while the request is `planning`, tasks written while it is `writing`.
    """

    done: int
    total: int
    unit: Literal["days", "tasks"]


class FailureAnswer(_Answer):
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

    @classmethod
    def of(cls, interest: Interest) -> Self:
        """Describe the failure that an interest records."""
        rule = RULES[interest.category] if interest.category else None
        return cls(
            key=interest.key,
            phase=interest.phase,
            name=interest.name,
            output=interest.output,
            category=interest.category.value if interest.category else "upstream failed",
            message=interest.message,
            cause=rule.cause if rule else "",
            remedy=rule.remedy if rule else "",
            attempts_url=f"/api/tasks/{interest.key}",
        )


class RequestAnswer(_Answer):
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

    @classmethod
    def of(cls, row: RequestRow, *, failures: tuple[Interest, ...] = ()) -> Self:
        """Build the answer for a request's row; it includes the first gaps."""
        return cls(
            id=row.id,
            title=row.title,
            owner=row.owner,
            state=row.state.value,
            paused=row.paused,
            submitted=moment(row.submitted),
            ended=moment(row.ended) if row.ended else None,
            message=row.message,
            preparation=row.preparation and PreparationAnswer(**asdict(row.preparation)),
            phases={
                phase: PhaseAnswer(
                    total=count.total,
                    done=count.done,
                    failed=count.failed,
                    running=count.running,
                    reused=count.reused,
                    cancelled=count.cancelled,
                )
                for phase, count in row.phases.items()
            },
            outputs=row.outputs,
            delivered=row.delivered,
            gap_count=row.gap_count,
            gaps=tuple(GapAnswer(what=gap.what, why=gap.reason) for gap in row.gaps),
            failures=tuple(FailureAnswer.of(interest) for interest in failures),
            package=", ".join(name for name, _ in named_packages(row.package)),
            package_digest=", ".join(digest for _, digest in named_packages(row.package)),
            retry_of=row.retry_of,
            retried_as=row.retried_as,
            labels=row.labels,
            group=name_of(row.group),
            standing=row.standing,
            continues=row.continues,
            continued_as=row.continued_as,
            url=f"/requests/{row.id}",
        )


class WindowAnswer(_Answer):
    """One window of a step of the reduction."""

    step: str
    window: str
    runs: int = Field(description="The cells in which the package runs; 0: it is not run.")
    has: str = Field(description="The number of dates of each product and earlier step.")
    lacks: str = Field(description="What is missing, by name; empty: nothing.")
    first: str = Field("", description="Its first day; of all years that of the first year.")
    last: str = Field("", description="Its last day; of all years that of the last year.")


class PreviewAnswer(_Answer):
    """What a request would take, counted by a dry run. `bytes` is the volume to be fetched."""

    id: str
    state: str
    granules: int
    tasks: int
    reused: int
    bytes: int
    gaps: int
    stored: int = Field(0, description="Bytes to keep, at most.")
    exact: bool = Field(True, description="False: `reused` is estimated from a sample.")
    core_hours: float = Field(0, description="Expected, from the duration of such tasks.")
    similar: int = Field(0, description="Tasks in `core_hours` estimated from similar ones.")
    unmeasured: int = Field(
        0, description="Tasks without an estimate: not in `core_hours`, `elapsed` and `cost`."
    )
    elapsed: float = Field(0, description="Expected seconds with all workers; 0: unknown.")
    cost: float = Field(0, description="Expected, with a month of storage.")
    expected_time: str = Field("", description="`core_hours` and `elapsed` in words.")
    expected_cost: str = Field("", description="`cost` in words; says when it is not known.")
    notes: tuple[str, ...] = Field(
        (),
        description="What both are based on and leave out, and what "
        "the archive's granules state and was not understood.",
    )
    message: str = Field("", description="Says if it would wait for confirmation, and why.")
    missing: tuple[str, ...] = Field((), description="The first gaps, each with its reason.")
    windows: tuple[WindowAnswer, ...] = Field(
        (), description="The first windows of the reduction's steps."
    )
    window_count: int = Field(0, description="The number of all windows.")

    @classmethod
    def of(cls, row: RequestRow, doubts: Sequence[str] = ()) -> Self:
        """Build the answer from the counts of a dry run that has ended.

        `doubts` say what the archive's granules state and was not understood.
        """
        counts = row.preview
        expected = Expected.of(counts)
        return cls(
            id=row.id,
            state=row.state.value,
            granules=counts.granules,
            tasks=counts.tasks,
            reused=counts.reused,
            bytes=counts.size,
            gaps=counts.gaps,
            stored=counts.stored,
            exact=counts.exact,
            core_hours=round(counts.busy / 3600, 3),
            similar=counts.similar,
            unmeasured=counts.unmeasured,
            elapsed=counts.elapsed,
            cost=counts.cost,
            expected_time=expected.time,
            expected_cost=expected.cost,
            notes=(*expected.notes, *doubts),
            message=row.message,
            missing=tuple(f"{gap.what}: {gap.reason}" for gap in row.gaps),
            windows=tuple(WindowAnswer(**asdict(window)) for window in counts.windows),
            window_count=counts.window_count,
        )


class AttemptAnswer(_Answer):
    """One ended execution of a task; durations in seconds, memory in bytes.

    `used` is what a package's run has used, beside what it might have used. `reading` is the tier
    in which its granules, or what was made of them, were opened; "" for a run, which opens none,
    and where it was not noted.
    """

    key: str
    number: int
    phase: Phase
    task_class: str
    worker: str
    started: dt.datetime
    ended: dt.datetime
    duration: float
    outcome: str
    message: str
    peak_memory: int
    used: RunUse | None = None
    reading: str = ""
    log: str = ""

    @classmethod
    def of(cls, attempt: Attempt, *, with_log: bool = False) -> Self:
        """Build the answer for an attempt; include its log only `with_log`."""
        return cls(
            key=attempt.key,
            number=attempt.number,
            phase=attempt.phase,
            task_class=attempt.task_class,
            worker=attempt.worker,
            started=moment(attempt.started),
            ended=moment(attempt.ended),
            duration=attempt.duration,
            outcome=attempt.category.value if attempt.category else "success",
            message=attempt.message,
            peak_memory=attempt.peak_memory,
            used=attempt.used,
            reading=attempt.reading,
            log=attempt.log if with_log else "",
        )


class TaskAnswer(_Answer):
    """A task with all its ended attempts."""

    key: str
    phase: Phase
    task_class: str
    state: State
    attempts: tuple[AttemptAnswer, ...]

    @classmethod
    def of(cls, task: Task, attempts: list[Attempt]) -> Self:
        """Build the answer for a task and its ended attempts."""
        return cls(
            key=task.key,
            phase=task.phase,
            task_class=task.task_class,
            state=task.state,
            attempts=tuple(AttemptAnswer.of(attempt) for attempt in attempts),
        )
