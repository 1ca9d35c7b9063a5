"""An upgrade and its way back, under load: processes of two builds over one storage, nothing lost.

The newer build is this one with the next schema number. Each process is stopped and started as one
of the other build, forth, back and forth again, while requests are submitted all the time. What a
kind of row becomes is in test_row_schema.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.serving import tokens
from reprojection.sample.sample import write_sample_archive
from swathmill.stack import ports
from swathmill.stack.redis_server import RedisServer
from tasks.bag import workers
from tasks.service.connect import connect_storage
from tasks.storage.schema import SCHEMA
from tests.waiting import until

pytestmark = [pytest.mark.proof, pytest.mark.slow, pytest.mark.integration]

ROOT = Path(__file__).parents[2]
SECRET = "s" * 40
MODULES = {
    "portal": "portal",
    "manager": "service_manager",
    "manager-2": "service_manager",
    "worker": "worker",
    "worker-2": "worker",
}
NEWER = """
import runpy, sys
from tasks.storage import schema
schema.SCHEMA += 1
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def document(day: int) -> dict[str, Any]:
    """A request of its own, of some ten tasks."""
    return {
        "title": f"day {day}",
        "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
        "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
        "time": {"start": "2012-04-13", "end": "2012-04-15"},
        "grid": {"crs": "EPSG:4326", "resolution": 0.02 + day / 1000},
        "notify": "scientist@example.org",
    }


@dataclass
class Stack:
    """Processes over one folder, each of one build at a time."""

    folder: Path
    environment: dict[str, str]
    url: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *, newer: bool) -> None:
        words = ["-c", NEWER, MODULES[name]] if newer else ["-P", "-m", MODULES[name]]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env={**self.environment, "SWATHMILL_DATA_DIR": str(self.folder / name)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def become(self, name: str, *, newer: bool) -> None:
        self.stop(name)
        self.start(name, newer=newer)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `swathmill upgrade` of the newer build."""
        return subprocess.run(
            [sys.executable, "-c", NEWER, "swathmill.cli", "upgrade", *words],
            cwd=ROOT,
            env={**self.environment, "SWATHMILL_DATA_DIR": str(self.folder / "command")},
            capture_output=True,
            text=True,
            check=False,
        )

    def beats(self, name: str) -> bool:
        """Whether storage has the row of a worker's process."""
        store = connect_storage(self.environment["SWATHMILL_STORAGE"]).store
        pid = self.processes[name].pid
        return any(one.name.endswith(f"-{pid}") for one in workers.list_workers(store))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def api(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {tokens.issue(SECRET, 'ada@example.org')}"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=60)

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", trust_env=False, timeout=10).status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    redis = RedisServer.on_free_port(folder=tmp_path / "redis", log=tmp_path / "redis.log")
    server = redis.start()
    (port,) = ports.choose(1, preferred=[])
    write_sample_archive(tmp_path / "archive")
    made = Stack(
        folder=tmp_path,
        url=f"http://127.0.0.1:{port}",
        environment={
            **{name: one for name, one in os.environ.items() if not name.startswith("SWATHMILL_")},
            "SWATHMILL_STORAGE": f"file:{tmp_path}/storage",
            "SWATHMILL_REDIS_URL": redis.url,
            "SWATHMILL_ARCHIVE": str(tmp_path / "archive"),
            "SWATHMILL_PORTAL_URL": f"http://127.0.0.1:{port}",
            "SWATHMILL_PORTAL_ADDRESS": f"127.0.0.1:{port}",
            "SWATHMILL_SECRET": SECRET,
            "SWATHMILL_GRACE_SECONDS": "1",
            "SWATHMILL_LEASE_SECONDS": "6",
        },
    )
    try:
        yield made
    finally:
        for name in [*made.processes]:
            made.stop(name)
        server.stop()


class Load:
    """Submits a request every two seconds, and again until the portal has taken it."""

    def __init__(self, stack: Stack) -> None:
        self.requests: list[str] = []
        self.refused: list[str] = []
        self._stack = stack
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit)

    def _submit(self) -> None:
        with self._stack.api() as api:
            while not self._stop.wait(2.0):
                with suppress(httpx.TransportError):  # the portal is being changed
                    day = len(self.requests)
                    answer = api.post("/api/requests", json=document(day))
                    if answer.status_code == 202:
                        self.requests.append(answer.json()["id"])
                    else:
                        self.refused.append(answer.text)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_processes_of_two_builds_work_together_and_the_way_back_is_open(stack: Stack) -> None:
    for name in MODULES:
        stack.start(name, newer=False)
    until(stack.answers, 120.0, "the stack")
    with Load(stack) as load, stack.api() as api:

        def taken(more: int) -> None:
            """Wait for requests that are submitted from now on."""
            wanted = len(load.requests) + more
            until(lambda: len(load.requests) >= wanted, 120.0, f"requests: {load.refused}")

        def change_each(*, newer: bool) -> None:
            for name in MODULES:
                taken(1)
                stack.become(name, newer=newer)
            until(stack.answers, 120.0, "a manager acts")

        taken(2)
        stack.become("worker", newer=True)
        assert api.get("/", headers={"Accept": "text/html"}).status_code == 200
        change_each(newer=True)
        stack.become("worker-2", newer=False)
        until(lambda: stack.beats("worker-2"), 60.0, "the older worker beats")
        assert "of an older build" in stack.command("--finish").stderr
        change_each(newer=False)  # the way back
        change_each(newer=True)
        said = stack.command("--finish")
        assert said.returncode == 0, said.stdout + said.stderr
        assert f"schema {SCHEMA + 1}" in said.stdout
        change_each(newer=True)
        taken(2)

    assert len(load.requests) > 4 * len(MODULES)
    assert not load.refused
    with stack.api() as api:

        def states() -> list[dict[str, Any]]:
            return [api.get(f"/api/requests/{one}").json() for one in load.requests]

        until(lambda: all(one["ended"] for one in states()), 240.0, stack.log("manager")[-2000:])
        for found in states():
            assert found["state"] == "complete", found["message"]
            assert found["delivered"] == found["outputs"] > 0
            assert not any(phase["failed"] for phase in found["phases"].values())

    for name in MODULES:
        assert "Traceback" not in stack.log(name)
        assert "raised unexpected" not in stack.log(name)
    stack.become("manager", newer=False)
    assert stack.processes["manager"].wait(60) == 78
    assert "install the newer version" in stack.log("manager")
