"""Room for a package's runs: slots of the reduction pool; processors, memory, disk of machines.

Nobody tells the manager how much there is: the pool grows and shrinks, and machines differ. But a
worker that finds no room for a run gives its task back, uncharged, and says so. So many as were at
work then are sent at once from then on; half as many more after each while in which none lacked
room. What is beyond that waits as READY, without a slot.
"""

from dataclasses import dataclass, field

_WHILE = 30.0  # seconds
_MORE = 1.5


@dataclass(frozen=True, slots=True)
class _Lack:
    number: int  # runs for which there was room
    at: float
    why: str


@dataclass
class Rooms:
    """For how many runs of a package there is room. Times are monotonic."""

    _lacks: dict[str, _Lack] = field(default_factory=dict)  # by family of classes

    def lacked(self, family: str, at_work: int, why: str, now: float) -> None:
        """Take note that there was no room for another run beside those at work."""
        self._lacks[family] = _Lack(max(1, at_work), now, why)

    def limits(self, now: float, slots: int) -> dict[str, int]:
        """Return how many runs may be on their way, by family; without a family: as many as wanted.

        A family is forgotten once it may have all slots.
        """
        found = {family: _grown(lack, now) for family, lack in self._lacks.items()}
        for family in [family for family, number in found.items() if number >= max(1, slots)]:
            del found[family], self._lacks[family]
        return found

    def why(self, family: str) -> str:
        """Return what the latest run without room waited for."""
        lack = self._lacks.get(family)
        return lack.why if lack is not None else ""


def _grown(lack: _Lack, now: float) -> int:
    steps = min(50, int((now - lack.at) / _WHILE))
    return int(lack.number * _MORE**steps + (steps > 0))
