"""The runs of a request's reduction: how each went, what it used, and what it was given."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from portal.results.result_files import ResultFile
from portal.serving.problems import GoneError, NotFoundError
from tasks.bag import history
from tasks.bag.expectation import Times
from tasks.bag.model import Attempt, Phase, State, Task
from tasks.bag.runtime import Runtime
from tasks.bag.spec import GroupSpec, MosaicSpec, ReduceSpec
from tasks.bag.task_keys import SHARDS
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

MOST = 500  # runs that are told at once
_REQUESTS = 50  # of an owner, the newest, that are searched for a run


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a package over a group; `mean` are the usual seconds of its class, 0: unknown.

    `reading` is the tier in which its group was made of cells, "" where it was not noted.
    """

    key: str
    group: str
    reading: str
    task: Task
    attempts: tuple[Attempt, ...]
    mean: float

    @property
    def outcome(self) -> str:
        """The outcome, or the state before it."""
        if self.task.state is State.FAILED and self.task.category:
            return self.task.category.value
        return self.task.state.value

    @property
    def last(self) -> Attempt | None:
        """The last attempt that has ended."""
        return self.attempts[-1] if self.attempts else None


@dataclass(frozen=True, kw_only=True)
class Found:
    """Runs of a request; there may be `more` than are told."""

    runs: tuple[Run, ...]
    more: bool


def runs_of(runtime: Runtime, row: RequestRow, result: ResultFile | None = None) -> Found:
    """Return the runs of a request's reduction, or those that one result was made of."""
    keys = run_keys(runtime, row, result.key if result else "")
    means = Times(history.class_statistics(runtime.store))
    found = []
    for task in tasks_of(runtime, keys[:MOST]):
        group, reading = _group(runtime, task)
        found.append(
            Run(
                key=task.key,
                group=group,
                reading=reading,
                task=task,
                attempts=tuple(runtime.tasks.attempts(task.key)),
                mean=means.mean(task.task_class) or 0.0,
            )
        )
    found.sort(key=lambda run: (run.outcome == State.DONE.value, run.group))
    return Found(runs=tuple(found), more=len(keys) > MOST)


def run_keys(runtime: Runtime, row: RequestRow, result: str = "") -> list[str]:
    """Return the keys of the runs of a request, or of those that one result was made of.

    A request that has ended keeps interests in its results and failures alone; a run is then found
    by what was made of it.
    """
    steps = {step.label for step in request_operations.document_of(row).steps}
    if not steps:
        return []
    keys: dict[str, None] = {}
    for number in SHARDS:
        for interest in runtime.tasks.interests(row.id, number):
            if result and interest.key != result:
                continue
            if interest.phase is Phase.REDUCTION:
                keys[interest.key] = None
            elif interest.output.partition("/")[0] in steps:
                keys.update(dict.fromkeys(_inputs(runtime, interest.key)))
    if len(steps) > 1:
        for key in [*keys]:
            _add_earlier(runtime, key, keys)
    return sorted(keys)


def _add_earlier(runtime: Runtime, key: str, found: dict[str, None]) -> None:
    """Add the runs of earlier steps whose rasters a run was given."""
    waiting = [key]
    while waiting:
        spec = runtime.tasks.spec(waiting.pop())
        group = runtime.tasks.spec(spec.inputs[0].key) if isinstance(spec, ReduceSpec) else None
        if not isinstance(group, GroupSpec):
            continue
        for given, band in zip(group.inputs, group.bands, strict=True):
            if band.window and given.key not in found:
                found[given.key] = None
                waiting.append(given.key)


def _inputs(runtime: Runtime, key: str) -> list[str]:
    spec = runtime.tasks.spec(key)
    return [one.key for one in spec.inputs] if isinstance(spec, MosaicSpec) else []


def tasks_of(runtime: Runtime, keys: Iterable[str]) -> list[Task]:
    """Return the tasks of these keys that are runs of a reduction."""
    found = runtime.tasks.tasks_of_all(keys).values()
    return [task for task in found if task.phase is Phase.REDUCTION]


def load_run(runtime: Runtime, row: RequestRow, key: str) -> Task:
    """Return a run of a request; raise NotFoundError if the request has no such run."""
    task = runtime.tasks.task(key) if key in run_keys(runtime, row) else None
    if task is None or task.phase is not Phase.REDUCTION:
        raise NotFoundError(
            f"Request {row.id} has no run {key}.", "Its runs are at /api/requests/ID/runs."
        )
    return task


def owner_has_run(runtime: Runtime, owner: str, key: str) -> bool:
    """Tell whether one of an owner's newest requests has a run of this key."""
    rows = request_operations.list_requests(runtime, owner, _REQUESTS)
    return any(key in run_keys(runtime, request_operations.load(runtime, row.id)) for row in rows)


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """What a run was given: files of its group, and its parameters."""

    kind: Literal["reduce", "group"]
    files: tuple[ResultFile, ...]
    parameters: dict[str, str]


def inputs_of(runtime: Runtime, key: str) -> RunInputs:
    """Return the inputs of a run or of a group's runs; of a raster's runs, the first that failed.

    Raises:
        NotFoundError: the task is neither a run nor a group.
        GoneError: the group is not made yet, or not kept any more.
    """
    spec = runtime.tasks.spec(key)
    if isinstance(spec, MosaicSpec) and (runs := tasks_of(runtime, _inputs(runtime, key))):
        return inputs_of(runtime, min(runs, key=lambda task: task.state is not State.FAILED).key)
    group = spec.inputs[0].key if isinstance(spec, ReduceSpec) else key
    if not isinstance(spec, ReduceSpec | GroupSpec):
        raise NotFoundError(
            f"Task {key} is not a run of a reduction.", "Name a task of the phase reduction."
        )
    task = runtime.tasks.task(group)
    if task is None or task.state is not State.DONE:
        raise GoneError(
            f"The inputs of task {key} are not there: not yet, or not any more.",
            "Wait until it has run, or submit the request again.",
        )
    return RunInputs(
        kind=spec.kind,
        files=tuple(ResultFile(path=file.name, file=file, key=group) for file in task.files),
        parameters=spec.parameters if isinstance(spec, ReduceSpec) else {},
    )


def _group(runtime: Runtime, task: Task) -> tuple[str, str]:
    """Return the name of a run's group, and the tier in which it was made."""
    spec = runtime.tasks.spec_of(task)
    if not spec.inputs:
        return task.key[-12:], ""
    attempts = runtime.tasks.attempts(spec.inputs[0].key)
    return spec.inputs[0].name, attempts[-1].reading if attempts else ""
