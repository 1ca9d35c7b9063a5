"""Slow machines: which workers are drained, which are tried again, what runs on them in vain.

A worker is judged by its attempts against the usual of their classes. The judgement is a
cumulative sum of log-likelihood ratios (Page, Continuous inspection schemes, Biometrika 41, 1954)
between "as usual" and "`_SLOW` times slower", in the logarithm of durations. One attempt counts
for at most `_MOST`, less than it takes to drain: a single long task never drains its worker, and
a task that was slow on three workers is itself slow and counts no more.

A drained worker runs what it has, less what others would end sooner. After a while it may take one
attempt, the probe; is that as usual, the worker is released. Else it waits twice as long, or an
eighth of the time for which it has been slow: what is lost when it recovers stays in proportion to
what the probes of a worker that never does would cost.

Pure: rows, ended attempts and time come in, decisions come out. Times in seconds on the manager's
monotonic clock.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from service_manager.tasks.pace import Pace, Usual
from service_manager.tasks.view import Running
from tasks.model.categories import Category
from tasks.tables.bounds import Bounds
from tasks.tables.history import ClassStatistics
from tasks.tables.rows import News
from tasks.tables.workers import Hold, WorkerRow

_SLOW = math.log(3.0)  # the slowness that is looked for
_MOST = math.log(100.0)  # evidence of one attempt
_DRAIN = math.log(1000.0)  # evidence that drains
_NORMAL = math.log(2.0)  # a probe within this is as usual
_PAYS = 1.5  # times the usual that an attempt must have before it, to be made anew elsewhere
_DRAINED = 0.75  # of all slots at most
_MOVES = 5  # of one task from a slow machine
_REMEMBERED = 10_000  # tasks
_WITNESS = 2  # workers on which a slow task says something of the worker
_AGAIN = 2  # times the first wait, after a probe that was slow
_PART = 8  # of the time for which a worker has been slow, that it waits at least


@dataclass(frozen=True, kw_only=True)
class Order:
    """Write this into the worker's row."""

    worker: str
    started: float
    hold: Hold


@dataclass(slots=True)
class _Machine:
    started: float
    slots: int
    hold: Hold
    since: float  # of the hold
    slow_since: float  # when it was drained first; releases that were mistakes do not count
    wait: float  # before the next probe
    released: float = -math.inf
    score: float = 0.0  # evidence of ended attempts
    slowness: float = 0.0  # logarithm, smoothed
    running: list[Running] = field(default_factory=list)


@dataclass(slots=True)
class _Task:
    slow_on: set[str] = field(default_factory=set)
    moves: int = 0


class Machines:
    """The workers as machines. `probe` is the wait before the first probe; nothing is drained
    when it is 0. The waits are at most the bounds' ceiling."""

    def __init__(self, pace: Pace, bounds: Bounds, probe: float) -> None:
        self._pace = pace
        self._bounds = bounds
        self._probe = probe
        self._longest = max(probe, bounds.ceiling)
        self._machines: dict[str, _Machine] = {}
        self._tasks: OrderedDict[str, _Task] = OrderedDict()

    def hear(
        self, present: Iterable[WorkerRow], running: Mapping[str, list[Running]], now: float
    ) -> list[Order]:
        """Take note of the workers that beat and of what each runs; orders that are not in their
        rows yet."""
        orders = []
        known: dict[str, _Machine] = {}
        for worker in present:
            machine = self._machines.get(worker.name)
            if machine is None or machine.started != worker.started:
                machine = _Machine(worker.started, worker.slots, worker.hold, now, now, self._probe)
            known[worker.name] = machine
            machine.running = running.get(worker.name, [])
            if machine.hold is not worker.hold:
                orders.append(Order(worker=worker.name, started=worker.started, hold=machine.hold))
        self._machines = known
        return orders

    def slots(self, worker: WorkerRow) -> int:
        """The slots of a worker that take attempts."""
        machine = self._machines.get(worker.name)
        hold = machine.hold if machine else worker.hold
        if worker.draining or hold is Hold.DRAINED:
            return 0
        return 1 if hold is Hold.PROBE else worker.slots

    def slow(self, worker: str) -> bool:
        """Whether a worker is held: how long its attempts take says nothing of their class."""
        machine = self._machines.get(worker)
        return machine is not None and machine.hold is not Hold.NONE

    def ended(self, news: News, statistics: Mapping[str, ClassStatistics], now: float) -> None:
        """An attempt has succeeded, or was killed for its age."""
        machine = self._machines.get(news.worker)
        usual = self._pace.usual(news.task_class, statistics.get(news.task_class))
        if machine is None or usual is None or not self._probe:
            return
        if news.category not in (None, Category.EXECUTION_TIMEOUT):
            return
        deviation = usual.deviation(news.duration)
        if machine.hold is Hold.PROBE and now - news.duration >= machine.since:
            normal = deviation <= _NORMAL and news.category is None
            self._probed(machine, normal, deviation, now)
        elif machine.hold is Hold.NONE and self._counts(news.key, news.worker, deviation, machine):
            machine.score = max(0.0, machine.score + _evidence(usual, deviation))
            machine.slowness += (max(0.0, deviation) - machine.slowness) / 2

    def look(
        self, statistics: Mapping[str, ClassStatistics], now: float
    ) -> tuple[list[Order], list[Running]]:
        """New orders, and the attempts that others would end sooner."""
        if not self._probe:
            return [], []
        orders: list[Order] = []
        moves: list[Running] = []
        for name, machine in self._machines.items():
            before = machine.hold
            self._judge(name, machine, statistics, now)
            if machine.hold is not before:
                orders.append(Order(worker=name, started=machine.started, hold=machine.hold))
            if machine.hold is Hold.DRAINED:
                moves += [r for r in machine.running if self._move(r, machine, statistics, now)]
        return orders, moves

    def _judge(
        self, name: str, machine: _Machine, statistics: Mapping[str, ClassStatistics], now: float
    ) -> None:
        score, slowest = machine.score, 0.0
        for running in machine.running:
            usual = self._pace.usual(running.task_class, statistics.get(running.task_class))
            if usual is None or (machine.hold is Hold.PROBE and running.since < machine.since):
                continue
            least = self._pace.least(running.task_class, now - running.since, running.course)
            deviation = usual.deviation(least)
            evidence = _evidence(usual, deviation)
            if evidence > 0 and self._counts(running.key, name, deviation, machine):
                score += evidence
                slowest = max(slowest, deviation)
        machine.slowness = max(machine.slowness, slowest)
        if machine.hold is Hold.DRAINED:
            if now - machine.since >= machine.wait:
                machine.hold, machine.since = Hold.PROBE, now
        elif machine.hold is Hold.PROBE:
            if slowest >= _SLOW:
                self._probed(machine, False, slowest, now)
        elif score >= _DRAIN and self._may_drain(machine):
            if now - machine.released < machine.wait:  # its release was a mistake
                machine.wait = self._longer(machine, now)
            else:
                machine.slow_since, machine.wait = now, self._probe
            machine.hold, machine.since = Hold.DRAINED, now

    def _probed(self, machine: _Machine, normal: bool, slowness: float, now: float) -> None:
        machine.since = now
        machine.score = 0.0
        machine.slowness = 0.0 if normal else slowness
        machine.hold = Hold.NONE if normal else Hold.DRAINED
        if normal:
            machine.released = now
        else:
            machine.wait = self._longer(machine, now)

    def _longer(self, machine: _Machine, now: float) -> float:
        wait = max(_AGAIN * self._probe, (now - machine.slow_since) / _PART)
        return min(self._longest, wait)

    def _may_drain(self, machine: _Machine) -> bool:
        total = sum(m.slots for m in self._machines.values())
        drained = sum(m.slots for m in self._machines.values() if m.hold is not Hold.NONE)
        return drained + machine.slots <= _DRAINED * total

    def _move(
        self,
        running: Running,
        machine: _Machine,
        statistics: Mapping[str, ClassStatistics],
        now: float,
    ) -> bool:
        """Whether an attempt on a slow machine is better made anew elsewhere: what it has before
        it is longer than that, or than its bound leaves it."""
        usual = self._pace.usual(running.task_class, statistics.get(running.task_class))
        if usual is None or running.ordered is not None:
            return False
        known = self._known(running.key)
        if known.moves >= _MOVES:
            return False
        factor = math.exp(machine.slowness)
        done = self._pace.done(running.task_class, running.course)
        if done is None:
            done = min(1.0, (now - running.since) / (factor * usual.seconds))
        ahead = (1.0 - done) * factor * usual.seconds
        bound = self._bounds.bound(statistics.get(running.task_class), running.retries)
        if ahead < _PAYS * usual.seconds and now - running.since + ahead < bound:
            return False
        known.moves += 1
        return True

    def _counts(self, key: str, worker: str, deviation: float, machine: _Machine) -> bool:
        """Whether a task is a witness: not when it was slow on others, too. That it was slow on
        one that is held says nothing of the task."""
        if deviation < _SLOW / 2:
            return True
        slow_on = self._known(key).slow_on
        if machine.hold is Hold.NONE:
            slow_on.add(worker)
        return len(slow_on - {worker}) < _WITNESS

    def _known(self, key: str) -> _Task:
        found = self._tasks.setdefault(key, _Task())
        self._tasks.move_to_end(key)
        if len(self._tasks) > _REMEMBERED:
            self._tasks.popitem(last=False)
        return found


def _evidence(usual: Usual, deviation: float) -> float:
    """The log-likelihood ratio of a deviation, within `_MOST`."""
    ratio = _SLOW / usual.spread**2 * (deviation - _SLOW / 2)
    return max(-_MOST, min(_MOST, ratio))
