"""How a worker process ends, by signals, and what it survives: real Azurite, Redis and Celery."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from swathmill.stack.redis_server import RedisServer
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tests.waiting import until
from tests.worker.processes import GOOD, Stack, dead, hanging, make_stack, reduction

pytestmark = pytest.mark.integration


@pytest.fixture
def stack(azurite: str, redis_server: str, tmp_path: Path) -> Iterator[Stack]:
    stack = make_stack(azurite, redis_server, tmp_path)
    yield stack
    stack.end()


def test_a_killed_worker_leaves_nothing_running(stack: Stack) -> None:
    process = stack.worker("victim")
    key = hanging(stack, "hang-kill", process)
    children = process.tree()
    assert len(children) >= 5
    left = set((stack.folder / "data" / "scratch").glob("*/*"))
    assert left
    process.popen.kill()
    took = until(dead(children), 10, "the whole tree is gone")
    assert took < 10
    assert stack.world.task(key).state is State.RUNNING  # for the monitor to find
    second = stack.worker("victim")
    until(lambda: second.says("worker starts"), 30, "the second worker has started")
    assert not left & set((stack.folder / "data" / "scratch").glob("*/*"))


@pytest.mark.provokes(Category.CANCELLED)
def test_sigterm_hands_back_after_the_grace(stack: Stack) -> None:
    process = stack.worker("leaver", GRACE_SECONDS=0.5)
    key = hanging(stack, "hang-term", process)
    children = process.tree()
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(20) == 0
    task = stack.world.task(key)
    assert (task.state, task.not_before, task.retries) == (State.READY, 0.0, 0)
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.CANCELLED
    until(dead(children), 10, "the tree is gone")


@pytest.mark.proof
def test_sigterm_lets_short_attempts_end(stack: Stack) -> None:
    key = reduction(stack, "short", "import time; time.sleep(2);" + GOOD)
    process = stack.worker("patient", GRACE_SECONDS=30)
    stack.send(key)
    stack.running(key)
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(30) == 0
    assert stack.world.task(key).state is State.DONE
    names = [row.name for row in workers.list_workers(stack.world.runtime.store)]
    assert "patient" not in names
    assert not list((stack.folder / "data" / "scratch").iterdir())


class Metadata(BaseHTTPRequestHandler):
    """Instance metadata that takes a machine away, and before that another one of its group."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        assert self.headers["Metadata"] == "true"
        self.asked.append(self.path)
        which = "vm_7" if len(self.asked) < 4 else "vm_3"
        soon = formatdate(time.time() + 16, usegmt=True)
        event = {"EventType": "Preempt", "Resources": [which], "NotBefore": soon}
        body = b"vm_3" if "/compute/name" in self.path else json.dumps({"Events": [event]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_spot_notice_hands_back_before_the_machine_goes(stack: Stack) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/metadata"
        process = stack.worker("spot", GRACE_SECONDS=3600, INSTANCE_METADATA=address)
        key = hanging(stack, "hang-spot", process)
        assert process.popen.wait(60) == 0
        server.shutdown()
    assert len(Metadata.asked) >= 4, "another machine's event ended this one"
    task = stack.world.task(key)
    assert (task.state, task.not_before, task.retries) == (State.READY, 0.0, 0)
    (attempt,) = stack.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.CANCELLED


@pytest.mark.proof
def test_slots_go_on_after_redis_was_away(embedded: str, tmp_path: Path) -> None:
    server = RedisServer.on_free_port(folder=tmp_path / "redis", log=tmp_path / "redis.log")
    child = server.start()
    stack = make_stack(embedded, server.url, tmp_path)
    try:
        process = stack.worker("survivor")
        first = reduction(stack, "during", f"import time; time.sleep(3);x = 'during'\n{GOOD}")
        stack.send(first)
        stack.running(first)
        child.kill()
        assert stack.settled(first).state is State.DONE
        child = server.start()
        second = reduction(stack, "after", f"x = 'after'\n{GOOD}")
        stack.send(second)
        assert stack.settled(second).state is State.DONE
        assert process.popen.poll() is None
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(20) == 0
    finally:
        stack.end()
        child.stop()
