"""No secret of a stack is in the memory of what reads granules, though it is forked."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes import proctree
from tests.memories import holds
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="services are forked on Linux alone"),
]

TOKEN = "a-token-of-the-one-who-starts-it"


def named(pid: int) -> str:
    """What a process is, by its name, or by its words where it is a program of its own."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"
    return "reading program" if b"reprojection.isolation" in words else name


@pytest.mark.parametrize(("told", "reads"), [(False, "reader"), (True, "reading program")])
def test_what_reads_granules_has_no_secret(tmp_path: Path, told: bool, reads: str) -> None:
    """It is a fork where nothing is secret in the environment of the command; else a program."""
    archive, data, log = (tmp_path / name for name in ("archive", "data", "up.log"))
    archive.mkdir()
    environment = {name: v for name, v in os.environ.items() if not name.startswith("SWATHMILL_")}
    if told:
        environment["SWATHMILL_EARTHDATA_TOKEN"] = TOKEN
    words = ("up", "--archive", archive, "--data", data, "--slots", "1")
    with log.open("w") as out:
        stack = subprocess.Popen(
            [sys.executable, "-m", "swathmill.cli", *words],
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=out,
            stderr=out,
        )
    try:
        until(lambda: "Ctrl-C stops" in log.read_text() or stack.poll() is not None, 120)
        assert stack.poll() is None, log.read_text()
        wanted = ("service_manager", reads, "forkserver", "tracker")
        processes: dict[str, int] = {}

        def all_there() -> bool:
            # Of the forkserver and its forks, which bear its name, it is the first.
            processes.update((named(pid), pid) for pid in reversed(proctree.descendants(stack.pid)))
            return processes.keys() >= set(wanted)

        until(all_there, 120, "all processes have their names")
        kept = json.loads((data / "secrets.json").read_text())
        secrets = [kept["redis_password"], kept["signing_key"], *([TOKEN] if told else [])]
        try:
            found = {
                name: [holds(processes[name], secret) for secret in secrets] for name in wanted
            }
        except PermissionError:
            pytest.skip("this machine lets nobody but root look into other processes")
        assert found == {
            "service_manager": [True] * len(secrets),
            reads: [False] * len(secrets),
            "forkserver": [False] * len(secrets),
            "tracker": [False] * len(secrets),
        }
    finally:
        stack.send_signal(signal.SIGTERM)
        try:
            stack.wait(60)
        finally:
            stack.kill()
