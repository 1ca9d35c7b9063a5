"""The lists of requests: one range of rows for a page, true at every moment, old rows included."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations, request_table
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Row

DOCUMENT = parse_request(
    {
        "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
        "region": {"tiles": ["h18v04"]},
        "time": {"start": "2012-01-01", "end": "2012-01-02"},
        "grid": {"modis": 1000},
    }
)


class Counted(MemoryStore):
    """A store that counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.rows = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.calls += 1
        return super().get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self.calls += 1
        for row in super().scan(table, partition, start, end, limit):
            self.rows += 1
            yield row


@pytest.fixture
def store() -> Counted:
    return Counted()


@pytest.fixture
def runtime(store: Counted) -> Runtime:
    return replace(memory_runtime(), store=store)


def submitted(runtime: Runtime, owner: str, title: str, *, dry_run: bool = False) -> str:
    runtime.clock.sleep(1)
    made = DOCUMENT.model_copy(update={"title": title})
    return request_operations.submit(runtime, owner, made, dry_run=dry_run)


def titles(runtime: Runtime, owner: str | None = None, limit: int = 100) -> list[str]:
    return [row.title for row in request_operations.list_requests(runtime, owner, limit)]


def test_a_page_is_one_range_however_many_requests_and_owners_there_are(
    runtime: Runtime, store: Counted
) -> None:
    for number in range(60):
        submitted(runtime, "ada" if number % 20 == 0 else f"other/{number}#?", f"t{number}")
        submitted(runtime, "ada", "preview", dry_run=True)
    store.calls = store.rows = 0
    assert titles(runtime, "ada", 2) == ["t40", "t20"]
    assert (store.calls, store.rows) == (1, 2)
    assert titles(runtime, limit=3) == ["t59", "t58", "t57"]
    assert titles(runtime, "other/59#?") == ["t59"]
    assert titles(runtime, "oth") == []


def test_all_pages_together_are_the_whole_list(runtime: Runtime) -> None:
    names = [submitted(runtime, f"owner{n % 2}", f"t{n}") for n in range(23)]
    together = [
        request_operations.submit(runtime, "owner0", DOCUMENT, request_id=name)
        for name in ("a", "a-1", "b")
    ]
    found: list[str] = []
    after = None
    while page := list(request_operations.list_requests(runtime, None, 4, after)):
        found += [row.id for row in page]
        after = page[-1]
    assert sorted(found) == sorted([*names, *together])
    assert found[4:] == names[-2::-1]  # the first four were submitted together
    mine = request_operations.list_requests(
        runtime, "owner1", 100, request_operations.load(runtime, names[11])
    )
    assert [row.id for row in mine] == names[9::-2]


def test_a_list_tells_of_every_change_at_once(runtime: Runtime) -> None:
    name = submitted(runtime, "ada", "one")

    def change(row: request_table.RequestRow) -> request_table.RequestRow:
        return replace(row, state=RequestState.COMPLETE, delivered=7, gap_count=2, ended=9.0)

    request_operations.change_request(runtime, name, change)
    for owner in ("ada", None):
        (row,) = request_operations.list_requests(runtime, owner)
        expected = replace(request_operations.load(runtime, name), document="")
        assert row == expected
        assert row.delivered == 7


def test_labels_and_a_group_have_lists_of_their_own_that_follow_changes(
    runtime: Runtime, store: Counted
) -> None:
    def submit(owner: str, title: str, **more: object) -> str:
        runtime.clock.sleep(1)
        made = DOCUMENT.model_copy(update={"title": title, **more})
        return request_operations.submit(runtime, owner, made)

    def shown(owner: str | None, *, label: str = "", group: str = "") -> list[str]:
        found = request_operations.list_requests(runtime, owner, label=label, group=group)
        return [row.title for row in found]

    first = submit("ada", "one", labels=("thesis", "x|y"), group="forest")
    submit("ben", "two", labels=("thesis",), group="forest")
    for number in range(30):
        submit("ada", f"t{number}")
    store.calls = store.rows = 0
    assert shown("ada", label="thesis") == ["one"]
    assert (store.calls, store.rows) == (1, 1)
    assert shown("ada", label="x|y") == ["one"]
    assert shown("ada", label="x") == []
    assert shown(None, group="forest") == ["two", "one"]

    def change(row: request_table.RequestRow) -> request_table.RequestRow:
        return replace(row, labels=("drought",), group="")

    request_operations.change_request(runtime, first, change)
    assert shown("ada", label="thesis") == []
    assert shown("ada", label="drought") == ["one"]
    assert shown(None, group="forest") == ["two"]
    assert len(shown("ada")) == 31
