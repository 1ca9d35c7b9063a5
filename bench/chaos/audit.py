"""After the storm: what the tables and blobs say, against what must always hold."""

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from service_manager.storage.retention import Retention
from swathmill.stack import storage
from swathmill.stack.folder import DataFolder
from tasks.bag import history
from tasks.bag.categories import Category
from tasks.bag.model import Attempt, State, Task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.requests.request_table import RequestTable
from tasks.service.connect import connect
from tasks.settings import Settings
from tasks.storage.blobs import ARTIFACTS, GRANULES

_ENDED = (State.DONE, State.FAILED, State.CANCELLED, State.EXPIRED)


@dataclass(kw_only=True)
class Findings:
    """What was counted, and every violation in words."""

    violations: list[str]
    outcomes: Counter[str]
    tasks: Counter[str]
    swept: int = 0


def runtime_of(folder: DataFolder) -> Runtime:
    """Clients of a stack's storage, past whatever lies between."""
    kept = storage.setting(folder, storage.choose(folder, None))
    # Nothing is asked of Redis here.
    given = {"storage": kept, "redis_url": "redis://127.0.0.1:1/0"}
    return connect(Settings.model_validate(given), create=False)


def sweep(runtime: Runtime) -> int:
    """Return what the manager's own sweep does in the course of an hour or two, at once."""
    retention = Retention(runtime, wait=0.0)
    return sum(retention.collect(shard) for _ in range(2) for shard in SHARDS)


def is_settled(runtime: Runtime) -> bool:
    """Tell whether no task is ready, running or to be retried, and no event unprocessed."""
    for shard in SHARDS:
        tasks = runtime.tasks
        if tasks.ready(shard, 1) or any(tasks.begun(shard, 1)) or tasks.events(shard, 1):
            return False
    return True


def audit(
    runtime: Runtime, harmed: Collection[str] = (), failing: Collection[str] = ()
) -> Findings:
    """Look at every task, attempt and blob of a storage in which nothing runs any more.

    The blobs in `harmed` may be damaged or gone where nobody has read them since. Tasks of a class
    that has one of the words in `failing` may have failed.
    """
    found = Findings(violations=[], outcomes=Counter(), tasks=Counter())
    for request in RequestTable(runtime.store).live():
        found.violations.append(f"request {request} has not ended")
    named: set[str] = set()
    for task in tasks_of(runtime):
        found.tasks[task.state.value] += 1
        attempts = runtime.tasks.attempts(task.key)
        found.violations += _of_task(runtime, task, attempts, harmed, failing)
        found.outcomes.update(_outcome(attempt) for attempt in attempts)
        named.update(file.blob for file in task.files)
    found.violations += _of_history(runtime, found.outcomes)
    found.swept = sweep(runtime)
    for container in (GRANULES, ARTIFACTS):
        for name in runtime.blobs.names(container):
            if name[0] in SHARDS and f"{container}/{name}" not in named:
                found.violations.append(f"blob {container}/{name} belongs to no task")
    return found


def tasks_of(runtime: Runtime) -> Iterator[Task]:
    """All tasks of a storage."""
    for shard in SHARDS:
        yield from list(runtime.tasks.all_tasks(shard))


def _of_task(
    runtime: Runtime,
    task: Task,
    attempts: list[Attempt],
    harmed: Collection[str],
    failing: Collection[str],
) -> Iterator[str]:
    name = f"task {task.key[-12:]} ({task.phase})"
    if task.state not in _ENDED:
        yield f"{name} is {task.state} although all requests have ended"
    numbers = [attempt.number for attempt in attempts]
    if len(set(numbers)) != len(numbers) or len({a.claim for a in attempts}) != len(attempts):
        yield f"{name} has attempts {numbers}"
    if max(numbers, default=0) > task.attempt:
        yield f"{name} counts {task.attempt} attempts and has {max(numbers)}"
    for attempt in attempts:
        if attempt.category is Category.UNKNOWN:
            yield f"{name} attempt {attempt.number}: unknown: {attempt.message}: {attempt.log}"
    if task.state is State.FAILED and not any(word in task.task_class for word in failing):
        yield f"{name} failed: {task.category}"
    if task.state is State.DONE:
        if not any(a.claim == task.claim and a.category is None for a in attempts):
            yield f"{name} is done and no attempt of claim {task.claim} succeeded"
        for file in task.files:
            if file.blob in harmed:
                continue
            container, _, blob = file.blob.partition("/")
            data = runtime.blobs.get_bytes(container, blob)
            if (len(data), hashlib.sha256(data).hexdigest()) != (file.size, file.sha256):
                yield f"{name}: blob {file.blob} is not what was recorded"


def _of_history(runtime: Runtime, outcomes: Counter[str]) -> Iterator[str]:
    """Every ended attempt is counted, and once."""
    counted: Counter[str] = Counter()
    for day in history.executions(runtime.store, 3, dt.datetime.now(dt.UTC).date()):
        counted[day.category.value if day.category else "success"] += day.count
    if counted != outcomes:
        yield f"the history counts {dict(counted)}, the attempts are {dict(outcomes)}"


def _outcome(attempt: Attempt) -> str:
    return attempt.category.value if attempt.category else "success"


def processes_of(folder: Path) -> dict[int, str]:
    """Processes that have to do with a data folder, by number: nothing else knows its path."""
    found = {}
    mark = str(folder).encode()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes()
                about = command + (process / "environ").read_bytes()
                cwd = str((process / "cwd").readlink()).encode()
            except OSError:
                continue
            if mark in about or mark in cwd:
                found[int(process.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found
