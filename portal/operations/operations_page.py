"""The operators' page, and the same content as JSON."""

import datetime as dt

from fastapi import Depends, Response
from pydantic import Field

from portal.operations import overview
from portal.operations.all_well import concerns
from portal.operations.state import Operations
from portal.serving.identity import Operator, operator
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.serving.quantities import moment
from portal.submit.state import Submit
from tasks.answers.answer import Answer
from tasks.bag.categories import RULES
from tasks.bag.time_limits import TimeLimits
from tasks.operators import restrictions

pages = Router(include_in_schema=False)
api = Router(prefix="/api", tags=["operations"])


class RunningAnswer(Answer):
    """A running attempt; times in seconds, `mean` null until its class has one."""

    key: str
    attempt: int
    phase: str
    task_class: str
    worker: str
    request: str
    age: float
    mean: float | None
    bound: float
    progress: float
    note: str


class ExecutionsAnswer(Answer):
    """Executions by day and outcome: `success` or a failure category."""

    days: tuple[dt.date, ...]
    outcomes: dict[str, tuple[int, ...]]


class WorkerAnswer(Answer):
    """A worker at its last beat; `silence` in seconds."""

    name: str
    host: str
    slots: int
    running: int
    state: str
    last_beat: dt.datetime
    silence: float
    unfit_because: str = Field(description="What its self-test met; empty if that passes.")
    held_because: str = Field(description="Why the manager drained it; empty if it did not.")
    held_since: dt.datetime | None
    next_try: dt.datetime | None = Field(description="When it is given one attempt as a probe.")
    sandbox: str
    draining: bool
    version: str
    place: str = Field(description="Whose work alone it takes; empty: all that has no place.")


class ManagerAnswer(Answer):
    """Whether a service manager acts.

    `epoch` counts the managers that have acted. `renewed` is the last sign of a manager, null
    before the first. `silence` is the time since then in seconds, by the portal's clock.
    `wanted_slots` is how many slots the fleet should have, for whatever starts and stops workers
    without a place.
    """

    acts: bool
    epoch: int
    renewed: dt.datetime | None
    silence: float
    wanted_slots: int


class PlaceAnswer(Answer):
    """Workers of one place, as the acting manager last said; those without one have no name."""

    place: str
    workers: int
    slots: int
    wanted_slots: int
    ready: int
    running: int
    waits_because: str = Field(
        description="Why its work waits though it is ready; empty: it does not."
    )


class OperationsAnswer(Answer):
    """The content of the operators' page; `places` is empty where no work and no worker has one."""

    manager: ManagerAnswer
    places: tuple[PlaceAnswer, ...]
    running: tuple[RunningAnswer, ...]
    executions: ExecutionsAnswer
    workers: tuple[WorkerAnswer, ...]


@api.get(
    "/operations",
    summary="Running attempts, executions and workers (operators)",
    dependencies=[Depends(operator)],
)
def operations_answer(portal: CurrentPortal) -> OperationsAnswer:
    """Collect everything that the operators' page shows."""
    made = overview.daily_outcomes(portal.runtime)
    sight, now = portal.state(Operations).board.look(), portal.runtime.clock.now()
    acting = portal.manager.look()
    return OperationsAnswer(
        manager=ManagerAnswer(
            acts=acting.acts,
            epoch=acting.epoch,
            renewed=moment(acting.renewed) if acting.renewed else None,
            silence=acting.silence,
            wanted_slots=acting.wanted_slots,
        ),
        places=tuple(
            PlaceAnswer(
                place=one.place,
                workers=one.workers,
                slots=one.slots,
                wanted_slots=one.wanted_slots,
                ready=one.ready,
                running=one.running,
                waits_because=one.why,
            )
            for one in overview.places(portal.runtime)
        ),
        running=tuple(
            RunningAnswer(
                key=one.key,
                attempt=one.attempt,
                phase=one.phase.value,
                task_class=one.task_class,
                worker=one.worker,
                request=one.sponsor,
                age=one.age,
                mean=one.mean,
                bound=one.limit,
                progress=one.progress,
                note=one.note,
            )
            for one in overview.running(sight, portal.settings, now)
        ),
        executions=ExecutionsAnswer(days=made.days, outcomes=dict(made.table)),
        workers=tuple(
            WorkerAnswer(
                name=one.worker.name,
                host=one.worker.host,
                slots=one.worker.slots,
                running=len(one.worker.attempts),
                state=one.state,
                last_beat=moment(one.worker.beat_at),
                silence=one.silence,
                unfit_because=one.worker.unfit,
                held_because=one.worker.hold_why,
                held_since=_moment(one.worker.hold_since),
                next_try=_moment(one.worker.hold_until),
                sandbox=one.worker.sandbox,
                draining=one.worker.draining,
                version=one.worker.version,
                place=one.worker.place,
            )
            for one in overview.health(sight, portal.settings, now)
        ),
    )


@pages.get("/operations")
def show(caller: Operator, portal: CurrentPortal) -> Response:
    """Show the operators' page."""
    return portal.pages.page(
        "operations.html",
        caller,
        "operations",
        200,
        polled=False,
        **_live(portal),
        **_history(portal),
    )


@pages.get("/operations/live", dependencies=[Depends(operator)])
def live(portal: CurrentPortal) -> Response:
    """Render the part of the page that changes every few seconds."""
    return portal.pages.part("operations_live.html", **_live(portal))


@pages.get("/operations/history", dependencies=[Depends(operator)])
def past(portal: CurrentPortal) -> Response:
    """Render the part of the page that changes every few minutes."""
    return portal.pages.part("operations_history.html", polled=True, **_history(portal))


def _moment(seconds: float) -> dt.datetime | None:
    return moment(seconds) if seconds else None


def _live(portal: CurrentPortal) -> dict[str, object]:
    sight, now = portal.state(Operations).board.look(), portal.runtime.clock.now()
    managers = overview.managers(portal.runtime)
    acting = next((one.row for one in managers if one.row.acts), None)
    held = portal.state(Submit).holdings.known()
    absent = held.absent if held is not None else ()
    running = overview.running(sight, portal.settings, now)
    later = overview.later(portal.runtime, sight)
    workers = overview.health(sight, portal.settings, now)
    return {
        "concerns": concerns(
            portal.manager.look(),
            absent,
            managers,
            workers,
            running,
            len(sight.later),
            silent=portal.redis.silent,
        ),
        "tiers": {one.worker.sandbox or "unknown" for one in workers},
        "managers": managers,
        "absent": absent,
        "queues": acting.queues if acting else (),
        "hosts": acting.hosts if acting else (),
        "places": acting.places if acting else (),
        "refused": acting.refused if acting else None,
        "running": running,
        "running_count": len(sight.running),
        "later": later,
        "later_count": len(sight.later),
        "workers": workers,
        "restrictions": restrictions.load(portal.runtime.store),
        "lease": portal.settings.lease_seconds,
        "factor": TimeLimits().factor,
    }


def _history(portal: CurrentPortal) -> dict[str, object]:
    made = overview.daily_outcomes(portal.runtime)
    return {
        "executions": made,
        "chart": made.chart(),
        "rules": {category.value: rule for category, rule in RULES.items()},
        "classes": overview.classes(portal.runtime),
        "samples": TimeLimits().samples,
    }
