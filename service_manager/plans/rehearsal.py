"""The rehearsal: one run of a request's own package, before anything else is spent on it.

It is the smallest run among the first tasks of the plan, with all that goes into it. Its tasks are
kept in the blob `rehearsal/REQUEST` of `plans`, so that any manager writes the same. Packages that
come with Swathmill, and plans with a single run, need none.
"""

from collections.abc import Iterable
from itertools import islice

from tasks.errors import BlobMissingError
from tasks.model.categories import Category
from tasks.model.packages import OURS
from tasks.model.plan import PlannedTask
from tasks.model.spec import ReduceSpec, load_spec
from tasks.request.document import Request
from tasks.storage.blobs import PLANS, Blobs

SEARCHED = 50_000  # tasks of a plan among which the smallest run is looked for
PROGRAM = frozenset(
    {
        Category.USER_CODE_FAILED,
        Category.USER_CODE_TIMED_OUT,
        Category.OUT_OF_MEMORY,
        Category.EXECUTION_TIMEOUT,
        Category.CHOICE_REFUSED,
    }
)
"""The failures of a run that say something of the package, and not of its inputs or the machine."""


def is_wanted(request: Request, package: str) -> bool:
    """Tell whether a request that runs a package, by its exact name, is to be rehearsed."""
    reduction = request.reduction
    return reduction is not None and reduction.rehearse and not package.startswith(f"{OURS}/")


def choose(tasks: Iterable[PlannedTask]) -> list[PlannedTask]:
    """Return the tasks of a plan's rehearsal, inputs first; none if it has fewer than two runs."""
    known = {task.key: task for task in islice(tasks, SEARCHED)}
    runs = [task for task in known.values() if isinstance(task.spec, ReduceSpec)]
    if len(runs) < 2:
        return []
    smallest = min(runs, key=lambda task: (task.spec.amount, _inputs(known, task)))
    wanted = {smallest.key}
    waiting = [smallest.key]
    while waiting:
        for given in known[waiting.pop()].spec.inputs:
            if given.key not in wanted:
                wanted.add(given.key)
                waiting.append(given.key)
    return [task for key, task in known.items() if key in wanted]


def _inputs(known: dict[str, PlannedTask], task: PlannedTask) -> int:
    return sum(len(known[given.key].spec.inputs) for given in task.spec.inputs)


def store(blobs: Blobs, request: str, tasks: Iterable[PlannedTask]) -> None:
    """Store the tasks of a request's rehearsal."""
    lines = [f"{task.key}\t{task.output}\t{task.spec.model_dump_json()}" for task in tasks]
    blobs.put_bytes(PLANS, _name(request), "\n".join(lines).encode())


def load(blobs: Blobs, request: str) -> list[PlannedTask]:
    """Return the tasks of a request's rehearsal; none if it has none."""
    try:
        text = blobs.get_bytes(PLANS, _name(request)).decode()
    except BlobMissingError:
        return []
    parts = (line.split("\t", 2) for line in text.splitlines())
    return [
        PlannedTask(spec=load_spec(spec), output=output, key=key) for key, output, spec in parts
    ]


def _name(request: str) -> str:
    return f"rehearsal/{request}"
