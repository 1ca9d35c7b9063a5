"""Renewing the lease of the manager that acts, between its rounds or beside them.

Beside them: a round may take longer than a lease (the first one over many requests, storage that
answers slowly), and two managers that took over from each other in each round would get nowhere.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import structlog

from service_manager.leader.leadership import Leadership
from tasks.errors import FencedError, StoreError
from tasks.storage.clock import Clock

LONGEST_ROUND = 20.0  # leases; a manager that is stuck for longer is not kept any more

log = structlog.get_logger("manager.service")

Turn = Callable[[], None]
"""Called at the begin of each round; raises FencedError when another manager acts."""
Keep = Callable[[Leadership], AbstractContextManager[Turn]]


@contextmanager
def between_rounds(leadership: Leadership) -> Iterator[Turn]:
    """Renew at the begin of a round."""
    yield leadership.renew


class Keeper:
    """Renews in a thread of its own, as long as rounds go on. `lease` is in seconds."""

    def __init__(self, leadership: Leadership, clock: Clock, lease: float) -> None:
        self._leadership = leadership
        self._clock = clock
        self._lease = lease
        self._turned = clock.monotonic()
        self._over: FencedError | None = None
        self._end = threading.Event()

    def turn(self) -> None:
        """Begin a round. Raises FencedError when another manager acts."""
        self._turned = self._clock.monotonic()
        if self._over is not None:
            raise self._over

    def look(self) -> None:
        """Renew if it is time to and the round is not too long."""
        if self._over is not None:
            return
        if self._clock.monotonic() - self._turned > LONGEST_ROUND * self._lease:
            log.error("a round takes too long: another manager may act", leases=LONGEST_ROUND)
            return
        try:
            self._leadership.renew()
        except FencedError as error:
            self._over = error
        except StoreError as error:
            log.warning("the lease is not renewed", error=str(error))

    @contextmanager
    def beside(self) -> Iterator[Turn]:
        """Look often while the context lasts."""
        thread = threading.Thread(target=self._go_on, name="keeper", daemon=True)
        thread.start()
        try:
            yield self.turn
        finally:
            self._end.set()
            thread.join()

    def _go_on(self) -> None:
        while not self._end.wait(self._lease / 6):
            self.look()


def beside_rounds(clock: Clock, lease: float) -> Keep:
    """Renew in a thread of its own."""
    return lambda leadership: Keeper(leadership, clock, lease).beside()
