"""A store that remembers what it wrote: same answers as the store, fewer reads."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import ConflictError, StoreError
from tasks.storage.memory_store import MemoryStore
from tasks.storage.own_rows import MOST, OwnRows
from tasks.storage.store import (
    Delete,
    Entity,
    Insert,
    MergeEntity,
    Operation,
    Replace,
    Row,
    Upsert,
)

T, P = "history", "p"


class Watched(MemoryStore):
    """A store that counts reads, and whose next answer can get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.lost = False

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.reads[row] += 1
        return super().get(table, partition, row)

    def inner_row(self, row: str) -> Row | None:
        return super().get(T, P, row)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        etags = super().transact(table, partition, operations)
        if self.lost:
            raise StoreError("no answer")
        return etags


def test_what_was_written_under_an_etag_is_not_read_again() -> None:
    store = Watched()
    own = OwnRows(store)
    own.transact(T, P, [Insert(row="a", entity={"n": 1})])
    for number in range(2, 5):
        found = own.get(T, P, "a")
        assert found is not None
        own.transact(T, P, [Replace(row="a", entity={"n": number}, etag=found.etag)])
    assert own.get(T, P, "a") == MemoryStore.get(store, T, P, "a")
    assert not store.reads


def test_what_a_call_that_was_refused_or_got_no_answer_writes_is_forgotten() -> None:
    store = Watched()
    own = OwnRows(store)
    own.transact(T, P, [Insert(row="a", entity={"n": 1}), Insert(row="b", entity={"n": 1})])
    store.transact(T, P, [Upsert(row="a", entity={"n": 2})])  # somebody else
    stale = own.get(T, P, "a")
    assert stale is not None
    with pytest.raises(ConflictError):
        own.transact(T, P, [Replace(row="a", entity={"n": 3}, etag=stale.etag)])
    assert own.get(T, P, "a") == store.get(T, P, "a")
    found = own.get(T, P, "b")
    assert found is not None
    store.lost = True
    with pytest.raises(StoreError):
        own.transact(T, P, [Replace(row="b", entity={"n": 3}, etag=found.etag)])
    assert own.get(T, P, "b") == store.get(T, P, "b")


def test_no_more_rows_are_remembered_than_the_bound() -> None:
    store = Watched()
    own = OwnRows(store)
    for number in range(MOST + 1):
        own.transact(T, P, [Insert(row=f"{number}", entity={})])
    for number in range(MOST + 1):
        assert own.get(T, P, f"{number}")
    assert store.reads == {"0": 1}  # the one that was written longest ago


def test_a_refused_call_costs_the_other_rows_no_second_read() -> None:
    store = Watched()
    own = OwnRows(store)
    own.transact(T, P, [Insert(row="a", entity={"n": 1}), Insert(row="b", entity={"n": 1})])
    with pytest.raises(ConflictError):
        own.transact(T, P, [Insert(row="a", entity={"n": 2})])
    assert own.get(T, P, "a") == own.get(T, P, "a") == store.inner_row("a")
    assert own.get(T, P, "b") == store.inner_row("b")
    assert store.reads == {"a": 2}


def test_rows_are_read_together_once_those_that_are_absent_as_well() -> None:
    store = Watched()
    asked: list[list[str]] = []

    def together(read: Callable[[str], Row | None], names: Iterable[str]) -> list[Row | None]:
        asked.append(list(names))
        return [read(name) for name in asked[-1]]

    own = OwnRows(store, together)
    store.transact(T, P, [Insert(row="a", entity={"n": 1})])
    own.transact(T, P, [Insert(row="b", entity={"n": 1})])
    own.read(T, P, ["a", "b", "c"])
    assert asked == [["a", "c"]]
    assert [own.get(T, P, name) for name in "abc"] == [*map(store.inner_row, "ab"), None]
    assert store.reads == {"a": 1, "c": 1}
    store.transact(T, P, [Insert(row="c", entity={"n": 1})])  # somebody else
    with pytest.raises(ConflictError):
        own.transact(T, P, [Insert(row="c", entity={"n": 2})])
    assert own.get(T, P, "c") == store.inner_row("c")


_ROWS = st.sampled_from("ab")
_NUMBERS = st.integers(0, 9)


@given(
    st.lists(st.tuples(st.sampled_from(("insert", "replace", "upsert", "merge", "delete")), _ROWS))
)
def test_it_answers_as_the_store_while_it_alone_writes(calls: list[tuple[str, str]]) -> None:
    store = MemoryStore()
    own = OwnRows(store)
    for number, (kind, name) in enumerate(calls):
        found = own.get(T, P, name)
        entity: Entity = {"n": number, f"of {kind}": True}
        operations: dict[str, Operation] = {
            "insert": Insert(row=name, entity=entity),
            "replace": Replace(row=name, entity=entity, etag=found.etag if found else "none"),
            "upsert": Upsert(row=name, entity=entity),
            "merge": MergeEntity(row=name, entity=entity),
            "delete": Delete(row=name),
        }
        with suppress(ConflictError):
            own.transact(T, P, [operations[kind]])
        assert [own.get(T, P, one) for one in "ab"] == [store.get(T, P, one) for one in "ab"]
