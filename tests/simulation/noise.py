"""Noise: other load on a host, in bursts and in long spells, in which all there takes longer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

_BURSTS = (2.0, 30.0)  # seconds
_BEFORE = (30.0, 200.0)  # seconds, at the begin, before a spell
_SPELLS = (100.0, 900.0)
_QUIET = (5.0, 120.0)  # seconds between two bursts


@dataclass(frozen=True)
class Load:
    """Other load from a time until another: all takes so many times as long."""

    since: float
    until: float
    factor: float


@dataclass(frozen=True)
class Noise:
    """The other load of each host, in order of time."""

    loads: Mapping[str, Sequence[Load]]

    @classmethod
    def of(cls, random: Random, hosts: Iterable[str], until: float) -> "Noise":
        """Give some hosts bursts, and some a spell for which they are slow, up to a time."""
        return cls({host: _loads(random, until) for host in hosts})

    def seconds(self, host: str, began: float, work: float) -> float:
        """Return how long something takes on a host that takes so many seconds on a quiet one."""
        now, left = began, work
        for load in self.loads.get(host, ()):
            quiet = max(0.0, load.since - now)
            if left <= quiet:
                break
            now, left = now + quiet, left - quiet
            slow = max(0.0, load.until - now)
            if left * load.factor <= slow:
                return now + left * load.factor - began
            now, left = now + slow, left - slow / load.factor
        return now + left - began


def _loads(random: Random, until: float) -> list[Load]:
    spell = random.uniform(*_BEFORE) if random.random() < 0.4 else until
    found: list[Load] = []
    now = random.uniform(*_QUIET)
    while random.random() < 0.9 and now < spell:
        found.append(Load(now, now + random.uniform(*_BURSTS), random.uniform(1.5, 20.0)))
        now = found[-1].until + random.uniform(*_QUIET)
    if spell < until:
        began = max(spell, now)
        found.append(Load(began, began + random.uniform(*_SPELLS), random.uniform(4.0, 12.0)))
    return found
