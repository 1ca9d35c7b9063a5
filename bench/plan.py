"""Planning at scale: ten years of the continental US, nine products, from a synthetic catalogue.

    python -m bench.plan [--quick | --days N] [--whole] [--azurite] [--within MIB]

Prints tasks per second, of wall and of CPU time, and peak memory above what the process had before
it began: planned into frozen stretches, planned again by another request of the same document (from
a catalogue that says it has not changed, and from one that must be listed), and written to the
in-memory store, to embedded storage and to Azurite. JSON goes to bench/out/plan.json.
"""

import argparse
import ctypes
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path

from bench.continent import PRODUCTS, Continent, request_document
from service_manager.planner.plan_stream import PlanStream
from service_manager.plans import stored_plan
from service_manager.plans.plan_jobs import COLLECT
from service_manager.plans.plan_writer import PlanWriter
from swathmill.stack.azurite import Account, AzuriteServer
from tasks.bag.runtime import Runtime
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.service.connect import connect_storage
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.blobs import CONTAINERS, Blobs, MemoryBlobs
from tasks.storage.clock import SystemClock
from tasks.storage.file_blobs import FileBlobs

OUT = Path(__file__).parent / "out" / "plan.json"
START = date(2003, 1, 1)
MOST_TASKS = 100_000_000  # of one plan; the setting's default is far below what is measured here
GOAL_RATE, GOAL_MEMORY, GOAL_AGAIN = 20_000, 300 * 2**20, 10.0


def folder_blobs(folder: Path) -> FileBlobs:
    """Blobs as files, so that what is stored does not count as memory."""
    blobs = FileBlobs(folder)
    blobs.create(CONTAINERS)
    return blobs


@dataclass(kw_only=True)
class Measured:
    """One stage: seconds of wall and CPU time, tasks, bytes of peak memory above its beginning."""

    stage: str
    tasks: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0

    def line(self) -> str:
        """A row of the table."""
        rate, by_cpu = self.tasks / self.wall, self.tasks / self.cpu
        return (
            f"| {self.stage} | {self.tasks:,} | {self.wall:.1f} | {rate:,.0f} | {by_cpu:,.0f} | "
            f"{self.memory / 2**20:.0f} MiB |"
        )


@contextmanager
def measured(stage: str, found: list[Measured]) -> Iterator[Measured]:
    """Measure what is done inside; the kernel's peak of resident memory is reset."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, wall, cpu = _status("VmRSS"), time.perf_counter(), _cpu()
    result = Measured(stage=stage)
    yield result
    result.wall, result.cpu = time.perf_counter() - wall, _cpu() - cpu
    result.memory = _status("VmHWM") - before
    found.append(result)
    print(result.line(), flush=True)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def course(days: int, *, ever_new: bool = True) -> PlanStream:
    """The planning of so many days from 2003 on; `ever_new`: the catalogue cannot say that it has
    not changed."""
    document = request_document(START, START + timedelta(days=days - 1))
    settings, archive = Settings(max_tasks=MOST_TASKS), Continent(ever_new=ever_new)
    return PlanStream(parse_request(document), archive, Packages.of(settings), settings)


def write(runtime: Runtime, blobs: Blobs, request: str, days: int, found: Measured) -> None:
    """Plan so many days and write them to a store."""
    plan = stored_plan.freeze(blobs, request, course(days))
    for written in PlanWriter(runtime, request, plan.sections()).batches():
        found.tasks += len(written.tasks)


def listed(days: int) -> int:
    """Have the catalogue list so many days; how many granules it names."""
    last = START + timedelta(days=days - 1)
    archive = Continent()
    return sum(
        1
        for name, (collection, _, _) in PRODUCTS.items()
        for _ in archive.search(name, collection, START, last)
    )


def main() -> None:
    """Run all stages and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one year; weeks for the stores")
    parser.add_argument("--days", type=int, help="planned from 2003 on; ten years if not given")
    parser.add_argument("--whole", action="store_true", help="write all of it to embedded storage")
    parser.add_argument("--azurite", action="store_true", help="write a tenth to Azurite, too")
    parser.add_argument("--stored", type=int, help="days written to stores; a tenth of all")
    parser.add_argument("--within", type=int, help="MiB; with more, the exit status is 1")
    asked = parser.parse_args()
    days = 365 if asked.quick else asked.days or 3653
    tenth = asked.stored or (days // 50 if asked.quick else days // 10)
    gc.set_threshold(*COLLECT)
    found: list[Measured] = []
    print("| stage | tasks | s | tasks/s | tasks/s of CPU | memory |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="swathmill-plan-") as name:
        folder = Path(name)
        blobs = folder_blobs(folder / "blobs")
        stored_plan.freeze(MemoryBlobs(), "warm", course(2))
        with measured("listed by the catalogue, no more", found) as stage:
            stage.tasks = listed(days)
        with measured("planned and frozen", found) as stage:
            plan = stored_plan.freeze(blobs, "first", course(days, ever_new=False))
            stage.tasks = plan.counts.tasks
        for text, ever_new in (("nothing new", False), ("listed again", True)):
            with measured(f"planned again, {text}", found) as stage:
                again = stored_plan.freeze(blobs, text, course(days, ever_new=ever_new))
                stage.tasks = again.counts.tasks
            assert [s.name for s in again.stretches] == [s.name for s in plan.stretches]
        part = days if asked.whole else tenth
        with measured("written to the memory store", found) as stage:
            memory = memory_runtime(SystemClock())
            write(memory, folder_blobs(folder / "memory"), "memory", tenth, stage)
        embedded = connect_storage(f"file:{folder / 'embedded'}")
        with measured("written to embedded storage", found) as stage:
            write(embedded, folder_blobs(folder / "files"), "embedded", part, stage)
        if not asked.azurite:
            report(plan, found)
            bound(found, asked.within)
            return
        server = AzuriteServer.on_free_ports(
            folder=folder / "azurite", log=folder / "azurite.log", account=Account.new()
        )
        child = server.start()
        try:
            azurite = connect_storage(server.connection_string)
            with measured("written to Azurite", found) as stage:
                write(azurite, folder_blobs(folder / "tables"), "azurite", tenth, stage)
        finally:
            child.stop()
    report(plan, found)
    bound(found, asked.within)


def bound(found: list[Measured], within: int | None) -> None:
    """End with status 1 if the manager's memory was more; the memory store's rows are not its."""
    over = [one for one in found if one.memory > (within or 2**20) * 2**20]
    over = [one for one in over if "memory store" not in one.stage]
    if over:
        sys.exit("\n".join(f"{one.stage}: more than {within} MiB" for one in over))


def report(plan: stored_plan.Frozen, found: list[Measured]) -> None:
    """Print what was reached of the goals, and keep the figures."""
    listing, first, again, listed_again = found[:4]
    net = first.cpu - listing.cpu
    goals = {
        "tasks per second": (first.tasks / first.wall, GOAL_RATE),
        "tasks per second of CPU": (first.tasks / first.cpu, GOAL_RATE),
        "tasks per second of CPU, less the catalogue's own": (first.tasks / net, GOAL_RATE),
        "MiB of memory": (first.memory / 2**20, GOAL_MEMORY / 2**20),
        "times cheaper again, in CPU time": (first.cpu / again.cpu, GOAL_AGAIN),
        "times cheaper again, when all is listed again": (first.cpu / listed_again.cpu, 1.0),
    }
    print(f"\n{plan.counts.granules:,} granules; {dict(plan.counts.phases)}")
    for name, (value, goal) in goals.items():
        print(f"{name}: {value:,.1f} (goal {goal:,})")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps([asdict(stage) for stage in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
