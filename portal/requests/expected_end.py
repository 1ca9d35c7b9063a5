"""When a running request will end, as a range, and what stands before one that waits.

The work that is left is what planning expected (`Preview.busy`), less the share that has ended; a
phase counts by the mean duration of its tasks. Alone on all slots a request ends earliest. Beside
others it gets its part of the slots, as fair dispatching gives it: then those that have less left
end first, and all others have had as much by then.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from portal.serving.quantities import duration_text
from tasks.bag import classes
from tasks.bag.history import ClassStatistics
from tasks.bag.model import Phase, RequestState
from tasks.bag.workers import Hold, WorkerRow
from tasks.requests.request_table import RequestRow

MARGIN = 1.5
"""The later end allows for this multiple of the expected work: durations vary."""


@dataclass(frozen=True, kw_only=True)
class ExpectedEnd:
    """When a request ends, in seconds from now, beside how many `others`.

    `places` are the connections to archive hosts, where they are what it waits for, else 0.
    """

    earliest: float
    latest: float
    others: int
    places: int = 0

    @property
    def text(self) -> str:
        """The range in a sentence or two."""
        within = f"{duration_text(self.earliest)} to {duration_text(self.latest)}"
        parts = [f"Expected to end in {within if self.latest >= 60 else 'less than a minute'}."]
        if self.others:
            share = "request shares" if self.others == 1 else "requests share"
            parts.append(f"{self.others:,} other {share} the workers.")
        if self.places:
            parts.append(
                f"Its granules come over at most {_connections(self.places)} to an archive's host: "
                "that is this Swathmill's own limit (SWATHMILL_HOST_CONNECTIONS)."
            )
        return " ".join(parts)


def expected_end(
    row: RequestRow,
    unfinished: Iterable[RequestRow],
    workers: Iterable[WorkerRow],
    statistics: Mapping[str, ClassStatistics],
    places: int = 0,
) -> ExpectedEnd | None:
    """Expect the end of a running request; None where nothing like its tasks was timed.

    `unfinished` are all requests that have not ended. None, too, without a worker that takes tasks.
    `places` are the connections to an archive's host over which granules come; 0: no limit.
    """
    slots = sum(
        one.slots for one in workers if one.hold is Hold.NONE and not one.draining and one.able
    )
    means = _means(statistics)
    preview = row.preview
    measured = preview.tasks - preview.reused > 2 * preview.unmeasured
    if row.state is not RequestState.RUNNING or row.paused or not (slots and measured):
        return None
    others = [
        other
        for other in unfinished
        if other.id != row.id and other.state is RequestState.RUNNING and not other.paused
    ]
    alone, beside = _seconds([row, *others], means, slots, frozenset(Phase))
    by_places = False
    if 0 < places < slots:  # granules come no faster than that, whatever else is done meanwhile
        fetching = _seconds([row, *others], means, places, frozenset({Phase.COLLECTION}))
        by_places = fetching[0] > alone
        alone, beside = max(alone, fetching[0]), max(beside, fetching[1])
    return ExpectedEnd(
        earliest=alone,
        latest=MARGIN * beside,
        others=len(others),
        places=places if by_places else 0,
    )


def before(row: RequestRow, unfinished: Iterable[RequestRow]) -> int:
    """Count the requests that were submitted earlier and wait to be planned, too."""
    waiting = (RequestState.SUBMITTED, RequestState.PLANNING)
    mine = (row.submitted, row.id)
    return sum(one.state in waiting and (one.submitted, one.id) < mine for one in unfinished)


def _seconds(
    rows: Sequence[RequestRow], means: Mapping[Phase, float], at_once: int, phases: Set[Phase]
) -> tuple[float, float]:
    """Return how long some phases of the first request take, alone and beside the others."""
    first, *others = [row.preview.busy * _share_left(row, means, phases) for row in rows]
    return first / at_once, (first + sum(min(first, other) for other in others)) / at_once


def _connections(number: int) -> str:
    return "1 connection" if number == 1 else f"{number:,} connections"


def _share_left(
    row: RequestRow, means: Mapping[Phase, float], phases: Set[Phase] = frozenset(Phase)
) -> float:
    """Return the share of a request's work that is left in some phases, 0 to 1.

    Reused tasks are no work.
    """
    todo = left = 0.0
    for phase, count in row.phases.items():
        weight = means.get(phase, 1.0)
        todo += weight * max(0, count.total - count.reused)
        left += weight * max(0, count.left) * (phase in phases)
    return left / todo if todo else float(phases == set(Phase))


def _means(statistics: Mapping[str, ClassStatistics]) -> dict[Phase, float]:
    """Return the mean duration of the tasks of each phase that were timed, in seconds."""
    number, seconds = defaultdict[Phase, int](int), defaultdict[Phase, float](float)
    for one in statistics.values():
        phase = classes.phase(one.task_class)
        if phase is not None:
            number[phase] += one.count
            seconds[phase] += one.count * one.mean
    return {phase: seconds[phase] / count for phase, count in number.items() if count}
