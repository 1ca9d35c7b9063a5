"""`python -m bench.chaos.host_faults`: three hosts, one of which meets fault after fault.

Hosts are those of `bench.chaos.hosts` (namespaces for network, host name and mounts; root only),
over Azurite. While people ask, one host meets each fault of `FAULTS`, one at a time, and is
well again: its clock is a day off, its disk is full, it cannot look up names, its network swallows
packets, storage throttles it, the certificate of its servers expires, it is stopped for longer than
a lease and goes on, the volume behind its data folder is lost, its machine is taken away by a spot
notice, and the image of the one that replaces it cannot be pulled. It must hold that the other
hosts go on, that the host works again (after a spot notice another in its place), that every
request completes with the bytes of a quiet run, and that no task fails.

One of the others has no bubblewrap: runs of a package that somebody asks for must all succeed on
the hosts that have it, and none fail there.

Last, somebody asks for each of the `POISONS`: packages that fill the memory of the host that runs
them, or kill the process that started them. Their own runs must fail, after few attempts, all hosts
must go on, and none of them be held for it. Exit code 1 when something does not hold.
"""

import argparse
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from bench.chaos.__main__ import COMPLETE
from bench.chaos.audit import tasks_of
from bench.chaos.certificates import Authority
from bench.chaos.documents import Document
from bench.chaos.fleet import FleetRun, carry_out, say
from bench.chaos.hosts import ApartHost, attempts_of, gateway_of
from bench.chaos.journal import Journal
from bench.chaos.proxy import Weather
from bench.chaos.registry import IMAGE, Registry
from bench.chaos.scientists import PEOPLE
from portal.serving.tokens import Role
from processes import proctree
from swathmill.access import api_token
from swathmill.client import Client
from swathmill.errors import ApiError
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack
from swathmill.stack.storage import Storage
from tasks.bag import workers
from tasks.bag.model import RequestState, State
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.request.document import parse_request

HOSTS = ("host-1", "host-2", "host-3")
CLOCK = 2  # the host whose time of day may be set: libfaketime has other effects there
LEASE = 18
SERVERS = "stack"  # the name by which hosts reach their servers
CERTIFIED = 8.0  # seconds for which a certificate is good that is to expire
DISK_MB = 400
WORKS_AGAIN = 240.0  # seconds, on a busy machine
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
ENDS = 60.0  # seconds in which a worker ends whose machine is to be taken
_METADATA_PORT = 9300
_REGISTRY_PORT = 9301


class Metadata(BaseHTTPRequestHandler):
    """Azure's instance metadata, as far as a worker asks: the machine's name, and what is to be."""

    taken = False

    def do_GET(self) -> None:
        """Answer."""
        text = "machine-1"
        if "scheduledevents" in self.path:
            begins = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
            event = {"EventType": "Preempt", "Resources": ["machine-1"], "NotBefore": begins}
            text = json.dumps({"Events": [event] if type(self).taken else []})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass(kw_only=True)
class FaultyHost(ApartHost):
    """A host whose disk is small, whose clock may be set, and that finds Redis by a name.

    It reaches its servers over TLS.
    """

    authority: Authority | None = None

    @property
    def _tree(self) -> list[int]:
        return [self.process.pid, *proctree.descendants(self.process.pid)]

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._tree:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def clock_wrong(self) -> None:
        """Its time of day is a day ahead."""
        Path(f"{self.data}-clock").write_text("+1d")

    def clock_right(self) -> None:
        Path(f"{self.data}-clock").write_text("+0")

    def disk_full(self) -> None:
        """Somebody else fills the disk behind its data folder."""
        with suppress(Exception):
            self._within("dd", "if=/dev/zero", f"of={self.data}/filler", "bs=1M", "status=none")

    def disk_free(self) -> None:
        self._within("rm", "-f", f"{self.data}/filler")

    def names_gone(self) -> None:
        """It can look up no name; connections that were open break."""
        self._within("mount", "--bind", "/dev/null", "/etc/hosts")
        self._weather(Weather(kind="reset", strength=0.2), self.ports[-1:])

    def names_back(self) -> None:
        self._weather(Weather(), self.ports[-1:])
        self._within("umount", "/etc/hosts")

    def packets_swallowed(self) -> None:
        """Its connections stay open, and nothing comes through."""
        _run("ip", "link", "set", f"swm{self.number}a", "down")

    def packets_pass(self) -> None:
        _run("ip", "link", "set", f"swm{self.number}a", "up")

    def throttled(self) -> None:
        """Storage answers six calls of ten with 503."""
        self._weather(Weather(kind="busy", strength=0.6), self.ports[:-1])

    def served(self) -> None:
        self._weather(Weather(), self.ports[:-1])

    def certificate_expires(self) -> None:
        """The certificate of its servers expires while it works; connections that were open break.

        Those that are made again before that are good, and break, too.
        """
        self._certify(CERTIFIED)
        self._weather(Weather(kind="reset", strength=0.2), self.ports)

    def certificate_renewed(self) -> None:
        self._certify()
        self._weather(Weather(), self.ports)

    def _certify(self, seconds: float | None = None) -> None:
        if self.authority is None or self.proxy.tls is None:
            raise ValueError("the host has no TLS")
        self.authority.give(self.proxy.tls, self.gateway, SERVERS, seconds)

    def stopped(self) -> None:
        """It is suspended with all its processes."""
        self._signal(signal.SIGSTOP)

    def resumed(self) -> None:
        self._signal(signal.SIGCONT)

    def noticed(self) -> None:
        """Azure says that its machine is to be taken away in 30 s."""
        Metadata.taken = True

    def taken(self) -> None:
        Metadata.taken = False

    def noticed_without_image(self) -> None:
        """So it is, and the machine that comes cannot pull its image: the tag is not there."""
        Registry.gives = False
        self.noticed()

    def image_there(self) -> None:
        Registry.gives = True

    def _weather(self, weather: Weather, ports: tuple[int, ...]) -> None:
        for port in ports:
            self.proxy.set(port, weather)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault: what begins and ends it, for how many seconds it lasts."""

    what: str
    begin: Callable[[FaultyHost], None]
    end: Callable[[FaultyHost], None]
    seconds: float
    at: int = 0  # of the hosts
    says: str = ""  # what its worker has to say of it, in its log
    replaced: bool = False  # its machine is taken, and another comes when it is over
    pulls: bool = False  # as `replaced`, but the other comes at once and pulls its image


POISONS = {
    "hungry": "held = []\nwhile True:\n    held.append(bytearray(1 << 24))\n",
    "deadly": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
}
"""Programs of packages that harm whatever runs them."""
HARMLESS = "harmless"
"""The package that is asked for beside a host without a sandbox."""
_HARMLESS_PROGRAM = (
    "import sys\nfrom pathlib import Path\n(Path(sys.argv[2]) / 'none.csv').write_text('one\\n')\n"
)
NO_SANDBOX = 1  # the host without bubblewrap
_ASKED = 8  # requests for the harmless package
_REQUEST: Document = {
    "title": "a package of one's own",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-2.0, 52.0, 2.0, 54.0]},
    "time": {"start": "2012-04-13", "end": "2012-04-15"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.03},
    "notify": "chaos@example.org",
}
MOST_ATTEMPTS = 10  # of a run that harms: a loss with the worker has as many

FAULTS = (
    Fault(
        what="its clock is a day ahead",
        begin=FaultyHost.clock_wrong,
        end=FaultyHost.clock_right,
        seconds=40,
        at=CLOCK,
    ),
    Fault(
        what="its disk is full",
        begin=FaultyHost.disk_full,
        end=FaultyHost.disk_free,
        seconds=40,
    ),
    Fault(
        what="it looks up no name, and connections to Redis break",
        begin=FaultyHost.names_gone,
        end=FaultyHost.names_back,
        seconds=40,
    ),
    Fault(
        what="its network swallows packets",
        begin=FaultyHost.packets_swallowed,
        end=FaultyHost.packets_pass,
        seconds=2.5 * LEASE,
    ),
    Fault(
        what="storage answers 6 of 10 calls with 503",
        begin=FaultyHost.throttled,
        end=FaultyHost.served,
        seconds=40,
    ),
    Fault(
        what="the certificate of its servers expires",
        begin=FaultyHost.certificate_expires,
        end=FaultyHost.certificate_renewed,
        seconds=45,
        says="certificate has expired",
    ),
    Fault(
        what="it is suspended, and resumed",
        begin=FaultyHost.stopped,
        end=FaultyHost.resumed,
        seconds=3 * LEASE,
    ),
    Fault(
        what="the volume behind its data folder is lost",
        begin=FaultyHost.lose_disk,
        end=FaultyHost.get_disk_back,
        seconds=40,
    ),
    Fault(
        what="a spot notice takes its machine",
        begin=FaultyHost.noticed,
        end=FaultyHost.taken,
        seconds=45,
        replaced=True,
    ),
    Fault(
        what="the image of the machine that replaces it cannot be pulled",
        begin=FaultyHost.noticed_without_image,
        end=FaultyHost.image_there,
        seconds=45,
        pulls=True,
        says="StatusCode: 404",
    ),
)
PULL_EVERY = 3  # seconds between two tries to pull an image


@dataclass(kw_only=True)
class FaultsRun(FleetRun[FaultyHost]):
    """A run in which the first host meets one fault after another."""

    faults: tuple[Fault, ...] = FAULTS
    packages: bool = True  # somebody asks for the harmless one

    @cached_property
    def authority(self) -> Authority:
        """Signs the certificates of all servers."""
        return Authority(folder=self.out / "certificates")

    def start_hosts(self, stack: Stack, folder: DataFolder) -> None:
        """Start three hosts, and the metadata of the first."""
        for number, name in enumerate(HOSTS, 1):
            self.hosts[name] = self._start(name, number, stack, folder)
        for port, kind in ((_METADATA_PORT, Metadata), (_REGISTRY_PORT, Registry)):
            server = ThreadingHTTPServer(("0.0.0.0", port), kind)
            Thread(target=server.serve_forever, daemon=True).start()

    def _start(
        self, name: str, number: int, stack: Stack, folder: DataFolder, *, pulls: bool = False
    ) -> FaultyHost:
        data = folder.path.parent / name
        own = folder.path.parent / f"{name}-hosts"
        address = gateway_of(number)
        own.write_text(f"127.0.0.1 localhost {name}\n{address} {SERVERS}\n")
        Path(f"{data}-clock").write_text("+0")
        trusted = str(self.authority.file)
        settings = {"REQUESTS_CA_BUNDLE": trusted, "SSL_CERT_FILE": trusted}
        if name == HOSTS[CLOCK]:
            settings |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": f"{data}-clock",
                "FAKETIME_NO_CACHE": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        if number == 1:
            settings["SWATHMILL_INSTANCE_METADATA"] = f"http://{address}:{_METADATA_PORT}"
        before = f"mount -t tmpfs -o size={DISK_MB}m tmpfs {data} && mount --bind {own} /etc/hosts"
        if name == HOSTS[NO_SANDBOX]:
            before = f"{before} && mount --bind /dev/null {shutil.which('bwrap')}"
        if pulls:  # the worker itself starts as ever: the image is a stand-in
            image = f"{address}:{_REGISTRY_PORT}/{IMAGE}"
            kept = f"--root {data}-images --runroot {data}-images/run"
            pull = f"podman {kept} pull --quiet --tls-verify=false {image}"
            before = f"{before} && until {pull}; do sleep {PULL_EVERY}; done"
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.give(tls, address, SERVERS)
        host = FaultyHost.start(
            name,
            number,
            stack,
            folder,
            more=settings,
            before=before,
            redis_at=SERVERS,
            tls=tls,
        )
        host.authority = self.authority
        return host

    def course(self, stack: Stack, runtime: Runtime, journal: Journal) -> Iterator[str]:
        """Let each fault come and go while all work."""
        self._for(300.0, stack, lambda: None, until=lambda: len(done_by(runtime)) == len(HOSTS))
        for fault in self.faults:
            yield from self._meet(fault, stack, runtime, journal)
        if self.packages:
            yield from self._go_elsewhere(stack, runtime, journal)
        for name in self.failing:
            yield from self._swallow(name, stack, runtime, journal)

    def _client(self) -> Client:
        folder = DataFolder(path=self.out / "data")
        token = api_token(folder, PEOPLE[0], Role.SCIENTIST)
        return Client(url=folder.state().portal_url, token=token, timeout=30.0)

    def _go_elsewhere(self, stack: Stack, runtime: Runtime, journal: Journal) -> Iterator[str]:
        """Ask for a package that one host cannot run."""
        client, began = self._client(), time.monotonic()
        reduction = {"package": HARMLESS, "group_by": ["cell", "date"]}
        asked = [
            client.submit(
                parse_request(
                    {
                        **_REQUEST,
                        "region": {"bbox": [-2.0 + 0.1 * number, 52.0, 2.0, 54.0]},
                        "reduction": reduction,
                    }
                )
            ).id
            for number in range(_ASKED)
        ]

        def states() -> list[str]:
            return [client.status(one).state.value for one in asked]

        def over() -> bool:
            with suppress(ApiError):
                return all(RequestState(state).ended for state in states())
            return False

        self._for(WORKS_AGAIN, stack, lambda: None, until=over)
        runs = [task for task in tasks_of(runtime) if HARMLESS in task.task_class]
        ends = [one for task in runs for one in runtime.tasks.attempts(task.key)]
        by = Counter(f"{one.category or 'success'} on {one.worker}" for one in ends)
        said = ", ".join(f"{count} {what}" for what, count in sorted(by.items()))
        log = Path(self.hosts[HOSTS[NO_SANDBOX]].log.name).read_text(errors="replace")
        back = log.count("attempt postponed")
        journal.note("no sandbox", attempts=said, given_back=back)
        say(
            f"{HARMLESS}: {len(runs)} runs, {said}; {HOSTS[NO_SANDBOX]} gave back {back}; "
            f"{time.monotonic() - began:.0f} s"
        )
        if not runs or not over() or any(state not in COMPLETE for state in states()):
            yield f"{HARMLESS}: its requests ended {Counter(states())}"
        if any(one.category is not None for one in ends):
            yield f"{HARMLESS}: attempts failed"

    def _swallow(
        self, name: str, stack: Stack, runtime: Runtime, journal: Journal
    ) -> Iterator[str]:
        """Ask for a package that harms whatever runs it."""
        client = self._client()
        reduction = {"package": name, "group_by": ["cell", "all"]}
        asked = parse_request({**_REQUEST, "reduction": reduction})
        request, began, before = client.submit(asked).id, time.monotonic(), done_by(runtime)

        def over() -> bool:
            with suppress(ApiError):
                state = client.status(request).state
                if state is RequestState.HELD:  # its rehearsal has failed: go on anyway
                    client.order(request, "confirm")
                return state.ended
            return False

        self._for(WORKS_AGAIN, stack, lambda: None, until=over)
        took, since = time.monotonic() - began, done_by(runtime)

        def all_work() -> bool:
            return all(done_by(runtime)[host] > since[host] for host in self.hosts)

        self._for(WORKS_AGAIN, stack, lambda: None, until=all_work)
        runs = [task for task in tasks_of(runtime) if name in task.task_class]
        ends = Counter(
            f"{one.category} on {one.worker}"
            for task in runs
            for one in runtime.tasks.attempts(task.key)
        )
        said = ", ".join(f"{count} {what}" for what, count in sorted(ends.items()))
        journal.note("poison", package=name, attempts=said)
        say(
            f"{name}: {len(runs)} runs ended {Counter(str(task.state) for task in runs)} after "
            f"{took:.0f} s, by {said}; {(since - before).total()} attempts succeeded meanwhile"
        )
        if not runs or any(task.state is not State.FAILED for task in runs):
            yield f"{name}: its runs have not failed"
        if any(task.attempt > MOST_ATTEMPTS for task in runs):
            yield f"{name}: it was tried more than {MOST_ATTEMPTS} times"
        if not all_work():
            yield f"{name}: not all hosts work afterwards"
        held = [
            row.name for row in workers.list_workers(runtime.store) if row.unfit or row.draining
        ]
        if held:
            yield f"{name}: {held} take no work for it"

    def _meet(
        self, fault: Fault, stack: Stack, runtime: Runtime, journal: Journal
    ) -> Iterator[str]:
        name = HOSTS[fault.at]
        host = self.hosts[name]
        before, began = done_by(runtime), time.monotonic()
        log = Path(host.log.name)
        said = log.stat().st_size
        fault.begin(host)
        if fault.pulls:
            self._for(ENDS, stack, lambda: None, until=lambda: host.process.poll() is not None)
            yield from self._replace(fault, host, stack)
            host.taken()
            before, said = done_by(runtime), 0
        self._for(fault.seconds, stack, lambda: None)
        meanwhile = done_by(runtime) - before
        if fault.says:
            words = log.read_bytes()[said:].decode(errors="replace").splitlines()
            found = [line for line in words if fault.says in line]
            say(f"{name} says in {len(found)} lines of {len(words)}: {found[-1:]}")
            say(f"{name} answers /readyz: {host.unready()}")
            if not found:
                yield f"{fault.what}: nothing on the host says so"
        if fault.pulls:
            there = {row.name for row in workers.list_workers(runtime.store)}
            say(f"workers that are listed while the image cannot be pulled: {sorted(there)}")
            if len(there) != len(HOSTS) - 1:
                yield f"{fault.what}: the workers listed are {sorted(there)}"
        fault.end(host)
        if fault.replaced:
            yield from self._replace(fault, host, stack)
        after, since = done_by(runtime), time.monotonic()

        def works() -> bool:
            return done_by(runtime)[name] > after[name]

        self._for(WORKS_AGAIN, stack, lambda: None, until=works)
        again = time.monotonic() - since
        others = meanwhile.total() - meanwhile[name]
        journal.note("fault", what=fault.what, others=others, again=round(again, 1))
        say(
            f"{fault.what} ({since - began:.0f} s): {meanwhile[name]} attempts succeeded on it "
            f"meanwhile, {others} on the others; it works {again:.1f} s later"
        )
        if not works():
            yield f"{fault.what}: the host does not work again"
        if not others:
            yield f"{fault.what}: the other hosts did nothing"

    def _replace(self, fault: Fault, host: FaultyHost, stack: Stack) -> Iterator[str]:
        """Put another machine in the place of one that was taken."""
        if host.process.poll() is None:
            yield f"{fault.what}: its worker has not ended"
        self.hosts.pop(host.name).end()
        folder, data = DataFolder(path=self.out / "data"), host.data
        before = len([*data.parent.glob(f"{data.name}-gone-*")])
        data.rename(data.with_name(f"{data.name}-gone-{before}"))
        Path(f"{data}-here").rmdir()
        self.hosts[host.name] = self._start(
            host.name, host.number, stack, folder, pulls=fault.pulls
        )

    def charged(self, runtime: Runtime) -> Iterator[str]:
        """Yield the tasks that failed; tell how all attempts ended, and which cost a try."""
        ends: dict[str, Counter[str]] = {}
        for one in attempts_of(runtime):
            ends.setdefault(one.worker, Counter())[one.category or "success"] += 1
        for worker, how in sorted(ends.items()):
            say(f"{worker}: {', '.join(f'{n} {what}' for what, n in how.most_common())}")
        tasks = [*tasks_of(runtime)]
        spent = sum(task.retries for task in tasks)
        say(f"{len(tasks)} tasks, {spent} tries spent")
        for task in tasks:
            poison = any(name in task.task_class for name in self.failing)
            if task.state is State.FAILED and not poison:
                how = Counter(str(one.category) for one in runtime.tasks.attempts(task.key))
                yield f"task {task.key[-12:]} failed: {how}"


def done_by(runtime: Runtime) -> Counter[str]:
    """Count the attempts that succeeded, by host."""
    names = {f"worker-{number}": name for number, name in enumerate(HOSTS, 1)}
    found = Counter[str]()
    with suppress(StoreError):
        found.update(names[one.worker] for one in attempts_of(runtime) if one.category is None)
    return found


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> int:
    """Run all faults, or some by words of them; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="words of the faults to run")
    parser.add_argument("--no-quiet", action="store_true", help="no quiet run to compare with")
    parser.add_argument("--live", type=int, default=4, help="requests at a time")
    parser.add_argument("--out", type=Path, default=Path("bench/out/host-faults"))
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not FAKETIME.exists() or not shutil.which("podman"):
        say("it needs root, for namespaces, and the Debian packages libfaketime and podman")
        return 2
    faults = tuple(one for one in FAULTS if arguments.only in one.what)
    poisons = tuple(one for one in POISONS if arguments.only in f"poison {one}")

    def make(out: Path, archive: Path) -> FaultsRun:
        for name, program in {**POISONS, HARMLESS: _HARMLESS_PROGRAM}.items():
            package = out / "packages" / name
            package.mkdir(parents=True)
            (package / "package.yaml").write_text(
                f'name: {name}\nversion: "1"\ndescription: It is tried.\n'
                "command: [python, run.py]\noutputs: [{name: none.csv, kind: file}]\n"
                "resources: {memory_gb: 1, timeout_seconds: 120}\n"
            )
            (package / "run.py").write_text(program)
        return FaultsRun(
            out=out,
            archive=archive,
            storage=Storage.AZURITE,
            seed=arguments.seed,
            seconds=100.0,  # six times as long a quiet run may take
            patience=600.0,
            real=False,
            live=arguments.live,
            faults=faults,
            packages=arguments.only in "no sandbox on one host",
            failing=poisons,
        )

    packages = arguments.out.resolve() / "packages"
    settings = {"LEASE_SECONDS": str(LEASE), "RETRY_BUDGET": "3", "PACKAGES": str(packages)}
    return carry_out(arguments.out, settings, make, quiet=not arguments.no_quiet)


if __name__ == "__main__":
    sys.exit(main())
