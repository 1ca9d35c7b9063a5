"""Several write to Azurite at once, it is killed in the midst of it, and that again and again."""

import json
import random
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError

from tests.swathmill.azurite_place import Place, Storage, row

pytestmark = pytest.mark.integration

ROUNDS = 6
LIMIT = 60.0  # seconds for what takes one
SINGLE = "PartitionKey eq 'single'"


@dataclass(kw_only=True)
class Writer:
    """Writes one number after another until the server is killed."""

    write: Callable[[Storage, int], object]
    read: Callable[[Storage], int]
    tried: int = 0
    done: set[int] = field(default_factory=set)

    def run(self, storage: Storage, ends: threading.Event, told: threading.Semaphore) -> None:
        while True:
            self.tried += 1
            try:
                self.write(storage, self.tried)
            except AzureError:
                assert ends.wait(LIMIT), "it failed before it was killed"
                return
            self.done.add(self.tried)
            told.release()

    def check(self, storage: Storage) -> None:
        """All that was acknowledged is there; what was tried last may be. Go on from there."""
        number = self.read(storage)
        assert max(self.done, default=0) <= number <= self.tried
        self.tried = number


def write_transaction(partition: str) -> Callable[[Storage, int], object]:
    """Four rows that are there already, and a new one."""

    def write(storage: Storage, n: int) -> object:
        kept = [row(f"kept {key}", n, partition) for key in range(4)]
        changes = [*(("upsert", one) for one in kept), ("create", row(f"new {n:06}", n, partition))]
        return storage.table.submit_transaction(changes)

    return write


def write_row(storage: Storage, n: int) -> object:
    return storage.table.upsert_entity(row("row", n, "single"))


def write_blob(storage: Storage, n: int) -> object:
    return storage.container.upload_blob("blob", f"{n:06}" * 2000, overwrite=True)


def write_message(storage: Storage, n: int) -> object:
    return storage.queue.send_message(str(n))


def read_transactions(partition: str) -> Callable[[Storage], int]:
    def read(storage: Storage) -> int:
        rows = list(storage.table.query_entities(f"PartitionKey eq '{partition}'"))
        kept = [one["n"] for one in rows if one["RowKey"].startswith("kept")]
        new = [one["n"] for one in rows if one["RowKey"].startswith("new")]
        assert kept == [len(new)] * (4 if new else 0), "a transaction is half there"
        assert new == list(range(1, len(new) + 1))
        return len(new)

    return read


def read_row(storage: Storage) -> int:
    return max((one["n"] for one in storage.table.query_entities(SINGLE)), default=0)


def read_blob(storage: Storage) -> int:
    (number,) = set(textwrap.wrap(storage.blobs().get("blob", b"0").decode(), 6))
    return int(number)


def test_what_was_acknowledged_is_there_and_no_transaction_is_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURITE_JOURNAL_BYTES", "20000")
    choose = random.Random(5)
    place = Place(folder=tmp_path)
    sender = Writer(write=write_message, read=lambda _: sender.tried)
    crew = [
        Writer(write=write_transaction("a"), read=read_transactions("a")),
        Writer(write=write_transaction("b"), read=read_transactions("b")),
        Writer(write=write_row, read=read_row),
        Writer(write=write_blob, read=read_blob),
        sender,
    ]
    for _ in range(ROUNDS):
        ends, told = threading.Event(), threading.Semaphore(0)
        with ThreadPoolExecutor(len(crew)) as threads, place.killed() as storage:
            for writer in crew:
                writer.check(storage)
            at_work = [threads.submit(writer.run, storage, ends, told) for writer in crew]
            for _ in range(choose.randrange(60, 160)):
                assert told.acquire(timeout=LIMIT)
            ends.set()
            storage.child.kill()
            for work in at_work:
                work.result(LIMIT)
    with place.killed() as storage:
        for writer in crew:
            writer.check(storage)
        messages = {int(text) for text in storage.messages()}
    assert sender.done <= messages <= set(range(sender.tried + 1))
    assert all(len(writer.done) >= ROUNDS for writer in crew), "each had its share"
    assert json.loads(place.tables.read_text().splitlines()[0])["generation"] >= ROUNDS
