"""The answer that a request's page opens with: how much there is, what is wrong, what is next."""

from collections.abc import Sequence
from dataclasses import dataclass

from portal.serving.expected import Expected
from portal.serving.quantities import duration_text
from tasks.bag.categories import Rule
from tasks.bag.model import RequestState
from tasks.requests.gaps import cause_of
from tasks.requests.request_table import RequestRow


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why tasks of a request failed: the category, how many, its rule where there is one.

    The category is "" where causes are not read yet.
    """

    category: str
    count: int
    rule: Rule | None


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """Something that is wrong with a request, and what to do."""

    text: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a reader of a request wants to know first.

    `share` is that of the results that are made, None before the plan; `facts` are short names with
    their values, `next` says what one may do now.
    """

    share: float | None
    results: str
    wrong: tuple[Wrong, ...]
    facts: tuple[tuple[str, str], ...]
    next: str


def answer(
    row: RequestRow,
    causes: Sequence[Cause],
    now: float,
    *,
    may_retry: bool,
    mine: bool = True,
    spending: str = "",
) -> Answer:
    """Sum a request up from its row and the causes of its failures, the most frequent first.

    `mine` says whether the reader may give orders about it.
    """
    planned = bool(row.outputs)
    return Answer(
        share=min(1.0, row.delivered / row.outputs) if planned else None,
        results=f"{row.delivered:,} of {row.outputs:,}" if planned else _unplanned(row),
        wrong=tuple(_wrong(row, causes)),
        facts=tuple(_facts(row, now, spending)),
        next=_next(row, may_retry=may_retry) if mine else _next_of_others(row),
    )


def _wrong(row: RequestRow, causes: Sequence[Cause]) -> list[Wrong]:
    found = [
        Wrong(
            text=f"{one.count:,} task{'s' if one.count != 1 else ''} failed{_as(one.category)}.",
            remedy=one.rule.remedy if one.rule else "",
        )
        for one in causes
    ]
    if row.gap_count > len(row.gaps):
        found.append(Wrong(text=f"{row.gap_count:,} inputs are missing."))
    elif absent := sum(not cause_of(gap.reason) for gap in row.gaps):
        # The others are missing because a task failed, which is told above.
        many = "input is" if absent == 1 else "inputs are"
        found.append(Wrong(text=f"{absent:,} {many} not available in the archive."))
    return found


def _unplanned(row: RequestRow) -> str:
    return "none" if row.state.ended else "not planned yet"


def _as(category: str) -> str:
    return f": {category}" if category else ""


def _facts(row: RequestRow, now: float, spending: str) -> list[tuple[str, str]]:
    end = row.ended if row.state.ended else now
    found = [("Time", duration_text(end - row.submitted))] if end > row.submitted else []
    if row.preview.tasks:
        found.append(("Cost expected", Expected.of(row.preview).cost))
    if spending:
        found.append(("Cost" if row.state.ended else "Cost so far", spending))
    return found


def _next(row: RequestRow, *, may_retry: bool) -> str:
    match row.state:
        case RequestState.COMPLETE:
            return "Take the results away, or look at them below."
        case RequestState.GAPS if may_retry:
            return "Use what there is, or retry what failed; finished tasks are reused."
        case RequestState.GAPS:
            return "Use what there is: each result says what it lacks."
        case RequestState.FAILED | RequestState.REFUSED:
            return "Read why, change the request, and submit it again."
        case RequestState.CANCELLED:
            kept = "Finished results stay. " if row.delivered else ""
            return f"{kept}Submit it again to go on: what is finished is reused."
        case RequestState.HELD:
            return "It needs you: confirm it, or cancel it."
        case RequestState.PREVIEWED:
            return "It was counted only: submit it again to have it made."
        case RequestState.RUNNING if row.paused:
            return "Resume it to have the rest made."
        case RequestState.RUNNING if row.delivered:
            return "Results can be used while the rest is made."
        case _:
            return "You may close this page: nothing waits for it."


def _next_of_others(row: RequestRow) -> str:
    """Say what somebody may do with whom the request is shared: its owner alone gives orders."""
    match row.state:
        case RequestState.HELD:
            return "It waits for its owner to confirm it."
        case RequestState.RUNNING if row.paused:
            return "The rest is made when its owner resumes it."
        case RequestState.FAILED | RequestState.REFUSED:
            return "Read why; its owner may change it and submit it again."
        case RequestState.CANCELLED:
            return "Finished results stay." if row.delivered else "Its owner gave it up."
        case RequestState.PREVIEWED:
            return "It was counted only."
        case _:
            return _next(row, may_retry=False)
