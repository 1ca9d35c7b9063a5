"""What is used once before any fork, and what that leaves behind."""

import gc
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rasterio

from worker.sandbox.children import _ENVIRONMENT
from worker.slots import first_use
from worker.slots.first_use import use_libraries
from worker.slots.lent_blobs import MADE

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, os, stat
from fcntl import F_GETFL, fcntl
from pathlib import Path

def writable():
    found = []
    for number in range(3, 256):
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and fcntl(number, F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found

there = os.getcwd()
import worker.slots.frozen
from worker.slots.maker_answers import settings
print(json.dumps({
    "used": settings.cache_info().currsize,
    "threads": len(os.listdir("/proc/self/task")),
    "writable": writable(),
    "left": os.listdir(os.environ["TMPDIR"]),
    "moved": os.getcwd() != there,
}))
"""


def frozen(temporary: Path) -> dict[str, object]:
    """Import what the forkserver imports last; say what it has done."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_a_granule_is_made_into_a_raster(tmp_path: Path) -> None:
    """Else what fails at the first use would go unseen: a worker starts without it."""
    first_use.make_all(tmp_path)
    with rasterio.open(tmp_path / MADE / "a.tif") as raster:
        assert (raster.read(1) == 7).any()
    assert (tmp_path / MADE / "a.json").is_file()


def test_libraries_are_used_before_forks_and_nothing_is_left(tmp_path: Path) -> None:
    assert frozen(tmp_path) == {
        "used": 1,
        "threads": 1,
        "writable": [],
        "left": [],
        "moved": False,
    }


def test_libraries_are_used_before_all_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(first_use, "use_libraries", lambda: done.append("used"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.delitem(sys.modules, "worker.slots.frozen", raising=False)
    importlib.import_module("worker.slots.frozen")
    assert done == ["used", "frozen"]


def test_a_worker_starts_where_nothing_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_folder: Path) -> None:
        raise RuntimeError("no library")

    monkeypatch.setattr(first_use, "make_all", fail)
    use_libraries()
