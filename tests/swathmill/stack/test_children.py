"""Children end with their supervisor, and are started again when they end on their own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from swathmill.errors import StackError
from swathmill.stack import forked, interruption
from swathmill.stack.children import Child, ChildSpec
from swathmill.stack.supervisor import LONGEST_PAUSE_SECONDS, Supervisor, Watched
from tests.waiting import until

LIMIT_SECONDS = 20.0


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


def test_children_of_a_group_stop_in_one_grace(supervisor: Supervisor, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        supervisor.start(python(name, tmp_path, STUBBORN, grace_seconds=1.0))
    for name in names:
        until(lambda name=name: "up" in supervisor.child(name).log_tail())  # type: ignore[misc]
    begin = time.monotonic()
    supervisor.stop([names])
    assert time.monotonic() - begin < 2.5


def test_secrets_go_only_where_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("SWATHMILL_SECRET", "SWATHMILL_SMTP_PASSWORD")
    script = f"import os; print(sorted({{*os.environ}} & {{*{secrets}}}))"
    monkeypatch.setenv("SWATHMILL_SECRET", "inherited")
    monkeypatch.setenv("SWATHMILL_SMTP_PASSWORD", "inherited")
    for name, given in (("none", {}), ("one", {"SWATHMILL_SECRET": "s"})):
        child = Child(python(name, tmp_path, script, env=given))
        child.start()
        until(lambda child=child: child.exit_code() == 0)  # type: ignore[misc]
        assert child.log_tail() == str(sorted(given))


def test_an_order_to_stop_is_held_back_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loses:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(100):
                pass  # the handler raises in here, where Python ignores it

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    interruption.listen()
    try:
        monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
        one = Loses()
        del one
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
        reached = []

        def start() -> None:
            with interruption.held_back():
                os.kill(os.getpid(), signal.SIGTERM)
                reached.append(True)

        with pytest.raises(KeyboardInterrupt):
            start()
        assert reached
        interruption.check()
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


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
    root = Path(__file__).parents[3]
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


FORKING = """
import importlib, pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: None)
sys.path.insert(0, sys.argv[1])
from swathmill.stack.children import Child, ChildSpec
open(sys.argv[1] + "/held", "w")
lock = open(sys.argv[1] + "/held")
importlib.import_module("service")
spec = ChildSpec(
    name="service",
    argv=(sys.executable, "-c", "raise SystemExit(9)"),
    env={"NEW": "here", "OLD": None},
    log=pathlib.Path(sys.argv[1]) / "service.log",
    forks=("service", "one", "two"),
    says_ready=True,
)
child = Child(spec)
child.start(fork=True)
child.wait_ready(limit_seconds=20)
print(child.pid, flush=True)
if sys.argv[2] == "stop":
    child.stop()
elif sys.argv[2] == "wait":
    child._process.wait(20)
else:
    signal.pause()
print(child.exit_code(), flush=True)
"""
SERVICE = """
import json, os, pathlib, signal, sys
LOADED_BY = os.getpid()

def main():
    held = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if int(n) > 2
            and os.path.exists(f"/proc/self/fd/{n}")]
    print(json.dumps({
        "argv": sys.argv, "env": dict(os.environ), "parent": os.getppid() == LOADED_BY,
        "group": os.getpgid(0) == os.getpid(), "files": [f for f in held if f.endswith("held")],
        "name": pathlib.Path("/proc/self/comm").read_text().strip(),
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
    }), flush=True)
    from processes.ready import say_ready
    say_ready()
    if os.environ.get("ENDS"):
        return 7
    signal.pause()
"""


def forking(folder: Path, then: str, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[str]:
    """Run a supervisor that forks a service, in a process of its own."""
    (folder / "service.py").write_text(SERVICE)
    monkeypatch.setenv("OLD", "gone")
    return subprocess.Popen(
        [sys.executable, "-c", FORKING, str(folder), then], stdout=subprocess.PIPE, text=True
    )


def test_a_forked_child_is_like_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = forking(tmp_path, "stop", monkeypatch)
    output, _ = process.communicate(timeout=60)
    assert output.splitlines()[1] == str(-signal.SIGTERM)
    told = json.loads((tmp_path / "service.log").read_text().splitlines()[0])
    assert told["argv"] == ["service", "one", "two"]
    assert told["env"]["NEW"] == "here"
    assert "OLD" not in told["env"]
    assert told["parent"], "it is a fork of the process that has loaded the module"
    assert (told["group"], told["files"], told["name"]) == (True, [], "service")
    assert told["term"]


def test_a_forked_child_ends_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENDS", "1")
    output, _ = forking(tmp_path, "wait", monkeypatch).communicate(timeout=60)
    assert output.splitlines()[1] == "7"


def test_a_forked_child_dies_when_its_supervisor_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = forking(tmp_path, "pause", monkeypatch)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not alive(pid))


def test_a_forked_child_is_started_anew_after_it_ended(
    tmp_path: Path,
) -> None:
    """A process that has threads by then cannot be forked; the program does the same."""
    threads = threading.Thread(target=threading.Event().wait, args=(20,), daemon=True)
    threads.start()
    assert not forked.possible()
    spec = ChildSpec(
        name="service",
        argv=(sys.executable, "-c", "raise SystemExit(9)"),
        log=tmp_path / "log",
        forks=("service",),
    )
    child = Child(spec)
    child.start(fork=True)
    until(lambda: child.exit_code() is not None)
    assert child.exit_code() == 9


def test_the_pause_before_a_next_start_grows_to_a_minute() -> None:
    keeper, child = Supervisor(clock=lambda: 100.0), Mock()
    watched = Watched(child=child, started=100.0)
    pauses = []
    for _ in range(8):
        keeper._note_end("own", watched, 1)
        assert watched.again_at is not None
        pauses.append(watched.again_at - 100.0)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[LONGEST_PAUSE_SECONDS] * 2]
    assert LONGEST_PAUSE_SECONDS == 60.0


def test_what_is_released_is_asked_to_stop_and_not_started_again() -> None:
    keeper, child = Supervisor(clock=lambda: 100.0), Mock()
    child.spec.name = "worker-1"
    child.exit_code.return_value = 0
    keeper.adopt(child)
    keeper.release(["worker-1", "worker-2"])
    assert keeper.tick() == []
    assert keeper.restarts("worker-1") == 0
    child.ask_to_stop.assert_called_once_with()
