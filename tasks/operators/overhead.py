"""Calls to storage that are made for no attempt: those of managers, portals and workers themselves.

Each process adds its own to the row of the day, in the table `operators`, partition `overhead`. So
the calls of all attempts and these are those of the account's bill, but for commands of operators.
"""

import datetime as dt
import threading
from dataclasses import dataclass

import structlog

from tasks.bag.model import NO_USE, USE, Use
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.operators.restrictions import TABLE
from tasks.storage.codec import Codec
from tasks.storage.store import Operation, Row, Store
from tasks.storage.traffic import METER, Meter, Traffic
from tasks.storage.updates import update, write

PARTITION = "overhead"
EVERY = 600.0  # seconds between two notes of a process

log = structlog.get_logger("overhead")


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """What the processes of a service called of storage on a day, for no attempt."""

    use: Use = NO_USE


_CODEC = Codec(Overhead, "overhead", {"use": USE})


class OverheadMeter:
    """Adds the calls of this process to the row of the day. `meter` counts them."""

    def __init__(self, runtime: Runtime, meter: Meter = METER) -> None:
        self._runtime = runtime
        self._meter = meter
        self._noted = Traffic()

    def note(self) -> None:
        """Add what was called since the last note; with embedded storage that is nothing.

        Raises StoreError; the next note adds it then.
        """
        now = self._meter.read()
        more = Use.of(0.0, now - self._noted)
        if more == NO_USE:
            return
        clock = self._runtime.clock
        day = dt.datetime.fromtimestamp(clock.now(), dt.UTC).date().isoformat()

        def change(found: Row | None) -> tuple[Operation, ...]:
            before = _CODEC.load(found).use if found else NO_USE
            return (write(found, day, _CODEC.dump(Overhead(use=before + more))),)

        update(self._runtime.store, clock, TABLE, PARTITION, day, change)
        self._noted = now

    def begin(self) -> None:
        """Note every ten minutes, in a thread of its own, until the process ends."""
        threading.Thread(target=self._go_on, name="overhead", daemon=True).start()

    def _go_on(self) -> None:
        wait = threading.Event()
        while not wait.wait(EVERY):
            try:
                self.note()
            except StoreError as error:
                log.warning("calls were not noted", error=str(error))


def between(store: Store, first: dt.date, last: dt.date) -> Use:
    """Return what was called on some days, both included. Raises StoreError."""
    rows = store.scan(TABLE, PARTITION, first.isoformat(), f"{last.isoformat()}\0")
    return sum((_CODEC.load(row).use for row in rows), NO_USE)
