"""The command over the real stack: interrupted, taken up again, repeated, killed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from swathmill.stack.folder import DataFolder, is_running
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.integration]

ROOT = Path(__file__).parents[3]
PROGRAM = str(Path(sys.executable).with_name("swathmill"))
PACKAGES = "archives modis portal processes reprojection service_manager swathmill tasks worker"
REQUEST = ROOT / "examples" / "sample.yaml"
LIMIT = 400.0
DAY = "2012-04-14"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A data folder with a sample archive beside it, and the folder where commands are given.

    That folder holds modules with the names of our packages, as a scientist's own may.
    """

    data: Path
    archive: Path
    current: Path

    def processes(self) -> set[int]:
        """Processes of a stack on this data folder: our own have it in their environment, the
        servers among their arguments or as their working folder."""
        mark = f"SWATHMILL_DATA_DIR={self.data}\0".encode()
        found = set()
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            told = str(self.data).encode() in _read(process / "cmdline")
            if told or mark in _read(process / "environ") or self._holds(process):
                found.add(int(process.name))
        return found

    def _holds(self, process: Path) -> bool:
        try:
            return (process / "cwd").readlink().is_relative_to(self.data)
        except OSError:
            return False

    def swathmill(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            [PROGRAM, *arguments, "--data", str(self.data)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            cwd=self.current,
        )

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Start one command that runs on; its output goes to a file."""
        with log.open("wb") as out:
            return subprocess.Popen(
                [PROGRAM, *arguments, "--data", str(self.data), "--archive", str(self.archive)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.current,
            )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("current")
    for package in PACKAGES.split():
        (folder / f"{package}.py").write_text('raise SystemExit("wrong module")\n')
    return folder


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, current: Path) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    done = subprocess.run(
        [PROGRAM, "sample", str(folder)], capture_output=True, text=True, check=False, cwd=current
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, archive: Path, current: Path
) -> Iterator[Place]:
    data = tmp_path_factory.mktemp("stack") / "data"
    place = Place(data=data, archive=archive, current=current)
    yield place
    for process in place.processes():
        os.kill(process, signal.SIGKILL)


@pytest.mark.proof
def test_a_run_that_is_interrupted_goes_on_and_ends_complete(
    place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    request = folder / "request.yaml"  # a day of the sample: what is shown needs no more
    sample = yaml.safe_load(REQUEST.read_text())
    request.write_text(yaml.safe_dump({**sample, "time": {"start": DAY, "end": DAY}}))
    log, out = folder / "first.log", folder / "out"
    first = place.start("run", str(request), "--out", str(out), log=log)
    until(
        lambda: "Request " in log.read_text() or first.poll() is not None,
        LIMIT,
        "the request is taken",
    )
    assert first.poll() is None, log.read_text()
    first.send_signal(signal.SIGINT)
    assert first.wait(LIMIT) == 130, log.read_text()
    said = log.read_text()
    assert "Nothing is lost: the same command continues from here" in said
    assert place.processes() == set()
    (request_id,) = re.findall(r"^Request (\S+):", said, re.MULTILINE)

    second = place.swathmill(
        "run", str(request), "--archive", str(place.archive), "--out", str(out)
    )
    assert second.returncode == 0, second.stdout + second.stderr
    assert f"Request {request_id} continues where it was interrupted." in second.stdout
    assert place.processes() == set()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["state"] == "complete"
    assert summary["gaps"] == []
    assert {(out / file["name"]).stat().st_size for file in summary["files"]} == {
        file["size"] for file in summary["files"]
    }
    layers = {Path(file["name"]).parts[1] for file in summary["files"]}
    assert {"Lai_1km", "Optical_Depth_Land_And_Ocean", "Lai_1km_mean"} <= layers
    (mail,) = summary["mails"]
    assert "complete" in (out / mail).read_text()
    assert (out / summary["picture"]).read_bytes().startswith(b"\x89PNG")
    for name in (*(file["name"] for file in summary["files"]), mail, summary["picture"]):
        assert str(out / name) in second.stdout

    again = folder / "again"
    third = place.swathmill(
        "run", str(request), "--archive", str(place.archive), "--out", str(again)
    )
    assert third.returncode == 0, third.stdout + third.stderr
    repeated = json.loads((again / "summary.json").read_text())
    for phase in repeated["phases"].values():
        assert phase["reused"] == phase["total"]
    for file in summary["files"]:
        assert (again / file["name"]).read_bytes() == (out / file["name"]).read_bytes()


def test_a_stack_answers_the_commands_and_dies_whole_with_its_supervisor(
    place: Place, tmp_path: Path
) -> None:
    log = tmp_path / "up.log"
    stack = place.start("up", "--json", log=log)
    try:
        until(
            lambda: "Ctrl-C stops" in log.read_text() or stack.poll() is not None,
            LIMIT,
            "the stack is up",
        )
        assert stack.poll() is None, log.read_text()
        told, _ = json.JSONDecoder().raw_decode(log.read_text(), log.read_text().index("{"))
        assert told["sign_in"].startswith(f"{told['portal']}/sign-in?token=")

        preview = place.swathmill("submit", str(REQUEST), "--dry-run")
        assert preview.returncode == 0, preview.stderr
        assert re.search(r"^Granules +\d+,", preview.stdout, re.MULTILINE)

        misspelt = tmp_path / "misspelt.yaml"
        misspelt.write_text(REQUEST.read_text().replace("Lai_1km", "LAI-1km"))
        refused = place.swathmill("submit", str(misspelt))
        assert refused.returncode == 2
        assert "Did you mean Lai_1km" in " ".join(refused.stderr.split())

        assert len(place.processes()) >= 6, "Redis, mail, manager, worker, portal"
        second = place.start("up", log=tmp_path / "second.log")
        assert second.wait(LIMIT) == 1
        assert "A stack already runs" in (tmp_path / "second.log").read_text()

        listed = place.swathmill("status")
        assert listed.returncode == 0
    finally:
        stack.kill()
        stack.wait()
    until(lambda: place.processes() == set(), LIMIT, "every process of the stack has ended")
    assert not is_running(DataFolder(path=place.data))
    orphan = place.swathmill("status")
    assert orphan.returncode == 1
    assert "No stack runs" in orphan.stderr
