"""The checkpoint of a package's run: a folder that is kept for the next attempt of its task.

While the program runs, a thread puts the folder's files together into one file whenever they have
changed, and tells the worker, which stores it (`worker/slots/checkpoints.py`). What is put together
is the folder as it was at one moment: if anything changes meanwhile, it is left for the next look.
A kill at that moment would have left the same on a disk.
"""

import os
import stat
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from tasks.bag.checkpoints import digest_of_state
from tasks.errors import BlobMissingError, CorruptBlobError
from tasks.storage.blobs import CHECKPOINTS
from worker.phases.context import Context, Surroundings
from worker.sandbox.accounts import MOST_STATE_FILES, state_files
from worker.sandbox.messages import state_path
from worker.sandbox.sandbox import SandboxLimits

_LOOKS = 6  # at the folder, in the time in which one state is stored
_SHARE = 9  # of ten parts of the time, in which no state is being put together
_WAIT = 0.05  # seconds between two looks whether a state was taken

_Listing = Mapping[str, tuple[int, int, int]]
"""Of each file its number, size and time of change: what differs if it was written or replaced."""


def restore(context: Context, folder: Path) -> None:
    """Fill the folder of a run's checkpoint with what an earlier attempt left, if any did.

    A state that storage has lost or damaged counts as none: the run begins anew. Raises StoreError.
    """
    if not context.state:
        return
    path = context.scratch / "restored.tar"
    try:
        context.blobs.get_file(CHECKPOINTS, context.state, path, digest_of_state(context.state))
    except (BlobMissingError, CorruptBlobError) as error:
        _say(f"it begins anew, its checkpoint is lost: {error}")
        return
    size = _unpack(path, folder)
    path.unlink(missing_ok=True)
    _say(f"it goes on from a checkpoint of {size / 1e6:,.1f} MB")


@contextmanager
def kept(folder: Path | None, bounds: SandboxLimits, around: Surroundings) -> Iterator[None]:
    """Put the states of a run's checkpoint together while the block runs, if somebody keeps them.

    Each lies in `state_path` until it is taken away.
    """
    if folder is None or around.save is None:
        yield
        return
    pause = around.settings.checkpoint_seconds / _LOOKS
    keeper = _Keeper(folder, state_path(around.scratch), bounds.state, pause, around.save)
    thread = threading.Thread(target=keeper.run, name="checkpoint", daemon=True)
    thread.start()
    try:
        yield
    finally:
        keeper.over.set()
        thread.join()


class _Keeper:
    def __init__(
        self, folder: Path, to: Path, most: int, pause: float, save: Callable[[int], None]
    ) -> None:
        self._folder = folder
        self._to = to
        self._most = most
        self._pause = pause
        self._save = save
        self._saved = _listing(folder)
        self.over = threading.Event()

    def run(self) -> None:
        """Look at the folder until the run is over."""
        pause = self._pause
        while not self.over.wait(pause):
            began = time.monotonic()
            try:
                self._look()
            except OSError as error:  # a full disk, a file closed to reading
                _say(f"the checkpoint is not stored: {error}")
            pause = max(self._pause, _SHARE * (time.monotonic() - began))

    def _look(self) -> None:
        now = _listing(self._folder)
        if not now or now == self._saved:
            return
        self._to.parent.mkdir(exist_ok=True)
        part = self._to.with_suffix(".part")
        if not pack_state(self._folder, part, self._most):
            return
        size = part.stat().st_size
        part.replace(self._to)
        self._saved = now
        self._save(size)
        while self._to.exists() and not self.over.wait(_WAIT):
            pass


def pack_state(folder: Path, to: Path, most: int) -> bool:
    """Write a folder's plain files into a tar, as they are at one moment.

    Returns False, and the tar is of no use, if something changed meanwhile, or if they are not all
    plain files or have more than `most` bytes. Raises OSError.
    """
    with ExitStack() as stack, to.open("wb") as out:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        stack.callback(os.close, at)
        before = _listing(at)
        if len(before) > MOST_STATE_FILES or sum(size for _, size, _ in before.values()) > most:
            return False
        files: dict[str, BinaryIO] = {}
        for name in sorted(before):
            files[name] = stack.enter_context(_opened(name, at))
        if not all(_is_plain(file) for file in files.values()) or _listing(at) != before:
            return False  # from here on, renaming another file to a name changes nothing
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, file in files.items():
                member = tarfile.TarInfo(name)
                member.size = before[name][1]
                archive.addfile(member, file)
        return {name: _mark(os.fstat(file.fileno())) for name, file in files.items()} == before


def _unpack(path: Path, folder: Path) -> int:
    """Write the files of a state into a folder; return their bytes. Raises OSError."""
    size = 0
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isreg() else None
            if source is None or "/" in member.name or member.name.startswith("."):
                raise OSError(f"a checkpoint has no {member.name!r}")
            with source, (folder / member.name).open("xb") as out:
                while data := source.read(2**20):
                    out.write(data)
                    size += len(data)
    return size


def _say(line: str) -> None:
    """Write a line into the run's log."""
    sys.stdout.write(f"swathmill: {line}\n")
    sys.stdout.flush()


def _opened(name: str, at: int) -> BinaryIO:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(name, flags, dir_fd=at), "rb")


def _is_plain(file: BinaryIO) -> bool:
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def _listing(folder: Path | int) -> _Listing:
    return {name: _mark(found) for name, found in state_files(folder).items()}


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
