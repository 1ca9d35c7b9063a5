"""All tables in one file, and back: JSON lines, compressed, whole or refused.

| line | is |
|---|---|
| `{"swathmill": 1, "schema": n, "written": time}` | the first |
| `{"t": table, "p": partition, "r": row, "e": properties}` | a row; bytes are `{"b64": text}` |
| `{"c": container, "n": name, "b64": content}` | a blob of plans, documents, packages, gap lists |
| `{"rows": n, "blobs": m}` | the last |

The tables of one machine are read as they are at one moment (`SqliteStore.snapshot`), whatever is
written meanwhile. An account has no such moment: workers may go on, the manager may not. Task rows
are read before all else of their shard, and what attempts wrote later is left out; markers are made
from the task rows. So each task is as it was at one moment, and only the manager changes more than
one.

Artifacts, granules and users' rasters are not in the file: `copy_blobs` takes them to another
storage, afterwards, so that it has whatever a row of the file names; blobs are never overwritten. A
restored table finds them in storage or, where an input's blobs are not there, has it made again.
"""

import base64
import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from tasks.accounts import token_table
from tasks.bag import history, task_table, workers
from tasks.bag.model import State, Task
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_table import TaskTable
from tasks.errors import BlobExistsError, BlobMissingError, SwathmillError
from tasks.operators import audit, prices, restrictions
from tasks.requests import outbox, request_table
from tasks.requests.request_table import RESTORING, RequestTable
from tasks.storage import blobs
from tasks.storage.blobs import Blobs
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec
from tasks.storage.limits import grouped
from tasks.storage.schema import SCHEMA, written
from tasks.storage.store import (
    Delete,
    Entity,
    Operation,
    Row,
    Store,
    Upsert,
)
from tasks.uploads.kinds import KINDS

FORMAT = 1
PARTITIONS: Mapping[str, Sequence[str]] = {
    task_table.TABLE: SHARDS,
    request_table.TABLE: (request_table.PARTITION,),
    workers.TABLE: workers.PARTITIONS,
    outbox.TABLE: (outbox.PARTITION,),
    history.TABLE: (history.PARTITION, history.FAILURES),
    **{kind.name: (kind.name,) for kind in KINDS},
    token_table.TABLE: (token_table.PARTITION,),
    restrictions.TABLE: (restrictions.PARTITION, audit.PARTITION, prices.PARTITION),
}
CONTAINERS = (blobs.PLANS, blobs.PACKAGES, blobs.RESULTS)
COPIED = tuple(one for one in blobs.CONTAINERS if one not in CONTAINERS)
EXPORTS = "exports/"
"""How the names of files begin that lie beside copied blobs, in the container `plans`."""
_KEYS = ({"t", "p", "r", "e"}, {"c", "n", "b64"}, {"rows", "blobs"})  # of each line but the first
_FIRST, _LAST = "", "\uffff"


class BackupError(SwathmillError):
    """A file cannot be restored, or not here."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a file holds."""

    rows: int = 0
    blobs: int = 0


_MARK = Codec(Totals, "restoring")  # of the tables, while a restore is under way


def export(
    store: Store, content: Blobs, clock: Clock, file: Path, confirm: Callable[[], None]
) -> Iterator[Totals]:
    """Write everything; the file appears when it is whole. Yields how far it is, often.

    `confirm` is called before the file appears; the file stays as it was when this raises.

    Raises:
        StoreError: storage does not answer; the file stays as it was.
    """
    draft = file.with_name(f".{file.name}.part")
    count = Totals()
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    try:
        with gzip.open(draft, "wt", encoding="utf-8", newline="\n") as out:
            _write(out, {"swathmill": FORMAT, "schema": written(), "written": clock.now()})
            for table, partitions in PARTITIONS.items():
                for partition in partitions:
                    for row in _rows(store, table, partition):
                        _write(out, _line(table, row))
                        count = Totals(rows=count.rows + 1)
                        yield count
            for container in CONTAINERS:
                for name in content.names(container):
                    if name.startswith(EXPORTS):
                        continue  # of this storage, from which it was restored
                    data = content.get_bytes(container, name)
                    text = base64.b64encode(data).decode()
                    _write(out, {"c": container, "n": name, "b64": text})
                    count = Totals(rows=count.rows, blobs=count.blobs + 1)
                    yield count
            _write(out, {"rows": count.rows, "blobs": count.blobs})
        confirm()
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Blobs that were copied and their bytes, that were there already, and that went meanwhile."""

    copied: int = 0
    size: int = 0
    there: int = 0
    gone: int = 0


def copy_blobs(source: Blobs, target: Blobs, folder: Path) -> Iterator[Copies]:
    """Copy all blobs that are not in the file and not in the target; yield how far it is.

    Each goes through a file in `folder`. What was copied stays when it is broken off, and the next
    copy goes on from there. Nothing is deleted in the target. Raises StoreError.
    """
    done = Copies()
    for container in COPIED:
        there = frozenset(target.names(container))
        for name in source.names(container):
            if name in there:
                done = replace(done, there=done.there + 1)
                continue
            part = folder / "blob"
            try:
                source.get_file(container, name, part)
                target.put_file(container, name, part)
                done = replace(done, copied=done.copied + 1, size=done.size + part.stat().st_size)
            except BlobMissingError:
                done = replace(done, gone=done.gone + 1)
            except BlobExistsError:  # another copy was first
                done = replace(done, there=done.there + 1)
            finally:
                part.unlink(missing_ok=True)
            yield done
    yield done


def put_export(target: Blobs, file: Path, now: float) -> str:
    """Put an exported file beside copied blobs; return its name. Raises StoreError."""
    name = f"{EXPORTS}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}.jsonl.gz"
    target.put_file(blobs.PLANS, name, file)
    return name


def newest_export(content: Blobs) -> str:
    """Return the name of the newest exported file in a storage; "" if it has none. StoreError."""
    return max(content.names(blobs.PLANS, EXPORTS), default="")


def check(file: Path) -> Totals:
    """Read a file to its end and return what it holds.

    Raises:
        BackupError: it is damaged, cut off, or no backup; or a newer Swathmill wrote it.
    """
    found = end = Totals()
    closed = False
    for line in _lines(file):
        if closed:
            raise BackupError(f"{file} continues after its end; export again")
        if "t" in line:
            found = Totals(rows=found.rows + 1, blobs=found.blobs)
        elif "c" in line:
            found = Totals(rows=found.rows, blobs=found.blobs + 1)
        else:
            end, closed = Totals(rows=line["rows"], blobs=line["blobs"]), True
    if not closed or end != found:
        raise BackupError(
            f"{file} is cut off: it has {found.rows} rows and {found.blobs} blobs"
            + (f" of {end.rows} and {end.blobs}" if closed else " and no end")
            + "; use another copy"
        )
    return found


def restore(store: Store, content: Blobs, clock: Clock, file: Path) -> Totals:
    """Write everything into empty tables. Broken off, it is repeated with the same file.

    No other process may use the tables meanwhile.

    Raises:
        BackupError: the file cannot be restored, or there are rows already; nothing was changed.
        StoreError: storage does not answer; call again.
    """
    totals = check(file)
    _begin(store, clock, file, totals)

    def rows() -> Iterator[dict[str, Any]]:
        for line in _lines(file):
            if "c" in line:
                content.put_bytes(line["c"], line["n"], base64.b64decode(line["b64"]))
            elif "t" in line:
                yield line

    for (table, partition), some in groupby(rows(), key=itemgetter("t", "p")):
        operations = (Upsert(row=line["r"], entity=_entity(line["e"])) for line in some)
        for batch in grouped(partition, operations, lambda operation: (operation,)):
            store.transact(table, partition, batch)
    RequestTable(store).update(clock, RESTORING, _remove)
    return totals


def absent_artifacts(store: Store, content: Blobs) -> int:
    """Return how many tasks are DONE whose blobs are not all in storage."""
    absent = 0
    for number in SHARDS:
        there = {
            f"{container}/{name}"
            for container in (blobs.ARTIFACTS, blobs.GRANULES)
            for name in content.names(container, number)
        }
        for task in TaskTable(store).all_tasks(number):
            if task.state is State.DONE:
                absent += any(file.blob not in there for file in task.files)
    return absent


def _rows(store: Store, table: str, partition: str) -> Iterator[Row]:
    if table == task_table.TABLE:
        yield from _shard(store, partition)
        return
    if table != request_table.TABLE:
        yield from store.scan(table, partition, _FIRST, _LAST)
        return
    # A request comes before its markers: one submitted meanwhile has them, or is not there yet.
    requests = RequestTable(store)
    for row in requests.request_rows():
        yield row
        for name, entity in request_table.list_rows(request_table.REQUEST.load(row)).items():
            yield Row(partition=partition, row=name, entity=entity, etag="")
    yield from requests.other_rows()


def _shard(store: Store, number: str) -> Iterator[Row]:
    seen: dict[str, tuple[int, bool]] = {}
    tasks = TaskTable(store)
    for row in tasks.task_rows(number):
        task = task_table.TASK.load(row)
        seen[task.key] = task.attempt, task.state is State.RUNNING
        yield row
        yield from _markers(number, task)
    for row in tasks.other_rows(number):
        if not _is_later(row, seen):
            yield row


def _markers(number: str, task: Task) -> Iterator[Row]:
    for name, entity in task_table.markers(task).items():
        yield Row(partition=number, row=name, entity=entity, etag="")


def _is_later(row: Row, seen: Mapping[str, tuple[int, bool]]) -> bool:
    """Tell whether an attempt ended after its task was read."""
    ended = task_table.ended_attempt(row)
    if ended is None:
        return False
    key, number = ended
    attempt, runs = seen.get(key, (0, False))
    return number > attempt - runs


def _line(table: str, row: Row) -> dict[str, object]:
    entity = {
        name: {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in row.entity.items()
    }
    return {"t": table, "p": row.partition, "r": row.row, "e": entity}


def _entity(stored: Mapping[str, Any]) -> Entity:
    return {
        name: base64.b64decode(value["b64"]) if isinstance(value, dict) else value
        for name, value in stored.items()
    }


def _write(out: IO[str], line: Mapping[str, object]) -> None:
    out.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """All lines but the first, which is checked."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as source:
            head = json.loads(source.readline() or "{}")
            if not isinstance(head, dict) or head.get("swathmill") != FORMAT:
                raise BackupError(f"{file} is not an export of Swathmill that this version reads")
            if not isinstance(head.get("schema"), int):
                raise BackupError(f"{file} is damaged: its first line has no schema")
            if head["schema"] > SCHEMA:
                raise BackupError(
                    f"{file} has schema {head['schema']}, and this Swathmill reads schemas up to "
                    f"{SCHEMA}: restore it with the version that wrote it, or a newer one"
                )
            for number, text in enumerate(source, 2):
                line = json.loads(text)
                if not isinstance(line, dict) or line.keys() not in _KEYS:
                    raise BackupError(f"{file} is damaged in line {number}; use another copy")
                yield line
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BackupError(
            f"{file} cannot be read: {error}; name a whole file that `swathmill export` wrote"
        ) from error


def _begin(store: Store, clock: Clock, file: Path, totals: Totals) -> None:
    """Mark the tables as being restored; refuse those that hold anything else."""
    requests = RequestTable(store)
    found = requests.get(RESTORING)
    if found is not None:
        if _MARK.load(found) != totals:
            raise BackupError(
                f"another file than {file} was being restored here; begin with empty storage"
            )
        return
    for table, partitions in PARTITIONS.items():
        for partition in partitions:
            if any(store.scan(table, partition, _FIRST, _LAST, limit=1)):
                raise BackupError(
                    f"the table {table} is not empty; restore into a new data folder or account"
                )
    mark = Upsert(row=RESTORING, entity=_MARK.dump(totals))
    requests.update(clock, RESTORING, lambda _row: (mark,))


def _remove(row: Row | None) -> tuple[Operation, ...]:
    return () if row is None else (Delete(row=row.row, etag=row.etag),)
