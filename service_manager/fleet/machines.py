"""Slow machines: which workers are drained, which are tried again, what runs on them in vain.

A worker is judged by its attempts against the usual of their classes. The judgement is a
cumulative sum of log-likelihood ratios (Page, Continuous inspection schemes, Biometrika 41, 1954)
between "as usual" and "`_SLOW` times slower", in the logarithm of durations. One attempt counts
for at most `_MOST`, less than it takes to drain: a single long task never drains its worker, and
a task that was slow on three workers is itself slow and counts no more.

Only fair evidence counts. An attempt speaks of its worker when enough attempts of its class have
succeeded on others, and when its worker had warmed up before it began: it had ended an attempt of
that class, and as many attempts as it has slots. What ran while its worker was silent says nothing,
and time counts up to the worker's latest beat: a lost worker is not a slow one. Workers of one
host share its load, so they are held against those of other hosts alone; one host is never slow.
Short times are noise: an attempt that took less than two seconds more than usual says nothing of
its worker, nor does one of a class whose successes took less than ten seconds together.

An operator drains any worker, until an operator releases it: it is neither judged nor probed.

No rule drains the last worker of a place. At every look, also when others have left or a probe was
slow, one worker and a quarter of the slots of each place are free to take work.

A drained worker keeps the attempts that no other worker would end sooner. After a while it is
given one attempt, the probe. If the probe takes the usual time, the worker is used again; if not,
it waits twice as long, or an eighth of the time for which it has been slow. So the time lost when
a worker recovers stays in proportion to the cost of the probes of one that never does.

A drained worker is needed while more tasks wait than the free slots of the others take. Meanwhile
it takes attempts in all its slots: slow is sooner than not at all. It stays judged, so it is
drained again once the others suffice, and what it runs is then moved like that of any drained
worker. Its attempts have as much more time as it is slower, up to `_LONGER` times their limit: what
the machine costs is not the task's fault.

All workers of a host on which everything fails (`failing.py`) are held by the same means, and no
work makes one of them needed: it would fail. One of them gets the probe, and its success releases
all. Such a host counts nowhere as one that could do the work, so it is held even when it is the
last: what it took would be lost. Operators are told (`failing` of its workers).

Pure: rows, ended attempts and time come in, decisions come out. Times in seconds on the manager's
monotonic clock.
"""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from service_manager.dispatch.attempt_statistics import AttemptStatistics, Usual
from service_manager.dispatch.manager_cache import WatchedAttempt
from service_manager.fleet.failing import FailingHosts, speaks
from tasks.bag.categories import Category
from tasks.bag.expectation import Times
from tasks.bag.history import ClassStatistics
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.time_limits import TimeLimits
from tasks.bag.workers import Ask, Hold, WorkerRow

_SLOW = math.log(3.0)  # the slowness that is looked for
_MOST = math.log(100.0)  # evidence of one attempt
_DRAIN = math.log(1000.0)  # evidence that drains
_NORMAL = math.log(2.0)  # a probe within this is as usual
_PAYS = 1.5  # times the usual that an attempt must have before it, to be made again elsewhere
_DRAINED = 0.75  # of all slots at most
_NOISE = 2.0  # seconds above the usual, below which a time says nothing
_TOTAL = 10.0  # seconds that the successes of a class take together, before it says anything
_LONGER = 4.0  # times the time limit at most, on a slow worker
_GAPS = 3  # beats that a worker misses, before it counts as silent
_TOLD = 3  # attempts that are named as evidence
_MOVES = 5  # of one task from a slow machine
_REMEMBERED = 10_000  # tasks
_CLASSES = 1_000  # of which it is known on whom they succeeded
_WITNESS = 2  # hosts on which a slow task says something of the worker
_AGAIN = 2  # times the first wait, after a probe that was slow
_PART = 8  # of the time for which a worker has been slow, that it waits at least


@dataclass(frozen=True, kw_only=True)
class DrainOrder:
    """An order to hold or release a worker, to be written into its row.

    `why` is the evidence in words, also of a worker that is slow and needed, whose hold is NONE.
    `wait` is the seconds until the worker is tried again.
    """

    worker: str
    started: float
    hold: Hold
    why: str = ""
    wait: float = 0.0
    failing: bool = False


_Attempt = tuple[str, int]  # task key and number


@dataclass(slots=True)
class _Machine:
    host: str
    started: float
    slots: int
    hold: Hold
    since: float  # of the hold
    slow_since: float  # when it was drained first; releases that were mistakes do not count
    wait: float  # before the next probe
    released: float = -math.inf
    score: float = 0.0  # evidence of ended attempts
    slowness: float = 0.0  # logarithm, smoothed
    running: list[WatchedAttempt] = field(default_factory=list)
    leaving: bool = False  # it ends by itself and takes no work
    unfit: bool = False  # its self-test fails, and it takes no work meanwhile
    asked: bool = False  # an operator has drained it: only an operator releases it
    failing: bool = False  # it is held because everything fails on its host
    needed: bool = False  # though it is slow, it takes attempts: too few others are free
    beat: int = -1
    heard: float = 0.0  # when its latest beat was
    place: str = ""  # whose work alone it takes
    ended: Counter[str] = field(default_factory=Counter)  # attempts since its start, by class
    attempts: dict[_Attempt, bool] = field(default_factory=dict)  # that run: whether they speak
    slow: deque[str] = field(default_factory=lambda: deque(maxlen=_TOLD))  # evidence in words
    why: str = ""

    @property
    def takes(self) -> bool:
        """True if it takes work where the manager lets it."""
        return not (self.leaving or self.unfit or self.failing)

    def meet(self, attempt: _Attempt, task_class: str) -> bool:
        """Tell whether an attempt may speak of this worker: it had warmed up before it began."""
        warm = self.ended[task_class] > 0 and self.ended.total() >= self.slots
        return self.attempts.setdefault(attempt, warm)

    @property
    def slow_now(self) -> bool:
        """True if it is held for slowness."""
        return self.hold is not Hold.NONE and not self.asked and not self.failing

    @property
    def told(self) -> Hold:
        """The hold that its row is to have."""
        return Hold.NONE if self.needed else self.hold

    def clear(self) -> None:
        """Forget the evidence."""
        self.score = self.slowness = 0.0
        self.slow.clear()


@dataclass(slots=True)
class _Task:
    slow_on: set[str] = field(default_factory=set)  # hosts
    moves: int = 0


class Machines:
    """The workers as machines.

    `probe` is the wait in seconds before the first probe; with 0 nothing is drained. No wait is
    longer than the ceiling of the time limits. `beat` is the time in seconds between heartbeats.
    """

    def __init__(
        self, statistics: AttemptStatistics, limits: TimeLimits, probe: float, beat: float
    ) -> None:
        self._statistics = statistics
        self._limits = limits
        self._probe = probe
        self._silence = _GAPS * beat
        self._succeeded: OrderedDict[str, Counter[str]] = OrderedDict()  # by class and worker
        self._longest = max(probe, limits.ceiling)
        self._machines: dict[str, _Machine] = {}
        self._tasks: OrderedDict[str, _Task] = OrderedDict()
        self._failing = FailingHosts()

    def hear(
        self, present: Iterable[WorkerRow], running: Mapping[str, list[WatchedAttempt]], now: float
    ) -> list[DrainOrder]:
        """Take note of the live workers and of what each runs.

        Returns the orders that their rows do not carry yet.
        """
        orders = []
        known: dict[str, _Machine] = {}
        for worker in present:
            machine = self._machines.get(worker.name)
            new = machine is None or machine.started != worker.started
            if machine is None or new:
                hold = Hold.DRAINED if worker.needed else worker.hold
                machine = _Machine(
                    worker.host, worker.started, worker.slots, hold, now, now, self._probe
                )
                machine.heard, machine.why = now, worker.hold_why
                machine.needed, machine.failing = worker.needed, worker.failing
                machine.place = worker.place
            known[worker.name] = machine
            machine.leaving, machine.unfit = worker.draining, bool(worker.unfit)
            machine.running = running.get(worker.name, [])
            self._attempts(machine, worker.sequence, now)
            self._asked(machine, worker, now)
            unsaid = (machine.told, machine.needed) != (worker.hold, worker.needed)
            unsaid = unsaid or worker.asked is Ask.RELEASE
            if unsaid or (new and machine.hold is not Hold.NONE):
                orders.append(_order(worker.name, machine, now))
        for gone in self._machines.keys() - known.keys():
            for found in self._succeeded.values():
                del found[gone]
        self._machines = known
        self._failing.keep(frozenset(machine.host for machine in known.values()))
        return orders

    def _asked(self, machine: _Machine, worker: WorkerRow, now: float) -> None:
        """Drain or release a worker as an operator asks."""
        if worker.asked is Ask.DRAIN and not machine.asked:
            machine.asked, machine.hold, machine.since = True, Hold.DRAINED, now
            machine.needed = machine.failing = False
            machine.why = worker.asked_why
        elif worker.asked is Ask.RELEASE or (machine.asked and worker.asked is Ask.NONE):
            # NONE: another manager, which acted until now, has carried the release out.
            machine.asked = False
            if machine.failing:
                self._release_host(machine.host, now)
            self._release(machine, now)

    def _attempts(self, machine: _Machine, beat: int, now: float) -> None:
        """Take note of what a worker runs, and of a silence that is over."""
        silent = now - machine.heard > self._silence
        for one in machine.running:
            machine.meet((one.key, one.attempt), one.task_class)
        running = {(one.key, one.attempt) for one in machine.running}
        machine.attempts = {
            attempt: speaks and not silent
            for attempt, speaks in machine.attempts.items()
            if attempt in running
        }
        if machine.beat != beat:
            machine.beat, machine.heard = beat, now

    def slots(self, worker: WorkerRow) -> int:
        """Count the slots of a worker that take attempts."""
        machine = self._machines.get(worker.name)
        hold = machine.told if machine else worker.hold
        if worker.draining or worker.unfit or hold is Hold.DRAINED:
            return 0
        return 1 if hold is Hold.PROBE else worker.slots

    def slow(self, worker: str) -> bool:
        """Tell whether a worker is held: how long its attempts take says nothing of their class."""
        machine = self._machines.get(worker)
        return machine is not None and machine.hold is not Hold.NONE

    def longer(self, worker: str) -> float:
        """Return how many times its time limit an attempt on this worker has."""
        machine = self._machines.get(worker)
        if machine is None or machine.hold is Hold.NONE:
            return 1.0
        return math.exp(min(math.log(_LONGER), machine.slowness))

    def ended(
        self, event: CompletionEvent, statistics: Mapping[str, ClassStatistics], now: float
    ) -> None:
        """Take note of an ended attempt; of slowness speaks one that succeeded or was killed."""
        if self._probe and event.worker in self._machines:
            self._failed(event, self._machines[event.worker], now)
        if event.category not in (None, Category.EXECUTION_TIMEOUT):
            return
        machine = self._machines.get(event.worker)
        usual = self._statistics.usual(event.task_class, statistics.get(event.task_class))
        if machine is None:
            return
        if event.category is None and machine.hold is Hold.NONE:
            self._count(event.task_class, event.worker)
        speaks = machine.meet((event.key, event.number), event.task_class)
        speaks = speaks and now - machine.heard <= self._silence
        machine.ended[event.task_class] += 1
        if usual is None or not self._probe or machine.failing:
            return
        deviation = usual.deviation(event.duration)
        noise = self._noise(
            event.task_class, event.duration, usual, statistics.get(event.task_class)
        )
        if machine.hold is Hold.PROBE and now - event.duration >= machine.since:
            normal = (noise or deviation <= _NORMAL) and event.category is None
            if normal or speaks:
                self._probed(machine, normal, deviation, now)
        elif not speaks or noise or not self._known_elsewhere(event.task_class, machine.host):
            return
        elif machine.hold is Hold.NONE and self._counts(event.key, deviation, machine):
            evidence = _evidence(usual, deviation)
            machine.score = max(0.0, machine.score + evidence)
            machine.slowness += (max(0.0, deviation) - machine.slowness) / 2
            if evidence > 0:
                machine.slow.append(_words(event.task_class, "", event.duration, usual))
            elif not machine.score:
                machine.slow.clear()

    def _failed(self, event: CompletionEvent, machine: _Machine, now: float) -> None:
        """Take note of what an ended attempt says of its host."""
        if not machine.failing:
            self._failing.ended(event, machine.host, now)
            return
        probe = machine.hold is Hold.PROBE and now - event.duration >= machine.since
        if not probe or not speaks(event):
            return
        if event.category is None:
            self._release_host(machine.host, now)
        else:
            machine.hold = Hold.DRAINED
            wait = self._longer(machine, now)
            for one in self._failing_on(machine.host):
                one.since, one.wait = now, wait

    def _failing_on(self, host: str) -> list[_Machine]:
        """List the workers of a host that are held because everything fails there."""
        return [m for m in self._machines.values() if m.failing and m.host == host]

    def _release_host(self, host: str, now: float) -> None:
        self._failing.forget(host)
        for machine in self._failing_on(host):
            self._release(machine, now)

    def _hold_failing(self, now: float) -> None:
        """Hold the workers of hosts on which everything fails, and send their probes."""
        by_host: dict[str, list[_Machine]] = {}
        for machine in self._machines.values():
            by_host.setdefault(machine.host, []).append(machine)
        for host, here in by_host.items():
            if why := self._failing.why(host):
                self._failing.forget(host)
                for machine in here:
                    if not machine.asked:
                        machine.clear()
                        machine.hold, machine.failing, machine.why = Hold.DRAINED, True, why
                        machine.since = machine.slow_since = now
                        machine.wait = self._probe
            held = [m for m in here if m.failing]
            able = [m for m in held if not m.unfit and not m.leaving]
            due = [m for m in able if now - m.since >= m.wait]
            if due and not any(m.hold is Hold.PROBE for m in able):
                due[0].hold, due[0].since = Hold.PROBE, now

    def _count(self, task_class: str, worker: str) -> None:
        """Count a success of a class on a worker.

        Bounded: the class without a success for the longest time is dropped, and so is a worker
        that has left.
        """
        self._succeeded.setdefault(task_class, Counter())[worker] += 1
        self._succeeded.move_to_end(task_class)
        if len(self._succeeded) > _CLASSES:
            self._succeeded.popitem(last=False)

    def _known_elsewhere(self, task_class: str, host: str) -> bool:
        """Tell whether enough attempts of a class have succeeded on other hosts than this one."""
        found = self._succeeded.get(task_class, Counter[str]())
        elsewhere = accumulate(
            number for worker, number in found.items() if self._machines[worker].host != host
        )
        # No further than it takes: this is asked for each running attempt.
        return any(number >= self._limits.samples for number in elsewhere)

    def _noise(
        self, task_class: str, seconds: float, usual: Usual, known: ClassStatistics | None
    ) -> bool:
        """Tell whether a time is longer than usual by so little that it says nothing."""
        over = seconds - usual.seconds
        return over > 0 and (over < _NOISE or self._statistics.total(task_class, known) < _TOTAL)

    def look(
        self,
        statistics: Mapping[str, ClassStatistics],
        now: float,
        waiting: Callable[[], Mapping[str, int]] = dict,
    ) -> tuple[list[DrainOrder], list[WatchedAttempt]]:
        """Return new orders, and the attempts that other workers would end sooner.

        `waiting` counts the tasks that a slot may take and none has taken, by place.
        """
        if not self._probe:
            return [], []
        orders: list[DrainOrder] = []
        moves: list[WatchedAttempt] = []
        before = {name: (one.told, one.needed) for name, one in self._machines.items()}
        judged = {name: one for name, one in self._machines.items() if not one.asked}
        self._hold_failing(now)
        self._keep_some(now)
        for machine in judged.values():
            if not machine.failing:
                self._judge(machine, statistics, now)
        held = {one.place for one in judged.values() if one.slow_now}
        left = waiting() if held else {}
        short = {place for place in held if left.get(place, 0) > self._idle(place, now)}
        for name, machine in judged.items():
            machine.needed = machine.slow_now and machine.place in short
            if (machine.told, machine.needed) != before[name]:
                orders.append(_order(name, machine, now))
            if machine.told is Hold.DRAINED and not machine.failing:
                moves += [r for r in machine.running if self._move(r, machine, statistics, now)]
        return orders, moves

    def _judge(
        self, machine: _Machine, statistics: Mapping[str, ClassStatistics], now: float
    ) -> None:
        score, slowest = machine.score, 0.0
        slow = deque(machine.slow, maxlen=_TOLD)
        for running, usual, least in self._late(machine, statistics):
            deviation = usual.deviation(least)
            evidence = _evidence(usual, deviation)
            if evidence > 0 and self._counts(running.key, deviation, machine):
                score += evidence
                slowest = max(slowest, deviation)
                slow.append(_words(running.task_class, "at least ", least, usual))
        machine.slowness = max(machine.slowness, slowest)
        if machine.hold is Hold.DRAINED:
            if now - machine.since >= machine.wait:
                machine.hold, machine.since = Hold.PROBE, now
        elif machine.hold is Hold.PROBE:
            if slowest >= _SLOW:
                self._probed(machine, False, slowest, now)
        elif score >= _DRAIN and self._enough(machine.place, without=machine):
            if now - machine.released < machine.wait:  # its release was a mistake
                machine.wait = self._longer(machine, now)
            else:
                machine.slow_since, machine.wait = now, self._probe
            machine.hold, machine.since = Hold.DRAINED, now
            machine.why = _why(machine.slowness, slow)

    def _late(
        self, machine: _Machine, statistics: Mapping[str, ClassStatistics]
    ) -> Iterator[tuple[WatchedAttempt, Usual, float]]:
        """Yield the running attempts that speak of a machine, with the least time they will take.

        Of a worker that is probed, only the probe does.
        """
        for running in machine.running:
            if running.missed or not machine.attempts.get((running.key, running.attempt)):
                continue
            if not self._known_elsewhere(running.task_class, machine.host):
                continue
            known = statistics.get(running.task_class)
            usual = self._statistics.usual(running.task_class, known)
            if usual is None or (machine.hold is Hold.PROBE and running.since < machine.since):
                continue
            age = machine.heard - running.since
            least = self._statistics.least(running.task_class, age, running.course)
            if not self._noise(running.task_class, least, usual, known):
                yield running, usual, least

    def _probed(self, machine: _Machine, normal: bool, slowness: float, now: float) -> None:
        if normal:
            self._release(machine, now)
            return
        machine.clear()
        machine.since, machine.slowness, machine.hold = now, slowness, Hold.DRAINED
        machine.wait = self._longer(machine, now)

    def _release(self, machine: _Machine, now: float) -> None:
        machine.clear()
        machine.hold, machine.needed, machine.why = Hold.NONE, False, ""
        machine.failing = False
        machine.since = machine.released = now

    def _longer(self, machine: _Machine, now: float) -> float:
        wait = max(_AGAIN * self._probe, (now - machine.slow_since) / _PART)
        return min(self._longest, wait)

    def _free(self, place: str) -> list[_Machine]:
        """List the machines of a place that take attempts in all their slots."""
        return [m for m in self._at(place) if m.hold is Hold.NONE and m.takes]

    def _at(self, place: str) -> list[_Machine]:
        return [m for m in self._machines.values() if m.place == place]

    def _enough(self, place: str, without: _Machine | None = None) -> bool:
        """Tell whether the free of a place may work alone: a quarter of the slots, one worker."""
        total = sum(m.slots for m in self._at(place) if m.takes)
        free = sum(m.slots for m in self._free(place) if m is not without)
        return free >= (1 - _DRAINED) * total

    def _idle(self, place: str, now: float) -> int:
        """Count the slots of a place without an attempt, of workers that beat and are not held."""
        free = (m for m in self._free(place) if now - m.heard <= self._silence)
        return sum(max(0, m.slots - len(m.running)) for m in free)

    def _keep_some(self, now: float) -> None:
        """Release the least slow until enough are free: others may have left."""
        held = [m for m in self._machines.values() if m.slow_now and not m.leaving]
        for machine in sorted(held, key=lambda one: one.slowness):
            if not self._enough(machine.place):
                self._release(machine, now)

    def _move(
        self,
        running: WatchedAttempt,
        machine: _Machine,
        statistics: Mapping[str, ClassStatistics],
        now: float,
    ) -> bool:
        """Tell whether to move an attempt from a slow machine to another one.

        True when the work left takes longer than the whole attempt elsewhere, or longer than its
        time limit allows.
        """
        usual = self._statistics.usual(running.task_class, statistics.get(running.task_class))
        if usual is None or running.ordered is not None:
            return False
        known = self._known(running.key)
        if known.moves >= _MOVES:
            return False
        factor = math.exp(machine.slowness)
        done = self._statistics.done(running.task_class, running.course)
        if done is None:
            done = min(1.0, (now - running.since) / (factor * usual.seconds))
        ahead = (1.0 - done) * factor * usual.seconds
        limit = self._limits.limit(
            Times(statistics, self._limits.samples), running.task_class, running.retries
        )
        if ahead < _PAYS * usual.seconds and now - running.since + ahead < limit:
            return False
        known.moves += 1
        return True

    def _counts(self, key: str, deviation: float, machine: _Machine) -> bool:
        """Tell whether a slow attempt of this task is evidence against its machine.

        It is not when the task was slow on other machines, too. Slowness on a machine that is held
        says nothing about the task.
        """
        if deviation < _SLOW / 2:
            return True
        slow_on = self._known(key).slow_on
        if machine.hold is Hold.NONE:
            slow_on.add(machine.host)
        return len(slow_on - {machine.host}) < _WITNESS

    def _known(self, key: str) -> _Task:
        found = self._tasks.setdefault(key, _Task())
        self._tasks.move_to_end(key)
        if len(self._tasks) > _REMEMBERED:
            self._tasks.popitem(last=False)
        return found


def _order(worker: str, machine: _Machine, now: float) -> DrainOrder:
    drained = machine.told is Hold.DRAINED and not machine.asked
    return DrainOrder(
        worker=worker,
        started=machine.started,
        hold=machine.told,
        why=machine.why,
        wait=max(0.0, machine.wait - (now - machine.since)) if drained else 0.0,
        failing=machine.failing,
    )


def _words(task_class: str, least: str, seconds: float, usual: Usual) -> str:
    return f"{task_class}: {least}{seconds:.3g} s, usually {usual.seconds:.3g} s"


def _why(slowness: float, slow: Iterable[str]) -> str:
    """Describe the evidence in words."""
    times = f"about {math.exp(slowness):.1f} times as long as usual"
    return f"Its attempts take {times}. {'; '.join(slow)}."


def _evidence(usual: Usual, deviation: float) -> float:
    """Compute the log-likelihood ratio of a deviation, limited to `_MOST`."""
    ratio = _SLOW / usual.spread**2 * (deviation - _SLOW / 2)
    return max(-_MOST, min(_MOST, ratio))
