"""What a request's interests say of its end: the first cause of failures, and empty rasters."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import mode

from reprojection.read.completeness import is_by_granule
from tasks.bag.categories import RULES, Category
from tasks.bag.model import Phase, State, Task, TaskOutcome
from tasks.bag.spec import Input
from tasks.bag.task_rows import Interest
from tasks.requests import request_operations
from tasks.requests.plan import Gap

_OF_GRANULES = {
    category.value: RULES[category].remedy
    for category in (
        Category.UNREADABLE_INPUT_FILE,
        Category.BAD_IMAGE_FORMAT,
        Category.SOURCE_NOT_PUBLISHED,
    )
}
_NAMED = 3  # rasters in one sentence
_CELL = re.compile(r"^r-?\d+c-?\d+(_r-?\d+c-?\d+)* ")  # `tasks.request.target.cell_name`


@dataclass(frozen=True, kw_only=True)
class Empty:
    """Rasters among the results that hold no valid pixel, by path, of all that were counted."""

    paths: tuple[str, ...] = ()
    rasters: int = 0

    def __str__(self) -> str:
        """ "3 of 16 rasters hold no valid pixel: a.tif, b.tif, c.tif"; empty when none does."""
        if not self.paths:
            return ""
        more = len(self.paths) - _NAMED
        names = ", ".join(self.paths[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        holds = "holds" if len(self.paths) == 1 else "hold"
        return f"{len(self.paths):,} of {self.rasters:,} rasters {holds} no valid pixel: {names}"


def empty_rasters(interests: Collection[Interest]) -> Empty:
    """Count the results without one valid pixel."""
    shares = {
        f"{interest.output}/{file.name}": file.valid_share
        for interest in request_operations.results_in(interests)
        for file in interest.files
        if file.valid_share is not None
    }
    empty = sorted(path for path, share in shares.items() if share == 0.0)
    return Empty(paths=tuple(empty), rasters=len(shares))


def found_later(interests: Sequence[Interest]) -> tuple[Gap, ...]:
    """List what results do without that neither planning nor a failure of the request tells.

    Those are granules that do not hold what was asked for, and granules that turned out to be
    damaged or gone when they were to be read: the request had been told that they are there.
    """
    told = {one.name for one in interests if one.outcome is TaskOutcome.FAILED}
    found = {
        (one.what, one.why)
        for interest in request_operations.results_in(interests)
        for file in interest.files
        for one in file.completeness.missing
        if is_by_granule(one.why) or (one.why in _OF_GRANULES and one.what not in told)
    }
    return tuple(
        Gap(what=what, reason=f"{why}. {_OF_GRANULES[why]}" if why in _OF_GRANULES else why)
        for what, why in sorted(found)
    )


def first_cause(interests: Iterable[Interest], runs: int) -> str:
    """Say why tasks failed themselves.

    It is the most frequent category, with the message of one of its tasks; empty when none failed.
    `runs` counts all runs of the request's reduction, as far as that is known.
    """
    failed = sorted(
        (interest for interest in interests if interest.outcome is TaskOutcome.FAILED), key=order
    )
    if not failed:
        return ""
    category = mode(interest.category or Category.UNKNOWN for interest in failed)
    alike = [interest for interest in failed if (interest.category or Category.UNKNOWN) is category]
    ran = [interest for interest in alike if not interest.stopped] or alike
    message = mode(interest.message for interest in ran)
    said = f"{category}: {message}" if message else str(category)
    if ran[0].phase is Phase.REDUCTION:
        number = sum(interest.message == message for interest in ran)
        return f"{said} ({_of_runs(ran, alike, number, runs)})"
    first = next(interest for interest in ran if interest.message == message)
    if first.name not in said:
        said = f"{first.name}: {said}"
    more = len(alike) - 1
    return f"{said} (and {more:,} more task{'s' if more > 1 else ''})" if more else said


def inherited(given: Input, failed: Task) -> str:
    """Write the message of a task that lacks an input.

    It is why the input failed, or the message that the input inherited itself.
    """
    if failed.state is not State.FAILED or failed.category is None:
        return ""
    if failed.category is Category.UPSTREAM_FAILED:
        return failed.reason
    said = failed.category.value + (f": {failed.reason}" if failed.reason else "")
    # The runs of one reduction fail alike: which of them it was says nothing.
    if failed.phase is Phase.REDUCTION or given.name in said:
        return said
    # A cell of a lattice is named by its row and column, which say nothing to people.
    return f"{_CELL.sub('a cell of ', given.name)}: {said}"


def order(interest: Interest) -> tuple[int, str, str]:
    """Return the key by which interests are sorted: phase, then name."""
    return list(Phase).index(interest.phase), interest.name, interest.key


def _of_runs(ran: Sequence[Interest], alike: Sequence[Interest], number: int, runs: int) -> str:
    said = f"{len(ran):,} of {max(runs, len(alike)):,} runs"
    if number < len(ran):
        said += f", {number:,} of them in these words"
    stopped = len(alike) - len(ran)
    return said + (f"; {stopped:,} were not run, because the first all failed" if stopped else "")
