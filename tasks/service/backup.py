"""All tables in one file, and back: JSON lines, compressed, whole or refused.

| line | is |
|---|---|
| `{"swathmill": 1, "schema": n, "written": time}` | the first |
| `{"t": table, "p": partition, "r": row, "e": properties}` | a row; bytes are `{"b64": text}` |
| `{"c": container, "n": name, "b64": content}` | a blob of plans, documents, packages, gap lists |
| `{"rows": n, "blobs": m}` | the last |

Everybody goes on while the file is written. What had not ended when requests were read, first of
all, is in it as if it had been withdrawn: such a request is to write its plan again, its tasks are
CANCELLED, and nothing waits for another. What had ended is as it was read later, for it changes no
more. So a row need not fit another that was read at another moment: a plan that is written again
fits the tasks that there are, takes what is DONE, and revives the rest.

Artifacts, granules and users' rasters are not in the file: `copy_blobs` takes them to another
storage, afterwards, so that it has whatever a row of the file names; blobs are never overwritten. A
restored table finds them in storage or, where an input's blobs are not there, has it made again.
"""

import base64
import gzip
import json
import time
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from tasks.accounts import token_table
from tasks.bag import history, task_table, transitions, workers
from tasks.bag.model import RequestState, State
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_table import RowKind, TaskTable
from tasks.errors import BlobExistsError, BlobMissingError, SwathmillError
from tasks.operators import audit, overhead, prices, restrictions
from tasks.requests import outbox, request_table
from tasks.requests.request_table import (
    RESTORING,
    Preparation,
    Rehearsal,
    RequestRow,
    RequestTable,
)
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
    restrictions.TABLE: (
        *(restrictions.PARTITION, audit.PARTITION, prices.PARTITION, overhead.PARTITION),
    ),
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


def export(store: Store, content: Blobs, clock: Clock, file: Path) -> Iterator[Totals]:
    """Write everything; the file appears when it is whole. Yields how far it is, often.

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
            for table, row in _rows(store):
                _write(out, _line(table, row))
                count = Totals(rows=count.rows + 1)
                yield count
            for container in CONTAINERS:
                for name in content.names(container):
                    if name.startswith(EXPORTS):
                        continue  # of this storage, from which it was restored
                    try:
                        data = content.get_bytes(container, name)
                    except BlobMissingError:
                        continue  # deleted meanwhile
                    text = base64.b64encode(data).decode()
                    _write(out, {"c": container, "n": name, "b64": text})
                    count = Totals(rows=count.rows, blobs=count.blobs + 1)
                    yield count
            _write(out, {"rows": count.rows, "blobs": count.blobs})
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


def _rows(store: Store) -> Iterator[tuple[str, Row]]:
    """Yield all rows with their tables: requests first, for what they need is there longer."""
    requests = _Requests(store)
    for row in requests.rows():
        yield request_table.TABLE, row
    for table, partitions in PARTITIONS.items():
        for partition in partitions:
            if table == task_table.TABLE:
                found = _shard(store, partition, requests.settled)
            elif table != request_table.TABLE:
                found = store.scan(table, partition, _FIRST, _LAST)
            else:
                continue
            for row in found:
                yield table, row


class _Requests:
    """The requests as the file has them, and which of them change no more."""

    def __init__(self, store: Store) -> None:
        self._table = RequestTable(store)
        self._there: set[str] = set()
        self._followers: set[str] = set()
        self.settled: set[str] = set()
        """Those that had ended or were being withdrawn: their interests are in the file."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the table."""
        for found in chain(self._table.request_rows(), self._later()):
            row = request_table.REQUEST.load(found)
            self._there.add(row.id)
            if row.continued_as:
                self._followers.add(row.continued_as)
            if row.state.ended or row.state is RequestState.CANCELLING:
                self.settled.add(row.id)
            again = _written_again(row)
            entity = found.entity if again == row else request_table.REQUEST.dump(again)
            yield replace(found, entity=entity)
            for name, implied in request_table.implied_rows(again).items():
                yield replace(found, row=name, entity=implied)
        yield from self._table.rows_beside(self.settled)

    def _later(self) -> Iterator[Row]:
        """Yield the requests that came while others were read which name them by now."""
        while left := self._followers - self._there:
            name = min(left)
            self._there.add(name)
            found = self._table.get(request_table.request_row(name))
            if found is not None:
                yield found


def _written_again(row: RequestRow) -> RequestRow:
    """Return a request as the file has it: one whose tasks are under way writes its plan again."""
    if row.state not in (RequestState.WRITING, RequestState.RUNNING):
        return row
    rehearses = row.rehearsal is Rehearsal.RUNS
    return replace(
        row,
        state=RequestState.WRITING,
        rehearsal=Rehearsal.DUE if rehearses else row.rehearsal,
        preparation=Preparation(total=row.preview.tasks, unit="tasks"),
    )


def _shard(store: Store, number: str, settled: Container[str]) -> Iterator[Row]:
    """Yield a shard's rows: interests before their tasks, and then what tasks alone have."""
    tasks = TaskTable(store)
    for kind in (RowKind.INTEREST, RowKind.WRITE_FENCE):
        for row in tasks.rows(number, kind):
            if task_table.first_in(row) in settled:
                yield row
    attempts: dict[str, int] = {}
    for row in tasks.rows(number, RowKind.TASK):
        task = task_table.TASK.load(row)
        left = transitions.leave(task, settled)
        attempts[task.key] = task.attempt
        yield row if left == task else replace(row, entity=task_table.TASK.dump(left))
    for row in tasks.rows(number, RowKind.ATTEMPT):  # a later one would have a number twice
        if task_table.attempt_number(row) <= attempts.get(task_table.first_in(row), 0):
            yield row
    for row in tasks.rows(number, RowKind.SPEC):
        if task_table.first_in(row) in attempts:
            yield row


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
