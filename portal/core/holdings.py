"""What the portal knows of the archive, through what the manager has published."""

import threading

from tasks.errors import RequestRefusedError
from tasks.holdings import holdings
from tasks.holdings.held import check_held
from tasks.holdings.holdings import Holdings
from tasks.request.resolved import ResolvedRequest
from tasks.tables.services import Services

FRESH = 5.0  # seconds for which what was read is not read again
PATIENCE = 5.0  # seconds that a manager has to look at the archive anew
_POLL = 0.1


class KnownHoldings:
    """What the archive holds. Where that is not known nothing is refused: no manager has said so
    yet, or a source cannot list itself."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._read: tuple[float, Holdings | None] | None = None

    def known(self) -> Holdings | None:
        """What the archive held when it was last looked at; None: not known. Raises StoreError."""
        now = self._services.clock.monotonic()
        with self._lock:
            if self._read is None or now - self._read[0] > FRESH:
                self._read = now, holdings.read(self._services.store)[0]
            return self._read[1]

    def check(self, resolved: ResolvedRequest) -> None:
        """Refuse a request that finds nothing in the archive.

        Before that the manager looks at the archive anew; when none does so in time, the request is
        let through.

        Raises RequestRefusedError and StoreError.
        """
        known = self.known()
        if known is None:
            return
        try:
            check_held(resolved, known)
        except RequestRefusedError:
            fresh = self._looked_at_anew()
            if fresh is not None:
                check_held(resolved, fresh)

    def _looked_at_anew(self) -> Holdings | None:
        services = self._services
        number = holdings.ask(services.store, services.clock)
        limit = services.clock.monotonic() + PATIENCE
        while services.clock.monotonic() < limit:
            found, answers = holdings.read(services.store)
            if answers >= number:
                with self._lock:
                    self._read = services.clock.monotonic(), found
                return found
            services.clock.sleep(_POLL)
        return None
