"""List what a request lacks for the terminal: joined over dates, never shortened silently."""

from collections.abc import Sequence
from typing import Protocol

from reprojection.read.completeness import Completeness
from reprojection.read.completeness import Missing as MissingInput
from tasks.answers.requests import FailureAnswer
from tasks.answers.results import GapAnswer, MissingAnswer
from tasks.bag.categories import Category
from tasks.requests import gaps as joined
from tasks.requests.plan import Gap as PlannedGap

_WORDS = {Category.UPSTREAM_FAILED.value: "an input could not be made"}


class Result(Protocol):
    """A result file, from the portal or from a summary."""

    @property
    def name(self) -> str: ...
    @property
    def completeness(self) -> float: ...
    @property
    def missing(self) -> tuple[MissingAnswer, ...]: ...
    @property
    def missing_count(self) -> int: ...


def gap_lines(gaps: Sequence[GapAnswer]) -> list[str]:
    """Write gaps as lines; gaps that differ only by date share a line. Add affected results."""
    affects = {gap.what: gap.affects for gap in gaps}
    found = joined.join_gaps([PlannedGap(what=gap.what, reason=gap.why) for gap in gaps], affects)
    return [
        f"gap: {one}" + (f" (affects {'; '.join(one.affects)})" if one.affects else "")
        for one in found
    ]


def incomplete_lines(results: Sequence[Result]) -> list[str]:
    """List results that were made without some inputs, with their share of the inputs."""
    found = [
        (
            one.name,
            Completeness(
                share=one.completeness,
                missing=tuple(MissingInput(what=m.what, why=m.why) for m in one.missing),
                unnamed=one.missing_count - len(one.missing),
            ),
        )
        for one in results
    ]
    return [f"incomplete: {line}" for line in joined.incomplete_lines(found)]


def failure_lines(failures: Sequence[FailureAnswer], *, messages: bool = False) -> list[str]:
    """List what failed, each with its category; of a run, say how to try it at home.

    Failures by one cause share a line. With `messages` each line has the cause's own words.
    """
    groups: dict[str, list[FailureAnswer]] = {}
    for one in failures:
        cause = joined.cause_of(f"{_word(one, plain=True)}: {one.message}") if one.message else ""
        groups.setdefault(cause or f"{one.key} {one.name} {one.output}", []).append(one)
    lines = []
    for alike in groups.values():
        first = alike[0]
        names = joined.with_others([one.output or one.name for one in alike])
        said = f"{_word(first)}: {first.message}" if messages and first.message else _word(first)
        run = next((one for one in alike if one.phase == "reduction"), None)
        given = f" (what it was given: swathmill inputs {run.key})" if run else ""
        lines.append(f"failed: {names}: {said}{given}")
    return lines


def _word(failure: FailureAnswer, *, plain: bool = False) -> str:
    """Return a failure's category; what was handed on is left out, or said in words."""
    if plain:
        return "" if failure.category in _WORDS else failure.category
    return _WORDS.get(failure.category, failure.category)


def shortened(lines: Sequence[str], most: int, where: str) -> list[str]:
    """Return at most this many lines; the last one counts the others and says where they are."""
    if len(lines) <= most:
        return [*lines]
    return [*lines[:most], f"and {len(lines) - most:,} more lines: {where}"]
