"""Whether a session goes on, and an operator's rights: read from storage, for two seconds."""

import threading
import time
from collections import OrderedDict

from tasks.accounts import session_table
from tasks.accounts.session_table import EndedRow
from tasks.storage.store import Store

FRESH = 2.0
"""Seconds for which what was read is believed: so long a session may outlive its end."""
_MOST = 10_000  # people


class Sessions:
    """Knows which sessions have ended. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, EndedRow]] = OrderedDict()

    def is_known(self, owner: str) -> bool:
        """Tell whether `has_ended` needs no look into storage."""
        with self._lock:
            return self._fresh(owner) is not None

    def has_ended(self, owner: str, token: str, signed: float) -> bool:
        """Tell whether a session or a sign-in link has ended. Raises StoreError."""
        return self._ended(owner).ends(token, signed)

    def is_operator(self, owner: str, given: float) -> bool:
        """Tell whether an operator's rights stand that were given at a POSIX second. StoreError."""
        return given > self._ended(owner).no_operator

    def _ended(self, owner: str) -> EndedRow:
        with self._lock:
            found = self._fresh(owner)
        if found is None:
            found = session_table.ended(self._store, owner)
            with self._lock:
                self._known[owner] = time.monotonic(), found
                self._known.move_to_end(owner)
                while len(self._known) > _MOST:
                    self._known.popitem(last=False)
        return found

    def forget(self, owner: str) -> None:
        """Look into storage the next time: something has just been changed."""
        with self._lock:
            self._known.pop(owner, None)

    def _fresh(self, owner: str) -> EndedRow | None:
        at, found = self._known.get(owner, (0.0, None))
        return found if found is not None and time.monotonic() - at < FRESH else None
