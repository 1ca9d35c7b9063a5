"""What runs over several worker hosts share: a host behind a proxy, and the course of a run."""

import os
import random
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Generic, Self, TypeVar

from bench.chaos.__main__ import COMPLETE, ENVIRONMENT, Run, Verdict, tell
from bench.chaos.audit import runtime_of
from bench.chaos.documents import documents, sample_document
from bench.chaos.journal import Journal
from bench.chaos.proxy import LOOPBACK, Proxy
from bench.chaos.scientists import Scientists
from reprojection.sample.sample import write_sample_archive
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack
from tasks.bag.runtime import Runtime

_SECURE = {"http://": "https://", "redis://": "rediss://"}
WORKER = (sys.executable, "-P", "-m", "worker")


@dataclass(kw_only=True)
class Host:
    """A worker with a data folder of its own that reaches its servers through its own proxy."""

    name: str
    proxy: Proxy
    ports: tuple[int, ...]  # of the servers
    process: subprocess.Popen[bytes]
    data: Path
    log: BinaryIO

    @classmethod
    def run(
        cls,
        name: str,
        stack: Stack,
        folder: DataFolder,
        proxy: Proxy,
        *,
        at: str = LOOPBACK,
        redis_at: str = "",
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] = WORKER,
        cwd: Path | None = None,
    ) -> Self:
        """Start the worker with the settings of the stack's manager, but for its addresses.

        `at` is where the proxy listens, `redis_at` the name by which Redis is reached, if another.
        """
        state = folder.state()
        ports = (*state.azurite_ports, state.redis_port)
        given = stack.supervisor.child("manager").given
        env = {key: value for key, value in given.items() if value is not None}
        for setting in ("SWATHMILL_STORAGE", "SWATHMILL_REDIS_URL"):
            for port in ports:
                whom = redis_at if redis_at and setting == "SWATHMILL_REDIS_URL" else at
                before = f"{whom}:{proxy.port_before(port)}"
                env[setting] = env[setting].replace(f"{LOOPBACK}:{port}", before)
            if proxy.tls is not None:
                for plain, secure in _SECURE.items():
                    env[setting] = env[setting].replace(plain, secure)
        data = folder.path.parent / name
        data.mkdir()
        env |= {"SWATHMILL_WORKER_NAME": name, "SWATHMILL_DATA_DIR": str(data), **(settings or {})}
        log = (folder.path.parent / f"{name}.log").open("wb")
        process = subprocess.Popen(
            command, env={**os.environ, **env}, cwd=cwd, stdout=log, stderr=log
        )
        return cls(name=name, proxy=proxy, ports=ports, process=process, data=data, log=log)

    def end(self) -> None:
        """Kill the worker, and close its proxy."""
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.proxy.close()


@dataclass(frozen=True, kw_only=True)
class Site:
    """A stack and its data folder."""

    folder: DataFolder
    stack: Stack

    @cached_property
    def runtime(self) -> Runtime:
        """Clients of its storage, past whatever lies between. It has to run."""
        return runtime_of(self.folder)


SomeHost = TypeVar("SomeHost", bound=Host)


@dataclass(kw_only=True)
class FleetRun(Run, ABC, Generic[SomeHost]):
    """A run over hosts, with faults of hosts in place of all others. `live` requests at a time."""

    live: int
    hosts: dict[str, SomeHost] = field(default_factory=dict)
    people: Scientists = field(init=False)
    site: Site = field(init=False)  # where it runs; a course may move all to another

    @abstractmethod
    def start_hosts(self, stack: Stack, folder: DataFolder) -> None:
        """Fill `hosts`."""

    @abstractmethod
    def course(self, stack: Stack, runtime: Runtime, journal: Journal) -> Iterable[str]:
        """Do what the run is about, while people ask; yield what did not hold."""

    @abstractmethod
    def charged(self, runtime: Runtime) -> Iterable[str]:
        """Yield the tasks that were charged with what is not theirs, after all has ended."""

    def tick(self) -> None:
        """Go on while the requests end."""

    def calm(self) -> None:
        """Stop what goes on, when they have ended."""

    def chaos(self) -> Verdict:
        """The course, then calm until all requests have ended."""
        journal = Journal(self.out / "events.jsonl")
        folder = DataFolder(path=self.out / "data")
        folder.prepare()
        stack = self._stack(folder, journal, managers=1, via=lambda port: port, workers=0)
        verdict = Verdict()
        self.site = Site(folder=folder, stack=stack)
        asked = documents(random.Random(self.seed), sample_document)
        people = Scientists(folder, asked, random.Random(self.seed + 1), journal, meddles=False)
        self.people = people
        try:
            stack.start()
            self.start_hosts(stack, folder)
            people.start(self.live)
            verdict.violations += self.course(stack, self.site.runtime, journal)
            people.still()
            self._for(self.patience, self.site.stack, self.tick, until=lambda: people.idle)
            self.calm()
            people.close()
            verdict.findings = self._audit(self.site.folder, self.site.stack, set())
            verdict.violations += self.charged(self.site.runtime)
        finally:
            for host in self.hosts.values():
                host.end()
            self.site.stack.stop()
            journal.close()
        verdict.violations += verdict.findings.violations
        verdict.events = journal.counts
        self.errands = people.errands
        verdict.requests = Counter(errand.state or "not ended" for errand in people.errands)
        verdict.violations += [
            f"request {errand.id} is {errand.state or 'not ended'}"
            for errand in people.errands
            if errand.state not in COMPLETE  # the sample archive has gaps
        ]
        return verdict


def carry_out(
    out: Path,
    settings: Mapping[str, str],
    make: Callable[[Path, Path], FleetRun[SomeHost]],
    *,
    quiet: bool = True,
) -> int:
    """Make a run over a folder and an archive, and run it under settings; then tell.

    With `quiet` its requests are compared with a quiet run. Returns 1 when something does not hold.
    """
    given = {**ENVIRONMENT, **settings}
    os.environ |= {f"SWATHMILL_{name}": value for name, value in given.items()}
    out = out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    write_sample_archive(out / "archive")
    run = make(out, out / "archive")
    verdict = run.chaos()
    if quiet:
        run.quiet(verdict)
    tell(verdict, out)
    return 1 if verdict.violations else 0


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
