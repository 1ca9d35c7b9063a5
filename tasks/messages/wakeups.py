"""Wake-ups of the manager by a Redis list: keys of tasks whose attempts ended, or LOOK.

Losing them loses time, no work: the manager's sweep reads all completion events from the table, and
it looks for requests each second.
"""

import threading
from typing import Protocol

import redis
import structlog

LIST = "swathmill:news"
LOOK = ""  # in place of a key: a request was submitted or ordered about, or a plan is made
MOST = 100_000  # a list nobody drains does not grow beyond this


class WakeUps(Protocol):
    """Keys on their way to the manager; any may be lost or doubled."""

    def publish(self, key: str) -> None:
        """Say that the task has a completion event. Never raises: a wake-up may be lost."""
        ...

    def drain(self) -> list[str]:
        """Return the keys published since the last call."""
        ...


class MemoryWakeUps:
    """Wake-ups in this process."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._lock = threading.Lock()

    def publish(self, key: str) -> None:
        with self._lock:
            self._keys.append(key)

    def drain(self) -> list[str]:
        with self._lock:
            found, self._keys = self._keys, []
        return found


class RedisWakeUps:
    """Wake-ups over Redis."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(
            url, socket_timeout=5, socket_connect_timeout=2, decode_responses=True
        )
        self._log = structlog.get_logger("tasks.messages.wakeups")

    def publish(self, key: str) -> None:
        try:
            with self._redis.pipeline() as pipe:
                pipe.rpush(LIST, key)
                pipe.ltrim(LIST, -MOST, -1)
                pipe.execute()
        except redis.RedisError as error:
            self._log.warning("wake-up lost", key=key, error=str(error))

    def drain(self) -> list[str]:
        try:
            with self._redis.pipeline() as pipe:
                pipe.lrange(LIST, 0, -1)
                pipe.delete(LIST)
                keys, _ = pipe.execute()
        except redis.RedisError as error:
            self._log.warning("wake-ups not drained", error=str(error))
            return []
        return list(keys)
