"""What many open pages and API calls cost, and whether workers notice them.

    python -m bench.portal [--pages N] [--calls N] [--pairs N] [--slots N] [--archive FOLDER]

`swathmill up` runs four requests of leaf area side by side, each on another grid, so that all is
work. In each pair they run once alone and once with a crowd: N open pages that follow them, and N
API calls a second. All pages are opened at once; calls begin, and pace counts, when each has shown
how things stand. The order is reversed in every second pair. A call counts from when it was due to
its last byte; an event, at most, from the last look at the request's row before it changed to when
a page had it. The pace of the workers is tasks a second. Where other programs share the machine,
paces and waits say little: CPU seconds are told, too, and what the loss would be where the cores
are the stack's own and its slots never wait (`loss by CPU, at most`). The results go to
bench/out/portal.json.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.portal.crowd import READY, Order
from bench.request import granules, meter
from bench.request.cases import cases, on_a_new_grid
from bench.request.ours import RunningStack, stack
from portal.core import tokens
from portal.core.identity import COOKIE
from processes.parents import become_subreaper
from swathmill.access import LOCAL_OWNER
from swathmill.stack.folder import DataFolder
from tasks.model.model import RequestState
from tasks.request.document import Request
from tasks.run.connect import connect
from tasks.settings import Settings
from tasks.tables import request_operations

OUT = Path(__file__).parents[1] / "out"
CORES = len(os.sched_getaffinity(0))
PATIENCE = 900.0
P99_MS, EVENT_S, LOSS = 250.0, 2.0, 0.05
"""The goals."""
BESIDE = 4  # requests that run side by side
PATHS = (
    *(["/api/requests/{0}"] * 4),
    *(["/jobs/{0}"] * 2),
    "/api/requests/{0}/results",
    "/api/requests/{0}/failures",
    "/collections/{0}/items?limit=10",
    "/api/requests?limit=20",
)
"""What programs call, some more often than others."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Some requests side by side, to their end; `cpu` has seconds by part of the stack.

    `seen` is what a crowd saw, `rows` when which request's row had how many tasks done.
    """

    tasks: int
    seconds: float
    cpu: Mapping[str, float]
    seen: Mapping[str, Any]
    rows: Mapping[tuple[str, int], float]

    @property
    def pace(self) -> float:
        """Tasks a second."""
        return self.tasks / self.seconds

    @property
    def work(self) -> float:
        """CPU seconds of a task, of all parts but the portal."""
        return sum(used for part, used in self.cpu.items() if part != "portal") / self.tasks

    @property
    def portal(self) -> float:
        """Cores that the portal takes."""
        return self.cpu.get("portal", 0.0) / self.seconds


class Bench:
    """A running stack, and the crowd at its portal."""

    def __init__(self, running: RunningStack, folder: Path, pages: int, calls: float) -> None:
        data = DataFolder(path=folder / "data")
        self._stack = running
        self._secret = data.secrets().signing_key
        self._runtime = connect(
            Settings.model_validate({"storage": f"file:{data.storage}", "redis_url": _NOWHERE})
        )
        self._pages, self._calls = pages, calls
        self._looked: dict[str, float] = {}  # when each request's row was read last

    def run(self, requests: Sequence[Request], *, crowded: bool) -> Run:
        """Run requests to their end, alone or with the crowd."""
        names = [self._stack.client.submit(request).id for request in requests]
        rows: dict[tuple[str, int], float] = {}
        self._until(lambda: self._done(names, rows) > 0)
        crowd = self._crowd(names) if crowded else None
        rows.clear()
        self._looked.clear()
        begun, at, before = time.monotonic(), self._done(names, rows), self._cpu()
        self._until(lambda: self._done(names, rows) >= 0 and self._ended(names))
        seconds, after = time.monotonic() - begun, self._cpu()
        return Run(
            tasks=self._done(names, rows) - at,
            seconds=seconds,
            cpu={part: used - before.get(part, 0.0) for part, used in after.items()},
            seen=json.loads(crowd.communicate()[0]) if crowd is not None else {},
            rows=rows,
        )

    def _done(self, names: Sequence[str], rows: dict[tuple[str, int], float]) -> int:
        """Count the tasks done; note after which time each row got this number."""
        total = 0
        for name in names:
            now = time.time()
            counts = request_operations.row_of(self._runtime, name).phases.values()
            earlier = self._looked.get(name, now)
            rows.setdefault((name, sum(count.done for count in counts)), earlier)
            self._looked[name] = now
            total += sum(count.done - count.reused for count in counts)
        return total

    def _ended(self, names: Sequence[str]) -> bool:
        """Whether all have ended; RuntimeError if one is not complete."""
        rows = [request_operations.row_of(self._runtime, name) for name in names]
        for row in rows:
            if row.state.ended and row.state is not RequestState.COMPLETE:
                raise RuntimeError(f"{row.title} ended {row.state.value}: {row.message}")
        return all(row.state.ended for row in rows)

    def _until(self, there: Callable[[], bool]) -> None:
        limit, pause = time.monotonic() + PATIENCE, threading.Event()
        while not there():
            if time.monotonic() > limit:
                raise RuntimeError(f"the requests did not come so far within {PATIENCE:g} s")
            pause.wait(0.05)

    def _cpu(self) -> dict[str, float]:
        return meter.by_part(self._stack.pid)

    def _crowd(self, names: Sequence[str]) -> "subprocess.Popen[str]":
        """Start the crowd, and wait until all its pages are open."""
        url = urlsplit(self._stack.client.url)
        issue = {use: tokens.issue(self._secret, LOCAL_OWNER, "operator", use=use) for use in _USES}
        if url.hostname is None or url.port is None:
            raise RuntimeError(f"the portal's address has no port: {self._stack.client.url}")
        order = Order(
            host=url.hostname,
            port=url.port,
            cookie=f"{COOKIE}={issue[tokens.Use.SESSION]}",
            token=issue[tokens.Use.API],
            requests=tuple(names),
            paths=tuple(path.format(name) for name in names for path in PATHS),
            pages=self._pages,
            calls=self._calls,
        )
        crowd = subprocess.Popen(
            [sys.executable, "-m", "bench.portal.crowd"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        crowd.stdin.write(json.dumps(vars(order)) + "\n")
        crowd.stdin.flush()
        if crowd.stdout.readline().strip() != READY:
            raise RuntimeError("the crowd's pages do not open")
        return crowd


_USES = (tokens.Use.SESSION, tokens.Use.API)
_NOWHERE = "redis://127.0.0.1:1/0"  # the bench tells nobody of what it reads


def late(run: Run) -> list[float]:
    """Return for each event how long after its row it came at most, in seconds."""
    return [
        at - run.rows[name, done]
        for at, name, done in run.seen["events"]
        if at > run.rows.get((name, done), at)  # not of how things stood when a page was opened
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of them does not exceed; of no values infinity."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.inf


def told(pairs: Sequence[tuple[Run, Run]], slots: int) -> dict[str, Any]:
    """Say what the pairs of a run alone and a crowded run came to."""
    crowded = [run for _, run in pairs]
    calls = [1000 * one for run in crowded for one in run.seen["seconds"]]
    events = [one for run in crowded for one in late(run)]
    losses = [1.0 - busy.pace / alone.pace for alone, busy in pairs]
    # Where the cores are the stack's own, slots that are all at work get what the portal leaves.
    by_cpu = [max(0.0, run.portal - max(0, CORES - slots)) / min(CORES, slots) for run in crowded]
    goals = {
        "p99 of calls, ms": (percentile(calls, 0.99), P99_MS),
        "p99 of events, s": (percentile(events, 0.99), EVENT_S),
        "loss of pace": (statistics.median(losses), LOSS),
    }
    statuses: dict[str, int] = {}
    for run in crowded:
        for status, number in run.seen["statuses"].items():
            statuses[status] = statuses.get(status, 0) + number
    return {
        "calls": {
            "a second": round(sum(statuses.values()) / sum(run.seconds for run in crowded), 1),
            "statuses": statuses,
            "median ms": round(statistics.median(calls), 1),
            "p99 ms": round(percentile(calls, 0.99), 1),
        },
        "events": {
            "seen": len(events),
            "streams lost": sum(run.seen["lost"] for run in crowded),
            "median s": round(statistics.median(events), 2) if events else None,
            "p99 s": round(percentile(events, 0.99), 2),
        },
        "all pages open after s": [round(run.seen["opened"], 2) for run in crowded],
        "tasks a second, alone and crowded": [
            [round(alone.pace, 2), round(busy.pace, 2)] for alone, busy in pairs
        ],
        "CPU ms of a task, alone and crowded": [
            [round(1000 * alone.work), round(1000 * busy.work)] for alone, busy in pairs
        ],
        "portal's cores, alone and crowded": [
            [round(alone.portal, 3), round(busy.portal, 3)] for alone, busy in pairs
        ],
        "loss of pace": round(statistics.median(losses), 3),
        "loss by CPU, at most": round(statistics.median(by_cpu), 3),
        "goals": {
            name: {"is": round(found, 3), "goal": goal, "met": found < goal}
            for name, (found, goal) in goals.items()
        },
    }


def main() -> int:
    """Measure and print. Returns 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--calls", type=float, default=200.0, help="a second")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--slots", type=int, default=CORES, help="of the one worker")
    parser.add_argument("--archive", type=Path, help="leaf area; synthetic granules otherwise")
    options = parser.parse_args()
    case = cases()["Q1"]
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="swathmill-portal-") as name:
        folder = Path(name)
        archive = folder / "archive"
        archive.mkdir()
        granules.leaf_area(archive, options.archive)
        with stack(archive, folder, slots=options.slots) as running:
            running.take(case.warm_up, folder / "warm-up")
            bench = Bench(running, folder, options.pages, options.calls)
            pairs = []
            for number in range(options.pairs):
                runs = {}
                for turn in range(2):
                    crowded = (number + turn) % 2 == 1
                    wanted = [
                        on_a_new_grid(case.request, (2 * number + turn) * BESIDE + one)
                        for one in range(BESIDE)
                    ]
                    runs[crowded] = bench.run(wanted, crowded=crowded)
                pairs.append((runs[False], runs[True]))
                print(json.dumps(told(pairs, options.slots), indent=1), flush=True)
    OUT.mkdir(exist_ok=True)
    found = told(pairs, options.slots)
    (OUT / "portal.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(goal["met"] for goal in found["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
