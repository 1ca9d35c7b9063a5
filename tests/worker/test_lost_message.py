"""A worker that is killed between taking a message off Redis and its claim: nothing is lost."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from swathmill.stack.redis_server import RedisServer
from tasks.bag.model import RequestState, State
from tasks.messages.celery_app import QUEUE, Sender, make_app
from tests.service_manager.workbench import Bench, collect, plan_of

pytestmark = pytest.mark.integration

WORKER = """
import os, signal, sys
from pathlib import Path
from unittest.mock import Mock
from tasks.messages.celery_app import make_app
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from worker.files.scratch import Scratch
from worker.slots.service import consumer
from worker.slots.supervisor import Supervisor

class Killed(Supervisor):
    def execute(self, keys):
        print(*keys, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[2])
victim = Killed(runtime=memory_runtime(), settings=Settings(data_dir=folder, slots=1), name="w",
    scratch=Scratch(folder, "w"), start=Mock())
victim.lease.renew(victim.runtime.clock.monotonic())
consumer(make_app(sys.argv[1]), victim)()
"""
FIRST, SECOND = collect("g1"), collect("g2")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    server = RedisServer.on_free_port(folder=tmp_path / "redis", log=tmp_path / "redis.log")
    child = server.start()
    yield server.url
    child.stop()


def test_what_a_killed_worker_took_off_the_queue_is_sent_again_after_a_lease(
    url: str, tmp_path: Path
) -> None:
    """Redis is told of no acknowledgement, so it keeps nothing of what it has handed out."""
    redis, sender = Redis.from_url(url), Sender(make_app(url))
    bench = Bench(plans={"p": plan_of(FIRST, SECOND)})
    bench.manager = Manager(bench.runtime, bench.options, bench.plan_of_request, sender, 1)
    request = bench.submit("p")
    bench.manager.tick()
    assert redis.llen(QUEUE) == 2
    victim = subprocess.run(
        [sys.executable, "-c", WORKER, url, tmp_path], stdout=subprocess.PIPE, timeout=120
    )
    (lost,) = victim.stdout.decode().split()
    assert (victim.returncode, redis.llen(QUEUE)) == (-9, 1)
    assert not any(b"unacked" in key for key in redis.scan_iter())
    task = bench.runtime.tasks.task(lost)
    assert task is not None
    assert task.state is State.READY

    lease = ManagerOptions().resend
    bench.runtime.clock.sleep(lease - 1.0)
    bench.manager.tick()
    assert redis.llen(QUEUE) == 1
    bench.runtime.clock.sleep(1.0)
    bench.manager.tick()
    keys = sender.recall()
    assert sorted(set(keys)) == sorted([FIRST.key, SECOND.key])
    bench.sent += keys  # taken off the queue by a worker that lives
    bench.work()
    bench.manager.tick()
    assert bench.row(request).state is RequestState.COMPLETE
    assert sorted(bench.ran) == sorted([FIRST.key, SECOND.key])
    redis.close()
