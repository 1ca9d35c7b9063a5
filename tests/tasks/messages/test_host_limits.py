"""Places at archive hosts that all workers share, on a real Redis; and without one."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import redis

from archives.errors import NoPlaceError
from archives.fetch.limits import LocalLimits
from tasks.messages.host_limits import RedisLimits, _keys
from tasks.service.sources import PATIENCE, host_limits
from tasks.settings import Settings

pytestmark = pytest.mark.integration


def shared(url: str, patience: float = 0.3) -> RedisLimits:
    """Limits of a process of its own, as far as Redis can tell."""
    return RedisLimits(url, connections=2, rate=1e4, patience=patience)


@pytest.fixture
def host() -> str:
    return f"{uuid.uuid4().hex}.example"


def test_places_are_shared_by_all_and_come_free(redis_server: str, host: str) -> None:
    one, two, three = (shared(redis_server) for _ in range(3))
    with one.place(host), two.place(host):
        with pytest.raises(NoPlaceError), three.place(host):
            pass
        with three.place("other." + host):
            pass
    with three.place(host), three.place(host):
        pass


class _WaitError(Exception):
    """Instead of waiting."""


def _give_up(seconds: float) -> None:
    raise _WaitError(seconds)


def test_a_renewal_keeps_the_places_for_a_whole_lease(redis_server: str, host: str) -> None:
    """The set of a host's places would go with all of them, and others would come in."""
    limits = shared(redis_server)
    seen: Any = redis.Redis.from_url(redis_server)
    with limits.place(host):
        (key,) = [each for each in _keys(host) if each.endswith("places")]
        (lease,) = seen.zrange(key, 0, -1)
        seen.expire(key, 5)
        limits._renew(keys=[key], args=[30.0, lease])
        assert seen.ttl(key) >= 30


def test_requests_of_all_keep_their_distance(redis_server: str, host: str) -> None:
    first, second = (
        RedisLimits(redis_server, connections=9, rate=0.1, patience=PATIENCE, sleep=_give_up)
        for _ in range(2)
    )
    with first.place(host):
        pass
    with pytest.raises(_WaitError) as caught, second.place(host):
        pass
    assert 5.0 < caught.value.args[0] <= 10.0


HOLD = """
import sys, time
from tasks.messages.host_limits import RedisLimits
url, host = sys.argv[1:]
with RedisLimits(url, connections=2, rate=1e4, patience=9.0, lease=1.0).place(host):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_worker_frees_its_place(redis_server: str, host: str) -> None:
    command = [sys.executable, "-c", HOLD, redis_server, host]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"held\n"
        with shared(redis_server).place(host):
            time.sleep(1.2)  # longer than the lease, which the living renews
            with pytest.raises(NoPlaceError), shared(redis_server).place(host):
                pass
            os.kill(killed.pid, signal.SIGKILL)
            with shared(redis_server, patience=5.0).place(host):
                pass


def test_without_redis_a_process_has_one_connection(host: str) -> None:
    limits = shared("redis://127.0.0.1:9/0")
    with limits.place(host), pytest.raises(NoPlaceError), limits.place(host):
        pass


def test_redis_is_used_where_there_is_one(redis_server: str) -> None:
    assert isinstance(host_limits(Settings(redis_url=redis_server), PATIENCE), RedisLimits)
    assert isinstance(host_limits(Settings(), PATIENCE), LocalLimits)
