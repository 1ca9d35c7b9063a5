"""When a running request will end, as a range, and what stands before one that waits.

The work that is left is what planning expected (`Preview.busy`), less the share that has ended; a
phase counts by the mean duration of its tasks. Alone on all slots a request ends earliest. Beside
others it gets its part of the slots, as fair dispatching gives it: then those that have less left
end first, and all others have had as much by then.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from portal.core.quantities import duration_text
from tasks.model import classes
from tasks.model.model import Phase, RequestState
from tasks.tables.history import ClassStatistics
from tasks.tables.request_table import RequestRow
from tasks.tables.workers import Hold, WorkerRow

MARGIN = 1.5
"""The later end allows for this multiple of the expected work: durations vary."""

_LEAST = 0.005  # units of the currency: a smaller price rounds to 0.00


@dataclass(frozen=True, kw_only=True)
class ExpectedEnd:
    """When a request ends, in seconds from now, beside how many `others`; and its cost so far."""

    earliest: float
    latest: float
    others: int
    spent: float

    @property
    def text(self) -> str:
        """The range in a sentence or two."""
        within = f"{duration_text(self.earliest)} to {duration_text(self.latest)}"
        parts = [f"Expected to end in {within if self.latest >= 60 else 'less than a minute'}."]
        if self.others:
            share = "request shares" if self.others == 1 else "requests share"
            parts.append(f"{self.others:,} other {share} the workers.")
        if self.spent >= _LEAST:
            parts.append(f"Cost so far: about {self.spent:,.2f}.")
        return " ".join(parts)


def expected_end(
    row: RequestRow,
    unfinished: Iterable[RequestRow],
    workers: Iterable[WorkerRow],
    statistics: Mapping[str, ClassStatistics],
) -> ExpectedEnd | None:
    """Expect the end of a running request; None where nothing like its tasks was timed.

    `unfinished` are all requests that have not ended. None, too, without a worker that takes tasks.
    """
    slots = sum(one.slots for one in workers if one.hold is Hold.NONE and not one.draining)
    means = _means(statistics)
    preview, share = row.preview, _share_left(row, means)
    measured = preview.tasks - preview.reused > 2 * preview.unmeasured
    if row.state is not RequestState.RUNNING or row.paused or not (slots and measured):
        return None
    left = preview.busy * share
    beside = [
        other.preview.busy * _share_left(other, means)
        for other in unfinished
        if other.id != row.id and other.state is RequestState.RUNNING and not other.paused
    ]
    return ExpectedEnd(
        earliest=left / slots,
        latest=MARGIN * (left + sum(min(left, other) for other in beside)) / slots,
        others=len(beside),
        spent=preview.cost * (1.0 - share),
    )


def before(row: RequestRow, unfinished: Iterable[RequestRow]) -> int:
    """Count the requests that were submitted earlier and wait to be planned, too."""
    waiting = (RequestState.SUBMITTED, RequestState.PLANNING)
    mine = (row.submitted, row.id)
    return sum(one.state in waiting and (one.submitted, one.id) < mine for one in unfinished)


def _share_left(row: RequestRow, means: Mapping[Phase, float]) -> float:
    """Return the share of a request's work that is left, 0 to 1, reused tasks aside."""
    todo = left = 0.0
    for phase, count in row.phases.items():
        weight = means.get(phase, 1.0)
        todo += weight * max(0, count.total - count.reused)
        left += weight * max(0, count.left)
    return left / todo if todo else 1.0


def _means(statistics: Mapping[str, ClassStatistics]) -> dict[Phase, float]:
    """Return the mean duration of the tasks of each phase that were timed, in seconds."""
    number, seconds = defaultdict[Phase, int](int), defaultdict[Phase, float](float)
    for one in statistics.values():
        phase = classes.phase(one.task_class)
        if phase is not None:
            number[phase] += one.count
            seconds[phase] += one.count * one.mean
    return {phase: seconds[phase] / count for phase, count in number.items() if count}
