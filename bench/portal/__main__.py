"""What many open pages and API calls cost, and whether workers notice them.

    python -m bench.portal [--pages N] [--calls N] [--rounds N] [--slots N] [--archive FOLDER]
    python -m bench.portal --maps [--calls 20]

`swathmill up` runs four requests of leaf area side by side, each on another grid, so that all is
work. They are planned, paused, and resumed together. In each round they run three times: alone;
with a crowd, N open pages that follow them and N API calls a second; and beside a burner, a program
that takes the processor time which the crowd took and calls nobody. A real crowd sits on other
machines, so the loss of pace counts against the run beside the burner; that against the run alone
is told, too. The order changes from round to round. With --maps the crowd has no pages: its calls
are tiles of the granules' leaf area, each with a colour scale of its own, so that each is drawn.

All pages are open before the requests are resumed; calls begin then. A call counts from when it was
due to its last byte; an event, at most, from the last look at the request's row before it changed
to when a page had it. The pace is tasks a second. The results go to
bench/out/portal.json, of maps to maps.json.
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
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.portal.crowd import READY, Order
from bench.request import granules, meter
from bench.request.cases import cases, on_a_new_grid
from bench.request.ours import RunningStack, stack
from portal.serving import tokens
from portal.serving.identity import COOKIE
from processes.parents import become_subreaper
from swathmill.access import LOCAL_OWNER
from swathmill.stack.folder import DataFolder
from tasks.bag.model import RequestState
from tasks.request.document import Request
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow
from tasks.service.connect import connect
from tasks.settings import Settings

OUT = Path(__file__).parents[1] / "out"
CORES = len(os.sched_getaffinity(0))
PATIENCE = 900.0
_STILL_SECONDS = 4.0
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


TILES = tuple(
    f"/tiles/MCD15A2.5/Lai_1km/2012-01-{1 + 8 * (n % 3):02d}/8/{129 + n % 8}/{77 + n // 8 % 6}.png"
    f"?rescale=0,{7 + n / 10_000:.4f}"
    for n in range(20_000)
)
"""What maps call: none of them twice."""

ALONE, CROWD, BURNER = "alone", "with the crowd", "beside the burner"
"""What is beside the requests in the runs of a round."""
ORDER = (ALONE, CROWD, BURNER)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Some requests side by side, to their end; `cpu` has seconds by part of the stack.

    `seen` is what a crowd saw, `rows` when which request's row had how many tasks done.
    """

    tasks: int
    seconds: float
    progress: Sequence[tuple[float, int]]  # seconds from its begin, tasks done
    cpu: Mapping[str, float]
    seen: Mapping[str, Any]
    rows: Mapping[tuple[str, int], float]

    def pace(self, tasks: int) -> float:
        """Tasks a second, of the last so many: runs are compared by the same ones."""
        begun = max(at for at, done in self.progress if done <= self.tasks - tasks)
        return tasks / (self.seconds - begun)

    @property
    def work(self) -> float:
        """CPU seconds of a task, of all parts but the portal."""
        return sum(used for part, used in self.cpu.items() if part != "portal") / self.tasks

    @property
    def portal(self) -> float:
        """Cores that the portal takes."""
        return self.cpu.get("portal", 0.0) / self.seconds

    @property
    def crowd(self) -> float:
        """Cores that the crowd takes."""
        return float(self.seen.get("cpu", 0.0)) / self.seconds


class Bench:
    """A running stack, and the crowd at its portal."""

    def __init__(
        self, running: RunningStack, folder: Path, pages: int, calls: float, maps: bool
    ) -> None:
        data = DataFolder(path=folder / "data")
        self._stack = running
        self._secret = data.secrets().signing_key
        self._runtime = connect(
            Settings.model_validate({"storage": f"file:{data.storage}", "redis_url": _NOWHERE})
        )
        self._pages, self._calls = pages, calls
        self._tiles = iter(TILES) if maps else None
        self._looked: dict[str, float] = {}  # when each request's row was read last

    def run(self, requests: Sequence[Request], beside: str, burnt: float = 0.0) -> Run:
        """Run requests to their end, `beside` one of the three; a burner takes `burnt` cores."""
        client = self._stack.client
        names: list[str] = []
        for request in requests:
            names.append(client.submit(request).id)
            client.order(names[-1], "pause")
        self._until(lambda: all(row.state is RequestState.RUNNING for row in self._rows(names)))
        self._settle(names)
        other: subprocess.Popen[str] | None = None
        if beside == CROWD:
            other = self._crowd(names)
        elif beside == BURNER:
            other = started("bench.portal.burner", str(burnt))
        for name in names:
            client.order(name, "resume")
        rows: dict[tuple[str, int], float] = {}
        self._looked.clear()
        begun, at, before = time.monotonic(), self._done(names, rows), self._cpu()
        progress = [(0.0, 0)]

        def ended() -> bool:
            progress.append((time.monotonic() - begun, self._done(names, rows) - at))
            return self._ended(names)

        self._until(ended)
        seconds, after = time.monotonic() - begun, self._cpu()
        said = other.communicate()[0] if other is not None else ""
        return Run(
            tasks=self._done(names, rows) - at,
            seconds=seconds,
            progress=progress,
            cpu={part: used - before.get(part, 0.0) for part, used in after.items()},
            seen=json.loads(said) if said else {},
            rows=rows,
        )

    def _settle(self, names: Sequence[str]) -> None:
        """Wait until the tasks that ran when their requests were paused have ended."""
        done, since = -1, time.monotonic()

        def is_still() -> bool:
            nonlocal done, since
            now = self._done(names, {})
            if now != done:
                done, since = now, time.monotonic()
            return time.monotonic() - since > _STILL_SECONDS

        self._until(is_still)

    def _rows(self, names: Sequence[str]) -> list[RequestRow]:
        return [request_operations.row_of(self._runtime, name) for name in names]

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
        """Tell whether all have ended; RuntimeError if one is not complete."""
        rows = self._rows(names)
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
            paths=self._paths(names),
            pages=self._pages,
            calls=self._calls,
        )
        return open_crowd(order)

    def _paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return what programs call of requests, or tiles that no crowd has called before."""
        if self._tiles is None:
            return tuple(path.format(name) for name in names for path in PATHS)
        return tuple(islice(self._tiles, len(TILES) // 10))


def started(module: str, *words: str) -> "subprocess.Popen[str]":
    """Start a module of ours, which ends with its standard input."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def open_crowd(order: Order) -> "subprocess.Popen[str]":
    """Start a crowd, and wait until all its pages are open."""
    crowd = started("bench.portal.crowd")
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


def told(rounds: Sequence[Mapping[str, Run]]) -> dict[str, Any]:
    """Say what the rounds came to; each has its three runs by what was beside them."""
    crowded = [runs[CROWD] for runs in rounds]
    calls = [1000 * one for run in crowded for one in run.seen["seconds"]]
    events = [one for run in crowded for one in late(run)]
    same = [min(run.tasks for run in runs.values()) for runs in rounds]
    paces = {
        beside: [runs[beside].pace(tasks) for runs, tasks in zip(rounds, same, strict=True)]
        for beside in ORDER
    }
    losses = {
        beside: [
            1.0 - with_crowd / pace
            for with_crowd, pace in zip(paces[CROWD], paces[beside], strict=True)
        ]
        for beside in (ALONE, BURNER)
    }
    goals = {
        "p99 of calls, ms": (percentile(calls, 0.99), P99_MS),
        "loss of pace": (statistics.median(losses[BURNER]), LOSS),
    }
    if events:  # a crowd of maps follows no request
        goals["p99 of events, s"] = (percentile(events, 0.99), EVENT_S)
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
            "p99 s": round(percentile(events, 0.99), 2) if events else None,
        },
        "all pages open after s": [round(run.seen["opened"], 2) for run in crowded],
        "tasks a second": {
            beside: [round(pace, 2) for pace in found] for beside, found in paces.items()
        },
        "CPU ms of a task": {
            beside: [round(1000 * runs[beside].work) for runs in rounds] for beside in ORDER
        },
        "cores of portal and crowd": [
            [round(run.portal, 3), round(run.crowd, 3)] for run in crowded
        ],
        "loss of pace": {
            f"against the run {beside}": [round(one, 3) for one in found]
            for beside, found in losses.items()
        },
        "goals": {
            name: {"is": round(found, 3), "goal": goal, "met": found < goal}
            for name, (found, goal) in goals.items()
        },
    }


def main() -> int:
    """Measure and print. Returns 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--calls", type=float, help="a second; 200, of tiles 20")
    parser.add_argument("--maps", action="store_true", help="the crowd looks at maps")
    parser.add_argument("--rounds", type=int, default=3)
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
            # All granules are collected before: the runs are to have the same tasks.
            running.take(on_a_new_grid(case.request, 1000), folder / "warm-up")
            pages = 0 if options.maps else options.pages
            calls = options.calls or (20.0 if options.maps else 200.0)
            bench = Bench(running, folder, pages, calls, options.maps)
            rounds: list[dict[str, Run]] = []
            for number in range(options.rounds):
                runs: dict[str, Run] = {}
                # The burner comes after the crowd, whose processor time it takes.
                for turn, beside in enumerate(ORDER if number % 2 == 0 else (CROWD, BURNER, ALONE)):
                    wanted = [
                        on_a_new_grid(case.request, (3 * number + turn) * BESIDE + one)
                        for one in range(BESIDE)
                    ]
                    burnt = runs[CROWD].crowd if beside == BURNER else 0.0
                    runs[beside] = bench.run(wanted, beside, burnt)
                rounds.append(runs)
                print(json.dumps(told(rounds), indent=1), flush=True)
    OUT.mkdir(exist_ok=True)
    found = told(rounds)
    (OUT / ("maps.json" if options.maps else "portal.json")).write_text(
        json.dumps(found, indent=1) + "\n"
    )
    return 0 if all(goal["met"] for goal in found["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
