"""`python -m bench.chaos --minutes 10 --seed 1`: the real stack under faults, then a verdict.

Two workers, two managers, portal and Redis over a data folder of their own, with embedded storage
or Azurite. Processes are killed and stalled, connections cut, delayed, refused and swallowed, disks
filled, blobs damaged and deleted, and Azurite restarted, while people submit and cancel.
Afterwards all that ended is compared with a quiet
run of the same requests. The seed fixes what is chosen; when it happens depends on the machine.
Exit code 1 when something that must always hold does not.
"""

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.audit import Findings, audit, is_settled, processes_of, runtime_of
from bench.chaos.documents import documents, real_document, sample_document
from bench.chaos.faults import Faults, SmallDisk
from bench.chaos.journal import Journal
from bench.chaos.proxy import Proxy
from bench.chaos.scientists import Errand, Scientists
from reprojection.sample.sample import write_sample_archive
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack, StackOptions
from swathmill.stack.storage import Storage
from tasks.settings import Settings

QUOTA_GB = 6.0
MOST_LIVE = 6
COMPLETE = ("complete", "complete with gaps")
ENVIRONMENT = {
    "LEASE_SECONDS": "6",
    "RETRY_BASE": "0.04",
    # Faults come far more often than anywhere: what they cost is not to be the tasks' end.
    "RETRY_BUDGET": "500",
    "DISK_QUOTA_GB": str(QUOTA_GB),
    "CACHE_GB": "0.2",
    "LOG_LEVEL": "info",
}
LONGEST = 14.0  # seconds of a stall or an outage: twice a lease


@dataclass(kw_only=True)
class Verdict:
    """What a run came to."""

    violations: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    findings: Findings | None = None
    compared: int = 0


def main() -> int:
    """Run chaos, then the quiet run, then tell; 1 when something was violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--storage", type=Storage, choices=[*Storage], default=Storage.EMBEDDED, metavar="KIND"
    )
    parser.add_argument("--archive", type=Path, help="real granules; the sample archive otherwise")
    parser.add_argument("--out", type=Path, default=Path("bench/out/chaos"))
    parser.add_argument("--patience", type=float, default=600.0, help="seconds, once it is calm")
    arguments = parser.parse_args()
    os.environ |= {f"SWATHMILL_{name}": value for name, value in ENVIRONMENT.items()}
    out: Path = arguments.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    archive: Path = arguments.archive or out / "archive"
    if arguments.archive is None:
        write_sample_archive(archive)
    run = Run(
        out=out,
        archive=archive.resolve(),
        storage=arguments.storage,
        seed=arguments.seed,
        seconds=60.0 * arguments.minutes,
        patience=arguments.patience,
        real=arguments.archive is not None,
    )
    verdict = run.chaos()
    run.quiet(verdict)
    tell(verdict, out)
    return 1 if verdict.violations else 0


@dataclass(kw_only=True)
class Run:
    """One run over the folder `out`."""

    out: Path
    archive: Path
    storage: Storage
    seed: int
    seconds: float
    patience: float
    real: bool
    failing: tuple[str, ...] = ()  # words of the classes whose tasks are to fail
    errands: list[Errand] = field(default_factory=list)

    def chaos(self) -> Verdict:
        """The stormy part."""
        journal = Journal(self.out / "events.jsonl")
        proxy = Proxy(self.seed, lambda why: journal.note("connection cut", why=why))
        folder = DataFolder(path=self.out / "data")
        folder.prepare()
        stored = "storage" if self.storage is Storage.EMBEDDED else "cache"
        disk = SmallDisk.mount(folder.path, ("scratch", stored))
        stack = self._stack(folder, journal, managers=2, via=proxy.port_before)
        verdict = Verdict()
        asked = documents(random.Random(self.seed), real_document if self.real else sample_document)
        people = Scientists(folder, asked, random.Random(self.seed + 1), journal)
        try:
            stack.start()
            faults = Faults(
                stack=stack,
                folder=folder,
                runtime=runtime_of(folder),
                proxy=proxy,
                disk=disk,
                choose=random.Random(self.seed + 2),
                journal=journal,
                quota_gb=QUOTA_GB,
                longest=LONGEST,
            )
            people.start(MOST_LIVE)
            self._for(self.seconds, stack, faults.tick)
            faults.calm()
            journal.note("calm")
            people.still()
            self._for(self.patience, stack, lambda: None, until=lambda: people.idle)
            for errand in people.live():
                verdict.violations.append(f"request {errand.id} of {errand.owner} has not ended")
            people.close()
            verdict.findings = self._audit(folder, stack, faults.harmed)
        finally:
            stack.stop()
            proxy.close()
            journal.close()
            if disk is not None:
                disk.unmount()
        left = processes_of(folder.path)
        verdict.violations += [f"process {pid} is left: {text}" for pid, text in left.items()]
        verdict.violations += [f"the portal refused: {text}" for text in people.refused]
        verdict.violations += verdict.findings.violations
        verdict.events = journal.counts
        verdict.requests = Counter(errand.state or "not ended" for errand in people.errands)
        for errand in people.errands:
            allowed = (*COMPLETE, "cancelled") if errand.cancelled else COMPLETE
            if errand.ended and errand.state not in allowed:
                verdict.violations.append(f"request {errand.id} ended {errand.state}")
        self.errands = people.errands
        return verdict

    def quiet(self, verdict: Verdict) -> None:
        """The same requests again in a stack that is left alone; results are to be equal."""
        done = [errand for errand in self.errands if errand.state in COMPLETE]
        unlike: dict[str, list[Errand]] = {}
        for errand in done:
            unlike.setdefault(json.dumps(errand.document, sort_keys=True), []).append(errand)
        journal = Journal(self.out / "quiet.jsonl")
        folder = DataFolder(path=self.out / "quiet")
        people = Scientists(
            folder,
            (json.loads(text) for text in unlike),
            random.Random(self.seed),
            journal,
            meddles=False,
        )
        stack = self._stack(folder, journal, managers=1, via=lambda port: port)
        stack.start()
        try:
            people.start(MOST_LIVE)
            self._for(
                max(6 * self.seconds, self.patience), stack, lambda: None, until=lambda: people.idle
            )
            people.close()
        finally:
            stack.stop()
            journal.close()
        for again in people.errands:
            for errand in unlike[json.dumps(again.document, sort_keys=True)]:
                verdict.compared += 1
                one, other = (errand.state, errand.results), (again.state, again.results)
                if one != other:
                    verdict.violations.append(_difference(errand, again))

    def _stack(
        self,
        folder: DataFolder,
        journal: Journal,
        *,
        managers: int,
        via: Callable[[int], int],
        workers: int = 2,
    ) -> Stack:
        options = StackOptions(
            folder=folder,
            archive=str(self.archive),
            storage=self.storage,
            workers=workers,
            managers=managers,
            slots=1,
            grace_seconds=2.0,
            longest_pause=4.0,
            via=via,
            settings=Settings(),
        )
        return Stack(options, say=lambda text: journal.note("stack", said=text))

    def _for(
        self,
        seconds: float,
        stack: Stack,
        each: Callable[[], None],
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            stack.tick()
            each()
            time.sleep(0.05)

    def _audit(self, folder: DataFolder, stack: Stack, harmed: set[str]) -> Findings:
        runtime = runtime_of(folder)
        self._for(60.0, stack, lambda: time.sleep(1.0), until=lambda: is_settled(runtime))
        return audit(runtime, harmed, self.failing)


def _difference(errand: Errand, again: Errand) -> str:
    if errand.state != again.state:
        return f"request {errand.id} ended {errand.state}, in the quiet run {again.state}"
    names = sorted(
        name
        for name in {*errand.results, *again.results}
        if errand.results.get(name) != again.results.get(name)
    )
    return f"request {errand.id} differs from the quiet run in {len(names)} files: {names[:3]}"


def tell(verdict: Verdict, out: Path) -> None:
    """Print what happened and what came of it."""
    lines = ["events"]
    lines += [f"  {count:6} {kind}" for kind, count in sorted(verdict.events.items())]
    lines += ["requests", *(f"  {n:6} {state}" for state, n in sorted(verdict.requests.items()))]
    found = verdict.findings
    if found is not None:
        lines += ["tasks", *(f"  {n:6} {state}" for state, n in sorted(found.tasks.items()))]
        lines += ["executions", *(f"  {n:6} {how}" for how, n in found.outcomes.most_common())]
        lines += [f"{found.swept} useless blobs swept"]
    lines += [f"{verdict.compared} requests compared with the quiet run"]
    lines += [f"VIOLATION {text}" for text in verdict.violations]
    lines += [f"{len(verdict.violations)} violations; events in {out / 'events.jsonl'}"]
    text = "\n".join(lines) + "\n"
    (out / "verdict.txt").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(main())
