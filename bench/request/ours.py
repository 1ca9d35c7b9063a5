"""A request by Swathmill: cold by `swathmill run`, warm on a running stack."""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.request import meter
from bench.request.meter import Spent
from bench.request.probe import sitecustomize
from swathmill.access import local_client
from swathmill.client import Client
from swathmill.delivery import ResultFetcher
from swathmill.following import Follower
from swathmill.progress import ProgressView
from swathmill.stack.folder import DataFolder
from tasks.bag.model import RequestState
from tasks.request.document import Request, dump_request

_COMMAND = str(Path(sys.executable).with_name("swathmill"))
_READY = "Ctrl-C stops"
_READY_SECONDS = 120.0
_STOP_SECONDS = 60.0


PROBE = Path(__file__).parent / "probe"


@dataclass(frozen=True, kw_only=True)
class Warm:
    """A request on a running stack.

    `spent` is from the submission until the last file is in the folder, `complete_s` until the
    request was complete by the manager's clock, `roles` the CPU seconds of each part of the stack.
    """

    spent: Spent
    complete_s: float
    roles: Mapping[str, float]


def shares(
    request: Request, warm_up: Request, archive: Path, folder: Path, rounds: int = 3
) -> dict[str, float]:
    """Return the share of a warm request's CPU time by part of the work; together they are 1.

    It takes rounds of its own, because the samplers in the processes take time, too: theirs is left
    out. What no sampler sees, as of servers, of the client and of ends shorter than a look, is the
    rest. Of the rounds it is the one that took least: samplers disturb now and then.
    """
    found = []
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        found.append(_sampled(request, warm_up, archive, place))
        shutil.rmtree(place / "data", ignore_errors=True)
    parts = min(found, key=lambda one: sum(one.values()))
    whole = sum(parts.values())
    return {part: seconds / whole for part, seconds in parts.items()}


def _sampled(request: Request, warm_up: Request, archive: Path, folder: Path) -> dict[str, float]:
    """Return the CPU seconds of a warm request by part of the work."""
    told = folder / "told"
    told.mkdir()
    environment = {"PYTHONPATH": str(PROBE), "SWATHMILL_BENCH_PROBE": str(told)}
    with stack(archive, folder, environment) as running:
        running.take(warm_up, folder / "warm-up")
        before = _told(told)
        spent = running.take(request, folder / "out").spent
        after = _told(told)
    parts = {part: after[part] - before.get(part, 0.0) for part in sitecustomize.PARTS}
    whole = spent.cpu_s - parts.pop(sitecustomize.SAMPLER)
    parts["rest"] += whole - sum(parts.values())
    return parts


def _told(folder: Path) -> Counter[str]:
    """Sum what all processes have told."""
    total: Counter[str] = Counter()
    for path in folder.iterdir():
        total.update(sitecustomize.read(str(path)))
    return total


def cold(request: Request, archive: Path, folder: Path) -> Spent:
    """Run `swathmill run` into `folder / "out"`; raise RuntimeError if it does not complete."""
    document = _document(request, folder)
    words = ["run", document, "--archive", archive, "--out", folder / "out", "--data"]
    with (folder / "run.log").open("w") as log:

        def act() -> None:
            done = subprocess.run(
                [_COMMAND, *map(str, words), str(folder / "data")], stdout=log, stderr=log
            )
            if done.returncode:
                raise RuntimeError(f"{request.title} ended with {done.returncode}: {log.name}")

        return meter.measure(act)


@contextmanager
def stack(
    archive: Path | None,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    slots: int = 0,
) -> Iterator["RunningStack"]:
    """Run `swathmill up` on new data below `folder`; with 0 slots there is one for each core.

    Without an archive the environment names the sources.
    """
    data = folder / "data"
    given = () if archive is None else ("--archive", archive)
    with (folder / "up.log").open("w+") as log:
        process = subprocess.Popen(
            [_COMMAND, "up", *given, "--data", data, "--slots", str(slots)],
            stdout=log,
            stderr=log,
            env=os.environ | (environment or {}),
        )
        try:
            limit = time.monotonic() + _READY_SECONDS
            while _READY not in Path(log.name).read_text():
                if process.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"the stack did not start: {log.name}")
                time.sleep(0.05)
            yield RunningStack(process.pid, local_client(DataFolder(path=data)))
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)
            meter.reap()


class RunningStack:
    """A stack that takes requests."""

    def __init__(self, pid: int, client: Client) -> None:
        self.pid = pid
        self.client = client

    def take(self, request: Request, out: Path) -> Warm:
        """Submit a request, follow it, and fetch its results; RuntimeError if it has gaps."""
        roles = meter.by_part(self.pid)
        complete = 0.0

        def act() -> None:
            nonlocal complete
            client = self.client
            view = ProgressView(Console(quiet=True))
            made = client.submit(request)
            with ResultFetcher(client, made.id, out) as fetcher:
                follower = Follower(
                    client=client, tick=lambda: None, view=view, changed=fetcher.begin
                )
                status = follower.until_ended(made.id)
                if status.state is not RequestState.COMPLETE:
                    raise RuntimeError(f"{request.title}: {status.state.value}: {status.message}")
                assert status.ended is not None
                assert status.submitted is not None
                complete = (status.ended - status.submitted).total_seconds()
                fetcher.finish(tick=lambda: None)

        spent = meter.measure(act)
        after = meter.by_part(self.pid)
        return Warm(
            spent=spent,
            complete_s=complete,
            roles={name: used - roles.get(name, 0.0) for name, used in after.items()},
        )


def _document(request: Request, folder: Path) -> Path:
    path = folder / "request.yaml"
    path.write_text(dump_request(request))
    return path
