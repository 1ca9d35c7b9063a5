"""A request's interests are read a page of each shard in turn."""

import pytest

from tasks.bag import task_table
from tasks.bag.model import Phase
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import Interest
from tasks.requests import request_operations
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.store import Insert


def test_no_shard_gives_its_second_page_before_all_gave_their_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_operations, "_PAGE", 2)
    runtime = memory_runtime()
    sizes = {"0": 5, "1": 0, "2": 1, "3": 2, "f": 4}
    for shard, number in sizes.items():
        for i in range(number):
            interest = Interest(request="r", key=f"{shard}{i:063x}", phase=Phase.COLLECTION)
            row = task_table.interest_row("r", interest.key)
            entity = task_table.INTEREST.dump(interest)
            runtime.store.transact(task_table.TABLE, shard, [Insert(row=row, entity=entity)])
    found = [one.key[0] for one in request_operations.interests(runtime, "r")]
    assert "".join(found) == "00" + "2" + "33" + "ff" + "00" + "ff" + "0"
    assert set(found) < set(SHARDS)
