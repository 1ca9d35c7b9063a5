"""An upgrade and its way back, under load: processes of two builds over one storage, nothing lost.

The newer build is this one with the next schema number. Each process is stopped and started as one
of the other build while requests run. What a kind of row becomes is in test_row_schema.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.core import tokens
from reprojection.sample.sample import write_sample_archive
from swathmill.stack import ports
from swathmill.stack.redis_server import RedisServer
from tasks.storage.schema import SCHEMA
from tests.waiting import until

pytestmark = [pytest.mark.proof, pytest.mark.slow, pytest.mark.integration]

ROOT = Path(__file__).parents[2]
SECRET = "s" * 40
MODULES = {"portal": "portal", "manager": "service_manager", "worker": "worker"}
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
            "SWATHMILL_PORTAL_PORT": str(port),
            "SWATHMILL_SECRET": SECRET,
            "SWATHMILL_GRACE_SECONDS": "1",
            "SWATHMILL_LEASE_SECONDS": "6",
            "SWATHMILL_HEARTBEAT_SECONDS": "1",
        },
    )
    try:
        yield made
    finally:
        for name in [*made.processes]:
            made.stop(name)
        server.stop()


def test_processes_of_two_builds_work_together_and_the_way_back_is_open(stack: Stack) -> None:
    for name in MODULES:
        stack.start(name, newer=False)
    until(stack.answers, 120.0, "the stack")
    with stack.api() as api:
        requests: list[str] = []

        def submit() -> None:
            answer = api.post("/api/requests", json=document(len(requests)))
            assert answer.status_code == 202, answer.text
            requests.append(answer.json()["id"])

        def ended() -> bool:
            states = {api.get(f"/api/requests/{one}").json()["state"] for one in requests}
            return states == {"complete"}

        submit()
        stack.become("manager", newer=True)  # beside an older portal and worker
        submit()
        assert api.get("/", headers={"Accept": "text/html"}).status_code == 200
        until(ended, 240.0, stack.log("manager")[-2000:])
        assert "of an older build" in stack.command("--finish").stderr

        stack.become("worker", newer=True)
        submit()
        stack.become("manager", newer=False)  # the way back
        until(ended, 240.0, stack.log("manager")[-2000:])

        stack.become("manager", newer=True)
        stack.become("portal", newer=True)
        until(stack.answers, 120.0, "the newer portal")
        said = stack.command("--finish")
        assert said.returncode == 0, said.stdout + said.stderr
        assert f"schema {SCHEMA + 1}" in said.stdout
        for name in MODULES:
            stack.become(name, newer=True)
        until(stack.answers, 120.0, "all processes of the newer build")
        submit()
        until(ended, 240.0, stack.log("manager")[-2000:])

    for name in MODULES:
        assert "Traceback" not in stack.log(name)
        assert "raised unexpected" not in stack.log(name)
    stack.become("manager", newer=False)
    assert stack.processes["manager"].wait(60) == 78
    assert "install the newer version" in stack.log("manager")
