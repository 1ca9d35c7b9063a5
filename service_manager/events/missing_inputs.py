"""What a task does without once some of its inputs have failed: by name, with the reason."""

from collections.abc import Iterable, Iterator

from tasks.bag.absence import Absence, Absent, Unnamed, bounded
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import Task
from tasks.bag.spec import Input, LayerSpec
from tasks.bag.task_table import TaskTable

_MOST = 300  # failed tasks that are looked at for one task's sake


def absent(tasks: TaskTable, spec: Spec, lacking: Iterable[int]) -> Absence:
    """Return what a task lacks without its inputs `lacking` (by index). Raises StoreError."""
    left, unnamed = [_MOST], dict[str, int]()
    found: list[Absent] = []
    for index in lacking:
        given, part = spec.inputs[index], spec.part(index)
        causes = _causes(tasks, given, left, unnamed)
        found += [Absent(part=part, what=what, why=why) for what, why in causes]
    return bounded(found, Unnamed(inputs=sum(unnamed.values()), parts=0))


def _causes(
    tasks: TaskTable, given: Input, left: list[int], unnamed: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield the first causes why an input is missing, each with its category.

    The causes are granules where they are missing, otherwise what failed. `unnamed` takes the
    causes that a task only counts.
    """
    left[0] -= 1
    task = tasks.task(given.key) if left[0] >= 0 else None
    if task is None:
        yield given.name, Category.UPSTREAM_FAILED.value
        return
    if task.category is Category.UPSTREAM_FAILED and task.fallback:
        # What the task does without, its fallback task does, too.
        yield from _causes(tasks, Input(key=task.fallback, name=given.name), left, unnamed)
        return
    spec = tasks.spec_of(task)
    yield from ((one.what, one.why) for one in spec.missing)
    if spec.missing_unnamed is not None:
        unnamed[task.key] = spec.missing_unnamed.inputs
    if task.category is not Category.UPSTREAM_FAILED:
        yield spec.title, _why(task, spec)
    else:
        for index, other in enumerate(spec.inputs):
            if task.lacking >> index & 1:
                yield from _causes(tasks, other, left, unnamed)


def _why(task: Task, spec: Spec) -> str:
    category = (task.category or Category.UNKNOWN).value
    if isinstance(spec, LayerSpec) and spec.inputs:
        return f"{category}, from {', '.join(given.name for given in spec.inputs)}"
    return category
