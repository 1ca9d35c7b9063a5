"""Programs that end without the interpreter's own end."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading, weakref
from processes.quick_end import leave

class Kept:
    def __del__(self):
        print("freed", flush=True)

kept = Kept()
weakref.finalize(kept, print, " cleaned up", end="")
release = threading.Event()
threading.Thread(target=release.wait).start()

def main():
    print("told", end="")
    {ends}

leave(main)
"""


def ended(ends: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(ends=ends)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ("pass", 0, ""),
        ("return 3", 3, ""),
        ("sys.exit(4)", 4, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('so')", 1, "so\n"),
    ],
)
def test_it_tells_all_and_ends_at_once_with_its_code(ends: str, code: int, said: str) -> None:
    process = ended(ends)
    assert (process.returncode, process.stdout, process.stderr) == (code, "told cleaned up", said)


def test_an_unforeseen_error_ends_it_the_usual_way() -> None:
    process = ended("release.set(); raise ValueError('why')")
    assert process.returncode == 1
    assert process.stdout == "told cleaned upfreed\n"
    assert process.stderr.endswith("ValueError: why\n")
