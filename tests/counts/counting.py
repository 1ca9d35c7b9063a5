"""Count the storage calls, rows, bytes and Python calls of fixed work."""

import datetime as dt
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from reprojection.sample.hdfeos_write import write_granule
from reprojection.sample.sample import TILE_DAYS, tile_granules
from service_manager.leader.manager import Manager
from service_manager.planner.plan_stream import PlanStream
from tasks.bag import protocol
from tasks.bag.kinds import Spec
from tasks.bag.model import RequestState
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.requests.plan import Plan
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import MemoryBlobs, StoredBlob
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Delete, Operation, Row
from tests.service_manager.shelf import LIMITS, REQUEST, Shelf, tile_granule
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

NOTED = Path(__file__).with_name("counts.json")
PYTHON = (3, 11)
"""The version whose calls are counted: in others the same code makes more or fewer."""


class Counted(MemoryStore):
    """A store that counts its calls, and what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.counts["reads of one row"] += 1
        return super().get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self.counts["reads of several rows"] += 1
        return super().scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        written = [one.entity for one in operations if not isinstance(one, Delete)]
        self.counts["transactions"] += 1
        self.counts["rows written or deleted"] += len(operations)
        self.counts["bytes written"] += sum(len(json.dumps(one, default=str)) for one in written)
        return super().transact(table, partition, operations)


class CountedBlobs(MemoryBlobs):
    """Blobs that count what is stored and read."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:
        self.counts["blobs written"] += 1
        self.counts["bytes of blobs written"] += len(data)
        return super().put_bytes(container, name, data)

    def get_bytes(self, container: str, name: str) -> bytes:
        self.counts["blobs read"] += 1
        return super().get_bytes(container, name)


class Mill(Bench):
    """A manager, and a worker that claims and ends each message's tasks together, as workers do."""

    seconds = 1.0  # that each attempt takes, as it says

    def __post_init__(self) -> None:
        self.store = Counted()
        self.runtime = replace(
            memory_runtime(ManualClock()),
            store=self.store,
            blobs=CountedBlobs(self.store.counts),
        )
        self.messages: list[Sequence[str]] = []
        super().__post_init__()

    def restart(self, epoch: int = 1) -> None:
        self.manager = Manager(
            self.runtime, self.options, self.plan_of_request, self.messages.append, epoch, self.run
        )

    def work(self) -> None:
        messages, self.messages[:] = list(self.messages), []
        for keys in messages:
            claimed = protocol.claim_batch(self.runtime, keys, "worker", self.options.retry)
            now = self.runtime.clock.now()
            ends = [
                protocol.End(
                    attempt=one.attempt(
                        started=now, ended=now + self.seconds, duration=self.seconds
                    ),
                    files=(self._store(one),),
                    first=one.task,
                )
                for one in claimed
            ]
            if ends:
                protocol.end_batch(self.runtime, ends, self.options.retry)


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of Python functions that some work makes."""
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made


def of_a_request(plan: Plan) -> dict[str, int]:
    """Count what a request costs, from submission to its end."""
    mill, first = (Mill(plans={"counted": one}) for one in (plan, rasters(1)))

    def whole(mill: Mill) -> None:
        row = mill.until_ended(mill.submit("counted"))
        assert row.state is RequestState.COMPLETE, row

    whole(first)  # what a process does once does not count
    calls = calls_of(partial(whole, mill))
    return {**mill.store.counts, "Python calls": calls}


def of_short_tasks(number: int) -> dict[str, int]:
    """Count what a request costs whose tasks take no time, as their class is known to."""
    names = [f"P.A2012{1 + one // 40:03d}.{one}" for one in range(number + 40)]  # 40 of a date
    plans = {"known": plan_of(*map(collect, names[number:]))}
    mill = Mill(plans={**plans, "counted": plan_of(*map(collect, names[:number]))})
    mill.seconds = 0.01
    mill.until_ended(mill.submit("known"))
    mill.runtime.clock.sleep(60.0)
    mill.rounds(3)
    mill.store.counts.clear()
    made = calls_of(lambda: mill.until_ended(mill.submit("counted")))
    return {**mill.store.counts, "Python calls": made}


def granules(number: int) -> Plan:
    """A plan of so many tasks that depend on nothing."""
    return plan_of(*(collect(f"g{one:05d}") for one in range(number)))


def rasters(number: int) -> Plan:
    """A plan of so many rasters, each of four cells of two granules."""
    plans: list[Spec] = []
    for raster in range(number):
        given = [collect(f"g{raster}.{one}") for one in range(2)]
        cells = [mosaic(f"c{raster}.{one}", *given) for one in range(4)]
        plans += [*given, *cells, mosaic(f"r{raster}", *cells)]
    return plan_of(*plans, outputs={f"r{one}": f"r{one}" for one in range(number)})


def of_rest() -> dict[str, int]:
    """Count what a manager reads in a minute in which nobody asks for anything."""
    mill = Mill(plans={})
    mill.manager.tick()
    mill.store.counts.clear()
    look = mill.runtime.queue.receive

    def counted() -> list[tuple[str, Callable[[], None]]]:
        mill.store.counts["looks at the queue"] += 1
        return look()

    mill.runtime.queue.receive = counted  # type: ignore[method-assign]
    for _ in range(120):
        mill.runtime.clock.sleep(0.5)
        mill.manager.tick()
    return dict(mill.store.counts)


def of_planning(years: int) -> dict[str, int]:
    """Count what the plan of a request of two tiles costs, 46 dates a year."""
    time = {"start": "2012-01-01", "end": f"{2011 + years}-12-31"}
    request = parse_request({**REQUEST, "time": time})
    days = [
        dt.date(2012 + year, 1, 1) + dt.timedelta(days=8 * n)
        for year in range(years)
        for n in range(46)
    ]
    archive = Shelf(records=[tile_granule(day, h, 3) for day in days for h in (17, 18)])
    planned = 0

    def whole() -> None:
        nonlocal planned
        course = PlanStream(request, archive, Packages.of(LIMITS), LIMITS)
        planned = sum(1 for stretch in course.stretches() for _ in stretch.tasks())

    whole()  # what is read once in a process does not count
    return {"Python calls": calls_of(whole), "tasks": planned}


_REPROJECT = """
import json, sys
from pathlib import Path
from reprojection.grid.grids import Lattice
from reprojection.reproject import Options, reproject
from reprojection.write.write import write_cog
counts = dict.fromkeys(("calls of Python functions", "calls of C functions", "files opened"), 0)
kinds = {"call": "calls of Python functions", "c_call": "calls of C functions"}
def count(_frame, event, _argument):
    if event in kinds:
        counts[kinds[event]] += 1
def opened(event, _arguments):
    counts["files opened"] += event == "open"
folder = Path(sys.argv[1])
grid = Lattice(crs="EPSG:4326", resolution=0.01).snap((-8.0, 51.0, -4.0, 54.0))
def whole():
    made = reproject([folder / "tile.hdf"], "Lai_1km", grid, Options(qa="good"))
    write_cog(made, folder / "raster.tif")
whole()  # what is read once in a process does not count
sys.addaudithook(opened)
sys.setprofile(count)
whole()
sys.setprofile(None)
counts["bytes of the raster"] = (folder / "raster.tif").stat().st_size
print(json.dumps(counts))
"""


def of_reprojecting() -> dict[str, int]:
    """Count what a raster of one tile costs beside its pixels, in a process of its own."""
    with TemporaryDirectory() as folder:
        write_granule(Path(folder, "tile.hdf"), next(iter(tile_granules(TILE_DAYS[:1]))))
        told = subprocess.check_output([sys.executable, "-c", _REPROJECT, folder], text=True)
    found: dict[str, int] = json.loads(told)
    return found


def of_importing(module: str) -> dict[str, int]:
    """Count the modules that a process has loaded when it begins: our own, and those of others."""
    asks = (
        # Before it are modules of the installation: of an editable one, of sitecustomize.
        f"import sys\nbefore = {{*sys.modules}}\nimport {module}\n"
        "own = ('archives', 'modis', 'portal', 'processes', 'reprojection', 'service_manager', "
        "'swathmill', 'tasks', 'worker')\n"
        "tops = [name.partition('.')[0] for name in sys.modules if name not in before]\n"
        "others = [top for top in tops if top not in own and top not in sys.stdlib_module_names]\n"
        "print(sum(top in own for top in tops), len(others))"
    )
    told = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, check=True, text=True
    ).stdout
    own, others = map(int, told.split())
    return {"modules of ours": own, "modules of others": others}


PROCESSES = (
    "swathmill",
    "swathmill.cli",
    "portal.__main__",
    "service_manager.__main__",
    "worker.__main__",
)
"""What a program and each kind of process import when they begin."""

MEASURED: Mapping[str, Callable[[], dict[str, int]]] = {
    "a request of 60 granules": lambda: of_a_request(granules(60)),
    "a request of 3 rasters of 4 cells": lambda: of_a_request(rasters(3)),
    "a request of 8 rasters of 4 cells": lambda: of_a_request(rasters(8)),
    "1,000 tasks that do nothing": partial(of_short_tasks, 1000),
    "a minute at rest": of_rest,
    "a plan of a year": partial(of_planning, 1),
    "a plan of ten years": partial(of_planning, 10),
    "a plan of 10,000 tasks": partial(of_planning, 55),
    "a raster of one tile": of_reprojecting,
    **{f"import {module}": partial(of_importing, module) for module in PROCESSES},
}
"""What is counted, by its name in `counts.json`."""


def noted() -> dict[str, dict[str, int]]:
    """Return the counts that are kept."""
    found: dict[str, dict[str, int]] = json.loads(NOTED.read_text("utf-8"))
    return found
