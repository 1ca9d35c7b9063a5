"""What the mail about an ended request says: plain text a scientist can act on."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType

from reprojection.read.completeness import WHOLE, Completeness
from service_manager.events.causes import Empty, empty_rasters, order
from tasks.bag.categories import RULES, Category
from tasks.bag.model import Phase, RequestState, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.packages.items import without_items
from tasks.requests.gaps import JoinedGap, affected, cause_of, incomplete_lines, join_gaps
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount

_WIDTH = 76
_MOST = 40  # lines of one list; the portal has the rest
_NAMED = 3  # examples of one failure category

_PHASE_WORDS = {
    Phase.COLLECTION: ("granule", "granules"),
    Phase.REPROJECTION: ("cell or raster", "cells and rasters"),
    Phase.AGGREGATION: ("mosaic or stack", "mosaics and stacks"),
    Phase.REDUCTION: ("reduction run", "reduction runs"),
}
_VERBS = {
    Phase.COLLECTION: "fetched",
    Phase.REPROJECTION: "reprojected",
    Phase.AGGREGATION: "put together",
    Phase.REDUCTION: "run",
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Tasks that failed for one reason.

    It has their number and the messages of the first few; `stopped` of them were not run.
    """

    category: Category
    count: int
    said: tuple[str, ...]
    different: int  # things that were said
    stopped: int = 0


@dataclass(frozen=True, kw_only=True)
class RequestSummary:
    """What became of a request, counted from its interests.

    `results` are files by folder, without STAC items, `size` the bytes of all; `incomplete` are
    those made without some of their inputs, by path; `empty` the rasters without one valid pixel;
    `ended` and `reused` are tasks by phase.
    """

    results: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    incomplete: tuple[tuple[str, Completeness], ...] = ()
    ended: Mapping[Phase, int] = field(default_factory=dict)
    reused: Mapping[Phase, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    gaps: tuple[Gap, ...] = ()
    empty: Empty = field(default_factory=Empty)


@dataclass(frozen=True, kw_only=True)
class MailText:
    """What a mail says, before it has an address."""

    subject: str
    body: str


def outcome(
    interests: Iterable[Interest],
    gaps: Sequence[Gap] = (),
    phases: Mapping[Phase, PhaseCount] = MappingProxyType({}),
) -> RequestSummary:
    """Summarise what became of a request.

    Of `interests` those with results or failures count; `phases` are its tasks in numbers. A result
    that has no inputs left is one more gap.
    """
    results: Counter[str] = Counter()
    failed: dict[Category, list[Interest]] = defaultdict(list)
    lacking = list(gaps)
    incomplete: list[tuple[str, Completeness]] = []
    size = 0
    made: list[Interest] = []
    for interest in interests:
        if interest.outcome is TaskOutcome.DONE:
            if interest.output:
                made.append(interest)
                names = without_items(file.name for file in interest.files)
                results[interest.output] += len(names)
                size += sum(file.size for file in interest.files)
                incomplete += [
                    (f"{interest.output.strip('/')}/{file.name}", file.completeness)
                    for file in interest.files
                    if file.completeness != WHOLE
                ]
        elif interest.outcome is TaskOutcome.GAP and interest.output:
            reason = interest.message or "none of its inputs could be made"
            lacking.append(Gap(what=interest.name, reason=reason))
        elif interest.outcome is TaskOutcome.FAILED:
            failed[interest.category or Category.UNKNOWN].append(interest)
    return RequestSummary(
        results=dict(sorted(results.items())),
        size=size,
        incomplete=tuple(sorted(incomplete, key=lambda found: found[0])),
        ended={phase: count.done for phase, count in phases.items()},
        reused={phase: count.reused for phase, count in phases.items()},
        failures=tuple(
            _failure(category, alike)
            for category, alike in sorted(failed.items(), key=lambda item: -len(item[1]))
        ),
        gaps=tuple(lacking),
        empty=empty_rasters(made),
    )


def compose(
    *,
    title: str,
    state: RequestState,
    outcome: RequestSummary,
    link: str,
    message: str = "",
    notes: Sequence[str] = (),
    kept_until: date | None = None,
    spending: str = "",
) -> MailText:
    """Write the mail about an ended request.

    `link` is its page in the portal, `message` why it was refused or failed, `notes` are those of
    planning. Its files are deleted on the day `kept_until`. `spending` says what it took.
    """
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
        *_results(outcome, state, link, kept_until),
        *_incomplete(outcome),
        *_empty(outcome),
        *_gaps(outcome),
        *_failures(outcome),
        *_reuse(outcome),
        *([_wrap(f"It took {spending}.")] if spending else []),
        *([_list("Notes", [_wrap(note, "  ") for note in notes])] if notes else []),
        "Swathmill",
    ]
    ended = _subject(state, outcome)
    return MailText(subject=f"{name[: 198 - len(ended)]}: {ended}", body="\n\n".join(parts) + "\n")


def _subject(state: RequestState, outcome: RequestSummary) -> str:
    lacking = len(outcome.gaps) + sum(failure.count for failure in outcome.failures)
    if state is RequestState.GAPS and lacking:
        return f"complete with {lacking} {'gap' if lacking == 1 else 'gaps'}"
    return state.value


def _failure(category: Category, failed: Sequence[Interest]) -> Failure:
    """Describe the tasks that failed in one category; those with one cause are joined."""
    said: dict[str, list[Interest]] = defaultdict(list)
    for interest in sorted(failed, key=order):
        if not interest.stopped:
            message = f"{category.value}: {interest.message}" if interest.message else interest.name
            said[cause_of(message) or message].append(interest)
    lines = [_said(alike) for alike in said.values()]
    return Failure(
        category=category,
        count=len(failed),
        said=tuple(lines[:_NAMED]),
        different=len(lines),
        stopped=sum(interest.stopped for interest in failed),
    )


def _said(alike: Sequence[Interest]) -> str:
    """Say what failed, with the first failure's own message where there is one."""
    first = alike[0]
    message = first.message or first.name
    if len(alike) > 1:
        return f"{first.name} and {len(alike) - 1:,} more: {message}"
    return message if first.name in message else f"{first.name}: {message}"


def _results(
    outcome: RequestSummary, state: RequestState, link: str, kept_until: date | None
) -> list[str]:
    files = sum(outcome.results.values())
    if not files:
        if state is RequestState.HELD:
            return [f"Sign in on its page to let it go on, or to cancel it:\n  {link}"]
        if state in (RequestState.CANCELLED, RequestState.REFUSED):
            return [f"Sign in on its page to change it and submit it again:\n  {link}"]
        return [f"There are no results. What happened is described here:\n  {link}"]
    longest = max(map(len, outcome.results))
    lines = [f"{folder:<{longest}}  {n:>5}" for folder, n in outcome.results.items()]
    return [
        f"{_count(files, 'file', 'files')} ({_bytes(outcome.size)}) to download, one by one or "
        f"all at once:\n  {link}",
        *([f"They are kept until {kept_until}."] if kept_until else []),
        _list("Files by folder", ["  " + line for line in lines]),
    ]


def _empty(outcome: RequestSummary) -> list[str]:
    if not outcome.empty.paths:
        return []
    of = f"{len(outcome.empty.paths):,} of {_count(outcome.empty.rasters, 'raster', 'rasters')}"
    lines = [f"  {path}" for path in outcome.empty.paths]
    return [_list(f"Without one valid pixel ({of})", lines)]


def _gaps(outcome: RequestSummary) -> list[str]:
    if not outcome.gaps:
        return []
    affects = affected(outcome.gaps, outcome.incomplete)
    lines = [_wrap(_gap_line(gap), "  ") for gap in join_gaps(outcome.gaps, affects)]
    return [_list(f"What is missing ({_count(len(outcome.gaps), 'gap', 'gaps')})", lines)]


def _gap_line(gap: JoinedGap) -> str:
    return f"{gap}. Affects: {'; '.join(gap.affects)}" if gap.affects else str(gap)


def _incomplete(outcome: RequestSummary) -> list[str]:
    """List the results that lack some of their inputs, with the share that they have."""
    if not outcome.incomplete:
        return []
    lines = [_wrap(line, "  ") for line in incomplete_lines(outcome.incomplete)]
    files = _count(len(outcome.incomplete), "file", "files")
    return [_list(f"Made without some of their inputs ({files})", lines)]


def _failures(outcome: RequestSummary) -> list[str]:
    blocks = []
    for failure in outcome.failures:
        rule = RULES[failure.category]
        more = failure.different - len(failure.said)
        count = _count(failure.count, "task", "tasks")
        if failure.stopped:
            count += f", {failure.stopped:,} of them not run because the first had all failed alike"
        lines = [
            _wrap(f"{failure.category.value}, {count}", "  "),
            *(_wrap(said, "    - ") for said in failure.said),
            *([f"    - and {more:,} more"] if more > 0 else []),
            _wrap(rule.cause, "    "),
            _wrap(rule.remedy, "    "),
        ]
        blocks.append("\n".join(lines))
    return [_list("What failed", blocks)] if blocks else []


def _reuse(outcome: RequestSummary) -> list[str]:
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


def _sentence(text: str) -> str:
    """Write a line with a capital and a full stop; a field's name stays as it is."""
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
