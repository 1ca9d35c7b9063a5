"""Processes that die with their parent, and trees and groups that are killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import parents, proctree
from swathmill.stack import leash
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) and /proc are Linux's")

ROOT = Path(__file__).parents[2]
FORKS = """
import os, sys, time
from processes.parents import die_with_parent
parent = os.getpid()
if os.fork() == 0:
    print(os.getpid(), die_with_parent(parent), die_with_parent(parent + 1), flush=True)
    time.sleep(600)
time.sleep(600)
"""
NESTED = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True)"


def python(code: str, *, session: bool = False) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=session,
    )


def said(program: "subprocess.Popen[str]") -> list[str]:
    assert program.stdout is not None
    return program.stdout.readline().split()


def test_a_process_dies_with_its_parent_and_knows_whether_it_lives() -> None:
    with python(FORKS) as program:
        pid, lives, other_lives = said(program)
        assert (lives, other_lives) == ("True", "False")
        assert proctree.descendants(program.pid) == [int(pid)]
        program.kill()
    until(lambda: not proctree.alive(int(pid)))


def test_the_leash_asks_for_the_same_signal() -> None:
    """The leash runs without the packages around it, so it has the number itself."""
    assert leash.PR_SET_PDEATHSIG == parents.PR_SET_PDEATHSIG


def test_all_below_a_process_are_killed() -> None:
    with python(NESTED + "; p.wait()") as program:
        (pid,) = said(program)
        proctree.kill_descendants(program.pid)
        until(lambda: not proctree.alive(int(pid)))
        program.kill()


def test_a_group_is_killed_also_when_its_leader_is_gone() -> None:
    with python(NESTED, session=True) as program:
        (pid,) = said(program)
        assert program.wait(20) == 0
        assert proctree.alive(int(pid))
        proctree.kill_group(program.pid)
        until(lambda: not proctree.alive(int(pid)))
        proctree.kill_group(program.pid)


def test_a_killed_child_is_reaped() -> None:
    pid = os.spawnvp(os.P_NOWAIT, "sleep", ["sleep", "600"])
    proctree.kill(pid)
    until(lambda: not proctree.alive(pid))
    assert Path(f"/proc/{pid}").exists(), "not reaped yet"
    proctree.kill_and_reap(pid)
    assert not Path(f"/proc/{pid}").exists()
    proctree.kill_and_reap(pid)
