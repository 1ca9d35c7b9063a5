"""Work of clients that a test counts. Other processes import it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.platform.clients import OneCall


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Calls that fail every second time; a client numbered `broken` cannot connect."""

    broken: int = -1

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        if client == self.broken:
            raise PermissionError("no right to connect")
        yield iter([self.work, self.fail] * 2)

    def work(self) -> int:
        return os.getpid()

    def fail(self) -> int:
        raise TimeoutError("too late")
