"""The SQLite file under kills, power cuts, full disks, damage, forks and many writers at once."""

import fcntl
import os
import random
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.errors import StorageFullError, StoreError
from tasks.service.connect import connect_storage
from tasks.storage import sqlite_file, updates
from tasks.storage.clock import SystemClock
from tasks.storage.sqlite_file import SqliteFile
from tasks.storage.sqlite_store import SqliteStore
from tasks.storage.store import Insert, Operation, Row, Upsert
from tests.worker.disks import disk_of

TABLE = "tasks"
FRAME = 4096 + 24
PARTITIONS = ("a", "b")
WRITER = """
import sys
from pathlib import Path
from tasks.storage import sqlite_file
from tests.tasks.storage.test_sqlite_file import opened, last, write

sqlite_file._WAL_PAGES = 30
store = opened(Path(sys.argv[1]))
n = last(store, sys.argv[2])
while True:
    n += 1
    write(store, sys.argv[2], n)
    print(n, flush=True)
"""


def opened(path: Path) -> SqliteStore:
    file = SqliteFile(path)
    file.create()
    return SqliteStore(file)


def write(store: SqliteStore, partition: str, n: int) -> None:
    """Four rows that are there already, and a new one."""
    text = f"{n:06}" * 100
    kept = [Upsert(row=f"kept {key}", entity={"n": n, "text": text}) for key in range(4)]
    new: Operation = Insert(row=f"new {n:06}", entity={"n": n, "text": text})
    store.transact(TABLE, partition, [*kept, new])


def last(store: SqliteStore, partition: str) -> int:
    """The number of the last transaction; all before are there, and each is whole."""
    rows = list(store.scan(TABLE, partition, "", "~"))
    assert all(row.entity["text"] == f"{int(row.entity['n']):06}" * 100 for row in rows)
    kept = [row.entity["n"] for row in rows if row.row.startswith("kept")]
    new = [row.entity["n"] for row in rows if row.row.startswith("new")]
    assert new == list(range(1, len(new) + 1))
    assert kept == [len(new)] * (4 if new else 0), "a transaction is half there"
    return len(new)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tables.sqlite"


@pytest.mark.slow
@pytest.mark.proof
def test_kills_lose_nothing_acknowledged_and_leave_no_half(path: Path) -> None:
    choose = random.Random(7)
    acknowledged = dict.fromkeys(PARTITIONS, 0)
    for _ in range(4):
        writers = {
            name: subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, bufsize=0
            )
            for name in PARTITIONS
        }
        outputs = {name: bytearray() for name in PARTITIONS}
        least = choose.randrange(1, 60)
        while any(text.count(b"\n") < least for text in outputs.values()):
            for name, writer in writers.items():
                assert writer.stdout is not None
                if select.select([writer.stdout], [], [], 30 if not outputs[name] else 0)[0]:
                    outputs[name] += os.read(writer.stdout.fileno(), 4096)
        for writer in writers.values():
            writer.kill()
        for name, writer in writers.items():
            outputs[name] += writer.communicate()[0]
            lines = bytes(outputs[name]).rpartition(b"\n")[0].split()
            acknowledged[name] = int(lines[-1])
        store = opened(path)
        for name, number in acknowledged.items():
            assert number <= last(store, name) <= number + 1


def test_a_power_cut_anywhere_keeps_what_was_on_the_disk(path: Path, tmp_path: Path) -> None:
    """What lies behind the last flush of the WAL may be missing or rubbish."""
    choose = random.Random(8)
    store, wal = opened(path), path.with_name("tables.sqlite-wal")
    flushed = [0]  # bytes of the WAL when a transaction was acknowledged
    for n in range(1, 41):
        write(store, "a", n)
        flushed.append(wal.stat().st_size)
    whole = wal.read_bytes()
    for number in range(80):
        cut = choose.randrange(len(whole))
        after = tmp_path / f"cut{number}" / "tables.sqlite"
        after.parent.mkdir()
        shutil.copy(path, after)
        rubbish = choose.randbytes(choose.choice([0, 10, 5000]))
        after.with_name(wal.name).write_bytes(whole[:cut] + rubbish)
        acknowledged = max(n for n, size in enumerate(flushed) if size <= cut)
        found = opened(after)
        assert last(found, "a") == acknowledged
        write(found, "a", acknowledged + 1)
        assert last(found, "a") == acknowledged + 1


def test_a_power_cut_while_the_wal_is_copied_into_the_file_loses_nothing(
    path: Path, tmp_path: Path
) -> None:
    """Some pages of the file are new and some are old; the WAL is whole until all are there."""
    choose = random.Random(9)
    store, wal = opened(path), path.with_name("tables.sqlite-wal")
    for n in range(1, 41):
        write(store, "a", n)
    log = wal.read_bytes()
    old = path.read_bytes()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    new = path.read_bytes()
    assert old != new
    old = old.ljust(len(new), b"\0")
    for number in range(20):
        pages = [choose.choice([old, new])[at : at + 4096] for at in range(0, len(new), 4096)]
        after = tmp_path / f"cut{number}" / "tables.sqlite"
        after.parent.mkdir()
        after.write_bytes(b"".join(pages))
        after.with_name(wal.name).write_bytes(log)
        assert last(opened(after), "a") == 40


def test_commits_wait_for_the_disk(path: Path) -> None:
    file = SqliteFile(path)
    file.create()
    with file.read("looking") as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def until_refused(store: SqliteStore, n: int) -> tuple[int, StoreError]:
    """Write transactions after the n-th; return the number of the last one, and the error."""
    while True:
        try:
            write(store, "a", n + 1)
        except StoreError as error:
            return n, error
        n += 1


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    with disk_of(tmp_path / "disk", "3m") as disk:
        filler = disk / "filler"
        filler.write_bytes(b"x" * 2**20)
        store = opened(disk / "tables.sqlite")
        n, refused = until_refused(store, 0)
        assert re.search(r"disk of .*tables\.sqlite is full", str(refused))
        assert isinstance(refused, StorageFullError)
        assert n > 10
        assert last(store, "a") == n
        n, refused = until_refused(store, n)
        assert "full" in str(refused)
        assert last(opened(disk / "tables.sqlite"), "a") == n
        filler.unlink()
        write(store, "a", n + 1)
        assert last(store, "a") == n + 1


def _of_something_else(path: Path) -> None:
    path.write_bytes(b"HDF" * 5000)


def _another_database(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rows (x)")
    connection.close()


def _truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _a_page_overwritten(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(4096 * 3, len(content), 4096):
        content[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(content)


def _a_row_overwritten(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"000200000200")
    path.write_bytes(content[:at] + b'"' + content[at + 1 :])


@pytest.mark.parametrize(
    "damage",
    [_of_something_else, _another_database, _truncated, _a_page_overwritten, _a_row_overwritten],
)
def test_a_damaged_file_is_refused_and_says_what_to_do(
    path: Path, damage: Callable[[Path], None]
) -> None:
    file = SqliteFile(path)
    file.create()
    for n in range(1, 401):
        write(SqliteStore(file), "a", n)
    file.close()
    assert not path.with_name("tables.sqlite-wal").exists()
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"is damaged .* restore the last export"):
        last(opened(path), "a")
    if damage in (_of_something_else, _another_database, _truncated):
        with pytest.raises(StoreError, match="is damaged"):  # no process starts on it
            connect_storage(f"file:{path.parent}")
    assert path.read_bytes() == before


def test_a_wal_without_its_file_is_not_taken_for_a_new_files(path: Path) -> None:
    store = opened(path)
    write(store, "a", 1)
    path.unlink()
    with pytest.raises(StoreError, match="put the file back"):
        opened(path)
    assert not path.exists()


def test_a_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be created"):
        SqliteFile(tmp_path / "file" / "tables.sqlite").create()


def test_an_absent_file_is_not_made_by_a_reader(path: Path) -> None:
    with pytest.raises(StoreError, match=r"tables\.sqlite"):
        SqliteStore(SqliteFile(path)).get(TABLE, "a", "x")
    assert not path.exists()


def test_a_process_that_was_forked_is_refused(path: Path) -> None:
    store = opened(path)
    write(store, "a", 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            opened(path).get(TABLE, "a", "kept 0")
        except StoreError as error:
            code = 0 if "forkserver" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    write(store, "a", 2)
    assert last(store, "a") == 2


def test_many_at_once_create_one_file(path: Path) -> None:
    stores: list[SqliteStore] = []
    threads = [threading.Thread(target=lambda: stores.append(opened(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    write(stores[0], "a", 1)
    assert [last(store, "a") for store in stores] == [1] * 8
    assert sorted(each.name for each in path.parent.iterdir())[0] == path.name


def test_changes_of_many_threads_are_each_made_once(path: Path) -> None:
    store = opened(path)
    store.transact(TABLE, "a", [Insert(row="n", entity={"n": 0})])

    def raised(row: Row | None) -> tuple[Operation, ...]:
        assert row is not None
        return (updates.write(row, "n", {"n": int(row.entity["n"]) + 1}),)

    def work() -> None:
        for _ in range(20):
            while True:
                try:
                    updates.update(store, SystemClock(), TABLE, "a", "n", raised)
                except StoreError:
                    continue  # others were first, eight times
                break

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row = store.get(TABLE, "a", "n")
    assert row is not None
    assert row.entity == {"n": 80}


def test_a_reader_that_stops_halfway_does_not_let_the_wal_grow(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_WAL_PAGES", 50)
    monkeypatch.setattr(sqlite_file, "_WAL_BYTES", 0)
    store = opened(path)
    write(store, "a", 1)
    halfway = store.scan(TABLE, "a", "", "~")
    next(halfway)
    for n in range(2, 202):
        write(store, "a", n)
    assert path.with_name("tables.sqlite-wal").stat().st_size < 100 * FRAME


def test_writers_take_turns_and_readers_do_not_wait(path: Path) -> None:
    store = opened(path)
    write(store, "a", 1)
    with path.with_name("tables.sqlite-lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writer = threading.Thread(target=write, args=(store, "a", 2))
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
        assert last(store, "a") == 1
    writer.join(30)
    assert last(store, "a") == 2
