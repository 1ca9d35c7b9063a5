"""A stack that a test starts over an archive, with packages of its own, and talks to."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from swathmill.access import local_client, local_token
from swathmill.answers import RequestStatus
from swathmill.client import Client
from swathmill.stack.folder import DataFolder
from tests.waiting import until

LIMIT = 420.0  # seconds
COMMAND = (sys.executable, "-m", "swathmill.cli")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A stack that runs: by default the one on a data folder, else the one of a portal."""

    data: Path
    log: Path
    portal: str = ""
    token: str = ""

    @property
    def client(self) -> Client:
        if self.portal:
            return Client(url=self.portal, token=self.token)
        return local_client(DataFolder(path=self.data))

    def command(self, *words: str, cwd: Path) -> str:
        """Run a command as a user of the stack does; return what it prints."""
        if self.portal:
            access = {"SWATHMILL_PORTAL_URL": self.portal, "SWATHMILL_TOKEN": self.token}
            return command(*words, cwd=cwd, **access)
        return command(*words, "--data", str(self.data), cwd=cwd)

    def json(self, path: str) -> Any:
        answer = self._get(path)
        return answer.json()

    def page(self, path: str) -> str:
        return self._get(path).text

    def _get(self, path: str) -> httpx.Response:
        token = self.token or local_token(DataFolder(path=self.data))
        answer = httpx.get(
            f"{self.client.url}{path}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60.0,
            trust_env=False,
        )
        answer.raise_for_status()
        return answer

    def until_ended(self, request: str) -> RequestStatus:
        until(
            lambda: self.client.status(request).state.ended,
            LIMIT,
            "the request has ended",
            self.log,
        )
        return self.client.status(request)


def command(*words: str, cwd: Path, **more: str) -> str:
    """Run a command, with more variables in its environment; return what it prints."""
    done = subprocess.run(
        [*COMMAND, *words],
        cwd=cwd,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_package(folder: Path, name: str, script: str, manifest: str = "") -> None:
    """A package of one Python script with a raster for each layer, among others in a folder."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "run.py").write_text(script)
    (package / "package.yaml").write_text(
        f"name: {name}\ncommand: [python, run.py]\noutputs: ['{{layer}}_{name}.tif']\n{manifest}"
    )


@contextmanager
def started(folder: Path, archive: Path, settings: Mapping[str, str]) -> Iterator[Running]:
    """A stack in a folder, with the packages of its folder `packages`."""
    environment = {
        **os.environ,
        "SWATHMILL_PACKAGES": str(folder / "packages"),
        **{f"SWATHMILL_{name}": value for name, value in settings.items()},
    }
    data, log = (folder / "data").resolve(), folder / "up.log"
    with log.open("wb") as out:
        command = [*COMMAND, "up", "--archive", str(archive), "--data", str(data)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
        )
    try:
        until(
            lambda: "Ctrl-C stops" in log.read_text() or process.poll() is not None,
            LIMIT,
            "the stack is up",
            log,
        )
        assert process.poll() is None, log.read_text()
        yield Running(data=data, log=log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120.0)
