"""`python -m bench.chaos.region`: a region is lost, and all goes on elsewhere from an export.

A stack on Azurite and three hosts of their own (namespaces; root only) are the region. While people
ask, `swathmill export --to` copies its account to that of another data folder, and goes on working.
Then all of it is gone at once: portal, manager, Azurite with its files, Redis, and the network of
its hosts. `swathmill restore` writes the tables of the copy, a stack starts there with three new
hosts, and people go to its portal: what they asked for since the export began they ask for again.
It must hold that every request completes with the bytes of a quiet run, that no task fails, that
what was delivered before the export can still be had, and that the hosts of the lost region say
that they reach nothing, and end what they run. Exit code 1 when something does not hold.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.audit import tasks_of
from bench.chaos.fleet import FleetRun, Site, carry_out, say
from bench.chaos.hosts import ApartHost, attempts_of, done_by
from bench.chaos.journal import Journal
from bench.chaos.scientists import Errand
from portal.serving.tokens import Role
from swathmill.access import api_token
from swathmill.client import Client
from swathmill.errors import ApiError, RefusedError
from swathmill.stack.azurite import AzuriteServer
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack
from swathmill.stack.storage import Storage
from tasks.bag.model import State
from tasks.bag.runtime import Runtime

HOSTS = ("host-1", "host-2", "host-3")
LEASE = 18
SOME = 30  # attempts that have succeeded before the copy, and between the copy and the loss
SILENT = 2.0 * LEASE  # in which a host of the lost region says that it reaches nothing
STARTS = 240.0  # in which the other region has done something, on a busy machine


@dataclass(kw_only=True)
class RegionRun(FleetRun[ApartHost]):
    """A run in which everything is lost but a copy."""

    lost: list[ApartHost] = field(default_factory=list)

    def start_hosts(self, stack: Stack, folder: DataFolder) -> None:
        """Start three hosts, of other numbers than those that run."""
        for name in HOSTS:
            number = len(self.lost) + len(self.hosts) + 1
            self.hosts[name] = ApartHost.start(name, number, stack, folder)

    def course(self, stack: Stack, runtime: Runtime, journal: Journal) -> Iterator[str]:
        """Copy, lose everything, restore, and go on."""
        self._for(STARTS, stack, lambda: None, until=lambda: min(done_by(runtime).values()) > 1)
        self._until_done(SOME, stack, runtime)
        elsewhere = DataFolder(path=self.out / "elsewhere" / "data")
        elsewhere.prepare()
        before = {errand.id: errand for errand in self.people.errands if errand.ended}
        self._export(elsewhere, stack, journal)
        self._until_done(SOME, stack, runtime)
        yield from self._lose(stack, journal)
        began = time.monotonic()
        said = self._command("restore", folder=elsewhere)
        say(f"restored in {time.monotonic() - began:.1f} s: {said}")
        there = self._stack(elsewhere, journal, managers=1, via=lambda port: port, workers=0)
        self.site = Site(folder=elsewhere, stack=there)
        there.start()
        self.start_hosts(there, elsewhere)
        self.people.move(elsewhere)
        runtime = self.site.runtime
        already = succeeded(runtime)
        say(f"the stack answers {time.monotonic() - began:.1f} s after the restore began")
        self._for(STARTS, there, lambda: None, until=lambda: succeeded(runtime) > already)
        say(f"the first attempt has succeeded there after {time.monotonic() - began:.1f} s")
        yield from self._still_there(before)

    def charged(self, runtime: Runtime) -> Iterator[str]:
        """Yield the tasks that failed."""
        tasks = [*tasks_of(runtime)]
        say(f"{len(tasks)} tasks, {sum(task.retries for task in tasks)} tries spent")
        for task in tasks:
            if task.state is State.FAILED:
                yield f"task {task.key[-12:]} failed: {task.category}"

    def _until_done(self, more: int, stack: Stack, runtime: Runtime) -> None:
        wanted = succeeded(runtime) + more
        self._for(300.0, stack, lambda: None, until=lambda: succeeded(runtime) >= wanted)

    def _export(self, elsewhere: DataFolder, stack: Stack, journal: Journal) -> None:
        """Copy tables and blobs to another account, which then is at rest."""
        account = AzuriteServer.on_free_ports(
            folder=elsewhere.azurite,
            log=elsewhere.log("azurite"),
            account=elsewhere.secrets().account,
        )
        elsewhere.azurite.mkdir()
        child = account.start()
        try:
            done, began = succeeded(self.site.runtime), time.monotonic()
            with self._begun(
                *("export", str(self.out / "tables.jsonl.gz"), "--to", account.connection_string),
                folder=self.site.folder,
            ) as export:
                self._for(300.0, stack, lambda: None, until=lambda: export.poll() is not None)
                said = export.communicate()[0].strip().splitlines()[-1:]
            meanwhile = succeeded(self.site.runtime) - done
            took = time.monotonic() - began
        finally:
            child.stop()
        journal.note("exported", seconds=round(took, 1), meanwhile=meanwhile)
        say(f"exported in {took:.1f} s, {meanwhile} attempts succeeded meanwhile: {said}")

    def _lose(self, stack: Stack, journal: Journal) -> Iterator[str]:
        """Lose the region: its processes, its disks, its network."""
        under_way = len(self.people.live())
        stack.kill()
        for host in self.hosts.values():
            subprocess.run(["ip", "link", "set", f"swm{host.number}a", "down"], check=True)
        shutil.rmtree(self.site.folder.azurite)
        journal.note("lost", requests=under_way)
        say(f"the region is lost, with {under_way} requests under way")
        self.lost, self.hosts = [*self.hosts.values()], {}
        for host in self.lost:
            end, log = time.monotonic() + SILENT, Path(host.log.name)
            while time.monotonic() < end and "beat missed" not in log.read_text(errors="replace"):
                time.sleep(0.5)
            if "beat missed" not in log.read_text(errors="replace"):
                yield f"{host.name} of the lost region does not say that it reaches nothing"
            host.end()
            host.data.rename(host.data.with_name(f"{host.name}-lost"))
            Path(f"{host.data}-here").rmdir()

    def _still_there(self, before: Mapping[str, Errand]) -> Iterator[str]:
        """Yield what people had when the copy was begun, and cannot have any more."""
        for errand in before.values():
            token = api_token(self.site.folder, errand.owner, Role.SCIENTIST)
            url = self.site.folder.state().portal_url
            client = Client(url=url, token=token, timeout=30.0)
            try:
                found = {file.name: file.sha256 for file in client.results(errand.id)}
            except (ApiError, RefusedError) as error:
                yield f"request {errand.id} is not there any more: {error}"
                continue
            if found != errand.results:
                yield f"request {errand.id} has other results than before"
        say(f"{len(before)} requests that had ended before the copy are there")

    def _begun(self, *arguments: str, folder: DataFolder) -> "subprocess.Popen[str]":
        command = (sys.executable, "-m", "swathmill.cli", *arguments, "--data", str(folder.path))
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def _command(self, *arguments: str, folder: DataFolder) -> str:
        with self._begun(*arguments, folder=folder) as process:
            said = process.communicate()[0].strip()
        if process.returncode:
            raise RuntimeError(f"{arguments[0]} ended with {process.returncode}: {said}")
        return said


def succeeded(runtime: Runtime) -> int:
    """Count the attempts that succeeded, here or in the region that was copied."""
    return sum(one.category is None for one in attempts_of(runtime))


def main() -> int:
    """Run it, then the quiet run, then tell; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-quiet", action="store_true", help="no quiet run to compare with")
    parser.add_argument("--live", type=int, default=4, help="requests at a time")
    parser.add_argument("--out", type=Path, default=Path("bench/out/region"))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        say("namespaces of the network are root's: run this as root")
        return 2

    def make(out: Path, archive: Path) -> RegionRun:
        return RegionRun(
            out=out,
            archive=archive,
            storage=Storage.AZURITE,
            seed=arguments.seed,
            seconds=100.0,  # six times as long a quiet run may take
            patience=600.0,
            real=False,
            live=arguments.live,
        )

    settings = {"LEASE_SECONDS": str(LEASE), "RETRY_BUDGET": "3"}
    return carry_out(arguments.out, settings, make, quiet=not arguments.no_quiet)


if __name__ == "__main__":
    sys.exit(main())
