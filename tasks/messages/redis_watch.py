"""Whether Redis answers this process: asked by a thread, so that no page and no probe waits."""

import threading
import time
from collections.abc import Callable
from contextlib import closing

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

SILENT = 15.0  # seconds without an answer after which messages count as standing still
_PERIOD = 5.0  # seconds between two calls
_TIMEOUT = 3.0


class RedisWatch:
    """Calls Redis every few seconds once it is started. Until then Redis counts as answering."""

    def __init__(self, url: str, monotonic: Callable[[], float]) -> None:
        self._url = url
        self._monotonic = monotonic
        self._failed: float | None = None  # when the first call began that had no answer
        self.why = ""  # what the latest call met, which names the server; empty after an answer

    @property
    def silence(self) -> float:
        """Seconds for which Redis has not answered; 0 while it answers."""
        failed = self._failed
        return 0.0 if failed is None else self._monotonic() - failed

    @property
    def silent(self) -> bool:
        """True if that is longer than a start or a short delay of Redis takes."""
        return self.silence > SILENT

    @property
    def fault(self) -> str:
        """Say what is wrong, in words that anybody may read; "" while nothing is."""
        return f"Redis has not answered for {self.silence:.0f} s" if self.silent else ""

    @property
    def found(self) -> str:
        """Say what is wrong, and what the latest call met, in the words of a probe."""
        fault, why = self.fault, self.why
        return f"{fault}: {why}" if fault and why else fault

    def start(self) -> None:
        """Call Redis from a thread of its own until the process ends."""
        threading.Thread(target=self._keep_looking, name="redis", daemon=True).start()

    def look(self) -> None:
        """Call Redis once."""
        began = self._monotonic()
        try:
            # A new connection each time: that is what a worker that starts needs.
            with closing(_client(self._url)) as client:
                client.ping()
        except (redis.RedisError, UnicodeError) as error:  # the second: of a name that cannot be
            self.why = str(error)
            if self._failed is None:
                self._failed = began
        else:
            self._failed, self.why = None, ""

    def _keep_looking(self) -> None:
        while True:
            time.sleep(_PERIOD)
            self.look()


def _client(url: str) -> redis.Redis:
    once = Retry(NoBackoff(), 0)
    return redis.Redis.from_url(
        url, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT, retry=once
    )
