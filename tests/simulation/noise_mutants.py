"""Faults that keep work waiting, or take noise for slowness. Noisy histories must find each."""

import sys

from service_manager.dispatch.ready import ReadyTasks
from service_manager.fleet.machines import Machines
from tests.simulation.history import Mutant
from tests.simulation.patching import Undo, patch


def _slow_stand_idle() -> Undo:
    """A drained worker takes nothing, whatever waits."""

    def idle(_self: Machines, _place: str, _now: float) -> int:
        return sys.maxsize

    return patch(Machines, "_idle", idle)


def _held_against_itself() -> Undo:
    """Workers are compared with others of their own host."""

    def known(self: Machines, task_class: str, _host: str) -> bool:
        return self._succeeded.get(task_class, {}) != {}

    return patch(Machines, "_known_elsewhere", known)


def _kept_from_all() -> Undo:
    """What waits for one request, or its owner, waits for it whoever else wants it."""

    def move(_self: ReadyTasks) -> None:
        return

    return patch(ReadyTasks, "move", move)


def _counted_together() -> Undo:
    """Idle slots of any place speak against the need of a slow worker."""
    idle = Machines._idle

    def of_all(self: Machines, _place: str, now: float) -> int:
        return sum(idle(self, place, now) for place in {m.place for m in self._machines.values()})

    return patch(Machines, "_idle", of_all)


NOISE_MUTANTS = (
    Mutant(name="slots of all places counted together", apply=_counted_together, noisy=True),
    Mutant(name="slow workers stand idle", apply=_slow_stand_idle, noisy=True),
    Mutant(name="held against its own host", apply=_held_against_itself, noisy=True),
    Mutant(name="paused for one and kept from all", apply=_kept_from_all, noisy=True),
)
