"""Edges from one task: some to a row, and read back whichever build wrote them."""

import pytest

from tasks.bag import task_table
from tasks.bag.task_rows import Edge
from tasks.bag.task_table import TaskTable
from tasks.canonical import digest_of
from tasks.storage import schema
from tasks.storage.memory_store import MemoryStore

KEY = "0" * 64
EDGES = [Edge(key=KEY, dependent=digest_of(str(i)), bits=1 << 7 * i) for i in range(30)]


def read(table: TaskTable) -> list[Edge]:
    return sorted(table.edges(KEY), key=lambda edge: edge.dependent)


def in_order(edges: list[Edge]) -> list[Edge]:
    return sorted(edges, key=lambda edge: edge.dependent)


@pytest.mark.parametrize(("number", "rows"), [(0, 0), (1, 1), (2, 1), (12, 1), (13, 2), (30, 3)])
def test_twelve_are_in_a_row(number: int, rows: int) -> None:
    table = TaskTable(MemoryStore())
    operations = task_table.put_edges(EDGES[:number])
    assert len(operations) == rows
    if operations:
        table.transact("0", operations)
    assert read(table) == in_order(EDGES[:number])
    assert list(table.edges_of("0", [KEY, "1" * 64])) == list(table.edges(KEY))


def test_what_is_written_in_two_ways_is_read_once() -> None:
    """A request's retry links one dependent that a plan has written with others."""
    table = TaskTable(MemoryStore())
    table.transact("0", task_table.put_edges(EDGES[:5]))
    table.transact("0", task_table.put_edges(EDGES[3:8]))
    table.transact("0", [task_table.put_edge(EDGES[0])])
    assert read(table) == in_order(EDGES[:8])


def test_groups_of_other_plans_replace_none() -> None:
    """Rows whose first dependents are the same are two."""
    table = TaskTable(MemoryStore())
    table.transact("0", task_table.put_edges([EDGES[0], EDGES[1]]))
    table.transact("0", task_table.put_edges([EDGES[0], EDGES[2]]))
    assert read(table) == in_order(EDGES[:3])


def test_the_build_before_gets_a_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema._Written, "number", schema.BRIEF_ROWS - 1)
    operations = task_table.put_edges(EDGES)
    assert [one.row for one in operations] == [f"e|{KEY}|{one.dependent}" for one in EDGES]
    table = TaskTable(MemoryStore())
    table.transact("0", operations)
    monkeypatch.undo()
    assert read(table) == in_order(EDGES)
