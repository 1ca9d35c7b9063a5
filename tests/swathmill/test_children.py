"""Children end with their supervisor, and are started again when they end on their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swathmill.errors import StackError
from swathmill.stack.children import Child, ChildSpec
from swathmill.stack.supervisor import Supervisor

LIMIT_SECONDS = 20.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def python(name: str, folder: Path, program: str, **options: object) -> ChildSpec:
    return ChildSpec(
        name=name,
        argv=(sys.executable, "-c", program),
        log=folder / f"{name}.log",
        **options,  # type: ignore[arg-type]
    )


WAIT = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    "while True: time.sleep(60)"
)
SAVING = (
    "import signal, sys, time\n"
    "def save(*_):\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
    "    print('saving', flush=True); time.sleep(0.5); print('saved', flush=True); sys.exit()\n"
    "signal.signal(signal.SIGTERM, save); print('up', flush=True)\n"
    "while True: time.sleep(60)"
)
WITH_GRANDCHILD = (
    "import subprocess, sys, signal\n"
    "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(p.pid, flush=True); signal.pause()"
)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    one = Supervisor()
    yield one
    one.kill()


def test_a_child_stops_at_sigterm(tmp_path: Path) -> None:
    child = Child(python("calm", tmp_path, WAIT))
    child.start()
    until(lambda: "up" in child.log_tail())
    child.stop()
    assert child.exit_code() == -signal.SIGTERM


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    child = Child(python("stubborn", tmp_path, STUBBORN, grace_seconds=0.2))
    child.start()
    until(lambda: "up" in child.log_tail())
    child.stop()
    assert child.exit_code() == -signal.SIGKILL


def test_a_child_that_was_asked_to_stop_is_not_asked_again(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    child = supervisor.start(python("saving", tmp_path, SAVING))
    until(lambda: "up" in child.log_tail())
    child.ask_to_stop()
    until(lambda: "saving" in child.log_tail())
    supervisor.stop([["saving"]])
    assert child.exit_code() == 0
    assert child.log_tail().endswith("saved")


def test_stopping_a_child_ends_what_it_started(tmp_path: Path) -> None:
    child = Child(python("parent", tmp_path, WITH_GRANDCHILD))
    child.start()
    until(lambda: child.log_tail().isdigit())
    grandchild = int(child.log_tail())
    assert alive(grandchild)
    child.stop()
    until(lambda: not alive(grandchild))


@pytest.mark.skipif(sys.platform != "linux", reason="the leash is Linux's PR_SET_PDEATHSIG")
def test_a_child_dies_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    program = f"""
import pathlib, signal, sys
from swathmill.stack.children import Child, ChildSpec
child = Child(ChildSpec(name="leashed", argv=(sys.executable, "-c", {WAIT!r}),
                        log=pathlib.Path({str(tmp_path / "leashed.log")!r})))
child.start()
print(child.pid, flush=True)
signal.pause()
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root
    ) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        until(lambda: "up" in (tmp_path / "leashed.log").read_text())
        assert alive(child)
        supervisor.kill()
    until(lambda: not alive(child))


def test_waiting_for_a_child_that_ends_tells_its_last_words(tmp_path: Path) -> None:
    child = Child(python("doomed", tmp_path, "print('port 1 is taken'); raise SystemExit(3)"))
    child.start()
    with pytest.raises(StackError, match=r"exit code 3(?s:.*)port 1 is taken"):
        child.wait_until(lambda: False, limit_seconds=LIMIT_SECONDS)


READY = "from processes.ready import say_ready; say_ready()\n"


def test_a_child_says_itself_that_it_is_ready(tmp_path: Path) -> None:
    child = Child(python("quick", tmp_path, READY + WAIT, says_ready=True))
    child.start()
    child.wait_ready(limit_seconds=LIMIT_SECONDS)
    assert child.exit_code() is None
    child.kill()


def test_waiting_for_word_of_a_child_that_ends_or_is_silent_tells_its_last_words(
    tmp_path: Path,
) -> None:
    """The end is told by the pipe: nothing waits for the limit."""
    doomed = Child(
        python("doomed", tmp_path, "print('no port'); raise SystemExit(3)", says_ready=True)
    )
    doomed.start()
    with pytest.raises(StackError, match=r"exit code 3(?s:.*)no port"):
        doomed.wait_ready(limit_seconds=1e6)
    silent = Child(python("silent", tmp_path, WAIT, says_ready=True))
    silent.start()
    with pytest.raises(StackError, match="was not ready within 0 s"):
        silent.wait_ready(limit_seconds=0.1)
    silent.kill()


def test_a_child_gets_its_environment_and_its_standard_input(tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['COLOUR'], 'HOME' in os.environ, sys.stdin.read())"
    spec = python("reader", tmp_path, program, env={"COLOUR": "red", "HOME": None}, stdin="word")
    child = Child(spec)
    child.start()
    until(lambda: child.exit_code() is not None)
    assert child.log_tail() == "red False word"


def test_a_child_that_ends_is_started_again_after_growing_pauses(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    now = [0.0]
    supervisor.clock = lambda: now[0]
    supervisor.start(python("fragile", tmp_path, "raise SystemExit(7)"))
    for round_number, pause in enumerate((1.0, 2.0, 4.0), start=1):
        until(lambda: supervisor.child("fragile").exit_code() == 7)
        (said,) = supervisor.tick()
        assert f"exit code 7); next start in {pause:.0f} s" in said
        now[0] += pause - 0.01
        assert supervisor.tick() == []
        now[0] += 0.01
        assert supervisor.tick() == [f"fragile was started again (restart {round_number})."]
    assert supervisor.restarts("fragile") == 3


def test_a_child_that_ran_long_is_started_again_after_the_first_pause(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    now = [0.0]
    supervisor.clock = lambda: now[0]
    supervisor.start(python("steady", tmp_path, WAIT))
    for _ in range(2):
        until(lambda: "up" in supervisor.child("steady").log_tail())
        now[0] += 61.0
        pid = supervisor.child("steady").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: supervisor.child("steady").exit_code() is not None)
        (said,) = supervisor.tick()
        assert "next start in 1 s" in said
        now[0] += 1.0
        supervisor.tick()


def test_a_paused_child_stays_stopped_until_it_is_resumed(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    supervisor.start(python("idle", tmp_path, WAIT))
    until(lambda: "up" in supervisor.child("idle").log_tail())
    supervisor.pause(["idle"])
    assert supervisor.child("idle").exit_code() is not None
    assert supervisor.tick() == []
    supervisor.resume(["idle"])
    assert supervisor.child("idle").exit_code() is None
