"""A backlog makes more rows and no larger ones: a row has a limit, and a backlog has none."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from service_manager.events import completion_events
from service_manager.mail import mail_text
from service_manager.options import ManagerOptions
from service_manager.requests import ending
from tasks.accounts import session_table
from tasks.bag.categories import Category
from tasks.bag.model import RequestOrder, RequestState
from tasks.bag.task_keys import SHARDS
from tasks.requests import outbox, request_operations
from tasks.requests.outbox import Mail
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Delete, Operation
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

DIGITS = 96
"""Bytes by which a row may grow: numbers and times have more digits."""
CURSOR = ("history", "cursor")
"""It names the newest attempts of each shard: its limit is that of all shards, full."""


class Measuring(MemoryStore):
    """Keeps the size of the largest row that was written, by table and kind of RowKey."""

    def __init__(self) -> None:
        super().__init__()
        self.largest: dict[tuple[str, str], int] = {}

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        for operation in operations:
            if not isinstance(operation, Delete):
                prefix = operation.row.partition("|")[0]
                kind = (table, prefix if prefix.isalpha() else "")
                size = sum(len(name) + len(str(one)) for name, one in operation.entity.items())
                self.largest[kind] = max(size, self.largest.get(kind, 0))
        return super().transact(table, partition, operations)


def backlog(number: int) -> dict[tuple[str, str], int]:
    """The largest rows while so many tasks end, faster than the manager looks, in each way."""
    store = Measuring()
    runtime = replace(memory_runtime(ManualClock()), store=store)
    hub = collect("hub")
    granules = [collect(f"g{one:05d}") for one in range(number)]
    cells = [mosaic(f"c{one:05d}", hub, granule) for one, granule in enumerate(granules)]
    plan = plan_of(hub, *granules, *cells, outputs={one.name: one.name for one in cells})
    outcomes = {
        granule.key: Category.SOURCE_NOT_PUBLISHED if one % 3 == 0 else Category.OPERATION_TIMEOUT
        for one, granule in enumerate(granules)
        if one % 3 < 2
    }
    b = Bench(
        plans={"p": plan},
        runtime=runtime,
        options=ManagerOptions(window=4 * number),
        decide=lambda claimed: outcomes.pop(claimed.task.key, None),
    )
    first = b.submit("p")
    waiting = [b.submit("p", owner=f"owner {one}") for one in range(number // 4)]
    for one in range(number):
        session_table.end_one(store, runtime.clock, "ada", f"token {one}")
        outbox.put(store, runtime.clock, mail(one))
    for name in waiting[::2]:
        request_operations.order(runtime, name, RequestOrder.CANCEL)
    row = b.until_ended(first, limit=40 * number)
    assert row.state is RequestState.GAPS
    assert row.delivered == number
    for ended in request_operations.list_requests(runtime):
        if ended.state is RequestState.GAPS:  # no result is told twice, though made twice
            assert ended.message.startswith(f"{ended.delivered} of {ended.outputs} results")
    return store.largest


def mail(number: int) -> Mail:
    return Mail(
        request="", to=f"a{number}@example.org", kind="sign-in", subject="x", body="y", written=1.0
    )


def test_a_backlog_makes_no_row_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twice as many tasks that end, fail and are tried again none has a larger row."""
    monkeypatch.setattr(completion_events, "ROWS", 2)
    monkeypatch.setattr(ending, "GAPS_ON_ROW", 4)
    monkeypatch.setattr(mail_text, "_MOST", 4)
    monkeypatch.setattr(session_table, "MOST", 10)
    small, large = backlog(32), backlog(64)
    assert {*small} == {*large}
    assert len(small) > 8
    most = small | {CURSOR: len(SHARDS) * completion_events.ROWS * 24}
    grown = {kind: (most[kind], size) for kind, size in large.items() if size > most[kind] + DIGITS}
    assert grown == {}
