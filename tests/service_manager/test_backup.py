"""Tables in a file and back, in the middle of a request: what was under way goes on to its end.

What goes on while the file is written is in test_export_meanwhile.
"""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from service_manager.options import ManagerOptions
from swathmill.commands.stored import backup as command
from swathmill.errors import ArgumentError
from swathmill.stack.azurite import Account, AzuriteServer
from tasks.bag import history, protocol
from tasks.bag.categories import Category
from tasks.bag.model import RequestState, State
from tasks.bag.task_keys import SHARDS
from tasks.bag.transitions import RetryPolicy
from tasks.errors import StoreError
from tasks.requests import request_operations, request_table
from tasks.requests.request_table import RESTORING, request_row
from tasks.service import backup
from tasks.service.backup import BackupError
from tasks.service.connect import connect_storage
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import ARTIFACTS, split_blob
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.schema import SCHEMA, OtherSchemaError
from tasks.storage.store import Row, Store, Upsert
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

G = [collect(f"g{i}") for i in range(8)]
A, B = mosaic("a", *G[:4]), mosaic("b", *G[4:])
TOP = mosaic("top", A, B)
OPTIONS = ManagerOptions(sweep=300.0, retry=RetryPolicy(base=2.0))  # rarely: wake-ups do it
PLAN = plan_of(*G, A, B, TOP, outputs={"top": "out", "a": "out"})


def bench(store: Store | None = None) -> Bench:
    """A bench on which g0 fails once, and g1 is claimed by a worker that dies."""
    runtime = memory_runtime(ManualClock())
    if store is not None:
        runtime = replace(runtime, store=store)
    return Bench(
        plans={"p": PLAN},
        options=OPTIONS,
        runtime=runtime,
        decide=lambda c: (
            Category.SERVER_BUSY if (c.task.key, c.task.attempt) == (G[0].key, 1) else None
        ),
    )


def in_the_middle(b: Bench) -> str:
    """A request of which some is done, some runs, some waits for its back-off."""
    request = b.submit("p")
    b.manager.tick()
    b.manager.tick()
    b.sent.sort(key=lambda key: key == G[0].key)
    running = protocol.claim(b.runtime, G[1].key, "dead", b.options.retry)
    assert running is not None
    b.sent[:] = [G[0].key, *[spec.key for spec in G[2:6]]]
    b.work()
    return request


def restored(b: Bench, file: Path, store: Store | None = None) -> Bench:
    """A bench on an empty store, with the blobs that there were, and the file in it."""
    runtime = replace(b.runtime, store=store or MemoryStore())
    backup.restore(runtime.store, runtime.blobs, runtime.clock, file)
    other = Bench(plans=b.plans, options=OPTIONS, runtime=runtime, decide=b.decide)
    other.restart(epoch=2)
    return other


def ends_well(b: Bench, request: str) -> None:
    row = b.until_ended(request, seconds=4.0)
    assert row.state is RequestState.COMPLETE
    assert (row.outputs, row.delivered) == (2, 2)
    for interest in request_operations.results(b.runtime, request):
        assert all(b.runtime.blobs.exists(*split_blob(file.blob)) for file in interest.files)
    for shard in SHARDS:
        for task in b.runtime.tasks.all_tasks(shard):
            assert task.state is State.DONE
    attempts = b.runtime.tasks.attempts(G[0].key)
    assert [attempt.number for attempt in attempts] == [1, 2]


def drain(written: Iterator[backup.Totals]) -> backup.Totals:
    *_, last = written
    return last


@contextmanager
def empty_store(kind: str, folder: Path) -> Iterator[Store]:
    """Tables with nothing in them: in memory, embedded, or of an Azurite."""
    if kind == "memory":
        yield MemoryStore()
        return
    if kind == "embedded":
        yield connect_storage(f"file:{folder}").store
        return
    server = AzuriteServer.on_free_ports(
        folder=folder / "data", log=folder / "azurite.log", account=Account.new()
    )
    child = server.start()
    try:
        yield connect_storage(server.connection_string).store
    finally:
        child.stop()


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        ("memory", "memory"),
        ("embedded", "embedded"),
        pytest.param("azurite", "embedded", marks=pytest.mark.integration),
        pytest.param("embedded", "azurite", marks=pytest.mark.integration),
    ],
)
def test_a_request_goes_on_where_its_tables_are_restored(
    kind: str, to: str, tmp_path: Path
) -> None:
    file = tmp_path / "tables.gz"
    with empty_store(kind, tmp_path / "one") as one, empty_store(to, tmp_path / "two") as two:
        b = bench(one)
        request = in_the_middle(b)
        totals = drain(backup.export(b.runtime.store, b.runtime.blobs, b.runtime.clock, file))
        ends_well(restored(b, file, two), request)
    assert backup.check(file) == totals
    assert totals.blobs > 0
    assert file.stat().st_mode & 0o077 == 0


@contextmanager
def other_storage(kind: str, folder: Path) -> Iterator[str]:
    """Another storage, with nothing in it, as SWATHMILL_STORAGE names it."""
    if kind == "embedded":
        yield f"file:{folder / 'copy'}"
        return
    server = AzuriteServer.on_free_ports(
        folder=folder / "data", log=folder / "azurite.log", account=Account.new()
    )
    child = server.start()
    try:
        yield server.connection_string
    finally:
        child.stop()


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        ("embedded", "embedded"),
        pytest.param("azurite", "azurite", marks=pytest.mark.integration),
    ],
)
def test_a_region_is_lost_and_its_copy_goes_on(kind: str, to: str, tmp_path: Path) -> None:
    """The rehearsal: tables and blobs are copied, and the request ends in the other account."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with (
        other_storage(kind, tmp_path / "one") as lost,
        other_storage(to, tmp_path / "two") as kept,
    ):
        account = connect_storage(lost)
        b = bench(account.store)
        b.runtime = replace(b.runtime, blobs=account.blobs)
        b.restart(epoch=1)
        request = in_the_middle(b)
        file = tmp_path / "tables.gz"
        command.write(b.runtime, file)
        first = command.copy_to(b.runtime, file, kept)
        assert (first.copied, first.there, first.gone) == (4, 0, 0)
        b.runtime.clock.sleep(40.0)
        b.rounds(3, seconds=4.0)  # it goes on
        command.write(b.runtime, file)
        second = command.copy_to(b.runtime, file, kept)
        assert second.there == 4
        assert second.copied > 0
        target = connect_storage(kept)
        name = backup.newest_export(target.blobs)
        newest = command._copied(target, tmp_path)
        assert newest.name == Path(name).name
        runtime = replace(b.runtime, store=target.store, blobs=target.blobs)
        backup.restore(runtime.store, runtime.blobs, runtime.clock, newest)
        assert backup.absent_artifacts(runtime.store, runtime.blobs) == 0
        other = Bench(plans=b.plans, options=OPTIONS, runtime=runtime, decide=b.decide)
        other.restart(epoch=9)
        ends_well(other, request)


def test_what_goes_while_blobs_are_copied_is_counted(tmp_path: Path) -> None:
    source, target = memory_runtime().blobs, memory_runtime().blobs
    for number in range(3):
        source.put_bytes(ARTIFACTS, f"{number}", b"x")
    target.put_bytes(ARTIFACTS, "0", b"x")
    copying = backup.copy_blobs(source, target, tmp_path)
    next(copying)
    source.delete(ARTIFACTS, "2")
    *_, last = copying
    assert last == backup.Copies(copied=1, size=1, there=1, gone=1)
    assert not list(tmp_path.iterdir())


def test_a_storage_without_a_copy_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="holds no export"):
        command._copied(memory_runtime(), tmp_path)


def test_a_file_that_is_damaged_or_cut_off_is_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    b = bench()
    in_the_middle(b)
    file = tmp_path / "tables.gz"
    drain(backup.export(b.runtime.store, b.runtime.blobs, b.runtime.clock, file))
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    head = json.loads(lines[0])
    whole = file.read_bytes()
    broken = {
        "cut": whole[:-30],
        "a bit turned": whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
        "no deflate": gzip.compress(b"")[:10] + b"\xff" * 10,
        "no end": gzip.compress(b"".join(lines[:-1])),
        "a row less": gzip.compress(b"".join([*lines[:5], *lines[6:]])),
        "goes on": gzip.compress(b"".join([*lines, lines[5]])),
        "other": gzip.compress(b'{"a": 1}\n'),
        "empty": gzip.compress(b""),
        "text": b"no gzip at all",
        "no schema": gzip.compress(b'{"swathmill": 1}\n'),
        "a list": gzip.compress(b"".join([lines[0], b"[1]\n", *lines[1:]])),
        "strange": gzip.compress(b"".join([lines[0], b'{"x": 1}\n', *lines[1:]])),
        "newer": gzip.compress(
            b"".join([json.dumps({**head, "schema": SCHEMA + 1}).encode() + b"\n", *lines[1:]])
        ),
    }
    for name, content in broken.items():
        bad = tmp_path / name
        bad.write_bytes(content)
        store = MemoryStore()
        with pytest.raises(BackupError, match=str(bad)) as caught:
            backup.restore(store, b.runtime.blobs, b.runtime.clock, bad)
        assert "not an export of" not in str(caught.value) or name in ("other", "empty")
        assert not any(store.tables().values())


def test_only_empty_tables_take_a_file_and_a_broken_off_restore_goes_on(tmp_path: Path) -> None:
    b = bench()
    request = in_the_middle(b)
    file = tmp_path / "tables.gz"
    drain(backup.export(b.runtime.store, b.runtime.blobs, b.runtime.clock, file))
    with pytest.raises(BackupError, match="not empty"):
        backup.restore(b.runtime.store, b.runtime.blobs, b.runtime.clock, file)
    store = MemoryStore()
    mark = {"schema": SCHEMA, **vars(backup.check(file))}
    store.transact("requests", "requests", [Upsert(row=RESTORING, entity=mark)])
    store.transact("tasks", "0", [Upsert(row="a|half|000001", entity={"schema": SCHEMA})])
    ends_well(restored(b, file, store), request)
    assert store.get("requests", "requests", RESTORING) is None


def test_finished_tasks_without_their_files_are_counted() -> None:
    b = bench()
    in_the_middle(b)
    assert backup.absent_artifacts(b.runtime.store, b.runtime.blobs) == 0
    elsewhere = memory_runtime().blobs
    assert backup.absent_artifacts(b.runtime.store, elsewhere) == 4


def test_an_export_that_breaks_off_leaves_the_last_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench()
    in_the_middle(b)
    file = tmp_path / "tables.gz"
    file.write_bytes(b"the last good export")
    scan = MemoryStore.scan

    def gone(
        store: MemoryStore,
        table: str,
        partition: str,
        start: str,
        end: str,
        limit: int | None = None,
    ) -> Iterator[Row]:
        if table == history.TABLE:
            raise StoreError("no answer")
        return scan(store, table, partition, start, end, limit)

    monkeypatch.setattr(MemoryStore, "scan", gone)
    with pytest.raises(StoreError):
        command.write(b.runtime, file)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == b"the last good export"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(SCHEMA + 1, "install the newer version"), (1, "begin with an empty data folder")],
)
def test_rows_of_other_schemas_are_refused(number: int, remedy: str) -> None:
    b = bench()
    request = b.submit("p")
    row = {**request_table.REQUEST.dump(b.row(request)), "schema": number}
    b.runtime.store.transact("requests", "requests", [Upsert(row=request_row(request), entity=row)])
    with pytest.raises(OtherSchemaError, match=f"schema {number}.*{remedy}"):
        b.row(request)
