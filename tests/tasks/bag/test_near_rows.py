"""Rows of several tasks of a shard, read in few calls."""

from collections.abc import Iterator

import pytest

from tasks.bag import task_table
from tasks.bag.task_rows import Edge
from tasks.bag.task_table import TaskTable
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Row


class Counted(MemoryStore):
    """A store that counts its range reads."""

    calls = 0

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self.calls += 1
        return super().scan(table, partition, start, end, limit)


def key(number: int) -> str:
    return f"{0:014x}{number:050x}"


@pytest.mark.parametrize(
    ("wanted", "others", "each", "most"),
    [
        (1, 0, 3000, 1),  # all of one task
        (5, 0, 20, 1),  # side by side
        (5, 3, 20, 1),  # others between them
        (5, 0, 300, 6),  # more than a call returns
        (3, 400, 3, 4),  # far apart: each by itself
    ],
)
def test_edges_of_several_tasks(wanted: int, others: int, each: int, most: int) -> None:
    store = Counted()
    every = [key(number) for number in range(wanted * (1 + others))]
    keys = every[:: 1 + others]
    expected = set[tuple[str, str]]()
    for given in every:
        for number in range(each):
            dependent = f"{number:064x}"
            edge = task_table.put_edge(Edge(key=given, dependent=dependent, bits=1))
            store.transact(task_table.TABLE, "0", [edge])
            if given in keys:
                expected.add((given, dependent))
    found = [(edge.key, edge.dependent) for edge in TaskTable(store).edges_of("0", keys)]
    assert len(found) == len(expected)
    assert set(found) == expected
    assert store.calls <= most
