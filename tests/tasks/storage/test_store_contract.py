"""One contract for every store: in memory, in an SQLite file, and Azure Tables (Azurite)."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from azure.data.tables import TableServiceClient

from tasks.errors import ConflictError, StoreError
from tasks.storage import updates
from tasks.storage.azure.tables import AzureTables
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.sqlite_file import SqliteFile
from tasks.storage.sqlite_store import MOST_OPERATIONS, SqliteStore
from tasks.storage.store import (
    BATCH_OPERATIONS,
    Delete,
    Entity,
    Insert,
    LocalStore,
    MergeEntity,
    Operation,
    Replace,
    Row,
    Store,
    Upsert,
)

Make = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite", pytest.param("azurite", marks=pytest.mark.integration)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each store in turn."""
    if request.param == "memory":
        yield MemoryStore()
        return
    if request.param == "sqlite":
        file = SqliteFile(tmp_path / "tables.sqlite")
        file.create()
        yield SqliteStore(file)
        file.close()
        return
    connection = request.getfixturevalue("azurite")
    with (
        TableServiceClient.from_connection_string(connection) as reader,
        TableServiceClient.from_connection_string(connection, retry_total=0) as writer,
    ):
        tables = AzureTables(reader, writer)
        tables.create([TABLE])
        yield tables


TABLE = "contract"


@pytest.fixture
def part() -> str:
    """A partition of the test's own."""
    return uuid.uuid4().hex


def names(
    store: Store, part: str, start: str = "", end: str = "~", limit: int | None = None
) -> list[str]:
    return [row.row for row in store.scan(TABLE, part, start, end, limit)]


def read(store: Store, part: str, name: str) -> Row:
    row = store.get(TABLE, part, name)
    assert row is not None
    return row


def test_etags_of_rows_are_read_where_that_is_quick(store: Store, part: str) -> None:
    if not isinstance(store, LocalStore):
        assert isinstance(store, AzureTables)
        return
    for name in ("t|c", "t|a", "t|b", "u|a"):
        store.transact(TABLE, part, [Insert(row=name, entity={"x": 1})])
    wanted = tuple(row.etag for row in store.scan(TABLE, part, "t|", "u|"))
    assert store.etags(TABLE, part, "t|", "u|", 10) == wanted
    assert store.etags(TABLE, part, "t|", "u|", 2) == wanted[:2]
    assert store.etags(TABLE, part, "t|b", "t|b\0", 1) == (read(store, part, "t|b").etag,)
    store.transact(TABLE, part, [Upsert(row="t|b", entity={"x": 1})])
    changed = store.etags(TABLE, part, "t|", "u|", 10)
    assert [old == new for old, new in zip(wanted, changed, strict=True)] == [True, False, True]


def test_values_come_back_as_they_were(store: Store, part: str) -> None:
    entity: Entity = {
        "text": "Überflug 🛰",
        "empty": "",
        "whole": 2**62,
        "small": -1,
        "part": 0.1,
        "round": 3.0,
        "yes": True,
        "bytes": b"\x00\xff",
        "none": b"",
    }
    store.transact(TABLE, part, [Insert(row="t|a", entity=entity)])
    found = read(store, part, "t|a").entity
    assert found == entity
    assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in entity.items()}


def test_a_transaction_tells_the_etags_it_made(store: Store, part: str) -> None:
    made = store.transact(TABLE, part, [Insert(row=row, entity={"n": 1}) for row in "abc"])
    assert made == tuple(read(store, part, row).etag for row in "abc")
    more: list[Operation] = [
        Replace(row="a", entity={"n": 2}, etag=made[0]),
        Delete(row="b", etag=made[1]),
        MergeEntity(row="c", entity={"n": 3}),
    ]
    told = store.transact(TABLE, part, more)
    assert told == (read(store, part, "a").etag, "", read(store, part, "c").etag)
    assert told[0] != made[0]


def test_an_absent_row_is_none(store: Store, part: str) -> None:
    assert store.get(TABLE, part, "t|nothing") is None


def test_an_insert_of_an_existing_row_is_refused(store: Store, part: str) -> None:
    store.transact(TABLE, part, [Insert(row="a", entity={"n": 1})])
    with pytest.raises(ConflictError):
        store.transact(TABLE, part, [Insert(row="a", entity={"n": 2})])
    assert read(store, part, "a").entity["n"] == 1


def test_a_stale_etag_is_refused_and_a_fresh_one_replaces_whole(store: Store, part: str) -> None:
    store.transact(TABLE, part, [Insert(row="a", entity={"n": 1, "old": True})])
    first = read(store, part, "a")
    store.transact(TABLE, part, [Replace(row="a", entity={"n": 2}, etag=first.etag)])
    second = read(store, part, "a")
    assert second.entity == {"n": 2}
    assert second.etag != first.etag
    with pytest.raises(ConflictError):
        store.transact(TABLE, part, [Replace(row="a", entity={"n": 3}, etag=first.etag)])
    with pytest.raises(ConflictError):
        store.transact(TABLE, part, [Delete(row="a", etag=first.etag)])
    assert read(store, part, "a").entity == {"n": 2}


def test_an_equal_write_changes_the_etag(store: Store, part: str) -> None:
    store.transact(TABLE, part, [Insert(row="a", entity={"n": 1})])
    first = read(store, part, "a").etag
    store.transact(TABLE, part, [Replace(row="a", entity={"n": 1}, etag=first)])
    assert read(store, part, "a").etag != first


def test_a_merge_changes_what_it_names_and_nothing_else(store: Store, part: str) -> None:
    store.transact(TABLE, part, [Insert(row="a", entity={"n": 1, "m": 1})])
    store.transact(TABLE, part, [MergeEntity(row="a", entity={"n": 2})])
    assert read(store, part, "a").entity == {"n": 2, "m": 1}


@pytest.mark.parametrize(
    "refused",
    [
        Insert(row="there", entity={}),
        Replace(row="absent", entity={}, etag="W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\""),
        MergeEntity(row="absent", entity={}),
        Delete(row="absent"),
    ],
    ids=["insert", "replace", "merge", "delete"],
)
def test_one_refused_operation_refuses_the_whole_transaction(
    store: Store, part: str, refused: Operation
) -> None:
    store.transact(TABLE, part, [Insert(row="there", entity={"n": 1})])
    with pytest.raises(ConflictError):
        store.transact(
            TABLE,
            part,
            [
                Insert(row="new", entity={"n": 1}),
                refused,
                Upsert(row="newer", entity={"n": 1}),
            ],
        )
    assert names(store, part) == ["there"]


def test_operations_of_all_kinds_apply_together(store: Store, part: str) -> None:
    store.transact(TABLE, part, [Insert(row=name, entity={"n": 1}) for name in "abcd"])
    etag = read(store, part, "a").etag
    store.transact(
        TABLE,
        part,
        [
            Replace(row="a", entity={"n": 2}, etag=etag),
            Upsert(row="b", entity={"m": 2}),
            MergeEntity(row="c", entity={"m": 2}),
            Delete(row="d"),
            Insert(row="e", entity={"n": 2}),
        ],
    )
    found = {row.row: row.entity for row in store.scan(TABLE, part, "", "~")}
    assert found == {"a": {"n": 2}, "b": {"m": 2}, "c": {"n": 1, "m": 2}, "e": {"n": 2}}


def test_ranges_are_half_open_ordered_and_of_one_partition(store: Store, part: str) -> None:
    rows = ["r|a", "r|b", "r|c", "s|a", "r", "r}", "t|é"]
    store.transact(TABLE, part, [Insert(row=name, entity={}) for name in rows])
    store.transact(TABLE, part + "x", [Insert(row="r|z", entity={})])
    assert names(store, part, "r|", "r}") == ["r|a", "r|b", "r|c"]
    assert names(store, part, "r|b", "r|c") == ["r|b"]
    assert names(store, part, "r|", "r}", limit=2) == ["r|a", "r|b"]
    assert names(store, part, "u", "v") == []


def test_a_range_longer_than_a_page_is_read_whole(store: Store, part: str) -> None:
    expected = [f"r|{i:05d}" for i in range(2101)]
    for start in range(0, len(expected), 100):
        batch = expected[start : start + 100]
        store.transact(TABLE, part, [Insert(row=name, entity={"n": 1}) for name in batch])
    assert names(store, part) == expected
    assert names(store, part, limit=1500) == expected[:1500]


@pytest.mark.parametrize("bad", ["a/b", "a\\b", "a#b", "a?b", "a\tb", "a\x85b", "a" * 513])
def test_keys_azure_refuses_are_refused(store: Store, part: str, bad: str) -> None:
    with pytest.raises(ValueError, match="key"):
        store.transact(TABLE, part, [Insert(row=bad, entity={})])


@pytest.mark.parametrize(
    ("operations", "what"),
    [
        ([], "0 operations"),
        ([Insert(row="a", entity={}), Delete(row="a")], "twice"),
        ([Insert(row="a", entity={"big": "x" * 32_769})], "64 KiB"),
        ([Insert(row="a", entity={"big": b"x" * 65_537})], "64 KiB"),
        ([Insert(row="a", entity={f"p{i}": b"x" * 65_000 for i in range(17)})], "1 MiB"),
        ([Insert(row="a", entity={f"p{i}": 1 for i in range(253)})], "properties"),
        ([Insert(row="a", entity={"n": 2**63})], "64 bits"),
        (
            [
                Insert(row=f"{i}", entity={f"p{n}": b"x" * 65_000 for n in range(15)})
                for i in range(5)
            ],
            "bytes",
        ),
    ],
    ids=["none", "twice", "text", "binary", "entity", "properties", "number", "batch"],
)
def test_limits_azure_has_and_azurite_does_not_enforce(
    store: Store, part: str, operations: list[Operation], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        store.transact(TABLE, part, operations)
    assert names(store, part) == []


def test_a_transaction_has_no_more_operations_than_its_store_takes(store: Store, part: str) -> None:
    most = MOST_OPERATIONS if isinstance(store, SqliteStore) else BATCH_OPERATIONS
    operations = [Insert(row=f"{i:04d}", entity={}) for i in range(most + 1)]
    with pytest.raises(ValueError, match=f"{most + 1} operations"):
        store.transact(TABLE, part, operations)
    assert names(store, part) == []
    store.transact(TABLE, part, operations[:most])
    assert len(names(store, part)) == most


def test_the_largest_property_and_batch_fit(store: Store, part: str) -> None:
    store.transact(
        TABLE,
        part,
        [Insert(row=f"{i:02d}", entity={"big": b"x" * 28_000}) for i in range(100)],
    )
    store.transact(TABLE, part, [Insert(row="text", entity={"big": "é" * 32_768})])
    assert len(names(store, part)) == 101


class Forgetful:
    """A store whose answers to writes get lost, by turns; `applied` says which took effect."""

    def __init__(self, inner: Store, applied: list[bool], *, resent: bool) -> None:
        self._inner = inner
        self._applied = applied
        self._resent = resent

    def get(self, table: str, partition: str, row: str) -> Row | None:
        return self._inner.get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        return self._inner.scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        if not self._applied:
            return self._inner.transact(table, partition, operations)
        if self._applied.pop(0):
            self._inner.transact(table, partition, operations)
            if self._resent:
                raise ConflictError("resent after it took effect")
        raise StoreError("no answer")


@pytest.mark.parametrize("resent", [False, True])
@pytest.mark.parametrize("applied", [[True], [False], [False, True], [True, False, True]])
def test_an_update_holds_once_whatever_answers_get_lost(
    store: Store, part: str, applied: list[bool], resent: bool
) -> None:
    """A counter is raised by exactly one, because the change knows its own success."""
    store.transact(TABLE, part, [Insert(row="n", entity={"n": 0, "by": ""})])

    def once(row: Row | None) -> tuple[Operation, ...]:
        assert row is not None
        if row.entity["by"] == "me":
            return ()
        entity: Entity = {"n": int(row.entity["n"]) + 1, "by": "me"}
        return (Replace(row="n", entity=entity, etag=row.etag),)

    clock = ManualClock()
    updates.update(Forgetful(store, list(applied), resent=resent), clock, TABLE, part, "n", once)
    assert read(store, part, "n").entity == {"n": 1, "by": "me"}


def test_an_update_gives_up_in_the_end(part: str) -> None:
    store = Forgetful(MemoryStore(), [False] * 100, resent=False)
    clock = ManualClock()
    before = clock.monotonic()
    with pytest.raises(StoreError, match="gave up"):
        updates.update(store, clock, TABLE, part, "n", lambda _row: (Insert(row="n", entity={}),))
    assert 0 < clock.monotonic() - before < 60
