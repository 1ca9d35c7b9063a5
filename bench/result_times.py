"""When the results of one request are there: the first, half, all, and at 30% of the cells.

    python -m bench.result_times [--rasters 40 100 1000]

The manager, the tables and the workers' side of the protocol are Swathmill's own, in memory; time
is simulated, so the figures are the same on any machine. One host has 4 slots. A date has 4
granules (1 s each), of which each of 6 cells needs 2 (0.3 s), for each of 4 layers; a raster of 6
cells takes 0.5 s.
"""

import argparse
import datetime as dt
import heapq
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from tasks.bag import protocol, workers
from tasks.bag.model import ArtifactFile, Phase
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec, ReprojectSpec
from tasks.bag.workers import RunningAttempt, WorkerRow
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Plan, PlannedTask
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.queues import FIRST

SLOTS, LAYERS, CELLS, GRANULES = 4, 4, 6, 4
SECONDS = {Phase.COLLECTION: 1.0, Phase.REPROJECTION: 0.3, Phase.AGGREGATION: 0.5}
BEAT, LATEST, AT = (
    5.0,
    1.0,
    0.3,
)  # seconds of a beat, of an end before it is written; share of cells
_START = dt.date(2012, 1, 1)


def plan(rasters: int) -> Plan:
    """Return the plan of a request for so many rasters, in the planner's order."""
    tasks: list[PlannedTask] = []
    for number in range(rasters // LAYERS):
        day = _START + dt.timedelta(days=number)
        granules = [
            CollectSpec(
                product="MOD09GA",
                collection="6.1",
                granule=f"MOD09GA.A{day:%Y%j}.h{tile:02d}v03.061",
                production="1",
                size=10**6,
            )
            for tile in range(GRANULES)
        ]
        tasks += [PlannedTask(spec=one) for one in granules]
        for layer in range(LAYERS):
            cells = [
                ReprojectSpec(
                    product="MOD09GA",
                    collection="6.1",
                    layer=f"layer{layer}",
                    day=day,
                    grid=_grid(cell),
                    resampling="nearest",
                    inputs=tuple(
                        Input(key=one.key, name=one.granule)
                        for one in granules[cell // 2 : cell // 2 + 2]
                    ),
                )
                for cell in range(CELLS)
            ]
            tasks += [PlannedTask(spec=one) for one in cells]
            mosaic = MosaicSpec(
                name=f"MOD09GA.061.layer{layer}.{day}",
                grid=_grid(0),
                day=day,
                inputs=tuple(Input(key=one.key, file="cell.tif") for one in cells),
            )
            tasks.append(PlannedTask(spec=mosaic, output=f"layer{layer}"))
    return Plan(tasks=tuple(tasks))


def _grid(cell: int) -> GridSpec:
    step = (1.0, 0.0, 256.0 * cell, 0.0, -1.0, 0.0)
    return GridSpec(crs="EPSG:4326", transform=step, width=256, height=256)


@dataclass
class Slot:
    """A slot, with the rest of its batch and what has ended of it."""

    waiting: list[protocol.Claimed] = field(default_factory=list)
    in_hand: protocol.Claimed | None = None
    began: float = 0.0
    ended: list[tuple[float, protocol.End]] = field(default_factory=list)


class Fleet:
    """A manager, and one host whose slots take batches of its queues."""

    def __init__(self, rasters: int) -> None:
        self.clock = ManualClock()
        self.runtime = memory_runtime(self.clock)
        self.options = ManagerOptions(orphans=float("inf"))
        self.queues: dict[str, list[tuple[str, ...]]] = {FIRST: [], "": []}
        made = plan(rasters)
        self.manager = Manager(
            self.runtime,
            self.options,
            lambda _: made,
            lambda keys: self.queues[""].append(tuple(keys)),
            1,
            send_to=lambda keys, host: self.queues[host].append(tuple(keys)),
            recall=self.recall,
        )
        self.slots = [Slot() for _ in range(SLOTS)]
        self.cells: list[float] = []
        self.rasters: list[float] = []
        self.all_cells, self.all_rasters = rasters * CELLS, rasters
        self.sequence = 0
        self.numbers = itertools.count()
        self.events: list[tuple[float, int, Slot | None]] = []

    def recall(self) -> Sequence[str]:
        keys = [key for queue in self.queues.values() for keys in queue for key in keys]
        for queue in self.queues.values():
            queue.clear()
        return keys

    def run(self) -> None:
        """Run one request to its end; the times of its cells and rasters are kept."""
        request = request_operations.submit(self.runtime, "owner", _document())
        due = self.clock.now()
        start = due
        while not request_operations.load(self.runtime, request).state.ended:
            now = self.clock.now()
            if now >= due:
                self.beat()
                due = now + BEAT
            while self.events and self.events[0][0] <= now:
                slot = heapq.heappop(self.events)[2]
                assert slot is not None
                self.finish(slot)
            while self.manager.tick():
                pass
            for slot in self.slots:
                if slot.in_hand is None and not slot.waiting:
                    self.take(slot)
            self.clock.sleep(0.05)
        self.cells = [at - start for at in self.cells]
        self.rasters = [at - start for at in self.rasters]

    def take(self, slot: Slot) -> None:
        """Have a free slot claim the next message."""
        while slot.in_hand is None and (queue := self.queues[FIRST] or self.queues[""]):
            keys = list(queue.pop(0))
            slot.waiting = protocol.claim_batch(self.runtime, keys, "worker", self.options.retry)
            self.begin(slot)

    def begin(self, slot: Slot) -> None:
        if slot.waiting:
            slot.in_hand, slot.began = slot.waiting.pop(0), self.clock.now()
            until = slot.began + SECONDS[slot.in_hand.task.phase]
            heapq.heappush(self.events, (until - 1e-6, next(self.numbers), slot))

    def finish(self, slot: Slot) -> None:
        """End what a slot has in hand; write what has ended when it is time."""
        claimed, now = slot.in_hand, self.clock.now()
        assert claimed is not None
        attempt = claimed.attempt(
            started=slot.began,
            ended=now,
            duration=SECONDS[claimed.task.phase],
            category=None,
            message="",
        )
        file = ArtifactFile(
            name="f", blob=f"artifacts/{claimed.task.key}", size=10, sha256="0" * 64
        )
        end = protocol.End(attempt=attempt, files=[file], healing=0, first=claimed.task)
        slot.ended.append((now, end))
        slot.in_hand = None
        if not slot.waiting or now - slot.ended[0][0] >= LATEST:
            self.write(slot)
        self.begin(slot)

    def write(self, slot: Slot) -> None:
        protocol.end_batch(self.runtime, [end for _, end in slot.ended], self.options.retry)
        for _, end in slot.ended:
            if end.attempt.phase is Phase.REPROJECTION:
                self.cells.append(self.clock.now())
            elif end.attempt.phase is Phase.AGGREGATION:
                self.rasters.append(self.clock.now())
            self.runtime.wakeups.publish(end.attempt.key)
        slot.ended.clear()

    def beat(self) -> None:
        self.sequence += 1
        now = self.clock.now()
        row = WorkerRow(
            name="worker",
            host="host",
            slots=SLOTS,
            started=1.0,
            beat_at=now,
            sequence=self.sequence,
            attempts=tuple(
                RunningAttempt(
                    key=slot.in_hand.task.key,
                    claim=slot.in_hand.claim,
                    started_ago=now - slot.began,
                    phase=slot.in_hand.task.phase,
                    task_class=slot.in_hand.task.task_class,
                )
                for slot in self.slots
                if slot.in_hand is not None
            ),
            waiting=tuple(
                one
                for slot in self.slots
                for one in (
                    *(claimed.claim for claimed in slot.waiting),
                    *(end.attempt.claim for _, end in slot.ended),
                )
            ),
        )
        workers.beat(self.runtime.store, self.clock, row)


def _document() -> Request:
    return parse_request(
        {
            "title": "rasters",
            "products": [{"name": "MOD09GA", "collection": "6.1", "layers": ["layer"]}],
            "region": {"bbox": [5, 50, 6, 51]},
            "time": {"start": "2012-01-01", "end": "2012-01-02"},
            "grid": {"crs": "EPSG:4326", "resolution": 0.01},
        }
    )


def row(rasters: int) -> str:
    """Run a request of so many rasters; return a row of the table."""
    fleet = Fleet(rasters)
    fleet.run()
    cells, times = sorted(fleet.cells), sorted(fleet.rasters)
    assert len(cells) == fleet.all_cells, len(cells)
    at = cells[int(AT * len(cells))]
    there = sum(time <= at for time in times)
    return (
        f"| {rasters:,} | {len(cells):,} | {times[0]:.1f} s | {times[len(times) // 2]:.1f} s "
        f"| {times[-1]:.1f} s | {there / rasters:.0%} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rasters", type=int, nargs="*", default=[40, 100, 1000])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print("| rasters | cells | first raster | half of them | all | at 30% of the cells |")
    print("|---|---|---|---|---|---|")
    for rasters in parser.parse_args().rasters:
        print(row(rasters), flush=True)


if __name__ == "__main__":
    main()
