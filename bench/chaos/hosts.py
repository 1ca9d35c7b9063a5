"""`python -m bench.chaos.hosts`: three hosts, of which one fails everything and one is noisy.

A stack on Azurite, and three workers, each a host of its own: with its own network, host name and
view of the disk (namespaces of Linux; root only), and a data folder of its own. On the first one
the volume behind the data folder is replaced by an empty, read-only one while it works, or with
`--how child` the folder from which its children start is removed. The children of the second one
stop in bursts, as beside another load. It must hold that every request completes, that no task
fails or is charged with a try, that the broken host says so by `/readyz` and takes nothing, and
that it takes work again once its disk is back. Exit code 1 when something does not hold.
"""

import argparse
import os
import random
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bench.chaos.audit import tasks_of
from bench.chaos.fleet import WORKER, FleetRun, Host, carry_out, say
from bench.chaos.journal import Journal
from bench.chaos.proxy import Proxy
from processes import proctree
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack
from swathmill.stack.storage import Storage
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import Attempt, State
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError

BROKEN, NOISY, GOOD = "host-1", "host-2", "host-3"
LIVE = 4  # requests at a time
SLOTS = 2
PORT = 9100
TELLS = 60.0  # seconds in which a host says what is wrong, or that nothing is any more
RECOVERS = 300.0  # seconds in which it has worked again, on a busy machine
_NETWORK = "10.203"


@dataclass(kw_only=True)
class ApartHost(Host):
    """A host in namespaces of its own."""

    number: int = 0

    @property
    def address(self) -> str:
        """Its address in the network that it shares with the stack."""
        return f"{_NETWORK}.{self.number}.2"

    @property
    def gateway(self) -> str:
        """The address in that network at which it finds its servers."""
        return gateway_of(self.number)

    @classmethod
    def start(
        cls,
        name: str,
        number: int,
        stack: Stack,
        folder: DataFolder,
        *,
        more: Mapping[str, str] | None = None,
        before: str = "true",
        redis_at: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Make the host's network, and start its worker there, under `more` settings.

        `before` is what a shell does first, within the host's own mounts. With `tls` its servers
        speak TLS.
        """
        space, ours, theirs = _space(number), f"swm{number}a", f"swm{number}b"
        at, own = gateway_of(number), f"{_NETWORK}.{number}.2"
        for command in (
            f"ip netns add {space}",
            f"ip link add {ours} type veth peer name {theirs} netns {space}",
            f"ip addr add {at}/30 dev {ours}",
            f"ip link set {ours} up",
            f"ip -n {space} addr add {own}/30 dev {theirs}",
            f"ip -n {space} link set {theirs} up",
            f"ip -n {space} link set lo up",
        ):
            subprocess.run(command.split(), check=True)
        settings = {
            "SWATHMILL_WORKER_NAME": f"worker-{number}",
            "SWATHMILL_SLOTS": str(SLOTS),
            "SWATHMILL_PROBE_ADDRESS": f"{own}:{PORT}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **(more or {}),
        }
        here = folder.path.parent / f"{name}-here"
        here.mkdir(exist_ok=True)
        apart = ("ip", "netns", "exec", space, "unshare", "--uts", "--mount")
        inside = ("sh", "-c", f'hostname {name} && {before} && exec "$0" "$@"', *WORKER)
        host = cls.run(
            name,
            stack,
            folder,
            Proxy(number, lambda _why: None, host=at, tls=tls),
            at=at,
            redis_at=redis_at,
            settings=settings,
            command=(*apart, *inside),
            cwd=here,
        )
        host.number = number
        return host

    def unready(self) -> str:
        """Return what `/readyz` says is wrong; "" for nothing."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:{PORT}/readyz", timeout=5):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode().strip()
        except OSError as error:
            return f"no answer: {error}"

    def lose_disk(self) -> None:
        """Replace the volume behind the data folder, as this host sees it."""
        self._within("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(self.data))

    def get_disk_back(self) -> None:
        """Undo that."""
        self._within("umount", str(self.data))

    def lose_children(self) -> None:
        """Remove the folder from which its children start."""
        Path(f"{self.data}-here").rmdir()

    def get_children_back(self) -> None:
        """Do nothing: a process whose folder is gone has to be started again."""

    def end(self) -> None:
        """Kill the worker, and remove its network."""
        super().end()
        # Of its own: the link of a namespace that is deleted goes some time later.
        subprocess.run(["ip", "link", "delete", f"swm{self.number}a"], check=False)
        subprocess.run(["ip", "netns", "delete", _space(self.number)], check=False)

    def _within(self, *command: str) -> None:
        within = ["nsenter", "--target", str(self.process.pid), "--mount"]
        subprocess.run([*within, *command], check=True)


@dataclass
class Noise:
    """Stops the children of a worker in bursts."""

    worker: int  # its process id
    choose: random.Random
    bursts: int = 0
    _next: float = 0.0
    _stopped: list[int] = field(default_factory=list)

    def tick(self) -> None:
        """Begin or end a burst if it is time."""
        if time.monotonic() < self._next:
            return
        if self._stopped:
            self._send(signal.SIGCONT)
            self._stopped = []
            self._next = time.monotonic() + self.choose.uniform(1.0, 6.0)
        else:
            self._stopped = proctree.descendants(self.worker)
            self._send(signal.SIGSTOP)
            self.bursts += 1
            self._next = time.monotonic() + self.choose.uniform(0.5, 3.0)

    def end(self) -> None:
        """End the burst."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@dataclass(kw_only=True)
class HostsRun(FleetRun[ApartHost]):
    """A run with one host that fails everything, in place of all other faults."""

    how: str = "disk"
    noise: Noise | None = None

    def start_hosts(self, stack: Stack, folder: DataFolder) -> None:
        """Start the three hosts, one beside noise."""
        for number, name in enumerate((BROKEN, NOISY, GOOD), 1):
            self.hosts[name] = ApartHost.start(name, number, stack, folder)
        noisy = self.hosts[NOISY].process.pid
        self.noise = Noise(noisy, random.Random(self.seed + 2))

    def course(self, stack: Stack, runtime: Runtime, _journal: Journal) -> list[str]:
        """Break a host while all three work, then let it recover."""
        self._for(300.0, stack, lambda: None, until=lambda: min(done_by(runtime).values()) >= SLOTS)
        return self._break(stack, runtime)

    def tick(self) -> None:
        """Go on with the noise."""
        if self.noise is not None:
            self.noise.tick()

    def calm(self) -> None:
        """End the noise."""
        if self.noise is not None:
            self.noise.end()

    def charged(self, runtime: Runtime) -> Iterator[str]:
        """Yield the tasks that failed or spent a try: all but the one host are sound."""
        tell_attempts(runtime, self.noise.bursts if self.noise is not None else 0)
        for task in tasks_of(runtime):
            if task.retries or task.state is State.FAILED:
                ends = Counter(str(one.category) for one in runtime.tasks.attempts(task.key))
                yield f"task {task.key[-12:]}: {task.state}, {task.retries} tries spent: {ends}"

    def _break(self, stack: Stack, runtime: Runtime) -> list[str]:
        broken, found = self.hosts[BROKEN], list[str]()
        getattr(broken, "lose_disk" if self.how == "disk" else "lose_children")()
        if self.how == "child":  # those that run are sound: each next one is a new one
            for pid in proctree.descendants(broken.process.pid)[1:]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        self._for(TELLS, stack, self.tick, until=lambda: bool(broken.unready()))
        say(f"{BROKEN} is unready {time.monotonic() - began:.1f} s later: {broken.unready()}")
        if not broken.unready():
            found.append(f"{BROKEN} is broken, and /readyz does not say so")
        self._for(5.0, stack, self.tick)
        row = next(one for one in workers.list_workers(runtime.store) if one.host == BROKEN)
        if not row.unfit:
            found.append(f"the row of {row.name} does not say that it is unfit")
        before = done_by(runtime)
        self._for(self.seconds, stack, self.tick)
        after = done_by(runtime)
        say(f"attempts that succeeded in {self.seconds:.0f} s meanwhile: {after - before}")
        if after[BROKEN] > before[BROKEN] or not after[GOOD] > before[GOOD]:
            found.append(f"the wrong hosts worked while {BROKEN} was broken: {after - before}")
        found += [f"{name} says {said}" for name in (NOISY, GOOD) if (said := self._says(name))]
        if self.how == "disk":
            broken.get_disk_back()
            began = time.monotonic()
            self._for(
                RECOVERS,
                stack,
                self.tick,
                until=lambda: done_by(runtime)[BROKEN] > after[BROKEN],
            )
            say(f"{BROKEN} works {time.monotonic() - began:.1f} s after its disk is back")
            if done_by(runtime)[BROKEN] == after[BROKEN]:
                found.append(f"{BROKEN} did not recover: {broken.unready()}")
        return found

    def _says(self, name: str) -> str:
        return self.hosts[name].unready()


def gateway_of(number: int) -> str:
    """Return where the host of a number finds its servers."""
    return f"{_NETWORK}.{number}.1"


def attempts_of(runtime: Runtime) -> list[Attempt]:
    """All attempts that have ended. Raises StoreError."""
    return [one for task in tasks_of(runtime) for one in runtime.tasks.attempts(task.key)]


def done_by(runtime: Runtime) -> Counter[str]:
    """Count the attempts that succeeded, by host."""
    names = {f"worker-{number}": name for number, name in enumerate((BROKEN, NOISY, GOOD), 1)}
    found = Counter(dict.fromkeys(names.values(), 0))
    with suppress(StoreError):
        found.update(names[one.worker] for one in attempts_of(runtime) if one.category is None)
    return found


def tell_attempts(runtime: Runtime, bursts: int) -> None:
    """Print how the attempts of each worker ended."""
    ends: dict[str, Counter[str]] = {}
    for one in attempts_of(runtime):
        ends.setdefault(one.worker, Counter())[one.category or "success"] += 1
    for worker, how in sorted(ends.items()):
        say(f"{worker}: {', '.join(f'{n} {what}' for what, n in how.most_common())}")
    say(f"{bursts} bursts of noise on {NOISY}")
    failed = sum(how[Category.HOST_FAILED] for how in ends.values())
    say(f"{failed} attempts ended as {Category.HOST_FAILED.value}")


def _space(number: int) -> str:
    return f"swathmill-{number}"


def main() -> int:
    """Run the script, then the quiet run, then tell; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--how", choices=["disk", "child"], default="disk")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which it stays broken")
    parser.add_argument("--no-quiet", action="store_true", help="no quiet run to compare with")
    parser.add_argument("--out", type=Path, default=Path("bench/out/hosts"))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        say("namespaces of the network are root's: run this as root")
        return 2
    settings = {"LEASE_SECONDS": "18", "RETRY_BUDGET": "3"}

    def make(out: Path, archive: Path) -> HostsRun:
        return HostsRun(
            out=out,
            archive=archive,
            storage=Storage.AZURITE,
            seed=arguments.seed,
            seconds=arguments.seconds,
            patience=600.0,
            real=False,
            live=LIVE,
            how=arguments.how,
        )

    return carry_out(arguments.out, settings, make, quiet=not arguments.no_quiet)


if __name__ == "__main__":
    sys.exit(main())
