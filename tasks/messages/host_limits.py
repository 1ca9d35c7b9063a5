"""One limit per archive host over all workers, kept in Redis; without Redis a strict local one.

A place is a lease in a sorted set, by the time it runs out: who is killed frees its place by not
renewing it. Requests a second are a single time, that of the next one (GCRA with no burst).
"""

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property

import redis
import structlog

from archives.fetch.limits import LocalLimits, wait_for_place

_LEASE = 30.0  # seconds
_LOOK = 0.1  # seconds between two looks for a place

# KEYS: leases, next request. ARGV: places, seconds between requests, lease seconds, id.
# Answers the seconds to wait; "0" is a place taken.
TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 'full' end
local next = tonumber(redis.call('GET', KEYS[2]) or '0')
if next > now then return tostring(next - now) end
redis.call('SET', KEYS[2], string.format('%.6f', now + ARGV[2]), 'EX', math.ceil(ARGV[2]) + 1)
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[4])
redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[3]) + 1)
return '0'
"""

RENEW = """
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'XX', time[1] + time[2] / 1000000 + ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[1]) + 1)
"""


class RedisLimits:
    """Connections at once, and requests a second, to each host, over all who share the Redis.

    While Redis does not answer, a process has one connection to a host and its share of the rate,
    as if there were as many processes as connections: work goes on, and the archive is spared.
    `lease` is the time in seconds after which the place of one that was killed is free.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int,
        rate: float,
        patience: float,
        lease: float = _LEASE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._connections = connections
        self._rate = rate
        self._patience = patience
        self._lease = lease
        self._clock = clock
        self._sleep = sleep
        self._alone = LocalLimits(connections=1, rate=rate / connections, patience=patience)
        self._log = structlog.get_logger("tasks.messages.host_limits")

    @cached_property
    def _redis(self) -> redis.Redis:
        return redis.Redis.from_url(
            self._url, socket_timeout=5, socket_connect_timeout=2, decode_responses=True
        )

    @cached_property
    def _take(self) -> redis.commands.core.Script:
        return self._redis.register_script(TAKE)

    @cached_property
    def _renew(self) -> redis.commands.core.Script:
        return self._redis.register_script(RENEW)

    @contextmanager
    def place(self, host: str) -> Iterator[None]:
        """As `archives.fetch.limits.HostLimits.place`."""
        lease = uuid.uuid4().hex
        try:
            wait_for_place(
                lambda: self._try(host, lease), host, self._patience, self._clock, self._sleep
            )
        except redis.RedisError as error:
            self._log.warning("limits are local", host=host, error=str(error))
            with self._alone.place(host):
                yield
            return
        with self._held(host, lease):
            yield

    def _try(self, host: str, lease: str) -> float:
        answer = str(
            self._take(
                keys=_keys(host),
                args=[self._connections, 1 / self._rate, self._lease, lease],
            )
        )
        if answer == "full":
            return _LOOK
        wait = float(answer)
        return wait if wait > 0 and math.isfinite(wait) else 0.0

    @contextmanager
    def _held(self, host: str, lease: str) -> Iterator[None]:
        over = threading.Event()
        renewal = threading.Thread(target=self._renew_until, args=(over, host, lease), daemon=True)
        renewal.start()
        try:
            yield
        finally:
            over.set()
            renewal.join()
            with suppress(redis.RedisError):  # then the lease runs out
                self._redis.zrem(_keys(host)[0], lease)

    def _renew_until(self, over: threading.Event, host: str, lease: str) -> None:
        while not over.wait(self._lease / 3):
            with suppress(redis.RedisError):
                self._renew(keys=_keys(host)[:1], args=[self._lease, lease])


def _keys(host: str) -> list[str]:
    # The braces keep both in one slot of a Redis cluster.
    return [f"swathmill:host:{{{host}}}:places", f"swathmill:host:{{{host}}}:next"]
