"""Rows as they are stored: keys, names, types and values of each kind, held to a file.

`row_formats_6.json` has the rows of schema 6, as they are written beside the build before, and
`row_formats_7.json` those of schema 7. Stored rows outlive a build: what differs from the files
needs a new schema number and an upgrade. `python -m tests.tasks.test_row_formats` writes the files
again.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprojection.read.completeness import Completeness, Missing
from service_manager.leader.leadership import Leadership
from service_manager.plans import write_fence
from tasks.bag import (
    history,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import Category
from tasks.bag.model import (
    ArtifactFile,
    Attempt,
    Phase,
    RequestOrder,
    RequestState,
    State,
    Task,
    TaskOutcome,
    Use,
)
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.bag.task_rows import CompletionEvent, Edge, Interest
from tasks.bag.task_table import RowKind, kind_of
from tasks.bag.transitions import Change, RetryPolicy
from tasks.bag.workers import Hold, RunningAttempt, WorkerRow
from tasks.holdings import holdings
from tasks.request.document import parse_request
from tasks.requests import outbox, request_operations
from tasks.requests.outbox import Mail
from tasks.requests.plan import Gap
from tasks.requests.request_table import REQUEST, PhaseCount, Preview, RequestRow, RequestTable
from tasks.service import backup
from tasks.service.memory_runtime import memory_runtime
from tasks.storage import schema
from tasks.storage.codec import Codec
from tasks.storage.memory_store import MemoryStore
from tasks.storage.schema import OLDEST, SCHEMA
from tasks.storage.store import Delete, Row, Upsert, Value

FILES_OF = {
    number: Path(__file__).with_name(f"row_formats_{number}.json") for number in (OLDEST, SCHEMA)
}
CODECS: dict[RowKind | None, Codec[Any]] = {
    RowKind.TASK: task_table.TASK,
    RowKind.INTEREST: task_table.INTEREST,
    RowKind.EDGE: task_table.EDGE,
    RowKind.ATTEMPT: task_table.ATTEMPT,
    RowKind.WRITE_FENCE: task_table.WRITE_FENCE,
    RowKind.COMPLETION_EVENT: task_table.COMPLETION_EVENT,
    RowKind.READY: task_table.READY,
    RowKind.LATER: task_table.LATER,
    RowKind.RUNNING: task_table.RUNNING,
}
LONG = 200  # characters of a value that the file has in full

COLLECT = CollectSpec(product="MOD13A2", collection="6", granule="g é", production="1")
MOSAIC = MosaicSpec(
    name="of two",
    inputs=(Input(key=COLLECT.key, name="a"), Input(key="f" * 64, name="b")),
    grid=GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8),
)
FILES = (
    ArtifactFile(name="a.tif", blob="artifacts/x/c/a.tif", size=2**40, sha256="ab" * 32),
    ArtifactFile(name="b.tif", blob="b", size=1, sha256="", valid_share=0.25),
    ArtifactFile(
        name="c.tif",
        blob="c",
        size=0,
        sha256="",
        valid_share=0.0,
        completeness=Completeness(
            share=0.5,
            missing=tuple(
                Missing(what=f"granule {n:03d}", why="é" + "y" * 300) for n in range(120)
            ),
            unnamed=7,
        ),
    ),
)
POLICY = RetryPolicy(budget=3, base=10.0, ceiling=100.0)
INTEREST = Interest(request="r1", key=COLLECT.key, phase=Phase.COLLECTION, name="g é")
TOLD = replace(
    INTEREST,
    request="r2",
    output="MOD13A2/1",
    outcome=TaskOutcome.FAILED,
    category=Category.SERVER_BUSY,
    reused=True,
    message="m" * 600,
    fallback="d" * 64,
    earlier=("e" * 64, "0" * 64),
    stopped=True,
    files=FILES,
)


def task_rows(runtime: Runtime) -> None:
    """A task in every state that has rows of its own, and all that lies beside it."""
    edge = Edge(key=COLLECT.key, dependent=MOSAIC.key, bits=0b101)
    waiting = transitions.create(MOSAIC, replace(INTEREST, key=MOSAIC.key), missing=2**70 + 3)
    ready = transitions.create(COLLECT, INTEREST, 0, (edge,))
    running = transitions.claim(at("1", ready), "claim", "worker-1", 1_700_000_000.25)
    failed = ended(running, Category.SERVER_BUSY, "busy", "log " * 10_000)
    later = transitions.fail(at("1", running), failed, POLICY, now=1_700_000_001.0, jitter=0.5)
    done = transitions.commit(at("1", running), ended(running, None, "", "é"), FILES)
    wanted = transitions.add_interest(at("1", done), TOLD, 0, (edge,))
    gone = transitions.fail(
        at("1", running),
        ended(running, Category.USER_CODE_FAILED, "x" * 600, ""),
        replace(POLICY, budget=1),
        now=0.0,
        jitter=0.0,
    )
    waits = replace(at("1", waiting), missing=0, lacking=1, generation=7)
    changes = {
        "waiting": waiting,
        "ready": ready,
        "running": running,
        "later": later,
        "done": done,
        "wanted": wanted,
        "gone": gone,
        "superseded": transitions.supersede(waits, "a" * 64, "first cause"),
        "waits anew": transitions.reconsider(waits, 1),
        "told": transitions.deliver(at("1", wanted), "r2"),
        "dependents": transitions.create(
            COLLECT, INTEREST, 0, (edge, replace(edge, dependent="ab" * 32, bits=2**70))
        ),
    }
    for name, change in changes.items():  # in a partition each
        operations = [
            Upsert(row=op.row, entity={"deleted": True} if isinstance(op, Delete) else op.entity)
            for op in change.operations
        ]
        runtime.store.transact("tasks", name, operations)
    write_fence.close(runtime.tasks, runtime.clock, "closed")
    runtime.tasks.transact("0", [write_fence.passing(runtime.tasks, "0", "open")])


def request_rows(runtime: Runtime) -> None:
    """A request as submitted, one with all that a row can say, and the rows beside requests."""
    document = parse_request(
        {
            "title": "t é",
            "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
            "region": {"tiles": ["h18v04"]},
            "time": {"start": "2012-01-01", "end": "2012-01-02"},
            "grid": {"modis": 1000},
        }
    )
    request_operations.submit(runtime, "someone@example.org", document, request_id="new")
    request_operations.submit(
        runtime, "someone", document, request_id="dry", dry_run=True, retry_of="new"
    )
    request_operations.submit(runtime, "someone", document, request_id="full")

    def fill(row: RequestRow) -> RequestRow:
        return replace(
            row,
            state=RequestState.CANCELLED,
            ended=1.5,
            order=RequestOrder.PAUSE,
            paused=True,
            phases={Phase.COLLECTION: PhaseCount(total=6, done=1, failed=2, running=3, reused=1)},
            outputs=3,
            delivered=2,
            gaps=tuple(Gap(what=f"{n} " + "w" * 300, reason="é" + "r" * 300) for n in range(60)),
            gap_count=60,
            preview=Preview(granules=1, tasks=2, exact=False, busy=2.5, cost=0.25),
            notes=tuple("n" * 400 for _ in range(25)),
            message="m" * 3000,
            attempts=2,
            epoch=3,
            retry_orders=("all", "task|" + "0" * 64),
            retry_of="new",
            retried_as="other",
            retried=True,
        )

    request_operations.change_request(runtime, "full", fill)
    Leadership(runtime, 30.0).acquire()
    RequestTable(runtime.store).note_written(runtime.clock, "new", 4)
    holdings.ask(runtime.store, runtime.clock)


def other_rows(runtime: Runtime) -> None:
    """A mail, workers and the history."""
    mail = Mail(
        request="new",
        to="someone@example.org",
        kind="end",
        subject="s é",
        body="b é\n",
        written=1.0,
        signs_in="someone",
        shows=("new", "full"),
    )
    outbox.put(runtime.store, runtime.clock, mail)
    outbox.mark_failed(runtime.store, runtime.clock, mail, "e" * 600)
    attempt = RunningAttempt(
        key="0" * 64,
        claim="c",
        started_ago=1.5,
        phase=Phase.REDUCTION,
        task_class="x",
        progress=0.5,
    )
    worker = WorkerRow(
        name="w",
        host="h",
        slots=2,
        started=1.0,
        beat_at=2.0,
        sequence=3,
        attempts=(attempt, replace(attempt, claim="d", note="n é")),
        waiting=("e", "f"),
        sandbox="s",
        version="1",
    )
    workers.beat(runtime.store, runtime.clock, worker)
    workers.order_kill(runtime.store, runtime.clock, "w", "c")
    workers.order_move(runtime.store, runtime.clock, "w", "d")
    workers.order_hold(
        runtime.store, runtime.clock, "w", 1.0, Hold.DRAINED, why="y" * 1100, wait=9.0
    )
    batch = [event(1, None, 2.0), event(2, None, 4.0), event(3, Category.SERVER_BUSY, 1.0)]
    history.count(runtime.store, batch, epoch=5, owners={"r1": "a@b"})


def at(etag: str, change: Change) -> Task:
    return replace(change.task, etag=etag)


def ended(change: Change, category: Category | None, message: str, log: str) -> Attempt:
    task = change.task
    return Attempt(
        key=task.key,
        number=task.attempt,
        claim=task.claim,
        phase=task.phase,
        task_class=task.task_class,
        worker=task.worker,
        started=1.0,
        ended=3.5,
        duration=2.5,
        category=category,
        message=message,
        log=log,
        peak_memory=2**33,
        use=Use(cpu=1.5, reads=2, writes=1, received=10, sent=20),
    )


def event(number: int, category: Category | None, duration: float) -> CompletionEvent:
    return CompletionEvent(
        key="0" * 64,
        row=f"o|{number}",
        number=number,
        state=State.DONE,
        category=category,
        duration=duration,
        ended=1_700_000_000.0,
        phase=Phase.REPROJECTION,
        task_class="reprojection a/b 6, x2",
        worker="w",
        has_dependents=False,
        interests=("r1",),
        not_before=0.0,
        message="",
        fallback="",
        sponsor="r1",
        files=(),
        counted=False,
        use=Use(cpu=duration, reads=3, writes=1, received=2**40, sent=7),
    )


def tables() -> dict[str, list[Row]]:
    runtime = memory_runtime()
    assert isinstance(runtime.store, MemoryStore)
    backup._begin(runtime.store, runtime.clock, Path("file"), backup.Totals(rows=3, blobs=4))
    task_rows(runtime)
    request_rows(runtime)
    other_rows(runtime)
    return runtime.store.tables()


def stored() -> dict[str, dict[str, object]]:
    """All rows by table, partition and RowKey, with the type and value of each property."""
    return {
        f"{table} {row.partition} {row.row}": {
            name: plain(value) for name, value in sorted(row.entity.items())
        }
        for table, some in tables().items()
        for row in some
    }


def plain(value: Value) -> list[object]:
    """The exact type and the value, of a long one its length and checksum."""
    kind = type(value).__name__
    if not isinstance(value, str | bytes):
        return [kind, value]
    data = value if isinstance(value, bytes) else value.encode()
    if len(data) > LONG:
        return [kind, len(value), hashlib.sha256(data).hexdigest()]
    return [kind, data.decode() if data.isascii() else data.hex()]


@pytest.fixture(params=sorted(FILES_OF))
def number(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A schema by which rows are written."""
    written: int = request.param
    monkeypatch.setattr(schema._Written, "number", written)
    return written


def test_rows_are_stored_as_before(number: int) -> None:
    found = json.loads(json.dumps(stored()))
    expected = json.loads(FILES_OF[number].read_text())
    assert found.keys() == expected.keys()
    for name, properties in expected.items():
        assert found[name] == properties, name


def test_both_schemas_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    brief = loaded()
    monkeypatch.setattr(schema._Written, "number", OLDEST)
    full = loaded()
    assert brief.keys() == full.keys()
    for name, value in full.items():
        assert brief[name] == value, name


def loaded() -> dict[str, object]:
    """All rows as values, without specifications, which schema 6 has in rows of their own."""
    found: dict[str, object] = {}
    for table, some in tables().items():
        for row in some:
            how = codec(table, row)
            where = f"{table} {row.partition}"
            if how in (task_table.EDGE, task_table._EDGE_GROUP):
                edges = task_table.load_edges(row)
                found |= {f"{where} {edge.key} {edge.dependent}": edge for edge in edges}
            elif how is not None:
                value = how.load(row)
                plain = replace(value, spec=b"") if isinstance(value, Task) else value
                found[f"{where} {row.row}"] = plain
    return found


def codec(table: str, row: Row) -> Codec[Any] | None:
    """Return how a row is read; None of what is read in another way, or is no whole row."""
    if "dependents" in row.entity:
        return task_table._EDGE_GROUP
    if table == "tasks":
        return CODECS.get(kind_of(row.row)) if "schema" in row.entity else None
    if table == "requests":
        return REQUEST if row.row.startswith("q|") else None
    if table == "history":
        if row.partition == history.FAILURES:
            return history._FAILURE
        days = dict.fromkeys(("d|", "o|", "w|"), history._DAY)
        kinds: dict[str, Codec[Any]] = {"c|": history._CLASS, "r|": history._REQUEST, **days}
        return kinds.get(row.row[:2], history._CURSOR)
    return workers.WORKER if table == "workers" else outbox._MAIL


def test_what_is_stored_is_read_back(number: int) -> None:
    kinds = set()
    for table, some in tables().items():
        for row in some:
            found = codec(table, row)
            if found is not None:
                assert found.dump(found.load(row)) == row.entity
                kinds.add(id(found))
    groups = number >= schema.BRIEF_ROWS
    assert len(kinds) == len(CODECS) + 8 + groups


if __name__ == "__main__":
    for each, file in FILES_OF.items():
        schema._Written.number = each
        lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in stored().items())
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
