"""A Redis server for Celery's messages; they are wake-ups, so nothing is kept on disk.

Where no Redis is installed, `message_server` speaks its protocol.
"""

import secrets
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swathmill.stack import ports, programs
from swathmill.stack.children import ChildSpec
from swathmill.stack.server import Server

MAX_MEMORY = "256mb"
MESSAGE_SERVER = "swathmill.stack.message_server"
_GRACE_SECONDS = 0.0  # Redis takes up to 0.1 s to end, for nothing that is kept


@dataclass(frozen=True, kw_only=True)
class RedisServer(Server):
    """Redis, or the message server in its place, on one loopback port with its own password."""

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
        """Return how it is started; other users of the machine do not see the password."""
        program = programs.redis_server()
        if program is None:
            return ChildSpec(
                name="redis",
                argv=(sys.executable, "-P", "-m", MESSAGE_SERVER),
                env={"SWATHMILL_REDIS_URL": self.url},
                forks=(MESSAGE_SERVER,),
                log=self.log,
                grace_seconds=_GRACE_SECONDS,
            )
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
            argv=(str(program), "-"),
            stdin="\n".join(settings) + "\n",
            log=self.log,
            grace_seconds=_GRACE_SECONDS,
            orphan_signal=signal.SIGTERM,
        )

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        return ports.answers(self.port)
