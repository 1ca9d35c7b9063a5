"""File locks: one holder at a time, released by its death, safe against removal."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from processes.locks import locked, try_lock


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = try_lock(path)
    assert first is not None
    assert try_lock(path) is None
    first.close()
    second = try_lock(path)
    assert second is not None
    second.close()


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, pathlib; from processes.locks import try_lock; "
        "held = try_lock(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert try_lock(path) is None
        holder.kill()
    lock = try_lock(path)
    assert lock is not None
    lock.close()


def test_a_file_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former holder removes the file between our opening and locking it."""
    path = tmp_path / "lock"
    flock, calls = fcntl.flock, []

    def removed_first(file: object, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            path.unlink()
        flock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", removed_first)
    lock = try_lock(path)
    assert lock is not None
    assert len(calls) == 2
    assert try_lock(path) is None, "two hold the lock at once"
    lock.close()


def test_a_lock_is_waited_for_and_its_file_keeps_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "total"
    entered = threading.Event()

    def second() -> None:
        with locked(path) as file:
            entered.set()
            assert file.read() == b"7"

    with locked(path) as file:
        file.write(b"7")
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()
