"""Simulated time and scheduler: greenlets in an order that one seed determines.

Every process of the simulation runs the product's own code; each call out of it (store, blobs,
messages, sleep) is a point where another process may run, or where this one may die or stall.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random

from greenlet import getcurrent, greenlet


class DiedError(BaseException):
    """The process is dead; no code of it runs any more."""


class ViolationError(AssertionError):
    """Something happened that must never happen."""


@dataclass
class Process:
    """One process: it dies as a whole. `skew` is its wall clock's error in seconds."""

    name: str
    skew: float = 0.0
    fuse: int = -1  # points until it dies; negative: it does not
    dead: bool = False
    stalled_until: float = 0.0
    members: list[greenlet] = field(default_factory=list)


class World:
    """The scheduler. `faults` counts what went wrong by kind."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.faults: Counter[str] = Counter()
        self.calm = False
        self.writer: Process | None = None  # of the write that takes effect; None: it was late
        self.trace = hashlib.sha256()
        self.steps = 0
        self.log: list[str] | None = None
        self._heap: list[tuple[float, int, Process | None, greenlet | Callable[[], None]]] = []
        self._count = 0
        self._hub = getcurrent()
        self._owners: dict[int, Process] = {}

    def note(self, text: str) -> None:
        """One event of the history; equal seeds have equal histories."""
        self.steps += 1
        self.trace.update(f"{self.now:.6f} {text}\n".encode())
        if self.log is not None:
            self.log.append(f"{self.now:10.3f} {text}")

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Do something that is no process's doing."""
        self._push(delay, None, action)

    def spawn(self, process: Process, run: Callable[[], None]) -> None:
        """Start a thread of a process."""

        def body() -> None:
            try:
                run()
            except DiedError:
                return
            except ViolationError:
                raise
            except Exception as error:
                # The product's own code let something through that it does not know.
                raise ViolationError(f"{process.name} broke: {error!r}") from error

        thread = greenlet(body, parent=self._hub)
        process.members.append(thread)
        self._owners[id(thread)] = process
        self._push(0.0, process, thread)

    def pause(self, process: Process, seconds: float) -> None:
        """Let others run for a while."""
        if process.dead:
            raise DiedError
        self._count += 1
        heappush(self._heap, (self.now + seconds, self._count, process, getcurrent()))
        self._hub.switch()
        if process.dead:
            raise DiedError

    def point(self, process: Process) -> None:
        """A point where the process may die."""
        if process.dead:
            raise DiedError
        if process.fuse > 0 and not self.calm:
            process.fuse -= 1
            if process.fuse == 0 and self.random.random() < 0.5:
                process.fuse = int(2 ** self.random.uniform(4, 10))
                self.stall(process, self.random.uniform(5, 150))
            elif process.fuse == 0:
                self.faults["crash"] += 1
                self.note(f"{process.name} dies")
                self.kill(process)
                raise DiedError

    def kill(self, process: Process) -> None:
        """Kill a process at once, all its threads."""
        process.dead = True
        current = getcurrent()
        for member in process.members:
            if member is not current and not member.dead:
                self.at(0.0, partial(self._end, member))

    def stall(self, process: Process, seconds: float) -> None:
        """Stop a process for a while, as SIGSTOP or a swapping machine does."""
        self.faults["stall"] += 1
        self.note(f"{process.name} stalls for {seconds:.0f} s")
        process.stalled_until = self.now + seconds

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Run everything up to a time, or until `done`."""
        checked, heap = self.now, self._heap
        while heap and heap[0][0] <= until:
            at, _, process, what = heappop(heap)
            if process is not None and process.stalled_until > at and not process.dead:
                self._push(process.stalled_until - self.now, process, what)
                continue
            if at > self.now:
                self.now = at
            if isinstance(what, greenlet):
                if not what.dead and not (process is not None and process.dead):
                    what.switch()
            else:
                what()
            if self.now - checked > 5:
                checked = self.now
                if done():
                    return
        self.now = max(self.now, until)

    def end(self) -> None:
        """Kill all that is left."""
        for _, _, process, what in self._heap:
            if process is not None:
                process.dead = True
            if isinstance(what, greenlet):
                self._end(what)
        self._heap.clear()

    def _end(self, member: greenlet) -> None:
        if not member.dead:
            with suppress(DiedError):  # what has not begun cannot take it
                member.throw(DiedError)

    def _push(
        self, delay: float, process: Process | None, what: greenlet | Callable[[], None]
    ) -> None:
        self._count += 1
        heappush(self._heap, (self.now + delay, self._count, process, what))
