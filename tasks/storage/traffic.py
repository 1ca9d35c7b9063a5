"""Calls of this process to a storage account, counted as its bill counts them."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Calls and bytes. Calls that change nothing are `reads`; a batch of rows is one call.

    Each try counts, because each is billed. `received` are bytes of bodies whose length the account
    names.
    """

    reads: int = 0
    writes: int = 0
    received: int = 0
    sent: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        """Return both together."""
        return Traffic(
            reads=self.reads + other.reads,
            writes=self.writes + other.writes,
            received=self.received + other.received,
            sent=self.sent + other.sent,
        )

    def __sub__(self, other: "Traffic") -> "Traffic":
        """Return what came after an earlier count."""
        return Traffic(
            reads=self.reads - other.reads,
            writes=self.writes - other.writes,
            received=self.received - other.received,
            sent=self.sent - other.sent,
        )


class Meter:
    """Counts the traffic of all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Traffic()

    def add(self, more: Traffic) -> None:
        """Count a call, or an answer."""
        with self._lock:
            self._now += more

    def read(self) -> Traffic:
        """Return all that was counted."""
        return self._now


METER = Meter()
"""Of this process; one that was forked goes on from where its parent was."""
