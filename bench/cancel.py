"""Cancelling a large request: how long until nothing of it is wanted any more.

    python -m bench.cancel [--storage embedded|azurite] [--tasks N] [--others N] [--made N]

A manager plans a request of granules, cells and rasters; a worker that fetches and computes nothing
makes some of it; then the request is cancelled in the middle. `--others` puts so many tasks of
another request into the same tables first. Told are the seconds from the order until the request
has ended, the transactions and reads in between, and the manager's processor time.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.redis_server import RedisServer
from swathmill.stack.server import Server
from tasks.bag import protocol
from tasks.bag.kinds import Spec
from tasks.bag.model import RequestOrder
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.bag.transitions import RetryPolicy
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Plan, PlannedTask
from tasks.service.connect import connect
from tasks.settings import Settings
from tasks.storage.store import Operation, Row, Store

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)


@dataclass
class CountingStore:
    """A store that counts calls."""

    inner: Store
    reads: int = 0
    scans: int = 0
    writes: int = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.reads += 1
        return self.inner.get(table, partition, row)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.writes += 1
        return self.inner.transact(table, partition, operations)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self.scans += 1
        return self.inner.scan(table, partition, start, end, limit)


def plan(request: Request) -> Plan:
    """So many tasks as the title says: granules, twenty cells over each two, a raster of 12."""
    name, number = request.title.split()
    total = int(number)
    granules: list[Spec] = [
        CollectSpec(product="MOD13A2", collection="6", granule=f"{name}{i}", production="1", size=1)
        for i in range(max(2, total // 24))
    ]
    rasters = total // 14
    cells = [
        _over(f"{name} cell {i}", [granules[i % len(granules)], granules[(i + 1) % len(granules)]])
        for i in range(total - len(granules) - rasters)
    ]
    tops = [_over(f"{name} raster {i}", cells[12 * i : 12 * i + 12]) for i in range(rasters)]
    return Plan(
        tasks=(
            *(PlannedTask(spec=spec) for spec in (*granules, *cells)),
            *(PlannedTask(spec=spec, output="out") for spec in tops),
        )
    )


def _over(name: str, inputs: Sequence[Spec]) -> Spec:
    return MosaicSpec(name=name, grid=GRID, inputs=tuple(Input(key=i.key) for i in inputs))


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


class Run:
    """A manager and a worker in one process."""

    def __init__(self, runtime: Runtime, store: CountingStore) -> None:
        self.runtime = runtime
        self.store = store
        self.sent: list[str] = []
        options = ManagerOptions(tick=0.0, orphans=1e9)
        self.manager = Manager(runtime, options, plan, self.sent.extend, 1)

    def until_running(self, request: str) -> None:
        """Plan a request."""
        while request_operations.load(self.runtime, request).state.value != "running":
            self.manager.tick()

    def make(self, request: str, number: int) -> None:
        """Make so many tasks, and have the manager process their ends."""
        made = 0
        while made < number:
            self.manager.tick()
            sent, self.sent[:] = list(self.sent), []
            for key in sent:
                claimed = protocol.claim(self.runtime, key, "bench", RetryPolicy())
                if claimed is not None:
                    now = self.runtime.clock.now()
                    attempt = claimed.attempt(started=now, ended=now, duration=0.0)
                    made += protocol.commit(self.runtime, attempt, (), claimed.task)
        while self.done(request) < made:
            self.manager.tick()

    def done(self, request: str) -> int:
        """Tasks of the request that are done, as its row says."""
        row = request_operations.load(self.runtime, request)
        return sum(count.done for count in row.phases.values())

    def cancel(self, request: str) -> None:
        """Cancel a request, and tell what it took."""
        at = self.store.reads, self.store.scans, self.store.writes
        began, cpu = time.perf_counter(), time.process_time()
        request_operations.order(self.runtime, request, RequestOrder.CANCEL)
        row = request_operations.load(self.runtime, request)
        print(f"after the order: {row.state.value}, order {row.order!r}")
        told = ""
        while not row.state.ended:
            self.manager.tick()
            row = request_operations.load(self.runtime, request)
            text = ", ".join(f"{p.value} {c.done} of {c.total}" for p, c in row.phases.items())
            if text != told:
                print(f"{time.perf_counter() - began:6.1f} s  {row.state.value}: {text}")
                told = text
        took, spent = time.perf_counter() - began, time.process_time() - cpu
        reads, scans, writes = (
            new - old
            for new, old in zip(
                (self.store.reads, self.store.scans, self.store.writes), at, strict=True
            )
        )
        print(
            f"{row.state.value} after {took:.1f} s, {spent:.1f} s of the manager's processor; "
            f"{reads} reads, {scans} scans, {writes} transactions"
        )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", choices=("embedded", "azurite"), default="embedded")
    parser.add_argument("--tasks", type=int, default=7000)
    parser.add_argument("--others", type=int, default=0)
    parser.add_argument("--made", type=int, default=200)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        redis = RedisServer.on_free_port(folder=folder / "redis", log=folder / "redis.log")
        storage = f"file:{folder / 'storage'}"
        servers: list[Server] = [redis]
        if arguments.storage == "azurite":
            azurite = AzuriteServer.on_free_ports(
                folder=folder / "data", log=folder / "azurite.log", account=Account.new()
            )
            storage = azurite.connection_string
            servers.append(azurite)
        children = [server.start() for server in servers]
        try:
            runtime = connect(Settings(storage=storage, redis_url=redis.url))
            store = CountingStore(runtime.store)
            runtime = replace(runtime, store=store)
            run = Run(runtime, store)
            if arguments.others:
                other = request_operations.submit(
                    runtime, "other", _document(f"o {arguments.others}")
                )
                run.until_running(other)
            request = request_operations.submit(runtime, "owner", _document(f"g {arguments.tasks}"))
            run.until_running(request)
            print(f"planned: {arguments.tasks} tasks", flush=True)
            run.make(request, arguments.made)
            run.cancel(request)
        finally:
            for child in children:
                child.stop()


if __name__ == "__main__":
    main()
