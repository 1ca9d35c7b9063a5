"""A request's page: progress while it runs, failures, gaps, results and their pictures."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from portal.operations import overview
from portal.operations.overview import is_lost
from portal.operations.state import Operations
from portal.requests.answer import Cause, answer
from portal.requests.api import listed, mended, order, rehearsal_failed
from portal.requests.audience import QUIET_SECONDS, Progress
from portal.requests.expected_end import before, expected_end
from portal.requests.retries import may_retry
from portal.requests.sharing import shared_view
from portal.requests.squares import matrix, share_text
from portal.requests.state import Requests
from portal.results import pictures
from portal.results.incomplete import IncompleteView
from portal.results.layers import is_raster, layer_of
from portal.results.result_files import ResultFile, ResultReader
from portal.results.sensor_overlaps import sensor_overlaps
from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.identity import Caller, Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError
from portal.serving.sending import LINE, Line
from portal.serving.tokens import Person
from portal.submit.forms import request_yaml
from tasks.accounts.group_table import GroupTable
from tasks.bag import classes, history
from tasks.bag.categories import RULES, Category, Rule
from tasks.bag.history import ClassStatistics
from tasks.bag.model import Phase, RequestOrder, RequestState
from tasks.bag.task_rows import Interest
from tasks.errors import StoreError
from tasks.operators import prices, restrictions
from tasks.operators.prices import Spending
from tasks.operators.restrictions import Kind
from tasks.requests import request_operations
from tasks.requests.gaps import cause_of, join_gaps
from tasks.requests.request_operations import NoSuchRequestError
from tasks.requests.request_table import PhaseCount, Rehearsal, RequestRow

router = Router(include_in_schema=False)

PAGE = 50  # results or requests per page
_REST = 10  # results that have no last page of their own
_FAILURES_SHOWN = 20  # failures shown per category
_GAPS_SHOWN = 50  # lines
_SQUARES = 1000  # of a page, about
_LARGE = 2000  # number of tasks beyond which a page comes before its results are read
_STREAM_SECONDS = 900.0  # then the caller has to be signed in still
_RETRY_MILLISECONDS = 8000  # within which a browser asks again for a stream that broke


@dataclass(frozen=True, kw_only=True)
class PhaseView:
    """One phase's bar and the text beside it."""

    name: str
    count: PhaseCount

    @property
    def text(self) -> str:
        """The content of the bar in words: "12 of 32 done, 3 running, 2 reused, 1 failed"."""
        count = self.count
        parts = [f"{count.done:,} of {count.total:,}"]
        for number, word in ((count.running, "running"), (count.reused, "reused")):
            if number:
                parts.append(f"{number:,} {word}")
        for number, word in ((count.failed, "failed"), (count.cancelled, "cancelled")):
            if number:
                parts.append(f"{number:,} {word}")
        return ", ".join(parts)

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """The bar's parts in order, each with its CSS class."""
        count = self.count
        return (
            ("reused", count.reused),
            ("done", count.done - count.reused),
            ("failed", count.failed),
            ("running", count.running),
        )


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """The failures of one category, and those that only follow from them: the first of each.

    `as_above` are the keys of those whose cause an earlier one has told.
    """

    category: str
    rule: Rule | None
    shown: tuple[Interest, ...]
    count: int
    following: tuple[Interest, ...]
    following_count: int
    as_above: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class ResultView:
    """A finished file as its row shows it."""

    result: ResultFile
    request: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return PurePosixPath(self.result.path).name

    @property
    def folder(self) -> str:
        """The folder of the file among the results."""
        parent = str(PurePosixPath(self.result.path).parent)
        return "" if parent == "." else parent

    @property
    def url(self) -> str:
        """The download address."""
        return f"/api/requests/{self.request}/results/{quote(self.result.path)}"

    @property
    def valid(self) -> str:
        """The valid share of a raster in words; empty if it was not counted."""
        share = self.result.file.valid_share
        if share is None:
            return ""
        if share == 0.0:
            return "no valid pixel"
        return f"{share_text(share)} valid"

    @property
    def view(self) -> str:
        """The address of its page; empty if there is nothing to draw."""
        if not is_raster(self.result):
            return ""
        return f"/requests/{self.request}/view/{quote(self.result.path)}"

    @property
    def incomplete(self) -> IncompleteView | None:
        """The inputs it lacks; None if it lacks nothing."""
        return IncompleteView.of(self.result.file.completeness)

    def picture(self, size: str) -> str:
        """Return the address of its picture, which changes with the file's content."""
        version = self.result.file.sha256[:12]
        return (
            f"/requests/{self.request}/pictures/{quote(self.result.path)}?size={size}&v={version}"
        )


@router.get("/")
def index(
    caller: Caller,
    portal: CurrentPortal,
    everybody: bool = False,
    before: str = "",
    label: str = "",
    group: str = "",
) -> Response:
    """List the caller's requests, newest first, or only those older than `before`.

    An operator may list everybody's, and everyone those that are shared with a group.
    """
    label, everybody = label.strip(), everybody and caller.is_operator
    found = listed(
        portal,
        caller,
        PAGE + 1,
        before=before,
        everybody=everybody,
        label=label,
        group=group,
    )
    shown = found[:PAGE]
    filters = {"everybody": "true" if everybody else "", "label": label, "group": group}
    return portal.pages.page(
        "requests.html",
        caller,
        "requests",
        200,
        rows=[(row, percent(row)) for row in shown],
        everybody=everybody,
        label=label,
        group=group,
        groups=GroupTable(portal.runtime.store).of(caller.owner),
        known_labels=sorted({one for row in shown for one in row.labels}),
        first=not before,
        filters=urlencode({name: value for name, value in filters.items() if value}),
        older=shown[-1].id if len(found) > PAGE else "",
    )


@router.get("/requests/{request_id}")
def show(request_id: str, caller: Reader, portal: CurrentPortal) -> Response:
    """Show the page of one request."""
    row = read_for(portal.runtime, caller, request_id)
    made = request_operations.document_of(row)
    mine = caller.may_see(row.owner)
    shown = _progress(portal, row, mine=mine)
    tasks = sum(count.total for count in row.phases.values())
    later = tasks > _LARGE and not portal.state(Results).index.is_known(row)
    if not later:
        shown |= {**_lacks(portal, row), **_results(portal, row, 1, ""), **_matrix(portal, row, 1)}
    return portal.pages.page(
        "request.html",
        caller,
        "requests",
        200,
        yaml=request_yaml(made),
        made=made,
        later=later,
        **_held_to(shown, mine=mine),
        **(shared_view(portal, caller, row) if mine else {}),
    )


@router.get("/requests/{request_id}/matrix")
def matrix_part(request_id: str, caller: Reader, portal: CurrentPortal, page: int = 1) -> Response:
    """Render the results by date and layer."""
    row = read_for(portal.runtime, caller, request_id)
    shown = _matrix(portal, row, page)
    return portal.pages.part("matrix.html", "#by-date", me=caller, row=row, **shown)


@router.get("/requests/{request_id}/events")
async def events(
    request: Request, request_id: str, caller: Reader, portal: CurrentPortal
) -> Response:
    """Send the part of the page that follows a request, now and whenever it is another one.

    The stream ends with the request, and after some minutes: then the browser asks again.
    """
    row = await portal.quickly(read_for, portal.runtime, caller, request_id)
    line: Line = request.scope["extensions"][LINE]["line"]
    return StreamingResponse(
        _events(portal, caller, row, line, mine=caller.may_see(row.owner)),
        media_type="text/event-stream",
        # Proxies are not to wait for more.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    portal: Portal, caller: Person, row: RequestRow, line: Line, *, mine: bool
) -> AsyncIterator[bytes]:
    """Yield the first server-sent event about a request, whose row was just read; write more."""
    # Pages that lost their stream together, as when the portal starts again, do not come together.
    yield b"retry: %d\n\n" % portal.runtime.random.randrange(1000, _RETRY_MILLISECONDS)
    shared = portal.state(Requests)

    async def made(state: str, mine: bool) -> Progress | None:
        # The outlook changes with other requests and with the workers.
        spell = int(portal.runtime.clock.monotonic() / QUIET_SECONDS)
        key = f"{row.id} {state} {mine} {spell}"
        try:
            return await shared.progress.get(key, lambda: _shown_progress(portal, row.id, mine))
        except (StoreError, NotFoundError, NoSuchRequestError):
            return None  # the browser asks again

    with shared.watch.follow(row.id) as following:
        # Pages that are opened at once share what one of them reads.
        found = await made(row.etag, mine)
        if found is None or not found.is_for(caller):
            return
        yield found.event
        if found.ended or portal.stopping.is_set():
            return

        async def current(mine: bool) -> Progress | None:
            return await made(following.etag or row.etag, mine)

        await shared.audience.sit(caller, line, found, following, current, _STREAM_SECONDS)


def _shown_progress(portal: Portal, request_id: str, mine: bool) -> Progress:
    """Render the part that follows a request; its mark changes when other parts are out of date."""
    row = request_operations.load(portal.runtime, request_id)
    values = _held_to(_progress(portal, row, mine=mine), mine=mine)
    said = {
        "html": portal.pages.text("progress.html", **{**values, "polled": True}),
        "mark": values["mark"],
        "saying": values["saying"],
        "ended": row.state.ended,
    }
    group = None if mine or not row.group else GroupTable(portal.runtime.store).find(row.group)
    return Progress(
        event=f"data: {json.dumps(said)}\n\n".encode(),
        ended=row.state.ended,
        request=row.id,
        mine=mine,
        links=row.links,
        members=frozenset() if group is None else group.everyone,
    )


@router.get("/requests/{request_id}/lacks")
def lacks(request_id: str, caller: Reader, portal: CurrentPortal) -> Response:
    """Render failures and gaps."""
    row = read_for(portal.runtime, caller, request_id)
    return portal.pages.part(
        "lacks.html",
        "#lacks",
        **_held_to({"row": row, **_lacks(portal, row)}, mine=caller.may_see(row.owner)),
    )


@router.get("/requests/{request_id}/results")
def results(
    request_id: str, caller: Reader, portal: CurrentPortal, page: int = 1, find: str = ""
) -> Response:
    """Render one page of the finished results."""
    row = read_for(portal.runtime, caller, request_id)
    shown = _results(portal, row, page, find)
    return portal.pages.part("results.html", "#results", row=row, **shown)


@router.get("/requests/{request_id}/pictures/{path:path}")
def picture(
    request_id: str, path: str, caller: Reader, portal: CurrentPortal, size: str = "small"
) -> Response:
    """Return a PNG of a result raster; its address changes with the content, for caching."""
    row = read_for(portal.runtime, caller, request_id)
    reader = portal.state(Results).index.reader(portal.runtime, row)
    found = reader.current(portal.state(Results).index.find(portal.runtime, row, path))
    side = pictures.LARGE if size == "large" else pictures.SMALL
    content = portal.state(Results).pictures.png(reader, found, side)
    headers = {
        "Cache-Control": "private, max-age=31536000, immutable",
        "ETag": f'"{found.file.sha256[:32]}-{side}"',
    }
    return Response(content, headers=headers, media_type="image/png")


@router.get("/requests/{request_id}/view/{path:path}")
def view(request_id: str, path: str, caller: Reader, portal: CurrentPortal) -> Response:
    """Show a result's picture and what is known about the file."""
    row = read_for(portal.runtime, caller, request_id)
    reader = portal.state(Results).index.reader(portal.runtime, row)
    found = reader.current(portal.state(Results).index.find(portal.runtime, row, path))
    shown = _shown(portal, reader, found)
    paths = [
        p for p, r in portal.state(Results).index.files(portal.runtime, row).items() if is_raster(r)
    ]
    at = paths.index(found.path) if found.path in paths else -1
    layer, date = layer_of(found.path)
    return portal.pages.page(
        "view.html",
        caller,
        "requests",
        200,
        row=row,
        item=ResultView(result=found, request=row.id),
        shown=shown,
        layer=layer,
        date=date,
        incomplete=IncompleteView.of(shown.said.completeness if shown else found.file.completeness),
        before=_view_url(row.id, paths, at - 1) if at > 0 else "",
        after=_view_url(row.id, paths, at + 1) if 0 <= at < len(paths) - 1 else "",
    )


@router.post("/requests/{request_id}/mended")
def go_on_mended(request_id: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Try again with the mended package, and show the request that does it."""
    return RedirectResponse(f"/requests/{mended(portal, caller, request_id).id}", 303)


@router.post("/requests/{request_id}/{what}")
def give_order(
    request_id: str,
    what: RequestOrder,
    caller: Caller,
    portal: CurrentPortal,
) -> Response:
    """Cancel, pause, resume or confirm a request, and show its page again."""
    row = order(portal, caller, request_id, what)
    return RedirectResponse(f"/requests/{row.id}", 303)


def percent(row: RequestRow) -> int:
    """Return the progress of a request by its tasks, 0 to 100; 100 only if it is complete."""
    total = sum(count.total for count in row.phases.values())
    if row.state in (RequestState.COMPLETE, RequestState.GAPS):
        return 100
    ended = sum(count.done + count.failed for count in row.phases.values())
    return min(99, 100 * ended // total) if total else 0


def _progress(portal: Portal, row: RequestRow, *, mine: bool) -> dict[str, object]:
    phases = [
        PhaseView(name=phase.value, count=row.phases[phase])
        for phase in Phase
        if phase in row.phases and row.phases[phase].total
    ]
    failed = sum(view.count.failed for view in phases)
    tasks = sum(view.count.total for view in phases)
    retrying = len(row.retry_orders)
    mark = (row.state.value, row.order, row.paused, row.delivered, failed, row.gap_count, retrying)
    ended = row.state.ended or row.state is RequestState.CANCELLING
    acts = portal.pages.manager().acts
    spending = _spending(portal, row)
    return {
        "row": row,
        "phases": phases,
        "tasks": tasks,
        "reused": sum(view.count.reused for view in phases),
        "percent": percent(row),
        "mark": ".".join(map(str, mark)),
        "polled": False,
        "saying": row.state.value if ended else _saying(row),
        "waits": row.state is RequestState.HELD,
        "orders": _orders(row),
        "words": _words(row),
        "hints": " ".join(filter(None, (_hints(row, acts=acts), _outlook(portal, row, acts=acts)))),
        "newest": _newest(portal, row, tasks),
        "said": answer(
            row,
            _causes(portal, row, tasks, failed),
            portal.runtime.clock.now(),
            may_retry=may_retry(row),
            mine=mine,
            spending=spending.brief if spending else "",
        ),
        "spending": spending,
    }


def _spending(portal: Portal, row: RequestRow) -> Spending | None:
    """Say what was spent on a request; None before anything was executed on its account."""
    if not row.phases:
        return None
    done = history.used_by(portal.runtime.store, row.id)
    return Spending.of(done, prices.load(portal.runtime.store)) if done.count else None


def _causes(portal: Portal, row: RequestRow, tasks: int, failed: int) -> list[Cause]:
    """Return the causes of failures; of very many tasks, if they are read already."""
    index = portal.state(Results).index
    if not failed:
        return []
    if tasks > _LARGE and not index.is_known(row):
        return [Cause(category="", count=failed, rule=None)]
    return [
        Cause(category=one.category, count=one.count + one.following_count, rule=one.rule)
        for one in _groups(index.failures(portal.runtime, row))
    ]


def _newest(portal: Portal, row: RequestRow, tasks: int) -> list[ResultView]:
    """Return the newest results of a request that goes on; of very many tasks, if read already."""
    large = tasks > _LARGE and not portal.state(Results).index.is_known(row)
    if large or row.state.ended or not row.delivered:
        return []
    found = portal.state(Results).index.newest(portal.runtime, row)
    return [ResultView(result=one, request=row.id) for one in found]


def _saying(row: RequestRow) -> str:
    """Return how far a request is, for those who hear the page: another text at each tenth."""
    at = row.preparation
    share = 100 * at.done // at.total if at is not None else percent(row)
    return f"{row.state.text(paused=row.paused)}, {share // 10 * 10} percent"


def _held_to(values: dict[str, object], *, mine: bool) -> dict[str, object]:
    """Limit what a page shows: only the owner and operators may give orders."""
    if mine:
        return {**values, "mine": True}
    return {**values, "mine": False, "orders": (), "may_retry": False}


def _orders(row: RequestRow) -> tuple[str, ...]:
    """List the orders that the owner may give now."""
    if row.state.ended or row.state is RequestState.CANCELLING:
        return ()
    if row.state is RequestState.HELD:
        if row.order is RequestOrder.CONFIRM:
            return ("cancel",)
        return ("mended", "confirm", "cancel") if rehearsal_failed(row) else ("confirm", "cancel")
    paused = row.order is RequestOrder.PAUSE or (
        row.paused and row.order is not RequestOrder.RESUME
    )
    return ("resume" if paused else "pause", "cancel")


_ORDERS = {"mended": "Mended: go on", "confirm": "Go on anyway", "cancel": "Give up"}


def _words(row: RequestRow) -> dict[str, str]:
    """Return what the buttons of orders say, where that is not the order's own name."""
    return _ORDERS if rehearsal_failed(row) else {}


def _hints(row: RequestRow, *, acts: bool) -> str:
    """Explain a state to the person who waits, if the state's name alone does not.

    `acts` says whether a manager acts.
    """
    if row.state is RequestState.CANCELLING:
        return _cancelling(row)
    if row.paused and not row.state.ended:
        return "Paused: running tasks will finish; no new ones start."
    match row.state:
        case RequestState.SUBMITTED | RequestState.PLANNING if not acts:
            return "Not planned yet: no service manager is at work. It starts as soon as one is."
        case RequestState.RUNNING if row.rehearsal is Rehearsal.RUNS:
            return "Rehearsal: one run of the package goes first; the rest follows if it succeeds."
        case RequestState.SUBMITTED:
            return "Accepted. It waits for its turn to be planned."
        case RequestState.PLANNING:
            return "The archives are being searched for granules."
        case RequestState.WRITING:
            return "The plan is made. The first tasks start while the others are being written."
        case RequestState.HELD:
            return "Confirmed: it will start." if row.order is RequestOrder.CONFIRM else ""
        case _:
            return ""


def _outlook(portal: Portal, row: RequestRow, *, acts: bool) -> str:
    """Say when a running request is expected to end, and what stands before one that waits."""
    if row.state is RequestState.SUBMITTED and acts:
        ahead = before(row, portal.state(Operations).board.unfinished())
        return f"Requests that wait before it: {ahead:,}." if ahead else ""
    if row.state is not RequestState.RUNNING or row.rehearsal is Rehearsal.RUNS or row.paused:
        return ""
    if stopped := _stopped(portal, row):
        return stopped
    if waits := _without_workers(portal, row):
        return waits
    sight, now = portal.state(Operations).board.look(), portal.runtime.clock.now()
    found = expected_end(
        row,
        portal.state(Operations).board.unfinished(),
        [one for one in sight.workers if not is_lost(one, portal.settings, now)],
        sight.statistics,
        places=portal.settings.host_connections if _fetches(sight.statistics) else 0,
    )
    return found.text if found is not None else ""


def _without_workers(portal: Portal, row: RequestRow) -> str:
    """Say which of a request's work waits for a worker of a place that has none."""
    waiting = [one for one in overview.places(portal.runtime) if one.why and row.id in one.requests]
    return " ".join(f"Some of its work {one.why}." for one in waiting)


def _fetches(statistics: Mapping[str, ClassStatistics]) -> bool:
    """Tell whether granules come from hosts, to which connections are limited."""
    return any(classes.archive_host(one) for one in statistics)


def _stopped(portal: Portal, row: RequestRow) -> str:
    """Say what operators restrict, if that keeps a request that runs nothing from going on."""
    if any(one.running for one in row.phases.values()):
        return ""
    left = {phase.value for phase, count in row.phases.items() if count.left}
    store = portal.runtime.store
    for one in restrictions.load(store):
        owner = one.subject == row.owner
        if one.kind is Kind.PAUSE_OWNER and owner:
            return "An operator has paused the requests of this owner."
        if one.kind is Kind.PAUSE_PHASE and one.subject in left:
            return f"An operator has paused the phase {one.subject}."
        budget = one.kind, one.subject
        if budget in restrictions.budgets_of(row.owner, row.package):
            used = restrictions.spent_hours(store, budget, portal.runtime.clock.now())
            if used >= one.value:
                return (
                    f"It waits: {restrictions.budget_text(one)} is used up. What is made stays; "
                    "the rest goes on with the next month, or when an operator raises the quota."
                )
    return ""


def _cancelling(row: RequestRow) -> str:
    """Describe the progress of cancelling a request."""
    counts = row.phases.values()
    left = sum(count.left for count in counts)
    unfinished = left + sum(count.cancelled for count in counts)
    return (
        f"Being cancelled: {left:,} of {unfinished:,} unfinished tasks are still to be withdrawn. "
        "No new ones start; finished results stay."
    )


def _lacks(portal: Portal, row: RequestRow) -> dict[str, object]:
    failed = any(count.failed for count in row.phases.values())
    found = (
        portal.state(Results).index.failures(portal.runtime, row) if failed or row.gap_count else ()
    )
    gaps, affects = portal.state(Results).index.gaps(portal.runtime, row)
    joined = join_gaps(gaps, affects)
    return {
        "groups": list(_groups(found)),
        "gaps": joined[:_GAPS_SHOWN],
        "more_gaps": sum(gap.count for gap in joined[_GAPS_SHOWN:]),
        "gap_count": len(gaps),
        "may_retry": may_retry(row),
    }


def _groups(found: Iterable[Interest]) -> Iterable[FailureGroup]:
    by_category: dict[Category | None, list[Interest]] = {}
    for interest in found:
        by_category.setdefault(interest.category, []).append(interest)
    following: dict[Category | None, list[Interest]] = {}
    if by_category.keys() - {Category.UPSTREAM_FAILED, None}:
        for interest in by_category.pop(Category.UPSTREAM_FAILED, ()):
            following.setdefault(_cause(interest, by_category), []).append(interest)
    for category, interests in sorted(by_category.items(), key=lambda item: -len(item[1])):
        after = following.get(category, [])
        listed = [*interests[:_FAILURES_SHOWN], *after[:_FAILURES_SHOWN]]
        yield FailureGroup(
            as_above=_as_above(listed),
            category=category.value if category else "gap",
            rule=RULES[category] if category else None,
            shown=tuple(interests[:_FAILURES_SHOWN]),
            count=len(interests),
            following=tuple(after[:_FAILURES_SHOWN]),
            following_count=len(after),
        )


def _as_above(listed: Iterable[Interest]) -> frozenset[str]:
    """Return the keys of those whose cause an earlier one has told."""
    told: set[str] = set()
    found: set[str] = set()
    for one in listed:
        handed_on = one.category is None or one.category is Category.UPSTREAM_FAILED
        text = one.message if handed_on else f"{one.category}: {one.message}"
        cause = cause_of(text) if one.message else ""
        if cause in told:
            found.add(one.key)
        elif cause:
            told.add(cause)
    return frozenset(found)


def _cause(interest: Interest, failed: Mapping[Category | None, list[Interest]]) -> Category:
    """Return the category of the failure that another one follows from.

    Its message has the input's category, then the input's message. A message without a category
    counts as one of the most frequent cause.
    """
    causes = sorted(filter(None, failed), key=lambda one: -len(failed[one]))
    named = [one for one in causes if one.value in interest.message]
    return min(named or causes[:1], key=lambda one: interest.message.find(one.value))


def _matrix(portal: Portal, row: RequestRow, page: int) -> dict[str, object]:
    every = portal.state(Results).arranged(row)
    layers = list(every.layers.values())
    index = portal.state(Results).index
    planned = not row.state.unplanned
    awaited = index.awaited(portal.runtime, row) if planned else ()
    gaps = index.gaps(portal.runtime, row)[0] if layers or awaited else ()
    failed = any(count.failed for count in row.phases.values())
    failures = index.failures(portal.runtime, row) if failed else ()
    found = matrix(layers, gaps, failures, max(1, page), _SQUARES, awaited)
    return {
        "matrix": found,
        "pictures": {
            one.layer.id: ResultView(
                result=one.layer.rasters[one.best.date], request=row.id
            ).picture("small")
            for one in found.rows
            if one.best is not None
        },
        "overlaps": [*sensor_overlaps(every.files, index.reader(portal.runtime, row))],
        "file_bytes": every.size,
        "matrix_page": max(1, page),
    }


def _results(portal: Portal, row: RequestRow, page: int, find: str) -> dict[str, object]:
    every = portal.state(Results).arranged(row)
    files = every.listed
    words = find.lower().split()
    found = [i for path, i in files.items() if all(w in path.lower() for w in words)]
    pages = max(1, -(-(len(found) - _REST) // PAGE))
    page = min(max(1, page), pages)
    first = PAGE * (page - 1)
    shown = found[first : first + PAGE if page < pages else None]
    return {
        "items": [ResultView(result=item, request=row.id) for item in shown],
        "shown_first": first + 1,
        "zip_layers": list(every.layers.values()),
        "found": len(found),
        "file_count": len(files),
        "file_bytes": every.size,
        "incomplete": every.incomplete,
        "page": page,
        "pages": pages,
        "find": find,
    }


def _shown(portal: Portal, reader: ResultReader, found: ResultFile) -> pictures.Shown | None:
    try:
        return portal.state(Results).pictures.shown(reader, found)
    except NotFoundError:
        return None  # not a raster, so its page has no picture


def _view_url(request: str, paths: list[str], at: int) -> str:
    return f"/requests/{request}/view/{quote(paths[at])}"
