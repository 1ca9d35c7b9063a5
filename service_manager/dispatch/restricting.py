"""What operators restrict, taken up by the manager."""

import structlog

from service_manager.dispatch.manager_cache import ManagerCache
from tasks.operators import restrictions
from tasks.operators.restrictions import QUOTAS, Budget, Restriction, Restrictions
from tasks.storage.clock import Clock
from tasks.storage.store import Store

log = structlog.get_logger("manager.restricting")


class Restricting:
    """Keeps the restrictions in the cache as they are stored.

    `period` is the time in seconds after which used quotas are added up again.
    """

    def __init__(self, store: Store, clock: Clock, cache: ManagerCache, period: float) -> None:
        self._store = store
        self._clock = clock
        self._cache = cache
        self._period = period
        self._due = 0.0
        self._known: list[Restriction] = []
        self._spent: frozenset[Budget] = frozenset()

    def look(self) -> bool:
        """Read the restrictions; return whether any has changed. Raises StoreError."""
        found = restrictions.load(self._store)
        if found == self._known and self._clock.monotonic() < self._due:
            return False
        self._spent = self._over(found)
        self._due = self._clock.monotonic() + self._period
        self._known = found
        new = Restrictions.of(found, self._spent)
        changed = new != self._cache.restrictions
        if changed:
            log.info(
                "restrictions changed",
                restrictions=len(found),
                spent=sorted(map(" ".join, self._spent)),
            )
        self._cache.restrictions = new
        for live in self._cache.requests.values():
            live.stopped = new.stop(live.row.owner, live.row.package)
        return changed

    def _over(self, found: list[Restriction]) -> frozenset[Budget]:
        now = self._clock.now()
        return frozenset(
            (one.kind, one.subject)
            for one in found
            if one.kind in QUOTAS
            and restrictions.spent_hours(self._store, (one.kind, one.subject), now) >= one.value
        )
