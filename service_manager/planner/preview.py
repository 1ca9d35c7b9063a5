"""What a plan comes to, in numbers: for a dry run and for the page of a request."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tasks.model.model import Phase
from tasks.model.plan import Gap, Plan
from tasks.model.spec import CollectSpec


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Counts of a plan. `reused` are tasks whose artifact is there already, `download` the bytes
    of the granules that are not; `results` the tasks whose files are handed over."""

    granules: int
    tasks: dict[Phase, int]
    reused: dict[Phase, int]
    download: int
    results: int
    gaps: tuple[Gap, ...]
    notes: tuple[str, ...]


def _never(_key: str) -> bool:
    return False


def preview(plan: Plan, made: Callable[[str], bool] = _never) -> Preview:
    """Count a plan; `made` says of a task key whether its artifact is in the store."""
    tasks: Counter[Phase] = Counter()
    reused: Counter[Phase] = Counter()
    download = results = 0
    for planned in plan:
        spec = planned.spec
        there = made(spec.key)
        tasks[spec.phase] += 1
        reused[spec.phase] += there
        results += bool(planned.output)
        if isinstance(spec, CollectSpec) and not there:
            download += spec.size
    return Preview(
        granules=tasks[Phase.COLLECTION],
        tasks={phase: tasks[phase] for phase in Phase},
        reused={phase: reused[phase] for phase in Phase},
        download=download,
        results=results,
        gaps=plan.gaps,
        notes=plan.notes,
    )
