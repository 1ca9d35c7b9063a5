"""What the portal's pages cost: processor time of portal and storage, and bytes sent.

    python -m bench.pages [--requests N] [--tasks N] [--refreshes N]

A portal over a real Azurite, each in a process of its own. The tables hold N requests of several
owners, N finished tasks and a worker that runs nothing. Each page is loaded several times one after
the other, the operators' tab once every three seconds as its script does. CPU is the user and
system time of both processes, by /proc, without what they take while nobody asks. Bytes are those
of the answers as they were sent: a page counts with the style sheet, the scripts and the map data
that it names. The results go to bench/out/pages.json.
"""

import argparse
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import httpx

from portal.serving import tokens
from portal.serving.identity import COOKIE
from swathmill.stack import ports
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.children import Child, ChildSpec
from tasks.bag import task_table, workers
from tasks.bag.model import Phase, RequestState, State, Task, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import SHARDS, shard
from tasks.bag.task_rows import Interest
from tasks.bag.workers import WorkerRow
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount, RequestRow
from tasks.service.connect import connect
from tasks.settings import Settings
from tasks.storage.store import Operation

OUT = Path(__file__).parent / "out"
ME = "ada@example.org"
LOADS = 20
REFRESH_SECONDS = 3.0  # the operators' tab
IDLE_SECONDS = 30.0
LIVE = 10  # requests that have not ended
_TICKS = os.sysconf("SC_CLK_TCK")
_ASSETS = re.compile(rb'(?:<link rel="stylesheet" href|<script defer src|data-world)="([^"]+)"')
DOCUMENT = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one load of a page costs on average; `sent` with the files that the page names."""

    page: str
    portal_ms: float
    storage_ms: float
    wall_ms: float
    sent: int
    unpacked: int
    goal_ms: float | None = None
    goal_sent: int | None = None

    @property
    def met(self) -> bool:
        """True if the goals are met, if there are any."""
        cpu = self.portal_ms + self.storage_ms
        return (self.goal_ms is None or cpu < self.goal_ms) and (
            self.goal_sent is None or self.sent < self.goal_sent
        )


def main() -> int:
    """Measure and print. Returns 1 when a goal is missed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--requests", type=int, default=1000)
    arguments.add_argument("--tasks", type=int, default=5000)
    arguments.add_argument("--refreshes", type=int, default=40)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="swathmill-pages-") as folder:
        costs = measure(Path(folder), options.requests, options.tasks, options.refreshes)
    OUT.mkdir(exist_ok=True)
    told = [asdict(cost) | {"met": cost.met} for cost in costs]
    (OUT / "pages.json").write_text(json.dumps(told, indent=1) + "\n")
    return 0 if all(cost.met for cost in costs) else 1


def measure(folder: Path, number: int, tasks: int, refreshes: int) -> list[Cost]:
    """Fill the tables, start the portal, load the pages."""
    azurite = AzuriteServer.on_free_ports(
        folder=folder / "azurite", log=folder / "azurite.log", account=Account.new()
    )
    storage = azurite.start()
    try:
        settings = Settings(
            redis_url="redis://127.0.0.1:1/0",  # pages do not ask it
            storage=azurite.connection_string,
            secret=secrets.token_hex(32),
        )
        runtime = connect(settings)
        began = time.monotonic()
        fill(runtime, number, tasks)
        print(f"{number} requests and {tasks} tasks, in {time.monotonic() - began:.0f} s")
        with portal(folder, settings) as (child, url):
            meter = Meter(
                url=url,
                settings=settings,
                portal=child,
                storage=storage,
                idle=_idle(child, storage),
            )
            return load(meter, refreshes)
    finally:
        storage.stop()


@dataclass(frozen=True, kw_only=True)
class Meter:
    """Loads pages as a browser does, and reads what both processes took for it."""

    url: str
    settings: Settings
    portal: Child
    storage: Child
    idle: tuple[float, ...]  # CPU seconds a second that each of the two takes by itself

    def browser(self) -> httpx.Client:
        """A client that is signed in as an operator and reads gzip."""
        secret = self.settings.secret.get_secret_value()
        session = tokens.issue(secret, ME, tokens.Role.OPERATOR, use=tokens.Use.SESSION)
        return httpx.Client(
            base_url=self.url,
            cookies={COOKIE: session},
            headers={"Accept": "text/html", "Accept-Encoding": "gzip"},
            trust_env=False,
            timeout=120.0,
        )

    def cost(
        self,
        page: str,
        *,
        times: int = LOADS,
        pause: float = 0.0,
        goal_ms: float | None = None,
        goal_sent: int | None = None,
    ) -> Cost:
        """Load a page several times after once without measuring."""
        with self.browser() as client:
            sent, unpacked = _size(client, page)
            children = (self.portal, self.storage)
            began_all = time.monotonic()
            before = [_cpu(child) for child in children]
            wall = 0.0
            for _ in range(times):
                time.sleep(pause)
                began = time.perf_counter()
                client.get(page).raise_for_status()
                wall += time.perf_counter() - began
            after = [_cpu(child) for child in children]
        lasted = time.monotonic() - began_all
        portal_ms, storage_ms = (
            1000 * max(0.0, late - early - idle * lasted) / times
            for early, late, idle in zip(before, after, self.idle, strict=True)
        )
        made = Cost(
            page=page,
            portal_ms=round(portal_ms, 1),
            storage_ms=round(storage_ms, 1),
            wall_ms=round(1000 * wall / times, 1),
            sent=sent,
            unpacked=unpacked,
            goal_ms=goal_ms,
            goal_sent=goal_sent,
        )
        goals = [f"goal {goal_ms:g} ms"] if goal_ms else []
        goals += [f"goal {goal_sent / 1000:g} kB"] if goal_sent else []
        print(
            f"{page:28} portal {portal_ms:6.1f} ms  storage {storage_ms:6.1f} ms  "
            f"{sent / 1000:6.1f} kB sent of {unpacked / 1000:6.1f}  "
            f"{', '.join(goals)}{'' if made.met else ': MISSED'}",
            flush=True,
        )
        return made


def load(meter: Meter, refreshes: int) -> list[Cost]:
    """Every page."""
    return [
        meter.cost("/", goal_ms=60),
        meter.cost("/?everybody=true", goal_ms=60),
        *deep(meter),
        meter.cost("/api/requests?limit=100"),
        meter.cost("/new", goal_sent=100_000),
        meter.cost("/new/products?q=leaf"),
        meter.cost("/operations"),
        meter.cost("/operations/live", times=refreshes, pause=REFRESH_SECONDS, goal_ms=20),
        meter.cost("/operations/history", times=LOADS),
    ]


def deep(meter: Meter) -> Iterator[Cost]:
    """The last page of everybody's requests."""
    with meter.browser() as client:
        page = last = "/?everybody=true"
        while page:
            last = page
            found = re.search(r'href="([^"]+)">Older', client.get(page).text)
            page = found[1].replace("&amp;", "&") if found else ""
    yield meter.cost(last, goal_ms=60)


def fill(runtime: Runtime, number: int, tasks: int) -> None:
    """Requests of three owners, of which the last ones have not ended; finished tasks; a worker."""
    document = parse_request(DOCUMENT)
    for n in range(number):
        _request(runtime, document, n, ended=n < number - LIVE)
    _tasks(runtime, tasks)
    now = runtime.clock.now()
    worker = WorkerRow(name="worker-1", host="here", slots=2, started=now, beat_at=now)
    workers.beat(runtime.store, runtime.clock, worker)


def _request(runtime: Runtime, document: Request, n: int, *, ended: bool) -> None:
    owner = ME if n % 3 else f"owner{n % 2}@example.org"
    made = document.model_copy(update={"title": f"Leaf area, part {n}"})
    name = request_operations.submit(runtime, owner, made)
    phases = {
        phase: PhaseCount(total=40, done=40 if ended else 20, running=0)
        for phase in (Phase.COLLECTION, Phase.REPROJECTION, Phase.AGGREGATION)
    }
    state = (RequestState.GAPS if n % 5 == 0 else RequestState.COMPLETE) if ended else None

    def change(row: RequestRow) -> RequestRow:
        return replace(
            row,
            state=state or RequestState.RUNNING,
            ended=runtime.clock.now() if ended else 0.0,
            phases=phases,
            outputs=40,
            delivered=40 if ended else 20,
            gap_count=3 if n % 5 == 0 else 0,
        )

    request_operations.change_request(runtime, name, change)


def _tasks(runtime: Runtime, number: int) -> None:
    batches: dict[str, list[Operation]] = {name: [] for name in SHARDS}
    for n in range(number):
        spec = CollectSpec(
            product="MCD15A2", collection="5", granule=f"MCD15A2.{n}.hdf", production="2012"
        )
        stored, parts = task_table.stored_spec(spec.key, spec)
        task = Task(
            key=spec.key,
            phase=spec.phase,
            task_class=spec.task_class,
            inputs=0,
            state=State.DONE,
            spec=stored,
        )
        interest = Interest(
            request="bench", key=spec.key, phase=spec.phase, outcome=TaskOutcome.DONE
        )
        batches[shard(spec.key)] += [
            task_table.insert_task(task),
            *parts,
            task_table.put_interest(interest),
        ]
    for name, operations in batches.items():
        for start in range(0, len(operations), 99):
            runtime.tasks.transact(name, operations[start : start + 99])


@contextmanager
def portal(folder: Path, settings: Settings) -> Iterator[tuple[Child, str]]:
    """A portal of its own process until the block ends, with its address."""
    (port,) = ports.choose(1)
    child = Child(
        ChildSpec(
            name="portal",
            argv=(sys.executable, "-P", "-m", "portal"),
            env={
                "SWATHMILL_STORAGE": settings.storage.get_secret_value(),
                "SWATHMILL_REDIS_URL": settings.redis_url.get_secret_value(),
                "SWATHMILL_SECRET": settings.secret.get_secret_value(),
                "SWATHMILL_PORTAL_ADDRESS": f"127.0.0.1:{port}",
                "SWATHMILL_PORTAL_URL": f"http://127.0.0.1:{port}",
            },
            log=folder / "portal.log",
            grace_seconds=10.0,
        )
    )
    child.start()
    try:
        child.wait_until(_answers(port), limit_seconds=120.0)
        yield child, f"http://127.0.0.1:{port}"
    finally:
        child.stop()


def _answers(port: int) -> Callable[[], bool]:
    return lambda: ports.answers(port)


def _size(client: httpx.Client, page: str) -> tuple[int, int]:
    """Bytes of a page with all it names, as sent and unpacked."""
    sent = unpacked = 0
    waiting = [page]
    seen: set[str] = set()
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen.add(address)
        with client.stream("GET", address) as answer:
            content = answer.read()
            answer.raise_for_status()
            sent += answer.num_bytes_downloaded
        unpacked += len(content)
        if address == page:
            waiting += [found.decode() for found in _ASSETS.findall(content)]
    return sent, unpacked


def _idle(*children: Child) -> tuple[float, ...]:
    """CPU seconds a second of processes that nobody asks for anything."""
    time.sleep(5.0)  # they have just started, or written a lot
    before = [_cpu(child) for child in children]
    time.sleep(IDLE_SECONDS)
    return tuple(
        (_cpu(child) - early) / IDLE_SECONDS for child, early in zip(children, before, strict=True)
    )


def _cpu(child: Child) -> float:
    """User and system seconds of a process."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
