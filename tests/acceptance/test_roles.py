"""Each process with what the image of its role holds, and no more: a request, a package, a command.

The environments are made of this one by `tools/slim.py`, as the images are. Where bubblewrap is,
each process is user 10001 on a read-only root, without capabilities, and writes into its data
folder, /tmp and embedded storage alone, as a container of the image.
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.serving import tokens
from reprojection.sample.sample import write_sample_archive
from swathmill.package_kit import Language, write_skeleton
from swathmill.stack import ports
from swathmill.stack.redis_server import RedisServer
from tasks.packages.packages import pack
from tests.acceptance.test_two_builds import ROOT, SECRET, document
from tests.counts.counting import PYTHON
from tests.waiting import until
from tools import slim

pytestmark = [
    pytest.mark.proof,
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="the images have the oldest Python"),
]

MODULES = {
    "portal": "portal",
    "manager": "service_manager",
    "worker": "worker",
    "runner": "worker.pool",
}
OF_RUNNER = ("SWATHMILL_RUNNER_ADDRESS", "SWATHMILL_SANDBOX", "SWATHMILL_GRACE_SECONDS")


def environment_of(role: str, folder: Path) -> Path:
    """Make the environment of a role's image; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    shutil.rmtree(site)
    here = Path(str(metadata.distribution("numpy").locate_file("")))
    shutil.copytree(here, site, symlinks=True, copy_function=os.link)
    slim.slim(role, site)
    return folder / "bin" / "python"


def contained(role: str, at: Path) -> list[str]:
    """The words that run a role's process as a container of its image would."""
    if shutil.which("bwrap") is None:
        return []
    own = [at / role, *([at / "storage"] if role != "runner" else ())]
    for folder in own:
        folder.mkdir(exist_ok=True)
    read = [at / "of" / role, at / "archive"]
    return [
        *("bwrap", "--unshare-user", "--uid", "10001", "--gid", "10001"),
        *("--unshare-pid", "--die-with-parent", "--cap-drop", "ALL"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
        *(word for one in read for word in ("--ro-bind", str(one), str(one))),
        *(word for one in own for word in ("--bind", str(one), str(one))),
    ]


class Stack:
    """A process of each role, in its own environment."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.url = environment["SWATHMILL_PORTAL_URL"]
        self.pythons = {role: environment_of(role, folder / "of" / role) for role in MODULES}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str) -> None:
        given = {**self.environment, "SWATHMILL_DATA_DIR": str(self.folder / role)}
        if role == "runner":  # it has no secret
            keep = ("SWATHMILL_DATA_DIR", *OF_RUNNER)
            given = {k: v for k, v in given.items() if k in keep or not k.startswith("SWATHMILL_")}
        with (self.folder / f"{role}.log").open("wb") as log:
            self.processes[role] = subprocess.Popen(
                [*contained(role, self.folder), str(self.pythons[role]), "-P", "-m", MODULES[role]],
                cwd=ROOT,
                env=given,
                stdout=log,
                stderr=log,
            )

    def log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text("utf-8", "replace")

    def logs(self) -> str:
        return "\n".join(f"{role}: {self.log(role)[-3000:]}" for role in MODULES)

    def answers(self) -> bool:
        assert all(one.poll() is None for one in self.processes.values()), self.logs()
        try:
            return httpx.get(f"{self.url}/healthz", trust_env=False, timeout=10).status_code == 200
        except httpx.HTTPError:
            return False

    def api(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {tokens.issue(SECRET, 'ada@example.org')}"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=60)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    redis = RedisServer.on_free_port(folder=tmp_path / "redis", log=tmp_path / "redis.log")
    server = redis.start()
    port, runner = ports.choose(2, preferred=[])
    write_sample_archive(tmp_path / "archive")
    known = {name: one for name, one in os.environ.items() if not name.startswith("SWATHMILL_")}
    made = Stack(
        tmp_path,
        {
            **known,
            "PYTHONPATH": str(ROOT),
            "SWATHMILL_STORAGE": f"file:{tmp_path}/storage",
            "SWATHMILL_REDIS_URL": redis.url,
            "SWATHMILL_ARCHIVE": str(tmp_path / "archive"),
            "SWATHMILL_PORTAL_URL": f"http://127.0.0.1:{port}",
            "SWATHMILL_PORTAL_ADDRESS": f"127.0.0.1:{port}",
            "SWATHMILL_SECRET": SECRET,
            "SWATHMILL_REDUCTION_POOL": f"127.0.0.1:{runner}",
            "SWATHMILL_RUNNER_ADDRESS": f"127.0.0.1:{runner}",
            "SWATHMILL_SANDBOX": "limits",
            "SWATHMILL_GRACE_SECONDS": "1",
        },
    )
    try:
        for role in MODULES:
            made.start(role)
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()
        server.stop()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is absent")
def test_a_role_is_no_root_and_writes_into_its_own_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "of" / "runner").mkdir(parents=True)
    places = ("/x", ROOT / "x", tmp_path / "of" / "runner" / "x", tmp_path / "runner" / "x")
    tried = f"id -u; for one in {' '.join(map(str, places))}; do touch $one && echo $one; done"
    done = subprocess.run(
        [*contained("runner", tmp_path), "sh", "-c", tried],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["10001", f"{tmp_path}/runner/x"]


def test_a_request_with_a_package_of_its_own_over_the_roles(stack: Stack, tmp_path: Path) -> None:
    until(stack.answers, 120.0, "the stack")
    write_skeleton(tmp_path / "my-mean", Language.PYTHON)
    with stack.api() as api:
        pushed = api.post("/api/packages", content=pack(tmp_path / "my-mean").data)
        assert pushed.status_code in (200, 201), pushed.text
        wanted: dict[str, Any] = {
            **document(0),
            "reduction": {"package": "my-mean", "group_by": ["cell", "month"]},
            "deliver": "both",
        }
        answer = api.post("/api/requests", json=wanted)
        assert answer.status_code == 202, answer.text
        one = answer.json()["id"]

        def state() -> dict[str, Any]:
            found: dict[str, Any] = api.get(f"/api/requests/{one}").json()
            return found

        until(lambda: state()["ended"], 240.0, stack.logs())
        found = state()
        assert found["state"] == "complete", found["message"] + stack.logs()
        names = [one["name"] for one in api.get(f"/api/requests/{one}/results").json()]
        assert any("Lai_1km_mean" in name for name in names)
        page = api.get(f"/requests/{one}", headers={"Accept": "text/html"})
        assert page.status_code == 200
    assert "run started" in stack.log("runner")
    link = subprocess.run(
        [str(stack.pythons["portal"]), "-P", "-m", "swathmill.cli", "sign-in", "ada@example.org"],
        cwd=ROOT,
        env={**stack.environment, "SWATHMILL_DATA_DIR": str(tmp_path / "portal")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert stack.url in link.stdout, link.stderr
    for role in MODULES:
        assert "ModuleNotFoundError" not in stack.log(role), role
