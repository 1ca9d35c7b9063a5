"""The spans of an attempt: where its time went, from the claim to the commit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tasks.bag.model import Attempt
from tasks.service.tracing import Span, attempt_of, root_of, span_of, trace_of

Step = tuple[str, float, float]  # part, begin and end in POSIX seconds
_PAUSE = 0.001  # seconds; a shorter stretch between two steps is none of its own


@dataclass(frozen=True, kw_only=True)
class Course:
    """When an attempt came to what, in POSIX seconds; `steps` are those of its child."""

    asked: float  # the claim was sent
    claimed: float
    steps: Sequence[Step] = field(default_factory=tuple)


def attempt_spans(
    request: str, attempt: Attempt, course: Course, commit: tuple[float, float], *, own: bool
) -> Iterator[Span]:
    """Yield an attempt's span and those of its parts.

    Parts are claim, wait (claimed, not begun), fetch, compute, store, settle (its end is not
    written yet) and commit. `own` says that the commit found the claim in place.
    """
    trace, above = trace_of(request), attempt_of(request, attempt.key, attempt.number)
    parts: list[Step] = [
        ("claim", course.asked, course.claimed),
        ("wait", course.claimed, attempt.started),
        *_with_computing(attempt.started, course.steps, attempt.ended),
        ("settle", attempt.ended, commit[0]),
        ("commit", *commit),
    ]
    failure = "" if own else "fenced: another attempt has taken over"
    if attempt.category is not None:
        failure = f"{attempt.category.value}: {attempt.message}"
    yield Span(
        name=f"attempt {attempt.phase.value}",
        trace=trace,
        id=above,
        parent=root_of(request),
        began=course.asked,
        ended=commit[1],
        failure=failure,
        attributes={
            "swathmill.request": request,
            "swathmill.task": attempt.key,
            "swathmill.class": attempt.task_class,
            "swathmill.attempt": attempt.number,
            "swathmill.claim": attempt.claim,
            "swathmill.worker": attempt.worker,
            "swathmill.outcome": attempt.category.value if attempt.category else "success",
            "swathmill.peak_memory": attempt.peak_memory,
        },
    )
    for number, (name, began, ended) in enumerate(parts):
        yield Span(
            name=name,
            trace=trace,
            id=span_of(trace, above, name, str(number)),
            parent=above,
            began=began,
            ended=ended,
            attributes={"swathmill.request": request, "swathmill.task": attempt.key},
        )


def _with_computing(began: float, steps: Sequence[Step], ended: float) -> Iterator[Step]:
    """Yield the steps, and the computing before, between and after them."""
    at = began
    for part, start, end in steps:
        if start - at > _PAUSE:
            yield "compute", at, start
        yield part, start, end
        at = end
    if ended - at > _PAUSE:
        yield "compute", at, ended
