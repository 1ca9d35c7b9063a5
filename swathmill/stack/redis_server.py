"""A Redis server for Celery's messages; they are wake-ups, so nothing is kept on disk."""

import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swathmill.stack import ports, programs
from swathmill.stack.children import ChildSpec
from swathmill.stack.server import Server

MAX_MEMORY = "256mb"


@dataclass(frozen=True, kw_only=True)
class RedisServer(Server):
    """Redis on one loopback port, with its own password."""

    password: str
    port: int

    ready_seconds = 30.0

    @classmethod
    def on_free_port(
        cls, *, folder: Path, log: Path, password: str = "", preferred: Sequence[int] = ()
    ) -> "RedisServer":
        """Make the server on the preferred port if it is free, else on another."""
        return cls(
            folder=folder,
            log=log,
            password=password or secrets.token_hex(24),
            port=ports.choose(1, preferred=preferred)[0],
        )

    @property
    def url(self) -> str:
        """The redis:// URL; it contains the password."""
        return f"redis://:{self.password}@{ports.LOOPBACK}:{self.port}/0"

    def spec(self) -> ChildSpec:
        """Return how it is started: standard input passes settings, which hides the password."""
        settings = (
            f"bind {ports.LOOPBACK}",
            f"port {self.port}",
            f'dir "{self.folder}"',
            'save ""',
            "appendonly no",
            f"maxmemory {MAX_MEMORY}",
            "maxmemory-policy noeviction",
            f"requirepass {self.password}",
        )
        return ChildSpec(
            name="redis",
            argv=(str(programs.redis_server()), "-"),
            stdin="\n".join(settings) + "\n",
            log=self.log,
            orphan_signal=signal.SIGTERM,
        )

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        return ports.answers(self.port)
