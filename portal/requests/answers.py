"""The HTTP API's answers about requests, tasks and attempts, made of what is stored."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict
from typing import Self

from portal.serving.expected import Expected
from portal.serving.quantities import moment
from tasks.accounts.group_table import name_of
from tasks.answers.answer import Answer
from tasks.answers.requests import (
    FailureAnswer,
    PhaseAnswer,
    PreparationAnswer,
    PreviewAnswer,
    RequestAnswer,
    SpendingAnswer,
    WindowAnswer,
)
from tasks.answers.results import GapAnswer
from tasks.bag.categories import RULES
from tasks.bag.history import RequestUse
from tasks.bag.model import Attempt, Phase, RunUse, State, Task
from tasks.bag.task_rows import Interest
from tasks.operators.prices import PriceList, Spending
from tasks.requests.plan import named_packages
from tasks.requests.request_table import RequestRow


def failure_answer(interest: Interest) -> FailureAnswer:
    """Describe the failure that an interest records."""
    rule = RULES[interest.category] if interest.category else None
    return FailureAnswer(
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


def request_answer(row: RequestRow, *, failures: tuple[Interest, ...] = ()) -> RequestAnswer:
    """Build the answer for a request's row; it includes the first gaps."""
    return RequestAnswer(
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
        failures=tuple(failure_answer(interest) for interest in failures),
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


def preview_answer(row: RequestRow, doubts: Sequence[str] = (), raster: str = "") -> PreviewAnswer:
    """Build the answer from the counts of a dry run that has ended.

    `doubts` say what the archive's granules state and was not understood, `raster` how large
    the largest one is.
    """
    counts = row.preview
    expected = Expected.of(counts)
    return PreviewAnswer(
        id=row.id,
        state=row.state.value,
        granules=counts.granules,
        tasks=counts.tasks,
        reused=counts.reused,
        bytes=counts.size,
        gaps=counts.gaps,
        stored=counts.stored,
        raster=raster,
        exact=counts.exact,
        core_hours=round(counts.busy / 3600, 3),
        similar=counts.similar,
        unmeasured=counts.unmeasured,
        elapsed=counts.elapsed,
        cost=counts.cost if counts.currency else 0.0,
        currency=counts.currency,
        processor_hours=round(counts.use.cpu / 3600, 4),
        calls=counts.use.reads + counts.use.writes,
        moved=counts.use.received + counts.use.sent,
        expected_time=expected.time,
        expected_cost=expected.cost,
        notes=(*expected.notes, *row.notes, *doubts),
        message=row.message,
        missing=tuple(f"{gap.what}: {gap.reason}" for gap in row.gaps),
        windows=tuple(WindowAnswer(**asdict(window)) for window in counts.windows),
        window_count=counts.window_count,
    )


def spending_answer(done: RequestUse, known: PriceList) -> SpendingAnswer:
    """Build the answer for what was executed on account of a request."""
    said = Spending.of(done, known)
    return SpendingAnswer(
        attempts=done.count,
        failed=done.failed,
        slot_hours=round(done.seconds / 3600, 4),
        wasted_hours=round(done.wasted / 3600, 4),
        processor_hours=round(done.use.cpu / 3600, 4),
        reads=done.use.reads,
        writes=done.use.writes,
        received=done.use.received,
        sent=done.use.sent,
        made=done.made,
        currency=known.currency,
        cost=said.used if known else None,
        cost_held=said.held if known else None,
        text=said.text,
    )


class AttemptAnswer(Answer):
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


class TaskAnswer(Answer):
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
