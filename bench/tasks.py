"""Tasks that do nothing, through the whole protocol: the manager, Celery's workers, storage, Redis.

    python -m bench.tasks [--storage embedded azurite] [--count N] [--workers 1 2 4 8] [--slots N]
        [--prices FILE [--region NAME]]

The plan is written first; when all workers have started, each task is sent, claimed in the table,
committed without files, and processed by the manager, until the request has ended. Beside it, the
same workers run tasks that do nothing but count, without any table. Both rates depend on the
machine and on what else it does; the CPU seconds of each process are told too, and the calls that
Azurite's log has. Several numbers of workers, or storages, make a table. Amounts are told where a
file of Azure's prices is given, as `swathmill prices` reads it; calls are priced as those of blobs.
The results go to bench/out/tasks.json.
"""

import argparse
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from pydantic import SecretStr
from redis import Redis

from bench.storage_log import StorageLog, azurite_that_tells, billed
from service_manager.leader.manager import Manager
from service_manager.leader.service import serve
from service_manager.options import ManagerOptions
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.children import Child, ChildSpec
from swathmill.stack.redis_server import RedisServer
from tasks.bag import protocol, workers
from tasks.bag.model import RequestOrder, RequestState, Use
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec
from tasks.bag.transitions import RetryPolicy
from tasks.messages.celery_app import Sender, make_app
from tasks.operators.prices import PriceList
from tasks.operators.retail_prices import Choice, chosen, read_page
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Plan, PlannedTask
from tasks.service import logs
from tasks.service.connect import connect
from tasks.settings import Settings
from worker.slots.service import consumer
from worker.slots.supervisor import Supervisor

OUT = Path(__file__).parent / "out"
COUNTED = "bench:counted"
PATIENCE = 900.0  # seconds
PARTS = ("azurite", "redis", "manager", "worker")  # of processes
FORMULA = "no prices: reads and writes by 10,000, and processor hours"
DOCUMENT = {
    "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
    "region": {"tiles": ["h18v04"]},
    "time": {"start": "2012-01-01", "end": "2012-01-02"},
    "grid": {"modis": 1000},
}


class Slots:
    """What Celery's loop needs of a supervisor; `run` is all that a slot does."""

    draining = False
    hold = workers.Hold.NONE

    def __init__(self, settings: Settings, run: Callable[[Sequence[str]], None]) -> None:
        self.settings = settings
        self.name = settings.worker_name
        self.execute = run

    def takes(self) -> bool:
        """Always: nothing else runs here."""
        return True

    def busy(self) -> bool:
        """Nothing is claimed when Celery has waited for its threads."""
        return False

    def kill_all(self, _order: object) -> None:
        """Nothing to kill: no attempt has a process."""


def plan(request: Request) -> Plan:
    """As many collections as the title says, of granules that are never fetched."""
    return Plan(
        tasks=tuple(
            PlannedTask(
                spec=CollectSpec(
                    product="MOD13A2", collection="6", granule=granule, production="1", size=1
                )
            )
            for i in range(int(request.title))
            for granule in [f"MOD13A2.A2012{i // 40 % 366 + 1:03d}.{i}"]
        )
    )


def manage(settings: Settings) -> None:
    """The manager's process."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    runtime = connect(settings)
    sender = Sender(make_app(settings.redis_url.get_secret_value()))
    options = replace(ManagerOptions.of(settings, "bench"), tick=0.1, window=4096)
    serve(
        runtime,
        options,
        lambda epoch: Manager(runtime, options, plan, sender, epoch, recall=sender.recall),
        stop,
    )


def work(settings: Settings) -> None:
    """A worker's process: claim and commit, nothing in between."""
    runtime = connect(settings)
    policy = RetryPolicy()

    def run(keys: Sequence[str]) -> None:
        claimed = protocol.claim_batch(runtime, keys, settings.worker_name, policy)
        now = runtime.clock.now()
        ends = [
            protocol.End(attempt=one.attempt(started=now, ended=now, duration=0.0), first=one.task)
            for one in claimed
        ]
        if ends:
            protocol.end_batch(runtime, ends, policy)

    threading.Thread(target=_beat, args=(runtime, settings), daemon=True).start()
    slots = Slots(settings, run)
    consumer(make_app(settings.redis_url.get_secret_value()), cast("Supervisor", slots))()


def count(settings: Settings) -> None:
    """A worker's process of bare Celery."""
    redis = Redis.from_url(settings.redis_url.get_secret_value())
    slots = Slots(settings, lambda _keys: _ignore(redis.rpush(COUNTED, "")))
    consumer(make_app(settings.redis_url.get_secret_value()), cast("Supervisor", slots))()


def _ignore(_value: object) -> None:
    """An answer of no use."""


def _beat(runtime: Runtime, settings: Settings) -> None:
    row = workers.WorkerRow(
        name=settings.worker_name,
        host="bench",
        slots=settings.slots,
        started=runtime.clock.now(),
        beat_at=runtime.clock.now(),
    )
    while True:
        workers.beat(runtime.store, runtime.clock, row)
        runtime.clock.sleep(settings.heartbeat_seconds)


ROLES = {"manage": manage, "work": work, "count": count}


class Machine:
    """Storage, Redis and the processes of one run."""

    def __init__(self, folder: Path, slots: int, storage: str) -> None:
        self.folder = folder
        self.slots = slots
        self.azurite: AzuriteServer | None = None
        self.log: StorageLog | None = None
        self.storage = f"file:{folder / 'storage'}"
        if storage == "azurite":
            os.environ["SWATHMILL_NODE_MODULES"] = str(azurite_that_tells(folder / "node_modules"))
            self.azurite = AzuriteServer.on_free_ports(
                folder=folder / "azurite", log=folder / "azurite.log", account=Account.new()
            )
            self.storage = self.azurite.connection_string
        self.redis = RedisServer.on_free_port(folder=folder / "redis", log=folder / "redis.log")
        self.settings = Settings(
            storage=SecretStr(self.storage),
            redis_url=SecretStr(self.redis.url),
            log_level="warning",
        )

    def servers(self) -> dict[str, Child]:
        """Start Redis and, where it is the storage, Azurite."""
        started = {"redis": self.redis.start()}
        if self.azurite is not None:
            started["azurite"] = self.azurite.start()
            self.log = StorageLog(self.azurite.log)
        return started

    def child(self, role: str, number: int = 0) -> Child:
        """A process of this module."""
        name = f"{role}-{number}"
        started = Child(
            ChildSpec(
                name=name,
                argv=(sys.executable, "-m", "bench.tasks", "--role", role),
                log=self.folder / f"{name}.log",
                env={
                    "SWATHMILL_STORAGE": self.storage,
                    "SWATHMILL_REDIS_URL": self.redis.url,
                    "SWATHMILL_WORKER_NAME": name,
                    "SWATHMILL_SLOTS": str(self.slots),
                    "SWATHMILL_LOG_LEVEL": "warning",
                },
            )
        )
        started.start()
        return started


@contextmanager
def running(*children: Child) -> Iterator[None]:
    """Stop the children when the block ends."""
    try:
        yield
    finally:
        for child in children:
            child.stop()


def cpu_seconds(child: Child) -> float:
    """User and system time of a process that runs, in seconds."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(there: Callable[[], bool], what: str) -> None:
    """Wait for something; RuntimeError when it does not come."""
    limit = time.monotonic() + PATIENCE
    while not there():
        if time.monotonic() > limit:
            raise RuntimeError(f"{what} did not come within {PATIENCE:g} s")
        time.sleep(0.1)


def protocol_run(machine: Machine, tasks: int, processes: int) -> dict[str, object]:
    """Plan, then execute; rates and CPU seconds."""
    parts = machine.servers()
    with running(*parts.values()):
        runtime = connect(machine.settings)
        begun = time.monotonic()
        with running(manager := machine.child("manage")):
            document = parse_request({**DOCUMENT, "title": str(tasks)})
            request = request_operations.submit(runtime, "bench", document)

            def state() -> RequestState:
                return request_operations.load(runtime, request).state

            until(lambda: state() is RequestState.RUNNING, "the plan")
            planned = time.monotonic()
            request_operations.order(runtime, request, RequestOrder.PAUSE)
            until(lambda: request_operations.load(runtime, request).paused, "the pause")
            parts["manager"] = manager
            working = {f"worker-{i}": machine.child("work", i) for i in range(processes)}
            parts |= working
            with running(*working.values()):
                until(lambda: len(workers.list_workers(runtime.store)) == processes, "all workers")
                request_operations.order(runtime, request, RequestOrder.RESUME)
                until(lambda: _delivered(runtime, request) > 0, "a task")
                before = {name: cpu_seconds(child) for name, child in parts.items()}
                first, at = time.monotonic(), _delivered(runtime, request)
                if machine.log is not None:
                    machine.log.forget()
                until(lambda: state().ended, "the end")
                ended = time.monotonic()
                spent = {name: cpu_seconds(child) - before[name] for name, child in parts.items()}
                calls = machine.log.calls() if machine.log is not None else Counter[str]()
        if state() is not RequestState.COMPLETE:
            raise RuntimeError(f"the request ended {state().value}")
    rest = tasks - at
    return {
        "tasks": tasks,
        "planned per second": round(tasks / (planned - begun), 1),
        "tasks per second": round(rest / (ended - first), 1),
        "CPU ms per task": {name: round(1000 * s / rest, 2) for name, s in spent.items()},
        "CPU ms per task, all": round(1000 * sum(spent.values()) / rest, 2),
        "calls per task": {name: round(number / rest, 2) for name, number in calls.items()},
        "used by 1,000 tasks": asdict(
            replace(_by_thousand(billed(calls), rest), cpu=1000 * _of_service(spent) / rest)
        ),
    }


def _by_thousand(use: Use, tasks: int) -> Use:
    return replace(
        use, reads=round(1000 * use.reads / tasks), writes=round(1000 * use.writes / tasks)
    )


def _of_service(spent: Mapping[str, float]) -> float:
    """Sum what one pays for by the processor: storage and Redis are paid for otherwise."""
    return sum(seconds for name, seconds in spent.items() if name not in ("azurite", "redis"))


def _delivered(runtime: Runtime, request: str) -> int:
    return sum(count.done for count in request_operations.load(runtime, request).phases.values())


def celery_run(machine: Machine, tasks: int, processes: int) -> dict[str, object]:
    """The same number of messages to workers that only count them."""
    with running(machine.redis.start()):
        redis = Redis.from_url(machine.redis.url)
        sender = Sender(make_app(machine.redis.url))

        def counted() -> int:
            return cast("int", redis.llen(COUNTED))

        parts = [machine.child("count", i) for i in range(processes)]
        with running(*parts):
            sender(["first"])
            until(lambda: counted() > 0, "the first")
            before = sum(map(cpu_seconds, parts))
            begun, already = time.monotonic(), counted()
            for number in range(tasks):
                sender([str(number)])
            until(lambda: counted() >= tasks + already, "the last")
            ended = time.monotonic()
            spent = sum(map(cpu_seconds, parts)) - before
        redis.close()
    return {
        "tasks per second": round(tasks / (ended - begun), 1),
        "CPU ms per task, workers": round(1000 * spent / tasks, 2),
    }


def table(results: Mapping[str, Mapping[str, object]]) -> str:
    """The results as text."""
    lines = []
    for name, found in results.items():
        lines.append(f"{name}:")
        for what, value in found.items():
            shown = value
            if isinstance(value, dict):
                shown = ", ".join(f"{k} {v}" for k, v in value.items())
            lines.append(f"  {what}: {shown}")
    return "\n".join(lines)


def rows(
    storages: Sequence[str], numbers: Sequence[int], count: int, slots: int, prices: PriceList
) -> list[dict[str, object]]:
    """Run each storage with each number of workers; print a row of a table for each."""
    heads = ("storage", "workers", "load", "tasks a second", *(f"ms: {p}" for p in PARTS), "ms")
    print(f"| {' | '.join(heads)} | reads | writes | 1,000 tasks |")
    print("|---" * (len(heads) + 3) + "|", flush=True)
    found: list[dict[str, object]] = []
    for storage, number in itertools.product(storages, numbers):
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as folder:
            one = protocol_run(Machine(Path(folder), slots, storage), count, number)
        found.append({"storage": storage, "workers": number, "load before": load, **one})
        by_process = cast("dict[str, float]", one["CPU ms per task"])
        parts = [
            sum(ms for name, ms in by_process.items() if name.startswith(part)) for part in PARTS
        ]
        used = Use(**cast("dict[str, float]", one["used by 1,000 tasks"]))  # type: ignore[arg-type]
        cells = [storage, number, f"{load:.0f}", one["tasks per second"]]
        cells += [f"{ms:.2f}" for ms in (*parts, sum(parts))]
        cells += [f"{used.reads / 1000:.2f}", f"{used.writes / 1000:.2f}"]
        cells.append(prices.text(prices.prices.amount(used)) if prices else FORMULA)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return found


def price_list(files: Sequence[Path], region: str) -> PriceList:
    """Read prices as `swathmill prices` does; none where there are no files."""
    items = [item for path in files for item in read_page(path.read_text(), path.name).items]
    return chosen(items, Choice(region=region), files[0].name) if files else PriceList()


def main() -> None:
    """Run both and print the rates, or the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--role", choices=sorted(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=3000, help="tasks")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="worker processes")
    parser.add_argument("--slots", type=int, default=4, help="slots of each")
    parser.add_argument(
        "--storage", choices=("embedded", "azurite"), nargs="+", default=["embedded"]
    )
    parser.add_argument("--prices", type=Path, nargs="*", default=[], help="of Azure, as JSON")
    parser.add_argument("--region", default="", help="whose prices")
    given = parser.parse_args()
    if given.role:
        settings = Settings()
        logs.configure(settings.log_level, process=given.role)
        ROLES[given.role](settings)
        return
    OUT.mkdir(exist_ok=True)
    if len(given.workers) > 1 or len(given.storage) > 1:
        prices = price_list(given.prices, given.region)
        made = rows(given.storage, given.workers, given.count, given.slots, prices)
        (OUT / "tasks.json").write_text(json.dumps(made, indent=1) + "\n")
        return
    (storage,), (workers,) = given.storage, given.workers
    results: dict[str, Mapping[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as folder:
        load = os.getloadavg()[0]
        results["protocol"] = protocol_run(
            Machine(Path(folder) / "a", given.slots, storage), given.count, workers
        )
        results["bare Celery"] = celery_run(
            Machine(Path(folder) / "b", given.slots, storage), given.count, workers
        )
        results["machine"] = {
            "storage": storage,
            "cores": os.cpu_count(),
            "load before": round(load, 1),
        }
    (OUT / "tasks.json").write_text(json.dumps(results, indent=1) + "\n")
    sys.stdout.write(table(results) + "\n")


if __name__ == "__main__":
    main()
