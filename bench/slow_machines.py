"""What slow machines cost, without a monitor, under the 4x rule, and under Swathmill's monitor.

    python -m bench.slow_machines [--tasks N] [--seeds N] [--plot FILE]

A fleet works through a bag of tasks of three classes with lognormal durations. Each worker is, for
hours at a time, 4 to 12 times slower than it should be; how often is set so that under the plain 4x
rule 16% of the executions are hit: their worker is slow at some time while they run. What decides
is the product's own `service_manager.fleet.monitor.Monitor`, which sees what it sees in service:
heartbeats, progress, ended attempts. Machine time is all seconds of all attempts, those killed
included, over the seconds that the tasks would have taken on machines that are never slow.
"""

import argparse
import heapq
import json
import math
import random
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.slow_spells import HOUR, Spells
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.fleet.monitor import Monitor
from service_manager.options import ManagerOptions
from tasks.bag.categories import Category
from tasks.bag.history import ClassStatistics
from tasks.bag.model import Phase, State
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.time_limits import TimeLimits
from tasks.bag.workers import Hold, RunningAttempt, WorkerRow

BEAT = 10.0
WORKERS, SLOTS = 60, 2
SPREAD = 0.5  # of the logarithm of durations
# Mean seconds by class, and how progress runs against work: a power of the share done.
CLASSES = {"collection": (90.0, 1.0), "reprojection": (300.0, 1.6), "reduction": (900.0, 0.7)}
OPTIONS = ManagerOptions(heartbeat=BEAT, time_limits=TimeLimits(ceiling=4 * HOUR))
OUT = Path(__file__).parent / "out" / "slow_machines.json"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the monitor may do, and whether attempts tell how far they are."""

    name: str
    options: ManagerOptions
    progress: bool = True
    slow: bool = True  # whether machines are slow at times at all


POLICIES = (
    Policy(
        name="no monitor",
        options=replace(
            OPTIONS, time_limits=TimeLimits(samples=10**9, ceiling=math.inf), probe=0.0
        ),
        progress=False,
    ),
    Policy(name="plain 4x rule", options=replace(OPTIONS, probe=0.0), progress=False),
    Policy(name="Swathmill, attempts that tell no progress", options=OPTIONS, progress=False),
    Policy(name="Swathmill", options=OPTIONS),
    Policy(name="Swathmill, no machine ever slow", options=OPTIONS, slow=False),
)


@dataclass(kw_only=True)
class Machine:
    """A worker, slow at times."""

    name: str
    spells: Spells
    hold: Hold = Hold.NONE
    why: str = ""
    free: int = SLOTS
    drained: float = 0.0  # seconds


@dataclass
class Work:
    """A task: `work` is what it takes on a machine that is not slow."""

    key: str
    task_class: str
    work: float
    retries: int = 0
    attempts: int = 0


@dataclass(kw_only=True)
class Attempt:
    """A task on a worker."""

    task: Work
    machine: Machine
    start: float
    ends: float
    claim: str
    order: str = ""  # "kill" or "move", obeyed with the next beat
    over: bool = False


@dataclass
class Result:
    """What one policy came to."""

    policy: str
    ratio: float = 0.0
    hours: float = 0.0  # until the last task ended
    attempts: int = 0
    hit: float = 0.0
    killed: int = 0
    moved: int = 0
    in_vain: int = 0  # killed or moved though the worker was not slow meanwhile
    drained: float = 0.0  # share of all slot time
    drains: int = 0
    false_drains: int = 0


@dataclass
class Fleet:
    """One run of one policy."""

    policy: Policy
    seed: int
    number: int
    now: float = 0.0
    spent: float = 0.0
    hits: int = 0
    running: dict[str, Attempt] = field(default_factory=dict)
    statistics: dict[str, ClassStatistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.machines = [
            Machine(name=f"worker-{i}", spells=Spells.of(rng, slow=self.policy.slow))
            for i in range(WORKERS)
        ]
        self.bag: deque[Work] = deque()
        for i in range(self.number):
            name = rng.choice(list(CLASSES))
            work = rng.lognormvariate(math.log(CLASSES[name][0]) - SPREAD**2 / 2, SPREAD)
            self.bag.append(Work(f"{i:08d}", name, work))
        self.asked = sum(task.work for task in self.bag)
        self.cache = ManagerCache()
        self.monitor = Monitor(self.policy.options, self.cache)
        self.ends: list[tuple[float, int, Attempt]] = []
        self.result = Result(policy=self.policy.name)
        self.left = self.number

    def run(self) -> Result:
        """Work until the bag is empty."""
        sequence = 0
        while self.left:
            sequence += 1
            self._until(self.now + BEAT)
            self._obey()
            self._fill()
            self.monitor.hear(self._rows(sequence), self.now)
            verdicts = self.monitor.look(self.statistics, self.now, lambda: {"": len(self.bag)})
            for order in verdicts.holds:
                machine = self.machines[int(order.worker.split("-")[1])]
                if order.hold is Hold.DRAINED and machine.hold is Hold.NONE:
                    self.result.drains += 1
                    self.result.false_drains += machine.spells.factor(self.now) == 1.0
                machine.hold, machine.why = order.hold, order.why
            for kill in verdicts.kills:
                self._order(kill.running, "kill")
            for moved in verdicts.moves:
                self._order(moved, "move")
        found = self.result
        found.ratio = self.spent / self.asked
        found.hours = self.now / HOUR
        found.hit = self.hits / found.attempts
        found.drained = sum(m.drained for m in self.machines) / (self.now * WORKERS)
        return found

    def _rows(self, sequence: int) -> list[WorkerRow]:
        listed: dict[str, list[RunningAttempt]] = {m.name: [] for m in self.machines}
        for attempt in self.running.values():
            listed[attempt.machine.name].append(
                RunningAttempt(
                    key=attempt.task.key,
                    claim=attempt.claim,
                    started_ago=self.now - attempt.start,
                    phase=Phase.REPROJECTION,
                    task_class=attempt.task.task_class,
                    progress=self._progress(attempt),
                )
            )
        return [
            WorkerRow(
                name=m.name,
                host=m.name,
                slots=SLOTS,
                started=0.0,
                beat_at=self.now,
                sequence=sequence,
                attempts=tuple(listed[m.name]),
                hold=m.hold,
                hold_why=m.why,
            )
            for m in self.machines
        ]

    def _progress(self, attempt: Attempt) -> float:
        if not self.policy.progress:
            return 0.0
        done = attempt.machine.spells.done(attempt.start, self.now) / attempt.task.work
        return float(min(1.0, done) ** CLASSES[attempt.task.task_class][1])

    def _order(self, running: WatchedAttempt, order: str) -> None:
        running.ordered = self.now
        self.running[running.key].order = order

    def _obey(self) -> None:
        for attempt in [a for a in self.running.values() if a.order]:
            self.result.killed += attempt.order == "kill"
            self.result.moved += attempt.order == "move"
            self.result.in_vain += not attempt.machine.spells.slow_between(attempt.start, self.now)
            attempt.task.retries += attempt.order == "kill"
            killed = Category.EXECUTION_TIMEOUT if attempt.order == "kill" else Category.CANCELLED
            self._end(attempt, killed)
            self.bag.appendleft(attempt.task)

    def _until(self, until: float) -> None:
        while self.ends and self.ends[0][0] <= until:
            at, _, attempt = heapq.heappop(self.ends)
            if attempt.over:
                continue
            self.now = at
            name = attempt.task.task_class
            old = self.statistics.get(name, ClassStatistics(task_class=name))
            self.statistics[name] = old.add(at - attempt.start)
            self._end(attempt, None)
            self.left -= 1
            self._take(attempt.machine)
        for machine in self.machines:
            machine.drained += (until - self.now) if machine.hold is Hold.DRAINED else 0.0
        self.now = until

    def _end(self, attempt: Attempt, category: Category | None) -> None:
        attempt.over = True
        attempt.machine.free += 1
        self.spent += self.now - attempt.start
        self.hits += attempt.machine.spells.slow_between(attempt.start, self.now)
        del self.running[attempt.task.key]
        running = self.cache.running.pop(attempt.task.key)
        event = _event(attempt, category, self.now)
        self.monitor.ended(event, running, self.statistics, self.now)

    def _fill(self) -> None:
        for machine in self.machines:
            while self._take(machine):
                pass

    def _take(self, machine: Machine) -> bool:
        allowed = {Hold.NONE: SLOTS, Hold.PROBE: 1, Hold.DRAINED: 0}[machine.hold]
        if SLOTS - machine.free >= allowed or not self.bag:
            return False
        task = self.bag.popleft()
        task.attempts += 1
        machine.free -= 1
        attempt = Attempt(
            task=task,
            machine=machine,
            start=self.now,
            ends=machine.spells.ends(self.now, task.work),
            claim=f"{task.key}.{task.attempts}",
        )
        self.result.attempts += 1
        self.running[task.key] = attempt
        heapq.heappush(self.ends, (attempt.ends, self.result.attempts, attempt))
        self.cache.running[task.key] = WatchedAttempt(
            key=task.key,
            claim=attempt.claim,
            worker=machine.name,
            attempt=task.attempts,
            retries=task.retries,
            phase=Phase.REPROJECTION,
            task_class=task.task_class,
            sponsor="r",
            claimed_at=self.now,
            since=self.now,
        )
        return True


def _event(attempt: Attempt, category: Category | None, now: float) -> CompletionEvent:
    return CompletionEvent(
        key=attempt.task.key,
        row="",
        number=attempt.task.attempts,
        state=State.READY if category else State.DONE,
        category=category,
        duration=now - attempt.start,
        ended=now,
        phase=Phase.REPROJECTION,
        task_class=attempt.task.task_class,
        worker=attempt.machine.name,
        has_dependents=False,
        interests=(),
        not_before=0.0,
        message="",
        fallback="",
        sponsor="r",
        files=(),
        counted=False,
    )


def study(tasks: int, seeds: int) -> list[list[Result]]:
    """All policies over the same fleets and bags: by policy, a result for each seed."""
    return [[Fleet(policy, seed, tasks).run() for seed in range(seeds)] for policy in POLICIES]


def _mean(results: list[Result], name: str) -> float:
    return sum(float(getattr(r, name)) for r in results) / len(results)


def table(found: list[list[Result]]) -> str:
    """A Markdown table, one row for each policy."""
    lines = [
        "| monitor | machine time | executions hit | killed | moved "
        "| in vain | drained | drained though well | slot time drained | hours |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for results in found:
        lines.append(
            f"| {results[0].policy} | {_mean(results, 'ratio'):.3f} "
            f"| {_mean(results, 'hit'):.1%} | {_mean(results, 'killed'):.0f} "
            f"| {_mean(results, 'moved'):.0f} | {_mean(results, 'in_vain'):.0f} "
            f"| {_mean(results, 'drains'):.0f} | {_mean(results, 'false_drains'):.1f} "
            f"| {_mean(results, 'drained'):.0%} | {_mean(results, 'hours'):.1f} |"
        )
    return "\n".join(lines)


def plot(found: list[list[Result]], to: Path) -> None:
    """Bars of the hours until the last task has ended, one for each policy."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "swathmill"
    from matplotlib import pyplot

    names = [results[0].policy.replace(", ", ",\n") for results in found]
    values = [_mean(results, "hours") for results in found]
    figure, axes = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    bars = axes.barh(names[::-1], values[::-1], color="#3b6ea5")
    axes.bar_label(bars, [f"{v:.1f}" for v in values[::-1]], padding=3)
    axes.set_xlabel("hours until the last task has ended")
    axes.set_xlim(0, max(values) * 1.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(to, metadata={"Date": None})


def main() -> None:
    """Run the study, print its table, write the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="an .svg or .png file to write")
    arguments = parser.parse_args()
    found = study(arguments.tasks, arguments.seeds)
    print(table(found))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(
        json.dumps(
            {results[0].policy: [r.__dict__ for r in results] for results in found}, indent=1
        )
    )
    if arguments.plot:
        plot(found, arguments.plot)


if __name__ == "__main__":
    main()
