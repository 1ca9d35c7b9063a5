"""Whether this machine lets attempts begin: the worker claims nothing before it has seen so.

A self-test says it: before the first claim, after each attempt that failed because of the machine,
and from time to time while the manager holds the worker.
"""

import math
import threading
from dataclasses import dataclass, field

from tasks.storage.clock import Clock

_FIRST = 1.0  # seconds before the test after a first failure; twice as long after each further one
_UNKNOWN = 3  # attempts in a row that failed for unknown causes, before a test
_LONGEST = 60.0  # seconds before a test at most, and between two while the worker is held


@dataclass
class Fitness:
    """What the latest self-test found. Any thread may call it.

    With `tested` False, attempts may begin untested.
    """

    clock: Clock
    tested: bool = True
    why: str = ""  # what failed; "" while nothing is known to
    _failures: int = 0  # in a row, without a success of an attempt
    _unknown: int = 0  # attempts in a row that failed for unknown causes
    _due: float = -math.inf  # monotonic; of the next test
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def fit(self) -> bool:
        """True if attempts may begin."""
        return self.tested and not self.why

    @property
    def unready(self) -> str:
        """The reason why no attempt may begin; "" if one may."""
        return self.why or ("" if self.tested else "it has not tested itself yet")

    def failed(self, why: str) -> None:
        """Take note that an attempt failed because of the machine."""
        with self._lock:
            if self.fit:  # others of the same moment tell the same
                self._fail(why)

    def unknown(self, why: str) -> None:
        """Take note that an attempt failed for a cause nobody knows: so many have it tested.

        The pause does not grow: a fault of Swathmill itself fails every attempt of a request.
        """
        with self._lock:
            self._unknown += 1
            if self._unknown >= _UNKNOWN and self.fit:
                self.why = f"{self._unknown} attempts in a row failed for unknown causes: {why}"
                self._unknown, self._due = 0, self.clock.monotonic() + _FIRST

    def succeeded(self) -> None:
        """Take note that an attempt succeeded."""
        self._failures = self._unknown = 0

    def is_due(self, *, held: bool) -> bool:
        """Tell whether to test now; `held` says that the manager holds the worker."""
        return (held or not self.fit) and self.clock.monotonic() >= self._due

    def found(self, fault: str) -> None:
        """Take note of a test's result: what failed, "" for nothing."""
        with self._lock:
            self.tested = True
            if fault:
                self._fail(fault)
            else:
                self.why = ""
                self._due = self.clock.monotonic() + _LONGEST

    def _fail(self, why: str) -> None:
        pause = min(_LONGEST, _FIRST * 2.0**self._failures)
        self.why, self._failures = why, min(self._failures + 1, 10)
        self._due = self.clock.monotonic() + pause
