"""Whether all is well, in one answer: what needs an operator, the most urgent first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from portal.operations.overview import Health, ManagerHealth, RunningTask
from portal.serving.quantities import duration_text
from tasks.operators.manager_lease import Acting

_WAITED = 600.0  # seconds that a ready task waits before it is told
_IDLE = ("running", "ready")  # states of workers of which nothing is to be said


@dataclass(frozen=True, kw_only=True)
class Concern:
    """Something that needs an operator: what it is, and the part of the page that says more."""

    text: str
    part: str
    urgent: bool = False


def concerns(
    acting: Acting,
    absent: Sequence[str],
    managers: Sequence[ManagerHealth],
    workers: Sequence[Health],
    running: Sequence[RunningTask],
    later: int,
    *,
    silent: bool,
) -> tuple[Concern, ...]:
    """Collect what needs an operator from what the page shows; nothing: all is well.

    `absent` are folders of the archive that are not there; `later` counts the tasks that are to be
    tried again. `silent`: the message server does not answer.
    """
    found = [
        *_service(acting, absent, silent=silent),
        *_fleet(managers, workers),
        *_work(running, later),
    ]
    return tuple(sorted(found, key=lambda one: not one.urgent))


def _service(acting: Acting, absent: Sequence[str], *, silent: bool) -> Iterator[Concern]:
    if not acting.acts:
        yield Concern(text="No service manager acts.", part="manager-title", urgent=True)
    if silent:
        yield Concern(text="The message server does not answer.", part="manager-title", urgent=True)
    for folder in absent:
        yield Concern(
            text=f"The archive's folder {folder} is not there.", part="manager-title", urgent=True
        )


def _fleet(managers: Sequence[ManagerHealth], workers: Sequence[Health]) -> Iterator[Concern]:
    for one in (one for manager in managers if manager.row.acts for one in manager.row.places):
        if one.why:
            tasks = "task" if one.ready == 1 else "tasks"
            verb = one.why if one.ready == 1 else one.why.replace("waits", "wait", 1)
            yield Concern(text=f"{one.ready:,} {tasks} {verb}.", part="places-title", urgent=True)
    queues = [one for manager in managers if manager.row.acts for one in manager.row.queues]
    ready = sum(one.ready for one in queues)
    oldest = max((one.oldest for one in queues if one.ready), default=0.0)
    if not workers:
        yield Concern(text="No worker reports.", part="workers-title", urgent=bool(ready))
    bad = [one for one in workers if one.state not in _IDLE]
    if bad:
        states = sorted({one.state for one in bad})
        yield Concern(
            text=f"{len(bad)} of {len(workers)} workers: {', '.join(states)}.",
            part="workers-title",
            urgent=len(bad) == len(workers),
        )
    if oldest > _WAITED:
        yield Concern(
            text=f"{ready:,} tasks wait for a slot, the oldest for {duration_text(oldest)}.",
            part="queue-title",
        )


def _work(running: Sequence[RunningTask], later: int) -> Iterator[Concern]:
    over = sum(one.share >= 1 for one in running)
    if over:
        yield Concern(
            text=f"{over:,} attempt{'s are' if over != 1 else ' is'} over the time limit.",
            part="running-title",
        )
    if later:
        yield Concern(text=f"{later:,} failed, and will be tried again.", part="later-title")
