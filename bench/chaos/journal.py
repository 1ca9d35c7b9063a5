"""What happened, in order: one JSON line an event, kept in a file, counted by kind."""

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any


class Journal:
    """Events with seconds since the start. May be written by any thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, **about: Any) -> None:
        """Keep an event."""
        line = {"at": round(time.monotonic() - self._start, 2), "kind": kind, **about}
        with self._lock:
            self.counts[kind] += 1
            if not self._file.closed:
                self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Keep no more; what still comes is only counted."""
        with self._lock:
            self._file.close()
