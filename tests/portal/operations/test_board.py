"""The markers of running tasks, at the bound of what is read."""

import pytest

from portal.operations import board
from portal.operations.board import Board
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tests.portal.scripted import put_running_task
from tests.portal.submissions import submitted


@pytest.mark.parametrize("most", [1, 100])
def test_so_many_markers_of_a_partition_are_read(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(board, "_MOST", most)
    name = submitted(runtime)
    keys = [put_running_task(runtime, name, f"{n}.hdf", "worker-1") for n in range(20)]
    running = Board(runtime).look().running
    assert len(running) == (len({*map(shard, keys)}) if most == 1 else 20) > 1
