"""The manager at scale: its own code, against tables and workers that are simulated.

    python -m bench.scale [--sizes 30000 300000 3000000] [--fleet N] [--json FILE]

A request of N ready tasks runs on a fleet; each call of the store takes 8 ms of simulated time, as
in Azure. After twenty seconds somebody else submits a request of ten tasks. Measured are the
manager's processor time per task in steady state (the harness's own is taken off), its memory
above what it had before, and the simulated time until the small request's first and last task
start. `--fleet N` has N of 300,000 tasks end on 10,000 workers.
"""

import argparse
import gc
import heapq
import json
import logging
import multiprocessing
import random
import resource
import time
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import structlog

from bench.scale_rows import BIG, CLASS, Claim, GeneratedStore
from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from tasks.model.model import Attempt, Phase, RequestState, State, Task
from tasks.model.plan import Plan, PlannedTask
from tasks.model.spec import CollectSpec
from tasks.model.task_keys import shard
from tasks.request.document import Request, dump_request, parse_request
from tasks.storage.clock import ManualClock
from tasks.storage.store import Delete, Row
from tasks.tables import request_operations, request_table, task_table, workers
from tasks.tables.runtime import Runtime, memory_runtime
from tasks.tables.workers import RunningAttempt, WorkerRow

LATENCY = 0.008  # seconds of one call
SMALL_AT = 20.0
OUT = Path(__file__).parent / "out" / "scale.json"


@dataclass
class Result:
    """One run. Times in seconds, memory in MB."""

    tasks: int
    workers: int
    ended: int = 0
    cpu_ms_a_task: float = 0.0
    take_over_cpu: float = 0.0  # reading all the request's interests
    ledger_bytes_a_task: float = 0.0
    memory: float = 0.0
    dispatch_delay: float = 0.0  # mean time that a free slot waits for a message
    small_first: float = -1.0
    small_last: float = -1.0
    simulated: float = 0.0
    calls_a_task: float = 0.0
    busy: float = 0.0  # share of simulated time that the manager is at work


@dataclass
class Fleet:
    """Workers that claim and end what they are sent, without their side of the protocol."""

    store: GeneratedStore
    number: int
    slots: int
    seconds: float
    beat: float
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    messages: deque[str] = field(default_factory=deque)
    spent: float = 0.0  # processor time of the harness

    def __post_init__(self) -> None:
        self.idle = deque((i, 0.0) for i in range(self.number) for _ in range(self.slots))
        self.ends: list[tuple[float, str, int]] = []
        self.listed: dict[int, dict[str, float]] = {i: {} for i in range(self.number)}
        self.waited = 0.0
        self.starts = 0
        self.ended = 0
        self.started_small: list[float] = []
        self.wakeups: list[str] = []

    def move(self) -> None:
        """Let everything happen that was due by now."""
        began = time.process_time()
        now = self.store.clock.monotonic()
        while True:
            self._start(now)
            if not self.ends or self.ends[0][0] > now:
                break
            self._end()
        self.spent += time.process_time() - began

    def _start(self, now: float) -> None:
        while self.messages and self.idle:
            key = self.messages.popleft()
            number = self.store.number(key)
            if key in self.store.running or (number is not None and self.store.gone[number]):
                continue
            small = number is None
            if small and not self._take_small(key):
                continue
            worker, since = self.idle.popleft()
            self.waited += now - since
            self.starts += 1
            if number is not None:
                self.store.gone[number] = 1
            else:
                self.started_small.append(now)
            self.store.running[key] = Claim(f"w{worker:05d}", f"c{key[:15]}", now)
            self.listed[worker][key] = now
            length = self.seconds * self.rng.lognormvariate(-0.125, 0.5)
            heapq.heappush(self.ends, (now + length, key, worker))

    def _take_small(self, key: str) -> bool:
        marker = task_table.ready_row("small", key)
        if self.store.inner.get(task_table.TABLE, shard(key), marker) is None:
            return False
        self.store.inner.transact(task_table.TABLE, shard(key), [Delete(row=marker)])
        return True

    def _end(self) -> None:
        at, key, worker = heapq.heappop(self.ends)
        del self.store.running[key]
        start = self.listed[worker].pop(key)
        self.idle.append((worker, at))
        self.ended += 1
        mine = self.store.number(key) is not None
        self.wakeups.append(key)
        done = Task(
            key=key,
            phase=Phase.COLLECTION,
            task_class=CLASS,
            inputs=0,
            state=State.DONE,
            attempt=1,
            interests=(BIG if mine else "small",),
            sponsor=BIG if mine else "small",
        )
        attempt = Attempt(
            key=key,
            number=1,
            claim="",
            phase=done.phase,
            task_class=CLASS,
            worker=f"w{worker:05d}",
            started=0.0,
            ended=self.store.clock.now(),
            duration=at - start,
        )
        event = task_table.attempt_event(done, attempt)
        self.store.inner.transact(task_table.TABLE, shard(key), [event])

    def rows(self) -> list[Row]:
        """The workers' rows as of now."""
        now = self.store.clock.monotonic()
        sequence = int(now / self.beat) + 1
        return [
            Row(
                partition=workers.PARTITION,
                row=f"w{i:05d}",
                etag="",
                entity=workers.WORKER.dump(
                    WorkerRow(
                        name=f"w{i:05d}",
                        host="simulated",
                        slots=self.slots,
                        started=1.0,
                        beat_at=self.store.clock.now(),
                        sequence=sequence,
                        attempts=tuple(
                            RunningAttempt(
                                key=key,
                                claim=f"c{key[:15]}",
                                started_ago=now - start,
                                phase=Phase.COLLECTION,
                                task_class=CLASS,
                            )
                            for key, start in self.listed[i].items()
                        ),
                    )
                ),
            )
            for i in range(self.number)
        ]


class FleetStore(GeneratedStore):
    """The generated store, with the fleet's rows in the table `workers`."""

    fleet: Fleet

    def scan(self, table, partition, start, end, limit=None):  # type: ignore[no-untyped-def]
        if table != workers.TABLE:
            return super().scan(table, partition, start, end, limit)
        began = time.process_time()
        found = self.fleet.rows()
        self.fleet.spent += time.process_time() - began
        return self._paged(iter(found))


def _document(title: str) -> Request:
    return parse_request(
        {
            "title": title,
            "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
            "region": {"tiles": ["h18v04"]},
            "time": {"start": "2012-01-01", "end": "2012-01-02"},
            "grid": {"modis": 1000},
        }
    )


def _plan(_request: Request) -> Plan:
    specs = [
        CollectSpec(product="MOD13A2", collection="6", granule=f"small{i}", production="1")
        for i in range(10)
    ]
    return Plan(tasks=tuple(PlannedTask(spec=spec) for spec in specs))


class Run:
    """One size: a manager, its tables, its fleet."""

    def __init__(self, tasks: int, number: int, seconds: float, beat: float = 5.0) -> None:
        clock = ManualClock()
        self.store = FleetStore(tasks=tasks, clock=clock, latency=LATENCY)
        self.fleet = self.store.fleet = Fleet(self.store, number, 2, seconds, beat)
        self.runtime: Runtime = replace(memory_runtime(clock), store=self.store)
        self.options = ManagerOptions(heartbeat=beat, lease=6 * beat)
        self.result = Result(tasks=tasks, workers=number)
        row = request_table.RequestRow(
            id=BIG,
            owner="somebody",
            state=RequestState.RUNNING,
            submitted=clock.now(),
            document=dump_request(_document(BIG)),
        )
        self.store.inner.transact(
            request_table.TABLE,
            request_table.PARTITION,
            request_table.insert_request(row),
        )

    def go(self, ended: int) -> Result:
        """Run until so many tasks have ended."""
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found, clock, fleet = self.result, self.store.clock, self.fleet
        manager = Manager(self.runtime, self.options, _plan, fleet.messages.extend, 1)
        began = time.process_time()
        manager.tick()
        found.take_over_cpu = time.process_time() - began
        start, submitted, worked = clock.monotonic(), 0.0, 0.0
        spent, calls = 0.0, 0
        steady = None
        while fleet.ended < ended:
            fleet.move()
            for key in fleet.wakeups:
                self.runtime.wakeups.publish(key)
            fleet.wakeups.clear()
            now = clock.monotonic()
            if not submitted and now - start >= SMALL_AT:
                submitted = now
                request_operations.submit(
                    self.runtime, "other", _document("small"), request_id="small"
                )
            mine = time.process_time()
            harness = fleet.spent
            calls_before = self.store.calls
            busy = manager.tick()
            if steady is None and fleet.ended > ended // 5:
                steady = (fleet.ended, clock.monotonic())
                fleet.waited = 0.0
                fleet.starts = 0
            elif steady is not None:
                spent += time.process_time() - mine - (fleet.spent - harness)
                calls += self.store.calls - calls_before
                worked += clock.monotonic() - now
            if not busy:
                clock.sleep(self.options.tick)
        first, since = steady or (0, start)
        number = fleet.ended - first
        found.ended = fleet.ended
        found.cpu_ms_a_task = 1000 * spent / number
        found.calls_a_task = calls / number
        found.busy = worked / (clock.monotonic() - since)
        found.dispatch_delay = fleet.waited / max(1, fleet.starts)
        found.memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        found.ledger_bytes_a_task = _ledger_bytes(manager) / found.tasks
        found.simulated = clock.monotonic() - start
        if fleet.started_small:
            found.small_first = min(fleet.started_small) - submitted
            found.small_last = max(fleet.started_small) - submitted
        return found


def _ledger_bytes(manager: Manager) -> int:
    ledger = manager.cache.requests[BIG].ledger if BIG in manager.cache.requests else None
    return ledger.size if ledger else 0


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _one(tasks: int) -> Result:
    _quiet()
    return Run(tasks, 100, 4.0).go(5000)


def _fleet(ended: int) -> Result:
    _quiet()
    return Run(300_000, 10_000, 120.0, beat=15.0).go(ended)


def table(found: list[Result]) -> str:
    """A Markdown table, one row for each run."""
    lines = [
        "| tasks | workers | ended | manager's CPU a task | calls a task | memory | ledger "
        "| a free slot waits | ten tasks behind it start after | manager busy |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.tasks:,} | {r.workers:,} | {r.ended:,} | {r.cpu_ms_a_task:.2f} ms "
        f"| {r.calls_a_task:.2f} | {r.memory:.0f} MB | {r.ledger_bytes_a_task:.0f} B a task "
        f"| {r.dispatch_delay:.2f} s | {r.small_first:.1f} to {r.small_last:.1f} s "
        f"| {r.busy:.0%} |"
        for r in found
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the sizes, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[30_000, 300_000, 3_000_000])
    parser.add_argument("--fleet", type=int, default=0)
    parser.add_argument("--json", type=Path, default=OUT)
    arguments = parser.parse_args()
    jobs = [(_one, size) for size in arguments.sizes] + [(_fleet, arguments.fleet)] * bool(
        arguments.fleet
    )
    found: list[Result] = []
    for job, size in jobs:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(job, (size,)))
        print(found[-1], flush=True)
    print(table(found))
    arguments.json.parent.mkdir(exist_ok=True)
    arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
