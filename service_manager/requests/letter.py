"""What the mail about an ended request says: plain text a scientist can act on."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from email.utils import parseaddr
from itertools import pairwise
from types import MappingProxyType

from tasks.model.categories import RULES, Category
from tasks.model.model import Phase, RequestState
from tasks.model.plan import Gap
from tasks.tables.requests import PhaseCount
from tasks.tables.rows import Want

_WIDTH = 76
_MOST = 40  # lines of one list; the portal has the rest
_NAMED = 3  # examples of one failure category

_PHASE_WORDS = {
    Phase.COLLECTION: ("granule", "granules"),
    Phase.REPROJECTION: ("cell", "cells"),
    Phase.AGGREGATION: ("aggregate", "aggregates"),
    Phase.REDUCTION: ("reduction run", "reduction runs"),
}
_VERBS = {
    Phase.COLLECTION: "fetched",
    Phase.REPROJECTION: "reprojected",
    Phase.AGGREGATION: "aggregated",
    Phase.REDUCTION: "run",
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Tasks that failed for one reason: how many, and what the first few of them said."""

    category: Category
    count: int
    said: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a request, counted from its wants.

    `results` are files by folder, `size` their bytes; `ended` and `reused` are tasks by phase.
    """

    results: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    ended: Mapping[Phase, int] = field(default_factory=dict)
    reused: Mapping[Phase, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A mail before it has an address on its envelope."""

    subject: str
    body: str


def outcome(
    wants: Iterable[Want],
    gaps: Sequence[Gap] = (),
    phases: Mapping[Phase, PhaseCount] = MappingProxyType({}),
) -> Outcome:
    """What became of a request: of `wants` those with results or failures count, `phases` are its
    tasks in numbers. A result without inputs left is one more gap."""
    results: Counter[str] = Counter()
    failed: dict[Category, list[str]] = defaultdict(list)
    lacking = list(gaps)
    size = 0
    for want in wants:
        if want.outcome == "done":
            if want.output:
                results[want.output] += len(want.files)
                size += sum(file.size for file in want.files)
        elif want.outcome == "gap" and want.output:
            reason = want.message or "none of the granules it needs could be used"
            lacking.append(Gap(what=want.name, reason=reason))
        elif want.outcome == "failed":
            failed[want.category or Category.UNKNOWN].append(_said(want))
    return Outcome(
        results=dict(sorted(results.items())),
        size=size,
        ended={phase: count.done for phase, count in phases.items()},
        reused={phase: count.reused for phase, count in phases.items()},
        failures=tuple(
            Failure(category=category, count=len(said), said=tuple(sorted(said)[:_NAMED]))
            for category, said in sorted(failed.items(), key=lambda item: -len(item[1]))
        ),
        gaps=tuple(lacking),
    )


def compose(
    *,
    title: str,
    state: RequestState,
    outcome: Outcome,
    link: str,
    message: str = "",
    notes: Sequence[str] = (),
) -> Letter:
    """The letter about an ended request. `link` is its page in the portal, `message` why it was
    refused or failed, `notes` what planning had to say."""
    name = " ".join(title.split()) or "your request"
    head = {
        RequestState.COMPLETE: "is complete",
        RequestState.GAPS: "is complete with gaps",
        RequestState.FAILED: "failed",
        RequestState.CANCELLED: "was cancelled",
        RequestState.REFUSED: "was refused",
    }.get(state, f"is {state.value}")
    opening = f'Your request "{name}" {head}.' if title.strip() else f"Your request {head}."
    parts = [
        _wrap(f"{opening} {_sentence(message)}".strip()),
        *_results(outcome, state, link),
        *_gaps(outcome),
        *_failures(outcome),
        *_reuse(outcome),
        *([_list("Notes", [_wrap(note, "  ") for note in notes])] if notes else []),
        "Swathmill",
    ]
    return Letter(
        subject=f"{name}: {_subject(state, outcome)}"[:200], body="\n\n".join(parts) + "\n"
    )


def usable_address(address: str) -> bool:
    """Whether an address can go into a mail's header as it stands."""
    plain = parseaddr(address)[1]
    return bool(plain) and plain == address and "\n" not in address and "\r" not in address


def merge_gaps(gaps: Sequence[Gap]) -> list[str]:
    """Gaps as lines: those that differ only by their date are one line with the first and last
    date and their number."""
    groups: dict[tuple[str, str, str], list[date]] = defaultdict(list)
    lines: dict[tuple[str, str, str], None] = {}
    for gap in gaps:
        before, day, after = _split_date(gap.what)
        key = before, after, gap.reason
        lines[key] = None
        if day is not None:
            groups[key].append(day)
    found = []
    for key in lines:
        before, after, reason = key
        days = sorted(groups.get(key, []))
        when = _days(days)
        what = " ".join(part for part in (before, when, after) if part)
        found.append(f"{what}: {reason}")
    return found


def _subject(state: RequestState, outcome: Outcome) -> str:
    lacking = len(outcome.gaps) + sum(failure.count for failure in outcome.failures)
    if state is RequestState.GAPS and lacking:
        return f"complete with {lacking} {'gap' if lacking == 1 else 'gaps'}"
    return state.value


def _said(want: Want) -> str:
    """What failed, in its own words where it left some."""
    if not want.message or want.name in want.message:
        return want.message or want.name
    return f"{want.name}: {want.message}"


def _results(outcome: Outcome, state: RequestState, link: str) -> list[str]:
    files = sum(outcome.results.values())
    if not files:
        if state is RequestState.HELD:
            return [f"Confirm or cancel it on its page:\n  {link}"]
        if state in (RequestState.CANCELLED, RequestState.REFUSED):
            return [f"The request, to change and submit again:\n  {link}"]
        return [f"There are no results. What happened is told here:\n  {link}"]
    longest = max(map(len, outcome.results))
    lines = [f"{folder:<{longest}}  {n:>5}" for folder, n in outcome.results.items()]
    return [
        f"{_count(files, 'file', 'files')} ({_bytes(outcome.size)}) to download, one by one or "
        f"all at once:\n  {link}",
        _list("Files by folder", ["  " + line for line in lines]),
    ]


def _gaps(outcome: Outcome) -> list[str]:
    if not outcome.gaps:
        return []
    lines = [_wrap(line, "  ") for line in merge_gaps(outcome.gaps)]
    return [_list(f"What is missing ({_count(len(outcome.gaps), 'gap', 'gaps')})", lines)]


def _failures(outcome: Outcome) -> list[str]:
    blocks = []
    for failure in outcome.failures:
        rule = RULES[failure.category]
        more = failure.count - len(failure.said)
        lines = [
            _wrap(f"{failure.category.value}, {_count(failure.count, 'task', 'tasks')}", "  "),
            *(_wrap(said, "    - ") for said in failure.said),
            *([f"    - and {more:,} more"] if more > 0 else []),
            _wrap(rule.cause, "    "),
            _wrap(rule.remedy, "    "),
        ]
        blocks.append("\n".join(lines))
    return [_list("What failed", blocks)] if blocks else []


def _reuse(outcome: Outcome) -> list[str]:
    made_before = [phase for phase in Phase if outcome.reused.get(phase)]
    if not made_before:
        return []
    said = []
    for phase in made_before:
        reused, ended = outcome.reused[phase], outcome.ended.get(phase, 0)
        share = f"all {reused}" if reused == ended else f"{reused} of {ended}"
        said.append(f"{share} {_PHASE_WORDS[phase][ended != 1]}")
    text = f"There already, from earlier requests: {', '.join(said)}."
    idle = [
        _VERBS[phase]
        for phase in (Phase.COLLECTION, Phase.REPROJECTION)
        if outcome.reused.get(phase) and outcome.reused[phase] == outcome.ended.get(phase)
    ]
    if idle:
        text += f" Nothing was {' or '.join(idle)} again."
    return [_wrap(text)]


def _list(head: str, blocks: Sequence[str]) -> str:
    shown = [*blocks[:_MOST]]
    if len(blocks) > _MOST:
        shown.append(f"  and {len(blocks) - _MOST} more, on the request's page")
    return "\n".join([f"{head}:", *shown])


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
    if len(days) <= 4:
        return ", ".join(day.isoformat() for day in days)
    return f"{len(days)} dates from {days[0]} to {days[-1]}"


def _sentence(text: str) -> str:
    """A line with a capital and a full stop, as a mail has it; a field's name stays as it is."""
    plain = " ".join(text.split())
    if not plain:
        return ""
    first = plain.split()[0]
    if first.isalpha():
        plain = plain[0].upper() + plain[1:]
    return plain if plain.endswith((".", "!", "?")) else f"{plain}."


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable: the last unit takes everything")


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * (len(indent) + 2 * (indent == "  ")),
        break_long_words=False,
        break_on_hyphens=False,
    )
