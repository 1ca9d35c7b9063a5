"""Libraries that start threads on import have none: a fork would lose them."""

import subprocess
import sys

import pytest

PROGRAM = """
import os
from processes.one_thread import use_one_thread
use_one_thread()
import numpy
print(len(os.listdir("/proc/self/task")), os.environ["OMP_NUM_THREADS"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize(("given", "told"), [({}, "1 1"), ({"OMP_NUM_THREADS": "3"}, "1 3")])
def test_numpy_starts_no_thread(given: dict[str, str], told: str) -> None:
    env = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), **given}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == told
