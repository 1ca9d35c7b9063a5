"""Faults that keep work waiting, or take noise for slowness. Noisy histories must find each."""

import sys

from service_manager.dispatch.ready import ReadyTasks
from service_manager.fleet.machines import Machines
from tests.simulation.history import Mutant
from tests.simulation.patching import Undo, patch


def _slow_stand_idle() -> Undo:
    """A drained worker takes nothing, whatever waits."""

    def idle(_self: Machines, _now: float) -> int:
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


NOISE_MUTANTS = (
    Mutant(name="slow workers stand idle", apply=_slow_stand_idle, noisy=True),
    Mutant(name="held against its own host", apply=_held_against_itself, noisy=True),
    Mutant(name="paused for one and kept from all", apply=_kept_from_all, noisy=True),
)
