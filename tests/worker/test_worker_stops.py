"""A worker that is asked to stop waits for no timer: neither of Celery's nor of Redis's."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from swathmill.stack.redis_server import RedisServer
from tests.waiting import until

pytestmark = pytest.mark.integration

WORKER = """
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from kombu.asynchronous import Hub
from tasks.messages.celery_app import make_app
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from worker.files.scratch import Scratch
from worker.slots import service
from worker.slots.supervisor import Supervisor

Hub.call_repeatedly = lambda *_: None  # no timer turns its loop
folder = Path(sys.argv[2])
supervisor = Supervisor(runtime=memory_runtime(), settings=Settings(data_dir=folder, slots=1),
    name="w", scratch=Scratch(folder, "w"), start=Mock())
supervisor.lease.renew(supervisor.runtime.clock.monotonic())
app = make_app(sys.argv[1])
app.conf.broker_transport_options |= {"polling_interval": 3600, "socket_timeout": None}
sys.exit(service.consumer(app, supervisor)())
"""


def test_it_ends_while_redis_holds_its_call_for_messages(tmp_path: Path) -> None:
    server = RedisServer.on_free_port(folder=tmp_path / "redis", log=tmp_path / "redis.log")
    redis = server.start()
    words = [sys.executable, "-c", WORKER, server.url, str(tmp_path)]
    worker = subprocess.Popen(words, env={"PYTHONPATH": ":".join(sys.path)})
    try:
        asking: Any = Redis.from_url(server.url)
        until(lambda: any(one["cmd"] == "brpop" for one in asking.client_list()), 60)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
        redis.stop()
