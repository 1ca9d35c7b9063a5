"""The executions beside those of 2010, and the failed attempts behind each number."""

import datetime as dt
import itertools
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import Depends, Request, Response

from portal.operations import costs, executions
from portal.operations.costs import Account, Judged, Verdict
from portal.operations.executions import ClassCost, Executions, Filters, parse_filters
from portal.operations.overview import DAYS
from portal.operations.state import Operations
from portal.serving.attachments import csv_answer
from portal.serving.identity import Operator, operator
from portal.serving.late_routes import Router
from portal.serving.pages import iso_text
from portal.serving.portal import CurrentPortal, PageNumber, Portal
from portal.serving.problems import BadCallError
from tasks.bag.categories import RULES, Category
from tasks.bag.model import NO_USE, Phase
from tasks.bag.time_limits import TimeLimits
from tasks.operators import manager_rows, prices
from tasks.operators.manager_rows import ManagerRow
from tasks.operators.prices import PriceList

pages = Router(include_in_schema=False, dependencies=[Depends(operator)])

LISTED = 100  # failed attempts on one page


def _filters(request: Request, portal: CurrentPortal) -> Filters:
    return parse_filters(_today(portal), DAYS, request.query_params)


Meant = Annotated[Filters, Depends(_filters)]


@pages.get("/operations/executions")
def show(caller: Operator, portal: CurrentPortal, meant: Meant) -> Response:
    """Show executions by outcome, phase and day, beside those of 2010."""
    return portal.pages.page(
        "executions.html",
        caller,
        "operations",
        200,
        made=_made(portal, meant),
        total_then=executions.TOTAL_2010,
        **_form(meant),
    )


@pages.get("/operations/executions/{table}.csv")
def download(table: str, portal: CurrentPortal, meant: Meant) -> Response:
    """Download one of the tables of the page: outcomes, phases, timeouts or classes."""
    made = _made(portal, meant)
    name = f"{table}-{meant.first}-{meant.last}"
    match table:
        case "outcomes" | "phases":
            lines = made.outcomes if table == "outcomes" else made.phases
            return csv_answer(
                name,
                ("name", "outcomes", "executions", "percent", "executions_2010", "percent_2010"),
                [
                    (
                        one.name,
                        "; ".join(part for part, _ in one.parts),
                        one.count,
                        round(one.percent, 4),
                        one.then,
                        round(one.percent_then, 4),
                    )
                    for one in lines
                ],
            )
        case "timeouts":
            return csv_answer(
                name,
                ("day", "executions", "failed", "timeouts", "timeouts_percent"),
                [
                    (one.day, one.count, one.failed, one.timeouts, round(one.percent, 4))
                    for one in made.days
                ],
            )
        case "classes":
            return csv_answer(
                name,
                ("class", "phase", "executions", "failed", "seconds", "wasted_seconds"),
                [
                    (
                        one.task_class,
                        one.phase.value,
                        one.count,
                        one.failed,
                        round(one.seconds, 1),
                        round(one.wasted, 1),
                    )
                    for one in made.costs
                ],
            )
    raise BadCallError(
        f"There is no table {table!r}.", "Name outcomes, phases, timeouts or classes."
    )


@pages.get("/operations/costs")
def costs_page(caller: Operator, portal: CurrentPortal, meant: Meant) -> Response:
    """Show what work costs by class, owner and package; what fails most; workers; storage."""
    workers = portal.state(Operations).board.look().workers
    runtime = portal.runtime
    now = runtime.clock.now()
    made, known = _made(portal, meant), prices.load(runtime.store)
    return portal.pages.page(
        "costs.html",
        caller,
        "operations",
        200,
        made=made,
        accounts=(
            ("owners", "owner", costs.by_owner(runtime, meant)),
            ("packages", "package", costs.by_package(runtime, made)),
        ),
        top=costs.top_failures(runtime, meant, workers),
        paces=costs.paces(runtime, workers, _today(portal)),
        stored=_stored(portal),
        known=known,
        cost=partial(held, known),
        total=sum(held(known, one) for one in made.costs),
        used=sum((one.use for one in made.costs), NO_USE),
        own=costs.overhead_of(runtime, meant, made),
        today=_today(portal),
        hours_today=_hours(_today(portal), now),
        **_form(meant),
    )


@pages.get("/operations/costs/{table}.csv")
def download_costs(table: str, portal: CurrentPortal, meant: Meant) -> Response:
    """Download one of the tables of the page."""
    runtime, name = portal.runtime, f"{table}-{meant.first}-{meant.last}"
    head: tuple[str, ...]
    match table:
        case "owners" | "packages":
            head = (
                *(table[:-1], "executions", "failed", "seconds", "wasted_seconds"),
                *("processor_seconds", "reads", "writes", "bytes_received", "bytes_sent"),
                *("cost", "currency", "quota_hours", "spent_hours_this_month"),
            )
            known = prices.load(runtime.store)
            some = (
                costs.by_owner(runtime, meant)
                if table == "owners"
                else costs.by_package(runtime, _made(portal, meant))
            )
            rows: list[tuple[object, ...]] = [
                (
                    *(one.name, one.count, one.failed, round(one.seconds, 1), round(one.wasted, 1)),
                    *(round(one.use.cpu, 1), one.use.reads, one.use.writes),
                    *(one.use.received, one.use.sent),
                    round(held(known, one), 4) if known else "",
                    known.currency,
                    *_quota(one),
                )
                for one in some
            ]
        case "throughput":
            head = ("day", "succeeded", "succeeded_an_hour", "failed")
            now = runtime.clock.now()
            rows = [
                (
                    one.day,
                    one.count - one.failed,
                    round((one.count - one.failed) / _hours(one.day, now), 2),
                    one.failed,
                )
                for one in _made(portal, meant).days
            ]
        case "failing":
            head = ("what", "name", "failed", "address")
            top = costs.top_failures(runtime, meant, portal.state(Operations).board.look().workers)
            kinds = {"granule": top.granules, "package": top.packages, "worker": top.workers}
            rows = [
                (kind, one.name, one.count, one.address)
                for kind, some in kinds.items()
                for one in some
            ]
            rows += [("host", host, count, "") for host, count in top.hosts]
        case "workers":
            name, head = table, ("worker", "host", "time", "attempts", "failed", "state", "why")
            rows = [
                (
                    one.worker.name,
                    one.worker.host,
                    "" if one.factor is None else round(one.factor, 3),
                    one.attempts,
                    one.failed,
                    one.worker.hold.value or ("needed" if one.worker.needed else "free"),
                    one.worker.hold_why,
                )
                for one in costs.paces(
                    runtime, portal.state(Operations).board.look().workers, _today(portal)
                )
            ]
        case "storage":
            name, head = table, ("phase", "artifacts", "bytes")
            stored = _stored(portal)
            rows = [
                (one.phase.value, one.artifacts, one.size)
                for one in (stored.stored if stored is not None else ())
            ]
        case _:
            raise BadCallError(
                f"There is no table {table!r}.",
                "Name owners, packages, throughput, failing, workers or storage.",
            )
    return csv_answer(name, head, rows)


def held(known: PriceList, one: Account | ClassCost) -> float:
    """Return what executions cost by the time in which they held slots, with calls and bytes.

    What they used of processors is known only since it is measured.
    """
    return known.prices.amount(replace(one.use, cpu=one.seconds))


def _quota(one: Account) -> tuple[object, object]:
    """Return the quota of an account, and what of it is spent; empty where there is none."""
    return ("", "") if one.quota is None else (one.quota, round(one.spent, 3))


def _hours(day: dt.date, now: float) -> float:
    """Return how many hours of a day have passed, at least one."""
    today = dt.datetime.fromtimestamp(now, dt.UTC).date()
    return 24.0 if day != today else max(1.0, now % 86_400 / 3600)


def _stored(portal: Portal) -> ManagerRow | None:
    """Return the row of the manager that acts, which says what storage holds."""
    found = manager_rows.managers(portal.runtime.store, portal.runtime.clock.now())
    return next((one for one in found if one.acts), None)


@pages.get("/operations/kills")
def kills_page(caller: Operator, portal: CurrentPortal, meant: Meant) -> Response:
    """Show which kills by the time limit were right, by the attempts that followed."""
    judged = list(itertools.islice(costs.judged_kills(portal.runtime, meant), costs.JUDGED))
    return portal.pages.page(
        "kills.html",
        caller,
        "operations",
        200,
        judged=judged,
        verdicts=[(one.value, sum(each.verdict is one for each in judged)) for one in Verdict],
        most=costs.JUDGED,
        factor=TimeLimits().factor,
        **_form(meant),
    )


@pages.get("/operations/kills.csv")
def download_kills(portal: CurrentPortal, meant: Meant) -> Response:
    """Download all judged kills."""
    head = (
        *("ended", "class", "worker", "task", "attempt", "seconds"),
        *("verdict", "next_attempt", "next_outcome", "next_seconds"),
    )
    rows = map(_kill_row, costs.judged_kills(portal.runtime, meant))
    return csv_answer(f"kills-{meant.first}-{meant.last}", head, rows)


def _kill_row(one: Judged) -> tuple[object, ...]:
    kill, after = one.kill, one.after
    outcome = "" if after is None else after.category.value if after.category else "success"
    return (
        iso_text(kill.ended),
        kill.task_class,
        kill.worker,
        kill.key,
        kill.number,
        round(kill.duration, 3),
        one.verdict.value,
        after.number if after else "",
        outcome,
        round(after.duration, 3) if after else "",
    )


@pages.get("/operations/attempts")
def attempts(
    caller: Operator,
    portal: CurrentPortal,
    meant: Meant,
    category: str = "",
    page: PageNumber = 0,
) -> Response:
    """List failed attempts, the newest first."""
    found = executions.failures(portal.runtime.store, meant, _categories(category))
    start = page * LISTED
    listed = list(itertools.islice(found, start, start + LISTED + 1))
    return portal.pages.page(
        "attempts.html",
        caller,
        "operations",
        200,
        failures=listed[:LISTED],
        more=len(listed) > LISTED,
        number=max(0, page),
        category=category,
        categories=[one.value for one in Category],
        rule=RULES[Category(category)] if category else None,
        looked_at=executions.LOOKED_AT,
        **_form(meant),
    )


@pages.get("/operations/attempts.csv")
def download_attempts(portal: CurrentPortal, meant: Meant, category: str = "") -> Response:
    """Download all failed attempts, the newest first."""
    head = (
        *("ended", "category", "phase", "class", "worker", "owner", "request", "task"),
        *("attempt", "seconds", "message"),
    )
    rows = (
        (
            iso_text(one.ended),
            one.category.value,
            one.phase.value,
            one.task_class,
            one.worker,
            one.owner,
            one.request,
            one.key,
            one.number,
            round(one.duration, 3),
            one.message,
        )
        for one in executions.failures(
            portal.runtime.store, meant, _categories(category), looked_at=None
        )
    )
    name = f"attempts-{meant.first}-{meant.last}"
    return csv_answer(name, head, rows)


def _today(portal: Portal) -> dt.date:
    return dt.datetime.fromtimestamp(portal.runtime.clock.now(), dt.UTC).date()


def _made(portal: Portal, meant: Filters) -> Executions:
    return executions.executions(portal.runtime.store, meant)


def _categories(named: str) -> list[Category]:
    if not named:
        return list(Category)
    if named not in set(Category):
        known = ", ".join(one.value for one in Category)
        raise BadCallError(
            f"There is no category {named!r}.", f"Name one of {known}.", field="category"
        )
    return [Category(named)]


def _form(meant: Filters) -> dict[str, object]:
    return {"meant": meant, "all_phases": [one.value for one in Phase]}
