"""How a request ends: recounted from its interest rows, with what it lacks and why, and a mail."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import structlog

from reprojection.read.completeness import WHOLE
from service_manager.dispatch.manager_cache import Live
from service_manager.events.causes import empty_rasters, first_cause, found_later, order
from service_manager.mail import notify
from service_manager.plans import stored_plan
from tasks.bag import history
from tasks.bag.categories import Category
from tasks.bag.model import MissingPolicy, Phase, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest, in_effect
from tasks.errors import BlobExistsError
from tasks.operators import prices
from tasks.operators.prices import Spending
from tasks.requests import outbox, request_operations
from tasks.requests.plan import Gap, Plan
from tasks.requests.request_table import GAPS_ON_ROW, PhaseCount, RequestRow
from tasks.service import tracing
from tasks.service.tracing import Span
from tasks.storage.blobs import RESULTS

_LONGEST = 300  # characters of a cause in the line of a request's state

log = structlog.get_logger("manager.ending")


_LOST = "made without an input that was lost from storage"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The state a request ends in, and the line that says so."""

    state: RequestState
    message: str


def judge(
    policy: MissingPolicy,
    interests: Sequence[Interest],
    gaps: Sequence[Gap],
    *,
    steps: Collection[str] = (),
    phases: Mapping[Phase, PhaseCount] = MappingProxyType({}),
) -> Verdict:
    """Judge how a request ends whose tasks have all ended.

    `interests` may leave out intermediate tasks that were made. `steps` are those of its reduction,
    `phases` are all its tasks in numbers. A request for a reduction has failed when no result of
    the reduction was made, whatever else was made. The cause is then that of the runs that failed
    themselves, if any did: a run that had some of its inputs did not fail for want of the others.
    """
    failed = [w for w in interests if w.outcome in (TaskOutcome.FAILED, TaskOutcome.GAP)]
    made = [w for w in interests if w.output and w.outcome is TaskOutcome.DONE]
    there = {w.key for w in made}
    planned = made + [w for w in failed if w.output and there.isdisjoint(w.fallbacks)]
    incomplete = [w for w in interests if w.outcome not in (None, TaskOutcome.DONE)]
    if policy is MissingPolicy.FAIL and incomplete:
        first = min(failed or incomplete, key=order)
        said = _reason(first)
        said = said if first.name in first.message else f"{first.name}: {said}"
        return Verdict(
            state=RequestState.FAILED,
            message=f"{said}; the request asks to fail when anything is missing (on_missing: fail)",
        )
    reductions = [w for w in planned if w.output.partition("/")[0] in steps]
    unreduced = reductions and not any(w.outcome is TaskOutcome.DONE for w in reductions)
    runs = [w for w in failed if unreduced and _failed_run(w)]
    cause = _cause(runs or failed, phases) or _inherited_cause(interests)
    if planned and not made:
        return Verdict(
            state=RequestState.FAILED,
            message=f"none of the {len(planned)} results could be made{cause}",
        )
    empty = str(empty_rasters(made))
    if unreduced:
        return Verdict(
            state=RequestState.FAILED,
            message=_joined(
                f"no result of the reduction {' and '.join(steps)} could be made{cause}",
                f"{len(made)} other {'result is' if len(made) == 1 else 'results are'} there",
                empty,
            ),
        )
    if incomplete or gaps:
        lacking = len(planned) - len(made)
        return Verdict(
            state=RequestState.GAPS,
            message=_joined(
                f"{len(made)} of {len(planned)} results are there",
                (f"{lacking} could not be made" if lacking else _incomplete(made, failed)) + cause,
                empty,
            ),
        )
    tasks = sum(count.total for count in phases.values())
    reused = sum(count.reused for count in phases.values())
    again = f"{reused} of {tasks} tasks had been done before" if reused else ""
    return Verdict(
        state=RequestState.COMPLETE,
        message=_joined(
            "the result is there" if len(made) == 1 else f"all {len(made)} results are there",
            empty,
            again,
        ),
    )


def cancelled(counted: RequestRow) -> Verdict:
    """Return how a request ends that was cancelled once its tasks had begun."""
    counts = counted.phases.values()
    tasks, left = sum(c.total for c in counts), sum(c.cancelled for c in counts)
    return Verdict(
        state=RequestState.CANCELLED,
        message=f"{counted.delivered:,} of {counted.outputs:,} results were finished and are kept; "
        f"{left:,} of {tasks:,} tasks were not carried out",
    )


def lacking(interests: Sequence[Interest], planned: Sequence[Gap]) -> tuple[Gap, ...]:
    """List all that a request lacks, in an order that repeats.

    That is what planning found missing, what granules turned out to lack, the tasks that failed
    themselves, and the results that could therefore not be made.
    """
    later = found_later(interests)
    own = [
        Gap(what=interest.name, reason=_reason(interest))
        for interest in sorted(interests, key=order)
        if (interest.outcome is TaskOutcome.FAILED and not interest.stopped)
        or (interest.outcome is TaskOutcome.GAP and interest.output)
    ]
    stopped = [interest for interest in interests if interest.stopped]
    if stopped:
        what = f"{len(stopped):,} more runs of the reduction"
        own.append(Gap(what=what, reason=_reason(min(stopped, key=order))))
    # An input had been made and could not be made again, or was made since by another request.
    if not own and not later:
        inner = {TaskOutcome.SUPERSEDED} if planned else {TaskOutcome.SUPERSEDED, TaskOutcome.GAP}
        own = [
            Gap(what=interest.name, reason=interest.message or _LOST)
            for interest in sorted(interests, key=order)
            if interest.outcome in inner
        ]
    return (*planned, *later, *own)


def end(
    runtime: Runtime,
    live: Live,
    stored: RequestRow,
    interests: Sequence[Interest],
    *,
    portal_url: str,
    result_days: float,
    epoch: int,
) -> RequestRow:
    """End a request once: gaps, mail, and its row. Repeated, it changes nothing.

    Its results are kept for `result_days`.

    `stored` is its row as read before the interests: when it has changed since, another manager
    may have retried tasks, and the request goes on. So does one that is to be
    cancelled or to try again what failed, as long as it has not been done.

    Raises:
        StoreError: storage failed; call again.
    """
    if _goes_on(stored, live):
        return stored
    plan = stored_plan.thaw(runtime.blobs, live.id) or Plan(tasks=())
    interests = in_effect(interests)
    counted = live.with_progress(())
    request = request_operations.document_of(stored)
    known = (*plan.gaps, *found_later(interests))
    if stored.state is RequestState.CANCELLING:
        verdict = cancelled(counted)
    else:
        verdict = judge(
            live.policy,
            interests,
            known,
            steps=[step.label for step in request.steps],
            phases=counted.phases,
        )
    gaps = lacking(interests, plan.gaps)
    _keep_gaps(runtime, live.id, gaps)
    now = runtime.clock.now()
    row = replace(
        counted,
        state=verdict.state,
        message=verdict.message,
        ended=now,
        gaps=gaps[:GAPS_ON_ROW],
        gap_count=len(gaps),
        retry_orders=(),
        epoch=epoch,
    )
    mail = notify.compose(
        row,
        interests,
        known,
        to=request.notify,
        portal_url=portal_url,
        now=now,
        notes=plan.notes,
        kept_until=now + result_days * 86_400.0,
        spending=_spending(runtime, row.id),
    )
    if mail is not None:
        outbox.post(runtime, mail)
    return write_end(runtime, row, unless=lambda found: found.etag != stored.etag)


def _spending(runtime: Runtime, request: str) -> str:
    """Say what was executed on account of a request; "" where nothing was. Raises StoreError."""
    done = history.used_by(runtime.store, request)
    return Spending.of(done, prices.load(runtime.store)).text if done.count else ""


def end_without_plan(
    runtime: Runtime,
    row: RequestRow,
    state: RequestState,
    message: str,
    *,
    portal_url: str,
) -> RequestRow:
    """End a request that was refused, could not be planned, or was previewed.

    A preview is not told by mail: it was asked for, and is waited for.
    """
    now = runtime.clock.now()
    new = replace(row, state=state, message=message, ended=now, preparation=None)
    if state in (RequestState.REFUSED, RequestState.FAILED) and not row.dry_run:
        request = request_operations.document_of(request_operations.load(runtime, row.id))
        mail = notify.compose(new, (), (), to=request.notify, portal_url=portal_url, now=now)
        if mail is not None:
            outbox.post(runtime, mail)
    return write_end(runtime, new)


def write_end(
    runtime: Runtime,
    row: RequestRow,
    *,
    unless: Callable[[RequestRow], bool] = lambda _found: False,
) -> RequestRow:
    """Write a request's end unless it has one, or an order that came meanwhile goes first."""

    def change(current: RequestRow) -> RequestRow:
        if current.state.ended or unless(current):
            return current
        return replace(row, document=current.document, etag=current.etag)

    ended = request_operations.change_request(runtime, row.id, change)
    if not ended.state.ended:
        return ended
    log.info("request ended", request=row.id, state=ended.state.value, message=ended.message)
    _record(ended)
    return ended


def _record(row: RequestRow) -> None:
    """Record the span of the whole request."""
    if not tracing.is_on():
        return
    failed = row.state in (RequestState.FAILED, RequestState.REFUSED)
    tracing.record(
        Span(
            name="request",
            trace=tracing.trace_of(row.id),
            id=tracing.root_of(row.id),
            began=row.submitted,
            ended=row.ended,
            failure=row.message if failed else "",
            attributes={
                "swathmill.request": row.id,
                "swathmill.state": row.state.value,
                "swathmill.tasks": sum(count.total for count in row.phases.values()),
                "swathmill.results": row.delivered,
            },
        )
    )


def _goes_on(stored: RequestRow, live: Live) -> bool:
    if stored.state is not live.row.state:
        return True
    return bool(stored.retry_orders) and not live.leaving


def _keep_gaps(runtime: Runtime, request: str, gaps: Sequence[Gap]) -> None:
    if len(gaps) <= GAPS_ON_ROW:
        return
    data = json.dumps([[gap.what, gap.reason] for gap in gaps]).encode()
    try:
        runtime.blobs.put_bytes(RESULTS, request_operations.gaps_blob(request), data)
    except BlobExistsError:
        # An earlier try to end the request listed them, and the request ends once.
        log.info("gaps are listed already", request=request)


def _reason(interest: Interest) -> str:
    if interest.outcome is TaskOutcome.GAP:
        return interest.message or "none of its inputs could be made"
    category = interest.category or Category.UNKNOWN
    return f"{category}: {interest.message}" if interest.message else str(category)


def _incomplete(made: Sequence[Interest], failed: Sequence[Interest]) -> str:
    """Return how many results were made without some of their inputs."""
    count = sum(any(file.completeness != WHOLE for file in interest.files) for interest in made)
    if not count:
        return (
            "some lack an input" if failed else "the archive does not have all that was asked for"
        )
    return f"{count} of them {'lacks' if count == 1 else 'lack'} an input"


def _failed_run(interest: Interest) -> bool:
    return interest.phase is Phase.REDUCTION and interest.outcome is TaskOutcome.FAILED


def _cause(failed: Sequence[Interest], phases: Mapping[Phase, PhaseCount]) -> str:
    """Return why tasks failed by themselves, to go on with."""
    runs = phases.get(Phase.REDUCTION, PhaseCount()).total
    cause = first_cause(failed, runs)
    if len(cause) > _LONGEST:  # the gaps and failures have it whole
        cause = f"{cause[:_LONGEST].rpartition(' ')[0]} ..."
    return f": {cause}" if cause else ""


def _inherited_cause(interests: Sequence[Interest]) -> str:
    """Return why tasks lacked an input that had been there, to go on with."""
    without = (TaskOutcome.SUPERSEDED, TaskOutcome.GAP)
    cause = next((w.message for w in interests if w.outcome in without and w.message), "")
    return f": {cause}" if cause else ""


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
