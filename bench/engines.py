"""The closed loop of a fleet in an engine: wanted slots, starts, who leaves; in simulated time.

`make bench ONLY=engines`. The manager's own rules (`WantedSlots`, `Leaving`) and the fleet's
(`Fleet`) act on a simulated engine whose machines take 1, 10 or 17 minutes to start, from no worker
to at most 200 and back. Ideal is the same work on machines that are all asked for at once and paid
for no second longer than they work. Last, two engines have the work of two places at once, counted
by one manager: each is to do as if it were alone.
"""

import argparse
import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.fleet.leaving import Leaving
from service_manager.fleet.wanted_slots import WantedSlots
from service_manager.options import ManagerOptions
from swathmill.commands.fleet.engine import Fleet, Started
from tasks.bag.model import Phase, State
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.workers import WorkerRow
from tasks.setting_values import WorkPlaces

SLOTS, MOST, PATIENCE = 2, 200, 300.0
MANAGER_LOOKS, FLEET_LOOKS = 5, 30
STARTS = (60, 600, 1020)
DURATIONS = (2, 30, 180, 900, 3600)
WORK_HOURS = 400.0  # of slots: an hour of all


@dataclass
class SimulatedEngine:
    """An engine: workers wait `start` seconds for their machine, and end by themselves."""

    start_seconds: float
    now: float = 0.0
    made: dict[str, float] = field(default_factory=dict)  # when each was asked for
    cut: int = 0
    number: int = 0

    def there(self) -> list[Started]:
        """Implement `Engine.there`."""
        return [
            Started(name=name, running=asked + self.start_seconds <= self.now)
            for name, asked in self.made.items()
        ]

    def start(self, count: int) -> None:
        """Implement `Engine.start`."""
        for _ in range(count):
            self.number += 1
            self.made[f"w{self.number}"] = self.now

    def end(self, names: Sequence[str]) -> None:
        """Implement `Engine.end`; count what it would cut off."""
        running = {one.name for one in self.there() if one.running}
        self.cut += len(running & {*names})
        for name in names:
            self.made.pop(name, None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to, in seconds; `paid` is the time of machines, `work` that of tasks."""

    ended: float
    home: float
    paid: float
    work: float
    started: int
    most: int
    cut: int


@dataclass
class _Loop:
    """One run: the ready tasks, the fleet, and who does what until when."""

    left: list[float]  # durations of the tasks that nobody has taken
    engine: SimulatedEngine
    of: str = ""  # the place whose work it is
    options: ManagerOptions = field(default_factory=lambda: ManagerOptions(scale_in=PATIENCE))
    ends: list[tuple[float, int, WatchedAttempt]] = field(default_factory=list)
    busy: dict[str, int] = field(default_factory=dict)
    rows: dict[str, WorkerRow] = field(default_factory=dict)
    number: int = 0  # of attempts
    paid: float = 0.0
    ended: float = 0.0
    home: float = 0.0
    most: int = 0

    def __post_init__(self) -> None:
        self.work = sum(self.left)
        self._wanted, self._leaving = WantedSlots(self.options), Leaving(self.options.scale_in)
        self._fleet = Fleet(slots=SLOTS, most=MOST, patience=PATIENCE)

    @property
    def goes_on(self) -> bool:
        """True until all work is done and all machines are gone."""
        return bool(self.left or self.ends or self.engine.made)

    def take_up(self, now: float) -> None:
        """End attempts, and begin others where slots are free."""
        self.engine.now = now
        self._end(now)
        self._begin(now)

    def look(self, now: float, here: ManagerCache) -> None:
        """Have the manager and, less often, the fleet look at what there is `here`."""
        slots = self._wanted.count(here, {"r": len(self.left)} if self.left else {}, now)
        for row in self._leaving.choose(self.rows.values(), self.busy, slots, now):
            self.rows[row.name] = _row(row.name, row.started, draining=True)
        self._leave()
        if now % FLEET_LOOKS == 0:
            gone = {name for name, row in self.rows.items() if row.draining}
            moves = self._fleet.moves(slots, self.engine.there(), gone, now)
            self.engine.start(moves.start)
            self.engine.end(moves.end)
        running = sum(one.running for one in self.engine.there())
        self.most = max(self.most, running)
        self.paid += running * MANAGER_LOOKS
        self.home = now + MANAGER_LOOKS

    def outcome(self) -> Outcome:
        """Return what it came to."""
        return Outcome(
            ended=self.ended, home=self.home, paid=self.paid, work=self.work,
            started=self.engine.number, most=self.most, cut=self.engine.cut,
        )  # fmt: skip

    def _end(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            at, _, one = heapq.heappop(self.ends)
            self.busy[one.worker] -= 1
            self._wanted.ended(_event(at - one.since))
            self.ended = max(self.ended, at)
            # A slot that is free goes on at once, not at the manager's next look.
            if self.left and not self.rows[one.worker].draining:
                self._take(one.worker, at)

    def _begin(self, now: float) -> None:
        for one in self.engine.there():
            if one.running and one.name not in self.rows:
                self.rows[one.name] = _row(one.name, now)
                self.busy[one.name] = 0
        for name, row in self.rows.items():
            while self.left and not row.draining and self.busy[name] < SLOTS:
                self._take(name, now)

    def _take(self, name: str, at: float) -> None:
        self.number += 1
        self.busy[name] += 1
        end = at + self.left.pop()
        attempt = _attempt(f"{self.of}{self.number}", name, at, self.of)
        heapq.heappush(self.ends, (end, self.number, attempt))

    def _leave(self) -> None:
        for name in [n for n, row in self.rows.items() if row.draining and not self.busy[n]]:
            del self.rows[name], self.busy[name], self.engine.made[name]


def run(durations: Sequence[float], start_seconds: float) -> Outcome:
    """Do tasks of these durations in an engine whose machines take so long to start."""
    return run_together({"": (durations, start_seconds)})[""]


def run_together(works: Mapping[str, tuple[Sequence[float], float]]) -> dict[str, Outcome]:
    """Do the work of several places, each with durations and what its machines take to start."""
    loops = {
        of: _Loop(left=list(durations), engine=SimulatedEngine(start), of=of)
        for of, (durations, start) in works.items()
    }
    places = WorkPlaces.read(" ".join(f"{of}=reduction/{of}" for of in works if of))
    cache, now = ManagerCache(), 0
    while any(loop.goes_on for loop in loops.values()):
        going = [loop for loop in loops.values() if loop.goes_on]
        for loop in going:
            loop.take_up(now)
        cache.running = {one.key: one for loop in going for _, _, one in loop.ends}
        for loop in going:
            loop.look(now, cache.view(loop.of, places))
        now += MANAGER_LOOKS
    return {of: loop.outcome() for of, loop in loops.items()}


def ideal(durations: Sequence[float], start_seconds: float) -> float:
    """Return when the work would end on all machines that it fills, asked for at once."""
    slots = min(MOST * SLOTS, len(durations))
    return start_seconds + max(max(durations), sum(durations) / slots)


def tasks_of(seconds: float, rng: random.Random) -> list[float]:
    """Make tasks of half to one and a half times these seconds, `WORK_HOURS` of them."""
    count = round(WORK_HOURS * 3600 / seconds)
    return [seconds * rng.uniform(0.5, 1.5) for _ in range(count)]


def _row(name: str, started: float, *, draining: bool = False) -> WorkerRow:
    return WorkerRow(
        name=name, host=name, slots=SLOTS, started=started, beat_at=started, draining=draining
    )


def _event(seconds: float) -> CompletionEvent:
    return CompletionEvent(
        key="t", row="r", number=1, state=State.DONE, phase=Phase.REDUCTION, task_class="reduction",
        duration=seconds, sponsor="r", interests=("r",), has_dependents=False, not_before=0.0,
        fallback="", files=(),
    )  # fmt: skip


def _attempt(key: str, worker: str, since: float, of: str) -> WatchedAttempt:
    return WatchedAttempt(
        key=key, claim=key, worker=worker, attempt=1, retries=0,
        phase=Phase.REDUCTION, task_class=f"reduction {of}".strip(), sponsor="r",
        claimed_at=since, since=since,
    )  # fmt: skip


def main() -> None:
    """Print each engine's end and machine time beside the ideal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print("start  task      end  ideal  ratio   machine h  ideal  ratio  workers  cut")
    for start in STARTS:
        for seconds in DURATIONS:
            durations = tasks_of(seconds, random.Random(arguments.seed))
            found, best = run(durations, start), ideal(durations, start)
            paid, work = found.paid / 3600, found.work / SLOTS / 3600
            print(
                f"{start:5} {seconds:5} {found.ended:8.0f} {best:6.0f} {found.ended / best:6.2f}"
                f"   {paid:9.1f} {work:6.1f} {paid / work:6.2f} {found.most:8} {found.cut:4}"
            )
    print("\ntwo places at once: each as alone?")
    rng = random.Random(arguments.seed)
    works = {"": (tasks_of(30, rng), 60.0), "gpu": (tasks_of(3600, rng), 1020.0)}
    for of, outcome in run_together(works).items():
        alone = run(*works[of])
        print(
            f"{of or '(none)':8} ended {outcome.ended:6.0f} s, alone {alone.ended:6.0f} s; machine "
            f"hours {outcome.paid / 3600:6.1f}, alone {alone.paid / 3600:6.1f}; cut {outcome.cut}"
        )


if __name__ == "__main__":
    main()
