"""What takes long to make is made once for all processes of a test run."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the path at which the first process that asked had it made; no test may change it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose folder lies in the one of the whole run
        base = base.parent
    path, unfinished = base / name, base / f"{name}.part"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make(unfinished)
            unfinished.rename(path)
    return path
