"""What the portal knows about the archive, from what the manager has published."""

import threading

from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError
from tasks.holdings import holdings
from tasks.holdings.held import check_held
from tasks.holdings.holdings import Holdings
from tasks.messages.wakeups import LOOK
from tasks.request.resolved import ResolvedRequest

FRESH = 5.0  # seconds after a read during which the row is not read again
PATIENCE = 5.0  # seconds to wait until a manager has looked at the archive again
_POLL = 0.1


class KnownHoldings:
    """What the archive holds, as far as it is known.

    Nothing is refused while this is unknown: no manager has published it yet, or a source cannot
    list its files.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._read: tuple[float, Holdings | None] | None = None

    def known(self) -> Holdings | None:
        """Return what the archive held when it was last looked at; None if this is unknown.

        Raises StoreError.
        """
        now = self._runtime.clock.monotonic()
        with self._lock:
            if self._read is None or now - self._read[0] > FRESH:
                self._read = now, holdings.read(self._runtime.store)[0]
            return self._read[1]

    def check(self, resolved: ResolvedRequest) -> None:
        """Refuse a request that finds nothing in the archive.

        First ask the manager to look at the archive again. If no manager answers in time, the
        request is accepted.

        Raises RequestRefusedError and StoreError.
        """
        known = holdings.read(self._runtime.store)[0]  # not what was read some seconds ago
        if known is None:
            return
        try:
            check_held(resolved, known)
        except RequestRefusedError:
            fresh = self._looked_at_anew()
            if fresh is not None:
                check_held(resolved, fresh)

    def _looked_at_anew(self) -> Holdings | None:
        runtime = self._runtime
        number = holdings.ask(runtime.store, runtime.clock)
        runtime.wakeups.publish(LOOK)
        limit = runtime.clock.monotonic() + PATIENCE
        while runtime.clock.monotonic() < limit:
            found, answers = holdings.read(runtime.store)
            if answers >= number:
                with self._lock:
                    self._read = runtime.clock.monotonic(), found
                return found
            runtime.clock.sleep(_POLL)
        return None
