"""`python -m bench.chaos.cuts --seed 1`: worker hosts cut off from the network, by a script.

A stack on Azurite and three hosts, each a worker with a data folder of its own that reaches Azurite
and Redis through a proxy of its own. The proxies hold back what a host sends, what it is answered,
or both, for 5 to 120 seconds: one host after another, two at once, and at last the only one that is
left. All the time requests are submitted. It must hold that no task is charged with an attempt
that was fenced or lost, that work never stands still for two leases while a host is connected, and
that all results have the bytes of a quiet run. Exit code 1 when something does not hold.
"""

import argparse
import datetime as dt
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from bench.chaos.__main__ import COMPLETE, ENVIRONMENT, Run, Verdict, tell
from bench.chaos.audit import runtime_of, tasks_of
from bench.chaos.documents import documents, sample_document
from bench.chaos.journal import Journal
from bench.chaos.proxy import Proxy, Weather
from bench.chaos.scientists import Scientists
from reprojection.sample.sample import write_sample_archive
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack
from swathmill.stack.storage import Storage
from tasks.errors import StoreError
from tasks.model.categories import RULES, Category, Retry
from tasks.model.model import Task
from tasks.tables import history
from tasks.tables.runtime import Runtime

HEARTBEAT, LEASE = 2.0, 10.0
LIVE = 3  # requests at a time
LOOK = 0.25  # seconds between two looks at what has ended
HOSTS = ("host-1", "host-2", "host-3")
FREE = {name for name, rule in RULES.items() if rule.retry in (Retry.AT_ONCE, Retry.ELSEWHERE)}


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Hosts that are cut off in one direction or both ("hole") for some seconds."""

    hosts: tuple[str, ...]
    way: str
    seconds: float
    alone: bool = False  # the other hosts are gone for good


SCRIPT = (
    Cut(hosts=("host-1",), way="hole", seconds=5),
    Cut(hosts=("host-2",), way="there", seconds=12),
    Cut(hosts=("host-3",), way="back", seconds=25),
    Cut(hosts=("host-1", "host-2"), way="hole", seconds=30),
    Cut(hosts=("host-2", "host-3"), way="back", seconds=15),
    Cut(hosts=("host-1",), way="there", seconds=8, alone=True),
    Cut(hosts=("host-1",), way="back", seconds=40, alone=True),
    Cut(hosts=("host-1",), way="hole", seconds=120, alone=True),
)


@dataclass
class Host:
    """A worker that reaches its servers through a proxy of its own."""

    name: str
    proxy: Proxy
    ports: tuple[int, ...]
    process: subprocess.Popen[bytes]
    log: BinaryIO

    @classmethod
    def start(cls, name: str, stack: Stack, folder: DataFolder, seed: int) -> "Host":
        """Start the worker with the settings of the stack's manager, but for its addresses."""
        state = folder.state()
        ports = (*state.azurite_ports, state.redis_port)
        proxy = Proxy(seed, lambda _why: None)
        given = stack.supervisor.child("manager").spec.env
        env = {key: value for key, value in given.items() if value is not None}
        for setting in ("SWATHMILL_STORAGE", "SWATHMILL_REDIS_URL"):
            for port in ports:
                env[setting] = env[setting].replace(f":{port}", f":{proxy.port_before(port)}")
        env |= {
            "SWATHMILL_WORKER_NAME": name,
            "SWATHMILL_DATA_DIR": str(folder.path.parent / name),
        }
        (folder.path.parent / name).mkdir()
        log = (folder.path.parent / f"{name}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker"],
            env={**os.environ, **env},
            stdout=log,
            stderr=log,
        )
        return cls(name=name, proxy=proxy, ports=ports, process=process, log=log)

    def set(self, kind: str) -> None:
        """Set how its connections fare."""
        for port in self.ports:
            self.proxy.set(port, Weather(kind=kind))

    def end(self) -> None:
        """Kill the worker."""
        self.process.kill()
        self.process.wait()
        self.log.close()


@dataclass
class Standstill:
    """The longest time without an attempt that succeeds, while a host is connected."""

    runtime: Runtime
    done: int = -1
    since: float = 0.0
    longest: float = 0.0
    _next: float = 0.0
    _able: bool = False

    def look(self, *, able: bool) -> None:
        """Look whether something has succeeded since; `able`: some host is connected."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        today = dt.datetime.now(dt.UTC).date()
        try:
            found = history.executions(self.runtime.store, 2, today)
            done = sum(day.count for day in found if day.category is None)
        except StoreError:
            return
        if done != self.done or not able or not self._able:
            self.done, self.since = done, now
        self._able = able
        self.longest = max(self.longest, now - self.since)

    def begin(self) -> None:
        """Begin to measure again."""
        self.since, self.longest = time.monotonic(), 0.0


@dataclass(kw_only=True)
class CutRun(Run):
    """A run in which hosts are cut off, in place of all other faults."""

    hosts: dict[str, Host] = field(default_factory=dict)
    longest: float = 120.0  # seconds of a cut

    def chaos(self) -> Verdict:
        """The script, then calm until all requests have ended."""
        journal = Journal(self.out / "events.jsonl")
        folder = DataFolder(path=self.out / "data")
        folder.prepare()
        stack = self._stack(folder, journal, managers=1, via=lambda port: port, workers=0)
        verdict = Verdict()
        asked = documents(random.Random(self.seed), sample_document)
        people = Scientists(folder, asked, random.Random(self.seed + 1), journal, meddles=False)
        try:
            stack.start()
            for number, name in enumerate(HOSTS):
                self.hosts[name] = Host.start(name, stack, folder, number)
            still = Standstill(runtime_of(folder))
            people.start(LIVE)
            self._for(60.0, stack, lambda: still.look(able=False), until=lambda: still.done > 2)
            for cut in SCRIPT:
                short = replace(cut, seconds=min(cut.seconds, self.longest))
                self._cut(short, stack, still, journal, verdict)
            people.still()
            self._for(self.patience, stack, lambda: None, until=lambda: people.idle)
            people.close()
            verdict.findings = self._audit(folder, stack, set())
            verdict.violations += charged(still.runtime)
        finally:
            for host in self.hosts.values():
                host.end()
            stack.stop()
            for host in self.hosts.values():
                host.proxy.close()
            journal.close()
        verdict.violations += verdict.findings.violations
        verdict.events = journal.counts
        self.errands = people.errands
        verdict.requests = Counter(errand.state or "not ended" for errand in people.errands)
        verdict.violations += [
            f"request {errand.id} is {errand.state or 'not ended'}"
            for errand in people.errands
            if errand.state not in COMPLETE
        ]
        return verdict

    def _cut(
        self, cut: Cut, stack: Stack, still: Standstill, journal: Journal, verdict: Verdict
    ) -> None:
        if cut.alone:
            for name in set(self.hosts) - set(cut.hosts):
                self.hosts.pop(name).end()
        left = set(self.hosts) - set(cut.hosts)
        still.begin()
        for name in cut.hosts:
            self.hosts[name].set(cut.way)
        self._for(cut.seconds, stack, lambda: still.look(able=bool(left)))
        for name in cut.hosts:
            self.hosts[name].set("calm")
        self._for(2 * LEASE + 2, stack, lambda: still.look(able=True))
        text = f"{' and '.join(cut.hosts)} cut ({cut.way}) for {cut.seconds:.0f} s"
        text += ", alone" if cut.alone else ""
        journal.note("cut", what=text, standstill=round(still.longest, 1))
        sys.stdout.write(f"{text}: work stood still for {still.longest:.1f} s at most\n")
        sys.stdout.flush()
        if still.longest > 2 * LEASE:
            verdict.violations.append(f"{text}: work stood still for {still.longest:.1f} s")


def charged(runtime: Runtime) -> Iterator[str]:
    """Tasks that have spent more tries than they had attempts that cost one."""
    for task in tasks_of(runtime):
        attempts = runtime.tasks.attempts(task.key)
        fair = sum(one.category is not None and one.category not in FREE for one in attempts)
        if task.retries > fair:
            yield f"task {task.key[-12:]} has spent {task.retries} tries, and {fair} cost one"
        elif task.category is Category.WORKER_LOST and not task.state.live:
            yield _ended(task)


def _ended(task: Task) -> str:
    return f"task {task.key[-12:]} ended with its workers"


def main() -> int:
    """Run the script, then the quiet run, then tell; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=120.0, help="seconds of a cut")
    parser.add_argument("--out", type=Path, default=Path("bench/out/cuts"))
    arguments = parser.parse_args()
    more = {"HEARTBEAT_SECONDS": str(HEARTBEAT), "LEASE_SECONDS": str(LEASE), "RETRY_BUDGET": "3"}
    settings = {**ENVIRONMENT, **more}
    os.environ |= {f"SWATHMILL_{name}": value for name, value in settings.items()}
    out: Path = arguments.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    write_sample_archive(out / "archive")
    run = CutRun(
        out=out,
        archive=out / "archive",
        storage=Storage.AZURITE,
        seed=arguments.seed,
        seconds=300.0,
        patience=300.0,
        real=False,
        longest=arguments.longest,
    )
    verdict = run.chaos()
    run.quiet(verdict)
    tell(verdict, out)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
