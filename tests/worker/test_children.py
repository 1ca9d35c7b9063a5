"""Children: reports, logs and ends arrive; whatever an attempt starts is gone when it ends."""

import importlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from processes import proctree
from worker.sandbox.messages import Ended, Message, Progress, encode

# Everything here needs a process whose forkserver was started before its threads: a program of its
# own for each test, which is also what can be killed.
PROGRAM = """
import sys, time, os, threading
from functools import partial
from tests.worker.test_children import *
from worker.sandbox.children import AttemptProcess, start_forkserver

if __name__ == "__main__":
    start_forkserver(preload=())  # what the worker imports takes seconds, and is not tested here
    child = AttemptProcess.start(partial({work}, {argument!r}), {memory})
    {then}
    def heard(message):
        print("heard", message.model_dump_json(), flush=True)
    ended = child.follow(heard)
    print("ended", ended.model_dump_json() if ended else "lost", flush=True)
"""


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
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return done.stdout.splitlines()


def ended(lines: list[str]) -> Ended:
    last = lines[-1]
    assert last.startswith("ended "), lines
    return Ended.model_validate_json(last.removeprefix("ended "))


def until(condition: Callable[[], bool], seconds: float) -> float:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"not within {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - start


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
        child = AttemptProcess.start(partial(report_and_return, "many"), 2**30)
        end = child.follow(lambda message: None)
        codes.append(end.exit_code if end else "lost")
    codes = []
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(codes, flush=True)
"""


def test_many_threads_start_and_end_children_at_once(tmp_path: Path) -> None:
    lines = run(tmp_path, report_and_return, "last", then=MANY.strip())
    assert lines[0] == str([3] * 16)


def pids(folder: Path) -> list[int]:
    names = ["child", "grandchild0", "grandchild1", "grandchild2"]
    texts = [(folder / n).read_text("ascii") if (folder / n).exists() else "" for n in names]
    return [int(text) for text in texts if text]


def test_a_kill_order_takes_detached_grandchildren_too(tmp_path: Path) -> None:
    then = f"""
    import tests.worker.test_children as here
    from pathlib import Path
    here.until(lambda: len(here.pids(Path({str(tmp_path)!r}))) == 4, 30)
    child.kill()
    """
    end = ended(run(tmp_path, leave_detached_grandchildren, str(tmp_path), then=then.strip()))
    assert end.exit_code is None
    assert not [pid for pid in pids(tmp_path) if proctree.alive(pid)]


GUARDLESS = """
    import tests.worker.test_children as here
    from pathlib import Path
    from processes import proctree
    here.until(lambda: len(here.pids(Path({folder!r}))) == 4, 60)
    (forkserver,) = [p for p in proctree.children(os.getpid()) if proctree.children(p)]
    (guard,) = proctree.children(forkserver)
    other = AttemptProcess.start(partial(here.report_when_told, {folder!r}), 2**30)
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
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
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
