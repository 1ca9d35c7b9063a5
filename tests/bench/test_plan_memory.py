"""Planning and writing hold a part of the plan, however long the plan is."""

import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.plan import course, folder_blobs
from service_manager.planner.plan_stream import PlanOutcome
from service_manager.plans import stored_plan
from service_manager.plans.plan_writer import PlanWriter
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import MemoryBlobs
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Operation

MIB = 2**20
MOST = 80 * MIB
"""More than one stretch of days takes; ten million tasks have 2,000 stretches."""


class Fences(MemoryStore):
    """A store that keeps the write fences, which are read again, and nothing else."""

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        kept = [one for one in operations if one.row.startswith("p|")]
        etags = iter(super().transact(table, partition, kept) if kept else ())
        return tuple(next(etags) if one in kept else "written" for one in operations)


def peaks(folder: Path, days: int) -> tuple[int, int, int]:
    """Return the tasks of so many days, and the bytes held at most in planning and in writing."""
    runtime = replace(memory_runtime(), store=Fences())
    tracemalloc.start()
    try:
        plan = stored_plan.freeze(folder_blobs(folder), "r", course(days))
        planning = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        written = PlanWriter(runtime, "r", plan.sections()).batches()
        tasks = sum(len(one.tasks) for one in written)
        return tasks, planning, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_three_times_the_tasks_take_the_same_memory(tmp_path: Path) -> None:
    peaks(tmp_path / "first", 2)  # what a process does once does not count
    # Two stretches: the next is read while the one before is there.
    tasks, *least = peaks(tmp_path / "short", 32)
    more, *most = peaks(tmp_path / "long", 96)
    assert more > 2.9 * tasks
    for short, long in zip(least, most, strict=True):
        assert long < 1.25 * short, (tasks, more, short / MIB, long / MIB)
        assert long < MOST


class Heads(MemoryBlobs):
    """Counts the outcomes of stretches that are held when a further one is read."""

    held = 0

    def get_bytes(self, container: str, name: str) -> bytes:
        if name.endswith(".stretch.gz"):
            outcomes = sum(isinstance(one, PlanOutcome) for one in gc.get_objects())
            self.held = max(self.held, outcomes)
        return super().get_bytes(container, name)


@pytest.mark.slow
def test_planning_the_same_again_keeps_one_stretch_at_a_time() -> None:
    """Two thousand outcomes of ten million tasks took half a gigabyte."""
    blobs = Heads()
    plan = stored_plan.freeze(blobs, "first", course(64))
    gc.collect()
    again = stored_plan.freeze(blobs, "second", course(64))
    assert len(plan.stretches) >= 4
    assert [one.name for one in again.stretches] == [one.name for one in plan.stretches]
    assert blobs.held <= 2
