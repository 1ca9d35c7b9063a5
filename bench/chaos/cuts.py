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
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.chaos.audit import tasks_of
from bench.chaos.fleet import FleetRun, Host, carry_out, say
from bench.chaos.journal import Journal
from bench.chaos.proxy import Proxy, Weather
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack
from swathmill.stack.storage import Storage
from tasks.bag import history
from tasks.bag.categories import RULES, Category, Retry
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError

LEASE = 12.0
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


class CutHost(Host):
    """A host of which the connections may be cut."""

    def set(self, kind: str) -> None:
        """Set how its connections fare."""
        for port in self.ports:
            self.proxy.set(port, Weather(kind=kind))


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
class CutRun(FleetRun[CutHost]):
    """A run in which hosts are cut off, in place of all other faults."""

    longest: float = 120.0  # seconds of a cut

    def start_hosts(self, stack: Stack, folder: DataFolder) -> None:
        """Start each behind a proxy of its own."""
        for number, name in enumerate(HOSTS):
            proxy = Proxy(number, lambda _why: None)
            self.hosts[name] = CutHost.run(name, stack, folder, proxy)

    def course(self, stack: Stack, runtime: Runtime, journal: Journal) -> Iterator[str]:
        """Follow the script."""
        still = Standstill(runtime)
        self._for(60.0, stack, lambda: still.look(able=False), until=lambda: still.done > 2)
        for cut in SCRIPT:
            short = replace(cut, seconds=min(cut.seconds, self.longest))
            yield from self._cut(short, stack, still, journal)

    def charged(self, runtime: Runtime) -> Iterator[str]:
        """Yield the tasks that have spent more tries than they had attempts that cost one."""
        for task in tasks_of(runtime):
            attempts = runtime.tasks.attempts(task.key)
            fair = sum(one.category is not None and one.category not in FREE for one in attempts)
            if task.retries > fair:
                yield f"task {task.key[-12:]} has spent {task.retries} tries, and {fair} cost one"
            elif task.category is Category.WORKER_LOST and not task.state.live:
                yield f"task {task.key[-12:]} ended with its workers"

    def _cut(self, cut: Cut, stack: Stack, still: Standstill, journal: Journal) -> Iterator[str]:
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
        say(f"{text}: work stood still for {still.longest:.1f} s at most")
        if still.longest > 2 * LEASE:
            yield f"{text}: work stood still for {still.longest:.1f} s"


def main() -> int:
    """Run the script, then the quiet run, then tell; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=120.0, help="seconds of a cut")
    parser.add_argument("--out", type=Path, default=Path("bench/out/cuts"))
    arguments = parser.parse_args()
    settings = {
        "LEASE_SECONDS": str(LEASE),
        "RETRY_BUDGET": "3",
    }

    def make(out: Path, archive: Path) -> CutRun:
        return CutRun(
            out=out,
            archive=archive,
            storage=Storage.AZURITE,
            seed=arguments.seed,
            seconds=300.0,
            patience=300.0,
            real=False,
            live=LIVE,
            longest=arguments.longest,
        )

    return carry_out(arguments.out, settings, make)


if __name__ == "__main__":
    sys.exit(main())
