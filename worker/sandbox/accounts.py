"""Count what a program uses: memory, processes, files, also those that it has removed."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from processes import proctree
from tasks.bag.categories import Category
from tasks.service.classify import AttemptError
from tasks.shown_text import shown
from worker.sandbox.sandbox import (
    CHECKPOINT,
    OWN_PROCESSES,
    SHARED_MEMORY,
    Places,
    SandboxLimits,
)

MOST_FILES = 20_000
"""Files and folders that a program may have at once in OUTPUT_DIR and TMPDIR."""
MOST_LEVELS = 64
"""Levels of folders that a program may nest there."""
MOST_STATE_FILES = 100
"""Files of a checkpoint."""

_BLOCK = 512  # bytes, the unit of st_blocks
_SOCKET_BYTES = 2 * 212_992  # what the kernel buffers for one, in both directions, by default
_PIPE_BYTES = 2**16
_MOST_HIDDEN = 10  # looks in a row
# A mapping shared with a file that has no name any more: its device, number and path.
_REMOVED = re.compile(rb"^\S+ ...s \S+ (\S+) (\d+) +(\S.*) \(deleted\)$", re.MULTILINE)
_ZERO = b"/dev/zero"


class Accounts:
    """What one program uses, over all its processes.

    Of code that is not `foreign`, what it has open is not looked at.
    """

    def __init__(self, places: Places, bounds: SandboxLimits, *, foreign: bool) -> None:
        self._places = places
        self._bounds = bounds
        self._foreign = foreign
        self._hidden = 0  # looks in a row at which a process hid something

    def check(self, tree: list[int]) -> None:
        """Look at the processes; raise AttemptError if they use more than their bounds.

        Raises:
            AttemptError: user code failed or out of memory; says how to remain within the bounds.
        """
        bounds = self._bounds
        if len(tree) > bounds.processes + OWN_PROCESSES:
            raise _failed(
                f"the package runs {len(tree) - OWN_PROCESSES} processes or more, its limit is "
                f"{bounds.processes}: raise `processes` under `resources`, or start fewer"
            )
        opened = _Opened(tree if self._foreign else (), self._places)
        # One that starts or ends belongs to root for a moment.
        self._hidden = self._hidden + 1 if opened.hides else 0
        if self._hidden > _MOST_HIDDEN:
            raise _failed("a process of the package hides what it has open")
        used = sum(proctree.memory(pid) for pid in tree) + opened.buffers
        if used > bounds.memory:
            raise AttemptError(
                Category.OUT_OF_MEMORY,
                f"the package uses {used / 1e9:.2f} GB of memory, its limit is "
                f"{bounds.memory / 1e9:g} GB: raise `memory_gb` under `resources`",
            )
        check_disk(self._places, bounds, removed=opened.removed, files=opened.files)


def check_disk(places: Places, bounds: SandboxLimits, *, removed: int = 0, files: int = 0) -> None:
    """Raise AttemptError if a program's folders hold more than its bounds.

    `removed` are the bytes of files that it has removed and not closed, `files` how many it has
    elsewhere.

    Raises:
        AttemptError: user code failed; says how to remain within the bounds.
    """
    written = removed
    for folder in places.written:
        for size in _sizes(folder, MOST_LEVELS):
            files += 1
            written += size
            if files > MOST_FILES:
                break  # there may be very many
    if files > MOST_FILES:
        raise _failed(
            f"the package has written more than {MOST_FILES} files and folders: put what "
            "belongs together into one file"
        )
    if written > bounds.output:
        raise _failed(
            f"the package has written {written / 1e9:.2f} GB, its limit is "
            f"{bounds.output / 1e9:g} GB: raise `output_gb` under `resources`"
        )
    if places.checkpoint is not None:
        _check_state(places.checkpoint, bounds)


def _check_state(folder: Path, bounds: SandboxLimits) -> None:
    """Raise AttemptError if a program's checkpoint cannot be kept as it is."""
    found = state_files(folder)
    if wrong := [name for name, file in found.items() if not stat.S_ISREG(file.st_mode)]:
        raise _failed(
            f"a checkpoint has plain files alone, and {shown(wrong[0])!r} in ${CHECKPOINT} is none"
        )
    size = sum(file.st_size for file in found.values())
    if len(found) > MOST_STATE_FILES or size > bounds.state:
        raise _failed(
            f"the checkpoint has {len(found)} files of {size / 1e9:.2f} GB together, its limit is "
            f"{MOST_STATE_FILES} files and {bounds.state / 1e9:g} GB, a quarter of `output_gb`"
        )


def state_files(folder: Path | int) -> dict[str, os.stat_result]:
    """Return what is in the folder of a checkpoint, but for names that begin with a dot."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False)
    return found


def _sizes(folder: Path | str, levels: int) -> Iterator[int]:
    """Yield the bytes of each file and folder below a folder."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    except PermissionError:
        raise _failed("the package has closed a folder of its own to reading: leave it open") from (
            None
        )
    with entries:
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield max(found.st_size, found.st_blocks * _BLOCK)
            if stat.S_ISDIR(found.st_mode):
                if levels == 0:
                    raise _failed(
                        f"the package nests folders deeper than {MOST_LEVELS} levels: nest fewer"
                    )
                yield from _sizes(entry.path, levels - 1)


class _Opened:
    """What the processes of a tree hold open, beside files with a name."""

    def __init__(self, tree: Iterable[int], places: Places) -> None:
        self.buffers = 0  # bytes of sockets and pipes
        self.removed = 0  # bytes of files without a name
        self.files = 0  # in the file system in memory
        self.hides = False  # whether a process cannot be looked at
        self._seen: set[tuple[int, int]] = set()
        self._disks = {folder.stat().st_dev for folder in places.written}
        looks = (self._look_at_descriptors, self._look_at_maps, self._look_at_shared_memory)
        for look in looks:
            for pid in tree:
                try:
                    look(pid)
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it has ended
                except PermissionError:
                    self.hides = True

    def _look_at_descriptors(self, pid: int) -> None:
        for folder in _of_process(pid, "fd"):
            for descriptor in os.listdir(folder):  # noqa: PTH208 - often called
                try:
                    found = os.stat(f"{folder}/{descriptor}")  # noqa: PTH116 - often called
                except (FileNotFoundError, ProcessLookupError):
                    continue
                known = found.st_dev, found.st_ino
                if known in self._seen:
                    continue
                self._seen.add(known)
                if stat.S_ISSOCK(found.st_mode):
                    self.buffers += _SOCKET_BYTES
                elif stat.S_ISFIFO(found.st_mode):
                    self.buffers += _PIPE_BYTES
                elif stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    self.removed += max(found.st_size, found.st_blocks * _BLOCK)

    def _look_at_maps(self, pid: int) -> None:
        """Raise AttemptError for shared pages that neither a process nor a file accounts for."""
        for file in _of_process(pid, "maps"):
            for device, number, path in _REMOVED.findall(Path(file).read_bytes()):
                major, minor = (int(part, 16) for part in device.split(b":"))
                known = os.makedev(major, minor), int(number)
                if path == _ZERO or (known[0] in self._disks and known not in self._seen):
                    raise _failed(
                        "the package shares memory through /dev/zero, or a file that it has "
                        "removed and closed: keep the file open, or give it a name"
                    )

    def _look_at_shared_memory(self, pid: int) -> None:
        """Count the files in the program's own file system in memory, removed ones, too."""
        seen = Path(f"/proc/{pid}/root{SHARED_MEMORY}")
        if self.files == 0 and seen.stat().st_dev != Path(SHARED_MEMORY).stat().st_dev:
            used = os.statvfs(seen)
            self.files = used.f_files - used.f_ffree


def _of_process(pid: int, name: str) -> list[str]:
    """List a process's file of this name in /proc, or those of its threads if the first ended."""
    if b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes():
        return [f"/proc/{pid}/{name}"]
    tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - often called
    return [f"/proc/{pid}/task/{task}/{name}" for task in tasks if task != str(pid)]


def _failed(problem: str) -> AttemptError:
    return AttemptError(Category.USER_CODE_FAILED, problem)
