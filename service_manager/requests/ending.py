"""How a request ends: recounted from its want rows, with what it lacks and why, and a mail."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from service_manager.plans import frozen
from service_manager.requests import notify
from service_manager.tasks.view import Live
from tasks.errors import BlobExistsError
from tasks.model.categories import Category
from tasks.model.model import Phase, RequestState
from tasks.model.plan import Gap, Plan
from tasks.storage.blobs import RESULTS
from tasks.tables import outbox, requests
from tasks.tables.requests import GAPS_ON_ROW, RequestRow
from tasks.tables.rows import Want
from tasks.tables.services import Services

log = structlog.get_logger("manager.ending")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The state a request ends in, and the line that says so."""

    state: RequestState
    message: str


def judge(
    policy: str, wants: Sequence[Want], gaps: Sequence[Gap], *, tasks: int = 0, reused: int = 0
) -> Verdict:
    """How a request ends whose tasks have all ended; `wants` may lack intermediate ones that were
    made. `reused` of all its `tasks` had been done before."""
    failed = [w for w in wants if w.outcome in ("failed", "gap")]
    planned = [w for w in wants if w.output and w.outcome != "superseded"]
    made = [w for w in planned if w.outcome == "done"]
    incomplete = [w for w in wants if w.outcome in ("failed", "gap", "superseded")]
    if policy == "fail" and incomplete:
        first = min(failed or incomplete, key=_order)
        return Verdict(
            state=RequestState.FAILED,
            message=f"{first.name}: {_reason(first)}; the request asks to fail when anything is "
            "missing (on_missing: fail)",
        )
    if planned and not made:
        return Verdict(
            state=RequestState.FAILED,
            message=f"none of the {len(planned)} results could be made",
        )
    if incomplete or gaps:
        lacking = len(planned) - len(made)
        return Verdict(
            state=RequestState.GAPS,
            message=f"{len(made)} of {len(planned)} results are there; "
            + (f"{lacking} could not be made" if lacking else "some lack an input"),
        )
    again = f"; {reused} of {tasks} tasks had been done before" if reused else ""
    return Verdict(state=RequestState.COMPLETE, message=f"all {len(made)} results are there{again}")


def lacking(wants: Sequence[Want], planned: Sequence[Gap]) -> tuple[Gap, ...]:
    """All that a request lacks: what planning found missing, what failed by itself, and the
    results that could therefore not be made. In an order of its own, so that it can be repeated."""
    own = [
        Gap(what=want.name, reason=_reason(want))
        for want in sorted(wants, key=_order)
        if want.outcome == "failed" or (want.outcome == "gap" and want.output)
    ]
    if not own:  # an input had been made, was lost, and could not be made again
        own = [
            Gap(what=want.name, reason="made without an input that was lost from storage")
            for want in sorted(wants, key=_order)
            if want.outcome == "superseded"
        ]
    return (*planned, *own)


def end(
    services: Services,
    live: Live,
    stored: RequestRow,
    wants: Sequence[Want],
    *,
    portal_url: str,
    epoch: int,
) -> RequestRow:
    """End a request once: gaps, mail, and its row. Repeated, it changes nothing.

    `stored` is its row as read before the wants: when it has changed since, another manager may
    have tried again what the wants say, and the request goes on. One that is ordered to be
    cancelled does not end this way, its wants may be half gone already, nor one that is to try
    again what failed.

    Raises:
        StoreError: storage failed; call again.
    """
    if _goes_on(stored, live.policy):
        return stored
    plan = frozen.thaw(services.blobs, live.id) or Plan(tasks=())
    counted = live.with_progress(())
    verdict = judge(
        live.policy,
        wants,
        plan.gaps,
        tasks=sum(count.total for count in counted.phases.values()),
        reused=sum(count.reused for count in counted.phases.values()),
    )
    gaps = lacking(wants, plan.gaps)
    _keep_gaps(services, live.id, gaps)
    now = services.clock.now()
    row = replace(
        counted,
        state=verdict.state,
        message=verdict.message,
        ended=now,
        gaps=gaps[:GAPS_ON_ROW],
        gap_count=len(gaps),
        epoch=epoch,
    )
    request = requests.document_of(stored)
    mail = notify.compose(
        row, wants, plan.gaps, to=request.notify, portal_url=portal_url, now=now, notes=plan.notes
    )
    if mail is not None:
        outbox.put(services.store, services.clock, mail)
    return write_end(services, row, unless=lambda found: found.etag != stored.etag)


def end_without_plan(
    services: Services,
    row: RequestRow,
    state: RequestState,
    message: str,
    *,
    portal_url: str,
) -> RequestRow:
    """End a request that was refused, could not be planned, was previewed, or was cancelled.

    Only a failure is told by mail: the rest was said at once or asked for.
    """
    now = services.clock.now()
    new = replace(row, state=state, message=message, ended=now)
    if state in (RequestState.REFUSED, RequestState.FAILED) and not row.dry_run:
        request = requests.document_of(requests.load(services, row.id))
        mail = notify.compose(new, (), (), to=request.notify, portal_url=portal_url, now=now)
        if mail is not None:
            outbox.put(services.store, services.clock, mail)
    return write_end(services, new)


def write_end(
    services: Services,
    row: RequestRow,
    *,
    unless: Callable[[RequestRow], bool] = lambda _found: False,
) -> RequestRow:
    """Write a request's end unless it has one, or an order that came meanwhile goes first."""

    def change(current: RequestRow) -> RequestRow:
        if current.state.ended or unless(current):
            return current
        return replace(row, document=current.document, etag=current.etag)

    ended = requests.change_request(services, row.id, change)
    if not ended.state.ended:
        return ended
    log.info("request ended", request=row.id, state=ended.state.value, message=ended.message)
    return ended


def _goes_on(row: RequestRow, policy: str) -> bool:
    return row.order == "cancel" or (bool(row.retry_orders) and policy != "fail")


def _keep_gaps(services: Services, request: str, gaps: Sequence[Gap]) -> None:
    if len(gaps) <= GAPS_ON_ROW:
        return
    data = json.dumps([[gap.what, gap.reason] for gap in gaps]).encode()
    try:
        services.blobs.put_bytes(RESULTS, requests.gaps_blob(request), data)
    except BlobExistsError:
        # An earlier try to end the request listed them, and the request ends once.
        log.info("gaps are listed already", request=request)


def _reason(want: Want) -> str:
    if want.outcome == "gap":
        return want.message or "none of its inputs could be made"
    category = want.category or Category.UNKNOWN
    return f"{category}: {want.message}" if want.message else str(category)


def _order(want: Want) -> tuple[int, str, str]:
    return list(Phase).index(want.phase), want.name, want.key
