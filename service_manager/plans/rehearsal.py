"""The rehearsal: one run of each of a request's own packages, before anything else is spent on it.

It is the smallest run among the first tasks of the plan, with all that goes into it; of a later
step the run that needs the fewest tasks more, unless these are too many. The tasks are kept in the
blob `rehearsal/REQUEST` of `plans`, so that any manager writes the same. Packages that come with
Swathmill, and plans in which no package has two runs, need none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from tasks.bag.categories import Category
from tasks.bag.kinds import load_spec
from tasks.bag.spec import ReduceSpec
from tasks.canonical import canonical
from tasks.errors import BlobMissingError
from tasks.packages.packages import OURS
from tasks.request.document import Request
from tasks.requests.plan import PlannedTask, named_packages
from tasks.storage.blobs import PLANS, Blobs

SEARCHED = 50_000  # tasks of a plan among which the smallest run is looked for
MOST_MORE = 200  # tasks for the run of a further step
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


def wanted(request: Request, packages: str) -> frozenset[str]:
    """Return the digests of the packages that a request rehearses, of those that its plan names."""
    if not any(step.rehearse for step in request.steps):
        return frozenset()
    return frozenset(
        digest for name, digest in named_packages(packages) if not name.startswith(f"{OURS}/")
    )


def choose(tasks: Iterable[PlannedTask], own: Collection[str]) -> list[PlannedTask]:
    """Return the tasks of a plan's rehearsal, inputs first.

    Packages of the digests `own` are rehearsed that have at least two runs.
    """
    known = {task.key: task for task in islice(tasks, SEARCHED)}
    runs: dict[tuple[str, str], list[PlannedTask]] = {}
    for task in known.values():
        if isinstance(task.spec, ReduceSpec) and task.spec.digest in own:
            said = canonical(task.spec.parameters).decode("ascii")
            runs.setdefault((task.spec.digest, said), []).append(task)
    chosen: set[str] = set()
    for of_package in reversed(runs.values()):  # later steps first: they need earlier ones
        if len(of_package) < 2 or any(task.key in chosen for task in of_package):
            continue
        first = _fewest(known, of_package)
        more = _needs(known, first.key)
        if len(more - chosen) <= MOST_MORE or not _runs_beneath(known, first):
            chosen |= more
    return [task for key, task in known.items() if key in chosen]


def _fewest(known: Mapping[str, PlannedTask], runs: Sequence[PlannedTask]) -> PlannedTask:
    """Return the smallest run of those with the fewest runs beneath."""

    def cost(task: PlannedTask) -> tuple[int, int, int]:
        return _runs_beneath(known, task), task.spec.amount, len(_given(known, task))

    return min(runs, key=cost)


def _given(known: Mapping[str, PlannedTask], run: PlannedTask) -> list[PlannedTask]:
    """Return what the group of a run is made of."""
    groups = [known[given.key] for given in run.spec.inputs]
    return [known[one.key] for group in groups for one in group.spec.inputs]


def _runs_beneath(known: Mapping[str, PlannedTask], run: PlannedTask) -> int:
    return sum(isinstance(task.spec, ReduceSpec) for task in _given(known, run))


def _needs(known: Mapping[str, PlannedTask], key: str) -> set[str]:
    """Return a task and all that goes into it."""
    found = {key}
    waiting = [key]
    while waiting:
        for given in known[waiting.pop()].spec.inputs:
            if given.key not in found:
                found.add(given.key)
                waiting.append(given.key)
    return found


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
