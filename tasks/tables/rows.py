"""Rows of the `tasks` table: names, and entities to values and back.

One partition per shard (`keys.shard`). By RowKey prefix:

| row | is |
|---|---|
| `t|key` | the task |
| `s|key|n` | its specification, JSON in parts of at most 60 KiB |
| `w|request|key` | a request wants it: its name among the results, and what became of it |
| `e|key|dependent` | an edge: `dependent` waits for it, and which of its inputs it is |
| `a|key|k` | an ended attempt |
| `p|request` | whether the request may still want tasks of this shard |
| `o|key|name` | news the manager has not digested: an ended attempt, or an end without one |
| `r|request|key` | ready now, under its sponsor |
| `x|key` | running |
| `z|time|key` | ready later |
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from reprojection.read.completeness import WHOLE, Completeness, Missing
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile, Attempt, Phase, State, Task
from tasks.model.spec import Spec, load_spec
from tasks.storage.schema import SCHEMA, current
from tasks.storage.store import Entity, Operation, Row, Upsert, Value

TABLE = "tasks"
NAMED = 100
"""Missing inputs of a task's files that its row has by name; the files have them all."""
_PART = 60 * 2**10
_WHY = 200  # characters of the reason why an input is missing
_MESSAGE = 500  # characters of a line for people
_LOG = 16 * 2**10  # characters of an attempt's log tail; Azure stores UTF-16


@dataclass(frozen=True, kw_only=True)
class Want:
    """A request's view of a task: the want row. `outcome` is empty until the manager told it:
    then `done`, `failed`, `superseded` (by `successor`) or `gap`."""

    request: str
    key: str
    phase: Phase
    name: str = ""  # what the task makes, for people
    output: str = ""  # folder among the request's results; empty: intermediate
    outcome: str = ""
    category: Category | None = None
    reused: bool = False  # DONE before this request asked
    message: str = ""
    successor: str = ""
    earlier: tuple[str, ...] = ()  # successors before that one, still wanted by the request
    stopped: bool = False  # failed without being run: the first runs had all failed alike
    files: tuple[ArtifactFile, ...] = ()

    @property
    def successors(self) -> tuple[str, ...]:
        """All that the request wants in the task's place."""
        return (*self.earlier, self.successor) if self.successor else self.earlier

    def succeeded(self, successor: str) -> "Want":
        """The want with a new successor besides those that it has."""
        if not successor or successor == self.successor:
            return self
        earlier = tuple(one for one in self.successors if one != successor)
        return replace(self, successor=successor, earlier=earlier)


@dataclass(frozen=True, kw_only=True)
class News:
    """What the manager must digest: an ended attempt (`number` > 0), an end without one, or that a
    task waits anew."""

    key: str
    row: str
    number: int
    state: State  # of the task after the change
    category: Category | None
    duration: float
    ended: float
    phase: Phase
    task_class: str
    worker: str
    has_dependents: bool
    wants: tuple[str, ...]
    not_before: float
    message: str
    successor: str
    sponsor: str
    files: tuple[ArtifactFile, ...]
    counted: bool  # it is in the statistics already


def task_row(key: str) -> str:
    return f"t|{key}"


def want_row(request: str, key: str) -> str:
    return f"w|{request}|{key}"


def gate_row(request: str) -> str:
    return f"p|{request}"


def edge_row(key: str, dependent: str) -> str:
    return f"e|{key}|{dependent}"


def attempt_row(key: str, number: int) -> str:
    return f"a|{key}|{number:06d}"


def prefix_range(prefix: str) -> tuple[str, str]:
    """The half-open range of RowKeys that start with a prefix ending in `|`."""
    return prefix, prefix[:-1] + "}"


def markers(task: Task) -> dict[str, Entity]:
    """The marker rows a task must have: a function of its row alone."""
    if task.state is State.READY and task.not_before:
        return {
            f"z|{int(task.not_before * 1000):015d}|{task.key}": {"schema": SCHEMA, "key": task.key}
        }
    if task.state is State.READY:
        return {f"r|{task.sponsor}|{task.key}": {"schema": SCHEMA, "key": task.key}}
    if task.state is State.RUNNING:
        return {
            f"x|{task.key}": {
                "schema": SCHEMA,
                "key": task.key,
                "claim": task.claim,
                "worker": task.worker,
                "claimed_at": task.claimed_at,
                "attempt": task.attempt,
                "retries": task.retries,
                "phase": task.phase.value,
                "task_class": task.task_class,
                "sponsor": task.sponsor,
            }
        }
    return {}


def dump_task(task: Task) -> Entity:
    """The task row's entity. Bitmaps are hexadecimal text, lists are JSON."""
    return {
        "schema": SCHEMA,
        "phase": task.phase.value,
        "task_class": task.task_class,
        "inputs": task.inputs,
        "state": task.state.value,
        "generation": task.generation,
        "attempt": task.attempt,
        "claim": task.claim,
        "worker": task.worker,
        "claimed_at": task.claimed_at,
        "retries": task.retries,
        "strikes": task.strikes,
        "not_before": task.not_before,
        "missing": f"{task.missing:x}",
        "lacking": f"{task.lacking:x}",
        "has_dependents": task.has_dependents,
        "wants": " ".join(task.wants).encode(),
        "sponsor": task.sponsor,
        "category": task.category.value if task.category else "",
        "successor": task.successor,
        **({"reason": task.reason[:_MESSAGE]} if task.reason else {}),
        "files": dump_files(task.files),
    }


def load_task(row: Row) -> Task:
    """The task of a `t|` row."""
    e = current("task", row)
    category = str(e["category"])
    return Task(
        key=row.row[2:],
        phase=Phase(str(e["phase"])),
        task_class=str(e["task_class"]),
        inputs=int(e["inputs"]),
        state=State(str(e["state"])),
        generation=int(e["generation"]),
        attempt=int(e["attempt"]),
        claim=str(e["claim"]),
        worker=str(e["worker"]),
        claimed_at=float(e["claimed_at"]),
        retries=int(e["retries"]),
        strikes=int(e["strikes"]),
        not_before=float(e["not_before"]),
        missing=int(str(e["missing"]), 16),
        lacking=int(str(e["lacking"]), 16),
        has_dependents=bool(e["has_dependents"]),
        wants=tuple(_binary(e["wants"]).decode().split()),
        sponsor=str(e["sponsor"]),
        category=Category(category) if category else None,
        successor=str(e["successor"]),
        reason=str(e.get("reason", "")),
        files=load_files(_binary(e["files"])),
        etag=row.etag,
    )


def dump_spec(key: str, spec: Spec) -> Iterator[tuple[str, Entity]]:
    """The specification's rows, in parts that fit a property."""
    data = spec.model_dump_json().encode()
    for n, start in enumerate(range(0, len(data), _PART)):
        yield f"s|{key}|{n:03d}", {"schema": SCHEMA, "json": data[start : start + _PART]}


def load_spec_rows(parts: Sequence[Row]) -> Spec:
    """The specification from all its rows, in order."""
    return load_spec(b"".join(_binary(current("spec", p)["json"]) for p in parts))


@dataclass(frozen=True, kw_only=True)
class Edge:
    """`dependent` waits for `key`; `bits` are the dependent's input indices that are `key`."""

    key: str
    dependent: str
    bits: int


def dump_edge(edge: Edge) -> Entity:
    """The edge row's entity."""
    return {
        "schema": SCHEMA,
        "key": edge.key,
        "dependent": edge.dependent,
        "bits": f"{edge.bits:x}",
    }


def load_edge(row: Row) -> Edge:
    """The edge of an `e|` row."""
    e = current("edge", row)
    return Edge(key=str(e["key"]), dependent=str(e["dependent"]), bits=int(str(e["bits"]), 16))


def dump_want(want: Want) -> Entity:
    """The want row's entity."""
    return {
        "schema": SCHEMA,
        "request": want.request,
        "key": want.key,
        "phase": want.phase.value,
        "name": want.name,
        "output": want.output,
        "outcome": want.outcome,
        "category": want.category.value if want.category else "",
        "reused": want.reused,
        "message": want.message[:_MESSAGE],
        "successor": want.successor,
        **({"earlier": " ".join(want.earlier)} if want.earlier else {}),
        **({"stopped": True} if want.stopped else {}),
        "files": dump_files(want.files),
    }


def load_want(row: Row) -> Want:
    """The want of a `w|` row."""
    e = current("want", row)
    category = str(e["category"])
    return Want(
        request=str(e["request"]),
        key=str(e["key"]),
        phase=Phase(str(e["phase"])),
        name=str(e["name"]),
        output=str(e["output"]),
        outcome=str(e["outcome"]),
        category=Category(category) if category else None,
        reused=bool(e["reused"]),
        message=str(e["message"]),
        successor=str(e["successor"]),
        earlier=tuple(str(e.get("earlier", "")).split()),
        stopped=bool(e.get("stopped", False)),
        files=load_files(_binary(e["files"])),
    )


def dump_attempt(attempt: Attempt) -> Entity:
    """The attempt row's entity; of a long log the end is kept."""
    entity: Entity = {k: v for k, v in asdict(attempt).items() if k not in ("category", "phase")}
    return {
        **entity,
        "schema": SCHEMA,
        "phase": attempt.phase.value,
        "category": attempt.category.value if attempt.category else "",
        "log": attempt.log[-_LOG:],
        "message": attempt.message[:_MESSAGE],
    }


def load_attempt(row: Row) -> Attempt:
    """The attempt of an `a|` row."""
    e = current("attempt", row)
    category = str(e["category"])
    return Attempt(
        key=str(e["key"]),
        number=int(e["number"]),
        claim=str(e["claim"]),
        phase=Phase(str(e["phase"])),
        task_class=str(e["task_class"]),
        worker=str(e["worker"]),
        started=float(e["started"]),
        ended=float(e["ended"]),
        duration=float(e["duration"]),
        category=Category(category) if category else None,
        message=str(e["message"]),
        log=str(e["log"]),
        peak_memory=int(e["peak_memory"]),
    )


def news_of_attempt(task: Task, attempt: Attempt) -> Operation:
    """The news that an attempt has ended; `task` is the row after the change."""
    entity = _news(task, attempt.number, attempt.category)
    entity |= {
        "duration": attempt.duration,
        "ended": attempt.ended,
        "worker": attempt.worker,
        "message": attempt.message[:_MESSAGE],
    }
    return Upsert(row=f"o|{task.key}|{attempt.number:06d}", entity=entity)


def news_of_end(task: Task, said: str = "") -> Operation:
    """The news that a task ended without an attempt of its own; `said` is told in place of the
    task's reason."""
    entity = _news(task, 0, task.category) | {"message": (said or task.reason)[:_MESSAGE]}
    return Upsert(row=f"o|{task.key}|g{task.generation:06d}", entity=entity)


def news_of_wait(task: Task) -> Operation:
    """The news that a task waits anew, for inputs that may have ended before it could hear them:
    the manager looks at each."""
    return Upsert(row=f"o|{task.key}|w{task.generation:06d}", entity=_news(task, 0, None))


def _news(task: Task, number: int, category: Category | None) -> Entity:
    return {
        "schema": SCHEMA,
        "key": task.key,
        "number": number,
        "state": task.state.value,
        "category": category.value if category else "",
        "duration": 0.0,
        "ended": 0.0,
        "phase": task.phase.value,
        "task_class": task.task_class,
        "worker": "",
        "has_dependents": task.has_dependents,
        "wants": " ".join(task.wants).encode(),
        "not_before": task.not_before,
        "message": "",
        "successor": task.successor,
        "sponsor": task.sponsor,
        "files": dump_files(task.files),
        "counted": False,
    }


def load_news(row: Row) -> News:
    """The news of an `o|` row."""
    e = current("news", row)
    category = str(e["category"])
    return News(
        key=str(e["key"]),
        row=row.row,
        number=int(e["number"]),
        state=State(str(e["state"])),
        category=Category(category) if category else None,
        duration=float(e["duration"]),
        ended=float(e["ended"]),
        phase=Phase(str(e["phase"])),
        task_class=str(e["task_class"]),
        worker=str(e["worker"]),
        has_dependents=bool(e["has_dependents"]),
        wants=tuple(_binary(e["wants"]).decode().split()),
        not_before=float(e["not_before"]),
        message=str(e["message"]),
        successor=str(e["successor"]),
        sponsor=str(e["sponsor"]),
        files=load_files(_binary(e["files"])),
        counted=bool(e["counted"]),
    )


def dump_files(files: Sequence[ArtifactFile]) -> bytes:
    """Files as a binary property: half the size of a string one, which Azure counts as UTF-16."""
    if not files:
        return b""
    most = NAMED // max(1, sum(f.completeness != WHOLE for f in files))
    return json.dumps([_dump_file(f, most) for f in files]).encode()


def load_files(text: bytes) -> tuple[ArtifactFile, ...]:
    return tuple(_load_file(*file) for file in json.loads(text or b"[]"))


def _dump_file(file: ArtifactFile, most: int) -> list[object]:
    """Name, blob, size, checksum; then, where there is any, what else is said of it."""
    said: dict[str, object] = {}
    if file.completeness != WHOLE:
        said["lacks"] = _dump_completeness(file.completeness.named(most))
    if file.valid_share is not None:
        said["valid"] = file.valid_share
    return [file.name, file.blob, file.size, file.sha256, *([said] if said else [])]


def _load_file(
    name: str, blob: str, size: int, sha256: str, said: Mapping[str, Any] | None = None
) -> ArtifactFile:
    more = said or {}
    lacks = more.get("lacks")
    return ArtifactFile(
        name=name,
        blob=blob,
        size=size,
        sha256=sha256,
        completeness=WHOLE if lacks is None else _load_completeness(lacks),
        valid_share=more.get("valid"),
    )


def _dump_completeness(said: Completeness) -> list[object]:
    return [said.share, said.unnamed, [[one.what, one.why[:_WHY]] for one in said.missing]]


def _load_completeness(said: tuple[float, int, list[tuple[str, str]]]) -> Completeness:
    share, unnamed, missing = said
    names = tuple(Missing(what=what, why=why) for what, why in missing)
    return Completeness(share=share, missing=names, unnamed=unnamed)


def _binary(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a binary property was read as {type(value).__name__}")
    return value
