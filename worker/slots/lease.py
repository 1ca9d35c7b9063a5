"""How long a worker may go on by its last heartbeat: after that, others may have its tasks."""

import math
from dataclasses import dataclass

from tasks.storage.clock import Clock

_MARGIN = 0.25  # of the lease, before its end: nothing new begins in it
_DEADLINE = 0.5  # of the lease: a beat that takes longer counts as failed


@dataclass
class Lease:
    """A worker's lease of `seconds`, counted from before its last successful beat was sent."""

    clock: Clock
    seconds: float
    missed: str = ""  # why the latest beat failed; empty after one that succeeded
    _since: float = -math.inf

    def renew(self, sent: float) -> None:
        """Take note that a beat succeeded that was sent at a time of the monotonic clock."""
        self._since = max(self._since, sent)
        self.missed = ""

    @property
    def deadline(self) -> float:
        """Seconds that a beat may take."""
        return _DEADLINE * self.seconds

    @property
    def fresh(self) -> bool:
        """True if anything new may begin."""
        return self.silence < (1 - _MARGIN) * self.seconds

    @property
    def over(self) -> bool:
        """True if the manager may count the worker as lost: whatever runs is rejected."""
        return self.silence > self.seconds

    @property
    def silence(self) -> float:
        """Seconds since the last successful beat was sent."""
        return self.clock.monotonic() - self._since
