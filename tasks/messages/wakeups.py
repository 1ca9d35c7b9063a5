"""Wake-ups of the manager by a Redis list: keys of tasks whose attempts ended, or LOOK.

Losing them loses time, no work: the manager's sweep reads all completion events from the table, and
it looks for the rest now and then.
"""

import threading
from typing import Protocol, cast

import redis
import structlog

LIST = "swathmill:wake-ups"
LOOK = ""  # in place of a key: a request, an order, a plan, a mail, a question, a worker is there
MOST = 100_000  # a list nobody drains does not grow beyond this
_BLOCKED = 0.5  # seconds at most in one call


class WakeUps(Protocol):
    """Keys on their way to the manager; any may be lost or doubled."""

    def publish(self, *keys: str) -> None:
        """Say that the tasks have completion events. Never raises: a wake-up may be lost."""
        ...

    def drain(self) -> list[str]:
        """Return the keys published since the last call."""
        ...

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Return when a key is there, `stop` is set or some seconds are over."""
        ...


class MemoryWakeUps:
    """Wake-ups in this process."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._lock = threading.Lock()

    def publish(self, *keys: str) -> None:
        with self._lock:
            self._keys.extend(keys)

    def drain(self) -> list[str]:
        with self._lock:
            found, self._keys = self._keys, []
        return found

    def wait(self, stop: threading.Event, seconds: float) -> None:
        if not self._keys:
            stop.wait(seconds)


class RedisWakeUps:
    """Wake-ups over Redis."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(
            url, socket_timeout=5, socket_connect_timeout=2, decode_responses=True
        )
        self._log = structlog.get_logger("tasks.messages.wakeups")
        self._first: list[str] = []  # taken off the list by `wait`

    def publish(self, *keys: str) -> None:
        try:
            with self._redis.pipeline() as pipe:
                pipe.rpush(LIST, *keys)
                pipe.ltrim(LIST, -MOST, -1)
                pipe.execute()
        except redis.RedisError as error:
            self._log.warning("wake-ups lost", keys=len(keys), error=str(error))

    def drain(self) -> list[str]:
        try:
            with self._redis.pipeline() as pipe:
                pipe.lrange(LIST, 0, -1)
                pipe.delete(LIST)
                keys, _ = pipe.execute()
        except redis.RedisError as error:
            self._log.warning("wake-ups not drained", error=str(error))
            return []
        found, self._first = [*self._first, *keys], []
        return found

    def wait(self, stop: threading.Event, seconds: float) -> None:
        # `stop` is not seen while the call blocks, so that it does not block for long.
        try:
            found = cast("list[str] | None", self._redis.blpop([LIST], min(seconds, _BLOCKED)))
        except redis.RedisError as error:
            self._log.warning("wake-ups not awaited", error=str(error))
            stop.wait(seconds)
        else:
            self._first += found[1:] if found else []
