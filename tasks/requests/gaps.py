"""Gaps and incomplete results as people read them: joined over their dates."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import PurePosixPath
from types import MappingProxyType

from reprojection.read.completeness import WHOLE, Completeness
from tasks.bag.categories import Category
from tasks.requests.plan import Gap

_TELLING = 200  # characters of a cause that tell it apart
_WITH = 3  # names of things that have one cause
_FEW = 4  # dates that are named one by one
_WHEN = re.compile(r"\d{4}(-\d\d){0,2}(T\d{4}|_\d{4}-\d\d-\d\d)?$")
_OF_ONE = re.compile(
    r"[A-Za-z][\w-]*\.A\d{7}\.[\w.-]*\w|\b\d{4}-\d\d-\d\d\b|\bh\d\dv\d\d\b"
)  # granules, dates and tiles
_OF_ALL = (
    Category.CHOICE_REFUSED,
    Category.CREDENTIALS_REFUSED,
    Category.EXECUTION_TIMEOUT,
    Category.OUT_OF_MEMORY,
    Category.UNKNOWN,
    Category.USER_CODE_FAILED,
    Category.USER_CODE_TIMED_OUT,
)  # causes that hit many alike, whatever granule each had
_CATEGORY = re.compile(rf"\b({'|'.join(one.value for one in Category)})(?=: |\. |$)")
_CUBES = (".nc", ".zarr.zip")


@dataclass(frozen=True, kw_only=True)
class JoinedGap:
    """Gaps that differ by their date only. `affects` are results, joined as well."""

    what: str
    reason: str
    count: int
    affects: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


def cause_of(text: str) -> str:
    """Return the cause of a failure, without what says of whose it is; "" if a text names none.

    Left out is whoever handed the cause on. Where the cause is no matter of one granule, neither do
    the names of granules, dates and tiles tell it apart.
    """
    found = _CATEGORY.search(text)
    if found is None:
        return ""
    said = text[found.start() :]
    # A text that was handed on may have been cut at its end.
    return (_OF_ONE.sub("*", said) if found[1] in _OF_ALL else said)[:_TELLING]


def with_others(names: Sequence[str]) -> str:
    """Write the first few of some names, each once, and how many more there are."""
    different = list(dict.fromkeys(names))
    more = len(different) - _WITH
    return ", ".join(different[:_WITH]) + (f" and {more:,} more" if more > 0 else "")


def join_gaps(
    gaps: Sequence[Gap], affects: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> list[JoinedGap]:
    """Join the gaps that differ only by their date or have one cause, in the order of the gaps.

    A joined gap has the first and last date and their number. `affects` has the paths of results by
    `Gap.what`.
    """
    groups: dict[tuple[str, str, str], list[Gap]] = defaultdict(list)
    for gap in gaps:
        before, _, after = _split_date(gap.what)
        groups[before, after, cause_of(gap.reason) or gap.reason].append(gap)
    found = []
    for (before, after, _), members in groups.items():
        days = sorted(day for gap in members if (day := _split_date(gap.what)[1]) is not None)
        what = " ".join(part for part in (before, _days(days), after) if part)
        paths = {path for gap in members for path in affects.get(gap.what, ())}
        found.append(
            JoinedGap(
                what=what,
                reason=members[0].reason,
                count=len(members),
                affects=tuple(join_results(paths)),
            )
        )
    return _by_cause(found)


def _by_cause(gaps: Sequence[JoinedGap]) -> list[JoinedGap]:
    """Join the gaps that are failures by one cause, which is then told once."""
    groups: dict[str, list[JoinedGap]] = defaultdict(list)
    for number, gap in enumerate(gaps):
        groups[cause_of(gap.reason) or str(number)].append(gap)
    return [
        replace(
            members[0],
            what=with_others([one.what for one in members]),
            count=sum(one.count for one in members),
            affects=tuple(dict.fromkeys(path for one in members for path in one.affects)),
        )
        for members in groups.values()
    ]


def affected(
    gaps: Iterable[Gap], results: Iterable[tuple[str, Completeness]]
) -> dict[str, tuple[str, ...]]:
    """Return the results, by path, that each gap has left incomplete, by `Gap.what`.

    A gap of a tile or of a date counts for all that a result lacks of that tile or date.
    """
    lacking: dict[str, list[str]] = defaultdict(list)
    for path, said in results:
        for name in sorted({name for one in said.missing for name in _names(one.what)}):
            lacking[name].append(path)
    return {gap.what: tuple(lacking[gap.what]) for gap in gaps if gap.what in lacking}


def incomplete_lines(results: Iterable[tuple[str, Completeness]]) -> list[str]:
    """Results that lack an input, a line for each folder, with the share that they have."""
    folders: dict[str, list[tuple[str, Completeness]]] = defaultdict(list)
    for path, said in results:
        if said != WHOLE:
            folders[_place(path)[0]].append((path, said))
    lines = []
    for folder in sorted(folders):
        found = folders[folder]
        (line,) = join_results(path for path, _ in found)
        lines.append(f"{line} ({_shares([said.share for _, said in found])} of the inputs)")
    return lines


def join_results(paths: Iterable[str]) -> list[str]:
    """Paths of results by folder: with their dates, or how many there are from when to when."""
    folders: dict[str, list[str]] = defaultdict(list)
    for path in sorted(set(paths)):
        folder, when = _place(path)
        folders[folder].append(when)
    return [_line(folder, times) for folder, times in folders.items()]


def in_percent(share: float) -> str:
    """Format a share in percent; the text says 0 or 100 only of nothing and all."""
    number = share * 100.0
    if number < 1.0:
        return "under 1%" if share else "0%"
    return f"{min(int(number), 99) if share < 1.0 else 100}%"


def _line(folder: str, times: Sequence[str]) -> str:
    cubes = [when for when in times if not when[:1].isdigit()]
    dated = [when for when in times if when[:1].isdigit()]
    if len(dated) > _FEW:
        dated = [f"{len(dated)} results from {min(dated)} to {max(dated)}"]
    return f"{folder} {', '.join([*dated, *cubes])}"


def _shares(shares: Sequence[float]) -> str:
    low, high = in_percent(min(shares)), in_percent(max(shares))
    return low if low == high else f"{low} to {high}"


def _place(path: str) -> tuple[str, str]:
    """Return a result's folder, and its date, "the cube" or its file's name."""
    folder, _, name = path.rpartition("/")
    if name.endswith(_CUBES):
        return folder, "the cube"
    when = _WHEN.search(PurePosixPath(name).stem)
    return folder, when[0] if when else name


def _names(what: str) -> tuple[str, ...]:
    """Return a missing input's name, and the names of the gaps that it may be part of."""
    before, day, after = _split_date(what)
    if day is None or not after:
        return (what,)
    return what, f"{before} {day}", f"{before} {after}"


def _split_date(what: str) -> tuple[str, date | None, str]:
    words = what.split()
    for place, word in enumerate(words):
        try:
            day = date.fromisoformat(word)
        except ValueError:
            continue
        return " ".join(words[:place]), day, " ".join(words[place + 1 :])
    return what, None, ""


def _days(days: Sequence[date]) -> str:
    if not days:
        return ""
    if len(days) == 1:
        return days[0].isoformat()
    steps = {after - before for before, after in pairwise(days)}
    if len(days) > 2 and steps == {timedelta(days=1)}:
        return f"each day from {days[0]} to {days[-1]}"
    if len(days) <= _FEW:
        return ", ".join(day.isoformat() for day in days)
    return f"{len(days)} dates from {days[0]} to {days[-1]}"
