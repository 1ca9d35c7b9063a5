"""What a program may leave in its folders, at its bounds."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tasks.service.classify import AttemptError
from worker.sandbox import accounts
from worker.sandbox.accounts import Accounts, check_disk
from worker.sandbox.sandbox import OWN_PROCESSES, Places, SandboxLimits


def places(folder: Path) -> Places:
    made = [folder / name for name in ("package", "inputs", "outputs", "temporary")]
    for one in made:
        one.mkdir()
    package, inputs, outputs, temporary = made
    return Places(package=package, inputs=inputs, outputs=outputs, temporary=temporary)


def bounds(processes: int = 4) -> SandboxLimits:
    return SandboxLimits(memory=10**12, seconds=60.0, processes=processes, output=10**9)


def test_a_program_has_so_many_files_in_both_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = places(tmp_path)
    monkeypatch.setattr(accounts, "MOST_FILES", 4)
    (there.outputs / "folder").mkdir()
    (there.outputs / "folder" / "a").touch()
    (there.temporary / "b").touch()
    check_disk(there, bounds(), files=1)
    with pytest.raises(AttemptError, match="written more than 4 files and folders: put what"):
        check_disk(there, bounds(), files=2)
    (there.temporary / "c").touch()
    with pytest.raises(AttemptError, match="written more than 4 files and folders: put what"):
        check_disk(there, bounds(), files=1)


def test_no_more_files_are_counted_than_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MOST_FILES", 4)
    sizes = iter([0] * 10)
    monkeypatch.setattr(accounts, "_sizes", lambda *_: sizes)
    with pytest.raises(AttemptError, match="written more than 4 files and folders"):
        check_disk(places(tmp_path), bounds())
    assert len([*sizes]) == 4  # each of the two folders is left at its first that is too many


def test_a_program_nests_so_many_levels(tmp_path: Path) -> None:
    """`MOST_LEVELS`: each is a call of its own in the worker."""
    there = places(tmp_path)
    at = there.outputs
    for _ in range(64):
        at = at / "d"
        at.mkdir()
    check_disk(there, bounds())
    (at / "d").mkdir()
    assert accounts.MOST_LEVELS == 64
    with pytest.raises(AttemptError, match="nests folders deeper than 64 levels: nest fewer"):
        check_disk(there, bounds())


def test_a_process_that_hides_for_so_many_looks_in_a_row_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that starts or ends belongs to root for a moment."""
    hides = iter([*[True] * accounts._MOST_HIDDEN, False, *[True] * (accounts._MOST_HIDDEN + 1)])

    class Opened:
        buffers = removed = files = 0

        def __init__(self, _tree: Sequence[int], _places: Places) -> None:
            self.hides = next(hides)

    monkeypatch.setattr(accounts, "_Opened", Opened)
    account = Accounts(places(tmp_path), bounds(), foreign=True)
    for _ in range(2 * accounts._MOST_HIDDEN + 1):
        account.check([os.getpid()])
    with pytest.raises(AttemptError, match="hides what it has open"):
        account.check([os.getpid()])


def test_a_program_runs_so_many_processes_beside_our_own(tmp_path: Path) -> None:
    account = Accounts(places(tmp_path), bounds(processes=2), foreign=False)
    tree = [os.getpid()] * (2 + OWN_PROCESSES)
    account.check(tree)
    with pytest.raises(AttemptError, match="runs 3 processes or more, its limit is 2"):
        account.check([*tree, os.getpid()])
