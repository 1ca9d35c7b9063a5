"""The rows of managers that ended again and again."""

from tasks.operators import manager_rows
from tasks.operators.manager_rows import ManagerRow
from tasks.storage.memory_store import MemoryStore


def test_a_manager_leaves_the_latest_rows_when_it_starts() -> None:
    store = MemoryStore()
    for number in range(manager_rows._MOST + 1):
        row = ManagerRow(
            name=f"m{number:02d}", host="h", version="1", started=0.0, beat_at=100.0 + number
        )
        manager_rows.put(store, row)
        manager_rows.drop_old(store, 200.0)
        found = {one.name for one in manager_rows.managers(store, 200.0)}
        assert len(found) == min(number + 1, 10)
    assert "m00" not in found
