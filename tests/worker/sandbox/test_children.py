"""Children: reports, logs and ends arrive; whatever an attempt starts is gone when it ends."""

import importlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from unittest.mock import Mock

import pytest

from processes import proctree
from tests.waiting import until
from worker.sandbox import children, sandbox
from worker.sandbox.confined import run_confined, run_shipped
from worker.sandbox.guard import JOB, guard, order
from worker.sandbox.makers import Makers
from worker.sandbox.messages import Ended, Message, Progress, encode

pytestmark = pytest.mark.slow

# Everything here needs a process whose forkserver was started before its threads: a program of its
# own for each test, which is also what can be killed.
PROGRAM = """
import atexit, sys, time, os, threading
from functools import partial
from pathlib import Path
from processes import proctree
from tests.worker.sandbox.test_children import *
import tests.worker.sandbox.test_children as here
from worker.sandbox.children import Children, start_forkserver

if __name__ == "__main__":
    # What the worker imports takes seconds, and is not tested here.
    start_forkserver(preload=(), beyond=())
    children = Children(do_work, {memory}, 1, Path(__file__).parents[1])
    atexit.register(lambda: children.close())
    def start(work, argument):
        return children.start(partial(work, argument))
    def end_of(child):
        return child.follow(lambda message: None)
    child = start({work}, {argument!r})
    {then}
    def heard(message):
        print("heard", message.model_dump_json(), flush=True)
    ended = child.follow(heard)
    print("ended", ended.model_dump_json() if ended else "lost", flush=True)
"""


def do_work(_makers: Makers) -> Callable[[bytes, Connection], int]:
    """The children's work: each job is itself a function of the connection."""
    return lambda job, reports: int(pickle.loads(job)(reports))


def report_and_return(text: str, reports: Connection) -> int:
    sys.stdout.write(text)
    reports.send_bytes(encode(Progress(fraction=0.5, note="half")))
    return 3


def report_when_told(folder: str, reports: Connection) -> int:
    until(Path(folder, "go on").exists, 60)
    return report_and_return(folder, reports)


def print_for_ever(text: str, reports: Connection) -> int:
    del reports
    for _ in range(3000):
        sys.stdout.write(text * 100 + "\n")
    sys.stdout.write("the last word")
    return 0


def crash(text: str, reports: Connection) -> int:
    del text, reports
    os.abort()


def swallow_memory(text: str, reports: Connection) -> int:
    del text, reports
    held = []
    while True:
        held.append(bytearray(os.urandom(2**20)))


def leave_detached_grandchildren(folder: str, reports: Connection) -> int:
    """Start grandchildren that no process group, session or parent leads to."""
    sleeper = (
        "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    )
    script = textwrap.dedent(
        f"""
        import os, subprocess, sys
        if os.fork(): os._exit(0)
        os.setsid()
        if os.fork(): os._exit(0)
        os.execv(sys.executable, [sys.executable, "-c", {sleeper!r}, sys.argv[1]])
        """
    )
    for n in range(3):
        subprocess.run(
            [sys.executable, "-c", script, f"{folder}/grandchild{n}"],
            check=True,
            start_new_session=True,
        )
    Path(folder, "child").write_text(str(os.getpid()), "ascii")
    reports.send_bytes(encode(Progress(fraction=0.1)))
    time.sleep(600)
    return 0


def write_program(
    folder: Path,
    work: Callable[..., int] | str,
    argument: str,
    *,
    memory: int | str = 2**30,
    then: str = "",
) -> list[str]:
    program = folder / "program.py"
    program.write_text(
        PROGRAM.format(
            work=work if isinstance(work, str) else work.__name__,
            argument=argument,
            memory=memory,
            then=then,
        ),
        "utf-8",
    )
    return [sys.executable, str(program)]


def run(
    folder: Path, work: Callable[..., int] | str, argument: str, **options: object
) -> list[str]:
    command = write_program(folder, work, argument, **options)  # type: ignore[arg-type]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    return done.stdout.splitlines()


def ended(lines: list[str]) -> Ended:
    last = lines[-1]
    assert last.startswith("ended "), lines
    return Ended.model_validate_json(last.removeprefix("ended "))


def test_reports_log_exit_code_and_memory_arrive(tmp_path: Path) -> None:
    lines = run(tmp_path, report_and_return, "printed by the child")
    heard: Message = Progress.model_validate_json(lines[0].removeprefix("heard "))
    assert heard == Progress(fraction=0.5, note="half")
    end = ended(lines)
    assert end.exit_code == 3
    assert end.log == "printed by the child"
    assert not end.over_memory


def test_a_flood_of_output_is_kept_to_its_tail(tmp_path: Path) -> None:
    end = ended(run(tmp_path, print_for_ever, "flood"))
    assert end.exit_code == 0
    assert end.log.endswith("the last word")
    assert len(end.log) <= 64 * 2**10


def test_a_crash_is_told_by_its_signal(tmp_path: Path) -> None:
    assert ended(run(tmp_path, crash, "")).exit_code == -6


def test_too_much_memory_kills_the_tree(tmp_path: Path) -> None:
    end = ended(run(tmp_path, swallow_memory, "", memory=200 * 2**20))
    assert end.over_memory
    assert end.exit_code is None
    assert 200 * 2**20 < end.peak_memory < 2**30


MANY = """
    threads = [threading.Thread(target=lambda: [one() for _ in range(4)]) for _ in range(4)]
    def one():
        end = end_of(start(report_and_return, "many"))
        codes.append(end.exit_code if end else "lost")
    codes = []
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(codes, flush=True)
"""


@pytest.mark.proof
def test_many_threads_start_and_end_children_at_once(tmp_path: Path) -> None:
    lines = run(tmp_path, report_and_return, "last", then=MANY.strip())
    assert lines[0] == str([3] * 16)


def pids(folder: Path) -> list[int]:
    names = ["child", "grandchild0", "grandchild1", "grandchild2"]
    texts = [(folder / n).read_text("ascii") if (folder / n).exists() else "" for n in names]
    return [int(text) for text in texts if text]


def test_a_kill_order_takes_detached_grandchildren_too(tmp_path: Path) -> None:
    then = f"""
    here.until(lambda: len(here.pids(Path({str(tmp_path)!r}))) == 4, 30)
    child.kill()
    """
    end = ended(run(tmp_path, leave_detached_grandchildren, str(tmp_path), then=then.strip()))
    assert end.exit_code is None
    assert not [pid for pid in pids(tmp_path) if proctree.alive(pid)]


GUARDLESS = """
    here.until(lambda: len(here.pids(Path({folder!r}))) == 4, 60)
    (forkserver,) = [p for p in proctree.children(os.getpid()) if proctree.children(p)]
    (guard,) = proctree.children(forkserver)
    other = start(here.report_when_told, {folder!r})
    os.kill(guard, {signal})
    {then}
    print("lost" if child.follow(lambda message: None) is None else "not lost", flush=True)
    print([pid for pid in here.pids(Path({folder!r})) if proctree.alive(pid)], flush=True)
    Path({folder!r}, "go on").touch()
    child = other
"""


@pytest.mark.parametrize(("signal", "then"), [(9, ""), (19, "child.kill()")])
def test_a_guard_that_is_killed_or_stalls_leaves_no_process_behind(
    tmp_path: Path, signal: int, then: str
) -> None:
    program = GUARDLESS.format(folder=str(tmp_path), signal=signal, then=then).strip()
    lines = run(tmp_path, leave_detached_grandchildren, str(tmp_path), then=program)
    assert lines[:2] == ["lost", "[]"]
    assert ended(lines).exit_code == 3, "an attempt beside it goes on"


@pytest.mark.parametrize("victim", ["supervisor", "forkserver too"])
def test_a_killed_supervisor_leaves_no_process_behind(tmp_path: Path, victim: str) -> None:
    command = write_program(tmp_path, leave_detached_grandchildren, str(tmp_path))
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as program:
        until(lambda: len(pids(tmp_path)) == 4, 60)
        tree = proctree.descendants(program.pid)
        assert set(pids(tmp_path)) <= set(tree)
        if victim == "forkserver too":
            os.kill(tree[0], 9)
        program.kill()
        took = until(lambda: not any(proctree.alive(pid) for pid in tree), 10)
    assert took < 10


def needs_what_is_not_there(module: str, reports: Connection) -> int:
    del reports
    importlib.import_module(module)
    return 0


class Unpicklable:
    """Work whose code is gone by the time the child looks for it."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return importlib.import_module, ("a_module_that_was_removed",)

    def __call__(self) -> None:
        raise AssertionError("it cannot have been unpickled")


unpicklable = Unpicklable()


@pytest.mark.parametrize("work", ["needs_what_is_not_there", "unpicklable"])
def test_a_child_that_cannot_import_leaves_its_traceback(tmp_path: Path, work: str) -> None:
    end = ended(run(tmp_path, work, "a_module_that_was_removed"))
    assert end.exit_code == 70
    assert "Traceback" in end.log
    assert "No module named 'a_module_that_was_removed'" in end.log


def test_a_guard_that_fails_says_why(tmp_path: Path) -> None:
    # With a memory limit that is no number, the guard itself fails as soon as it measures.
    end = ended(run(tmp_path, report_when_told, str(tmp_path), memory="None"))
    assert end.exit_code == 70
    assert "TypeError" in end.log


def tell_who(text: str, reports: Connection) -> int:
    """Report the child's process id, and print."""
    sys.stdout.write(text)
    reports.send_bytes(encode(Progress(fraction=0.5, note=str(os.getpid()))))
    return 0


def tell_who_and_fail(text: str, reports: Connection) -> int:
    tell_who(text, reports)
    return 1


def leave_a_process(text: str, reports: Connection) -> int:
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    return tell_who(text, reports)


def leave_a_dead_process(text: str, reports: Connection) -> int:
    if os.fork() == 0:
        orphan = os.fork()  # it becomes the guard's
        if orphan:
            os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
        os._exit(0)
    os.wait()
    return tell_who(text, reports)


HELD: list[bytearray] = []


def keep_memory(text: str, reports: Connection) -> int:
    HELD.append(bytearray(os.urandom(40 * 2**20)))
    return tell_who(text, reports)


def use_memory(text: str, reports: Connection) -> int:
    held = bytearray(os.urandom(60 * 2**20))
    time.sleep(0.5)
    del held
    return tell_who(text, reports)


def burn(seconds: str, reports: Connection) -> int:
    """Use processor time: half in this process, half in a child of it."""
    burner = "import time\nwhile time.process_time() < {}: pass"
    half = float(seconds) / 2
    enough = time.process_time() + half
    while time.process_time() < enough:
        pass
    subprocess.run([sys.executable, "-S", "-c", burner.format(half)], check=True)
    return tell_who("burn", reports)


FITNESS = {
    "tell_who": "0 True",
    "leave_a_dead_process": "0 True",
    "use_memory": "0 True",
    "tell_who_and_fail": "1 False",
    "leave_a_process": "0 False",
    "keep_memory": "0 False",
    "crash": "-6 False",
}
IN_ORDER = """
    end_of(child)
    for work in {works}:
        for job in (getattr(here, work), tell_who, tell_who):
            said = []
            end = start(job, job.__name__).follow(lambda message: said.append(message.note))
            log = end.log.splitlines()[-1:]
            print(end.exit_code, end.kept, end.peak_memory, *log, *said, flush=True)
        left = proctree.descendants(os.getpid())
        print(len([pid for pid in left if here.name(pid) == "forkserver"]), flush=True)
    child = start(tell_who, "last")
"""


def name(pid: int) -> str:
    """A process's name; empty when it is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if "\nState:\tZ" in words else words.splitlines()[0].removeprefix("Name:\t")


def test_a_child_serves_on_unless_its_attempt_makes_it_unfit(tmp_path: Path) -> None:
    then = IN_ORDER.format(works=list(FITNESS)).strip()
    lines = iter(run(tmp_path, tell_who, "last", memory=2**28, then=then))
    for work, fitness in FITNESS.items():
        first, second, third, left = (next(lines).split() for _ in range(4))
        assert first[:2] == fitness.split(), work
        assert second[:2] == third[:2] == ["0", "True"], work
        assert second[4] == third[4], f"after {work}, one child serves on"
        if work != "crash":
            assert (first[4] == second[4]) is first[1].startswith("True"), work
        assert second[3] == third[3] == "tell_who", "an attempt's log is its own"
        assert int(third[2]) < 50 * 2**20, "an attempt's peak is its own"
        assert left == ["4"], f"after {work}: forkserver, guard, child, server of makers"


def test_each_attempt_has_the_processor_time_of_its_own_processes(tmp_path: Path) -> None:
    then = """
    ends = [end_of(child)]
    for seconds in ("0.6", "0", "0.4"):
        ends.append(start(burn, seconds).follow(lambda message: None))
    for end in ends:
        print(end.cpu, flush=True)
    child = start(tell_who, "last")
    """
    lines = run(tmp_path, tell_who, "first", then=then.strip())
    first, long, none, short = (float(line) for line in lines[:4])
    assert first < 0.2, "what came before the first attempt is not its own"
    assert 0.55 <= long < 1.0
    assert none < 0.2
    assert 0.35 <= short < 0.8


def test_an_order_to_kill_that_comes_late_spares_the_next_attempt(tmp_path: Path) -> None:
    then = f"""
    ended = end_of(child)
    child.kill()
    from worker.sandbox.guard import KILL, order
    inner = child._child
    inner.control.send_bytes(order(KILL, 1))
    other = start(here.report_when_told, {str(tmp_path)!r})
    inner.control.send_bytes(order(KILL, 1))
    Path({str(tmp_path)!r}, "go on").touch()
    child = other
    """
    end = ended(run(tmp_path, tell_who, "", then=then.strip()))
    assert end.exit_code == 3


@pytest.mark.parametrize("of_guard", [False, True])
def test_an_idle_child_that_was_killed_is_replaced(tmp_path: Path, of_guard: bool) -> None:
    then = f"""
    end_of(child)
    (forkserver,) = [p for p in proctree.children(os.getpid()) if proctree.children(p)]
    (guard,) = proctree.children(forkserver)
    server, idle = proctree.children(guard)
    os.kill(guard if {of_guard} else idle, 9)
    here.until(lambda: not any(map(proctree.alive, (guard, server, idle))), 30)
    child = start(tell_who, "other")
    """
    lines = run(tmp_path, tell_who, "", then=then.strip())
    assert ended(lines).kept, lines


def test_a_killed_supervisor_leaves_no_idle_child_behind(tmp_path: Path) -> None:
    then = """
    end_of(child)
    print("idle", flush=True)
    time.sleep(600)
    """
    command = write_program(tmp_path, tell_who, "", then=then.strip())
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        assert program.stdout.readline() == "idle\n"
        tree = proctree.descendants(program.pid)
        assert len(tree) >= 3
        program.kill()
        until(lambda: not any(proctree.alive(pid) for pid in tree), 10)


def test_a_child_whose_attempt_ends_after_the_close_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Mock()
    monkeypatch.setattr(children._Child, "start", lambda *_given: child)
    workers = children.Children(do_work, 10**9, 1, tmp_path)
    attempt = workers.start("job")
    workers.close()
    child.leave.assert_not_called()
    child.control.recv_bytes.return_value = encode(
        Ended(exit_code=0, peak_memory=0, over_memory=False, log="", kept=True)
    )
    attempt.follow(lambda _message: None)
    child.leave.assert_called_once()


def test_children_are_there_before_the_first_job_and_gone_after_the_last(tmp_path: Path) -> None:
    then = """
    end_of(child)
    children.close()
    left = [pid for pid in proctree.descendants(os.getpid()) if proctree.descendants(pid)]
    print("left", left, flush=True)
    children = Children(do_work, 2**30, 2, Path(__file__).parents[1])
    children.fill()
    children.fill()
    (forkserver,) = [p for p in proctree.children(os.getpid()) if proctree.children(p)]
    print("guards", len(proctree.children(forkserver)), flush=True)
    end_of(start(tell_who_and_fail, ""))
    print("guards", len(proctree.children(forkserver)), flush=True)
    child = start(tell_who, "last")
    """
    lines = run(tmp_path, tell_who, "", then=then.strip())
    assert lines[:2] == ["left []", "guards 2"]
    assert lines[2] == "guards 2", "a child that failed is replaced at once"
    assert ended(lines).kept


STAYS = """
import pathlib, signal, sys
pathlib.Path(sys.argv[2], "begun").touch()
while True:
    signal.pause()
"""


def run_what_stays(folder: str, way: str, reports: Connection) -> int:
    """Run a program that does not end, in a tier, or as a shipped package."""
    del reports
    package, inputs, outputs, temporary = (
        Path(folder, name) for name in ("package", "inputs", "outputs", "temporary")
    )
    places = sandbox.Places(package=package, inputs=inputs, outputs=outputs, temporary=temporary)
    bounds = sandbox.SandboxLimits(memory=2**30, seconds=600.0, processes=4, output=2**20)
    if way == "shipped":
        run_shipped(("python", str(places.package / "run.py")), places, bounds)
        return 0
    if way.endswith("shared user id"):
        sandbox.own_user = lambda _: None  # type: ignore[assignment]
    tier: sandbox.Tier = "bubblewrap" if way == "bubblewrap" else "limits"
    run_confined(tier, ("python", "run.py"), places, bounds)
    return 0


@pytest.mark.parametrize("way", ["limits", "limits, shared user id", "bubblewrap", "shipped"])
def test_nothing_outlives_a_guard_that_is_killed(tmp_path: Path, way: str) -> None:
    """Also where no worker is left that would end it."""
    if way == "bubblewrap" and (problem := sandbox.probe_bubblewrap()):
        pytest.skip(f"bubblewrap does not work here: {problem}")
    for name in ("package", "inputs", "outputs", "temporary", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "run.py").write_text(STAYS, "utf-8")
    ours, theirs = Pipe()
    killed = os.fork()
    if killed == 0:
        with suppress(BaseException):
            ours.close()
            guard(theirs, 2**32, tmp_path / "home")
        os._exit(0)
    theirs.close()
    ours.send_bytes(pickle.dumps(do_work))
    ours.send_bytes(order(JOB, 1, pickle.dumps(partial(run_what_stays, str(tmp_path), way))))
    tree: list[int] = []
    try:
        until((tmp_path / "outputs" / "begun").exists)
        tree = proctree.descendants(killed)
        assert len(tree) >= 3, "the server of makers, the child, and the program"
        os.kill(killed, signal.SIGKILL)
        os.waitpid(killed, 0)
        until(lambda: not any(map(proctree.alive, tree)), 20)
    finally:
        for pid in filter(proctree.alive, [*tree, *proctree.descendants(killed)]):
            proctree.kill(pid)
        ours.close()
