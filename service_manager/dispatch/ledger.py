"""The outcome of each task of a request, in some 20 bytes a task.

A request may have millions of tasks, so there is no object for each: open addressing over arrays
of 80 bits of the key and a byte of state. The odds that two of ten million keys agree in these
bits are one in 10^10. Tables are by the last byte of the key, so that none takes long to grow.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from tasks.bag.model import Phase, TaskOutcome

_OUTCOMES = (None, *TaskOutcome)
_PHASES = tuple(Phase)
_PRESENT, _REMOVED = 0x80, 0x01
_SMALLEST = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One task in a request's ledger; `outcome` as in the interest row."""

    phase: Phase
    outcome: TaskOutcome | None = None
    reused: bool = False
    output: bool = False


def _encode(entry: Entry) -> int:
    return (
        _PRESENT
        | _PHASES.index(entry.phase) << 5
        | _OUTCOMES.index(entry.outcome) << 2
        | entry.reused << 1
        | entry.output
    )


_ENTRIES = {
    _encode(entry): entry
    for phase in _PHASES
    for outcome in _OUTCOMES
    for reused in (False, True)
    for output in (False, True)
    for entry in [Entry(phase, outcome, reused, output)]
}


class _Table:
    """Keys of one last byte."""

    __slots__ = ("high", "low", "states", "taken")

    def __init__(self, size: int) -> None:
        self.low = array("Q", bytes(8 * size))
        self.high = array("H", bytes(2 * size))
        self.states = bytearray(size)
        self.taken = 0  # removed ones included

    def find(self, low: int, high: int) -> int:
        """Return where a key is, or the free place where it belongs."""
        states, lows, highs = self.states, self.low, self.high
        mask = len(states) - 1
        place = low & mask
        while states[place] and not (lows[place] == low and highs[place] == high):
            place = (place + 1) & mask
        return place

    def grown(self) -> "_Table":
        """Return a larger copy of this table, without what was removed."""
        present = sum(state != _REMOVED for state in self.states if state)
        size = len(self.states)
        found = _Table(2 * size if 3 * present > size else size)
        for low, high, state in zip(self.low, self.high, self.states, strict=True):
            if state & _PRESENT:
                found.put(low, high, state)
        return found

    def put(self, low: int, high: int, state: int) -> None:
        place = self.find(low, high)
        self.taken += not self.states[place]
        self.low[place], self.high[place], self.states[place] = low, high, state


class Ledger:
    """Entries by task key, and how many there are of each kind."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._counts = [0] * 256

    def __len__(self) -> int:
        return sum(self._counts)

    def __contains__(self, key: str) -> bool:
        return bool(self._state(key))

    def get(self, key: str) -> Entry | None:
        """Return the entry of a task, or None."""
        return _ENTRIES.get(self._state(key))

    def put(self, key: str, entry: Entry) -> None:
        """Set the entry of a task."""
        table = self._tables.get(key[-2:])
        if table is None:
            table = self._tables[key[-2:]] = _Table(_SMALLEST)
        low, high = _bits(key)
        place = table.find(low, high)
        self._counts[table.states[place]] -= bool(table.states[place] & _PRESENT)
        state = _encode(entry)
        self._counts[state] += 1
        table.put(low, high, state)
        if 3 * table.taken > 2 * len(table.states):
            self._tables[key[-2:]] = table.grown()

    def remove(self, key: str) -> None:
        """Take a task's entry away, if it has one."""
        table = self._tables.get(key[-2:])
        if table is None:
            return
        place = table.find(*_bits(key))
        if table.states[place] & _PRESENT:
            self._counts[table.states[place]] -= 1
            table.states[place] = _REMOVED

    def counts(self) -> Iterator[tuple[Entry, int]]:
        """Each kind of entry there is, and how many there are of it."""
        for state, entry in _ENTRIES.items():
            if self._counts[state]:
                yield entry, self._counts[state]

    @property
    def size(self) -> int:
        """Bytes of all tables."""
        return sum(11 * len(table.states) for table in self._tables.values())

    @property
    def pending(self) -> int:
        """Entries without an outcome."""
        return sum(number for entry, number in self.counts() if not entry.outcome)

    @property
    def failed(self) -> bool:
        """True if some entry was not made."""
        return any(entry.outcome not in (None, TaskOutcome.DONE) for entry, _ in self.counts())

    def _state(self, key: str) -> int:
        table = self._tables.get(key[-2:])
        state = table.states[table.find(*_bits(key))] if table else 0
        return state if state & _PRESENT else 0


def _bits(key: str) -> tuple[int, int]:
    return int(key[-18:-2], 16), int(key[-22:-18], 16)
