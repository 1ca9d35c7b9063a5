"""What `swathmill run` starts from nothing, in counts: interpreters, and forks that read granules.

Each new interpreter imports again what others have; a fork of one that has imported costs a few
milliseconds. So the manager's reading process, multiprocessing's tracker and the forkserver are
forks, made before there are secrets. Whoever adds an interpreter to a start adds it here, and says
why.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reprojection.sample.hdfeos_write import write_granule
from tests.reprojection.reading_samples import small_tile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="services are forked on Linux alone"),
]

GRANULES = 5
REQUEST = """
products: [{name: MCD15A2, collection: "5", layers: [Lai_1km]}]
region: {bbox: [-8.0, 51.0, -4.0, 54.0]}
time: {start: 2012-03-05, end: 2012-03-05}
grid: {crs: "EPSG:4326", resolution: 0.25}
"""
# Python imports a module of this name when it starts.
PROBE = """
import os, sys

def note(event):
    with open({told!r}, "a") as told, open("/proc/self/comm") as name:
        words = " ".join(sys.orig_argv[1:]).replace("\\n", " ")
        told.write(event + " " + name.read().strip() + " " + words + "\\n")

note("start")
os.register_at_fork(after_in_child=lambda: note("fork"))
"""
KINDS = {
    "multiprocessing.resource_tracker": "resource tracker",
    "reprojection.isolation": "reading process",
    "-m worker": "worker",
    "-m swathmill.cli": "command",
}


def kind(line: str) -> str:
    return next((name for words, name in KINDS.items() if words in line), line)


def test_a_cold_request_starts_few_interpreters(tmp_path: Path) -> None:
    archive, probe, told = (tmp_path / name for name in ("archive", "probe", "told"))
    archive.mkdir()
    probe.mkdir()
    for day in range(GRANULES):
        granule = small_tile(date=f"20120{65 + day}")
        write_granule(archive / granule.local_name, granule)
    (probe / "sitecustomize.py").write_text(PROBE.format(told=str(told)))
    (tmp_path / "request.yaml").write_text(REQUEST)
    words = (
        *(tmp_path / "request.yaml", "--archive", archive, "--slots", "1"),
        *("--out", tmp_path / "out", "--data", tmp_path / "data"),
    )
    ran = subprocess.run(
        [sys.executable, "-m", "swathmill.cli", "run", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(probe), *sys.path[1:]))},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    events = Counter[tuple[str, str]]()
    for line in told.read_text().splitlines():
        event, name, rest = line.split(" ", 2)
        events[event, name if event == "fork" else kind(rest)] += 1
    started = {what: count for (event, what), count in events.items() if event == "start"}
    assert started == {
        "command": 1,  # portal, manager and mail catcher are its forks
        "worker": 1,  # it is handed its secrets when it has forked what must not have them
    }
    assert 1 <= events["fork", "reader"] <= 3, f"of {GRANULES} granules: outlines, layers"
