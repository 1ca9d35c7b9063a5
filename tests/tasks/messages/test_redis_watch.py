"""Whether Redis answers, asked beside whoever wants to know."""

import os
import signal
import time
from pathlib import Path

import pytest

from swathmill.stack.redis_server import RedisServer
from tasks.messages.redis_watch import RedisWatch
from tasks.storage.clock import ManualClock


def test_silence_is_counted_from_the_first_call_without_an_answer() -> None:
    clock = ManualClock()
    watch = RedisWatch("redis://127.0.0.1:9", clock.monotonic)
    clock.sleep(100.0)
    assert (watch.silence, watch.fault) == (0.0, ""), "nobody has called it"
    watch.look()
    clock.sleep(15.0)
    watch.look()
    assert (watch.silence, watch.silent, watch.fault) == (15.0, False, "")
    clock.sleep(1.0)
    assert (watch.silent, watch.fault) == (True, "Redis has not answered for 16 s")
    assert watch.found.startswith("Redis has not answered for 16 s: Error 111 connecting to 127")


def test_a_redis_whose_name_cannot_be_looked_up_is_silent() -> None:
    clock = ManualClock()
    watch = RedisWatch(f"redis://{'x' * 64}.example.org", clock.monotonic)
    watch.look()
    clock.sleep(16.0)
    assert watch.silent


@pytest.mark.integration
def test_a_redis_that_hangs_is_silent_until_it_goes_on(tmp_path: Path) -> None:
    redis = RedisServer.on_free_port(folder=tmp_path / "redis", log=tmp_path / "log")
    server = redis.start()
    try:
        watch = RedisWatch(redis.url, time.monotonic)
        watch.look()
        assert watch.silence == 0.0
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        began = time.monotonic()
        watch.look()
        assert 2.0 < time.monotonic() - began < 30.0, "it gives up"
        assert watch.silence > 2.0
        os.kill(server.pid, signal.SIGCONT)
        watch.look()
        assert watch.silence == 0.0
    finally:
        server.stop()
