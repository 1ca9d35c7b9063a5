"""Scratch folders: one per attempt, inside one per worker, removed in any case."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from processes.folders import remove_folder
from processes.locks import try_lock
from tasks.errors import SwathmillError
from tasks.service.classify import host_failed

_log = structlog.get_logger("worker")


class WorkerNameTakenError(SwathmillError):
    """Another worker with the same name runs on this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a worker named {name!r} already runs over this data folder; give each worker a "
            "SWATHMILL_WORKER_NAME of its own"
        )


class Scratch:
    """The scratch folder of one worker; a lock beside it shows that the worker lives.

    Raises:
        WorkerNameTakenError: another worker holds the lock.
    """

    def __init__(self, data_dir: Path, worker: str) -> None:
        self._root = data_dir / "scratch"
        self._folder = self._root / worker
        self._root.mkdir(parents=True, exist_ok=True)
        lock = try_lock(_lock_path(self._folder))
        if lock is None:
            raise WorkerNameTakenError(worker)
        self._held = lock
        self._folder.mkdir(exist_ok=True)

    @property
    def folder(self) -> Path:
        """The worker's folder, in which everything is removed at its end."""
        return self._folder

    def clean(self) -> tuple[str, ...]:
        """Remove leftovers of dead workers and of our own name; return the names of the workers."""
        for leftover in self._folder.iterdir():
            remove_folder(leftover)
        removed = []
        for folder in sorted(path for path in self._root.iterdir() if path.is_dir()):
            lock = try_lock(_lock_path(folder)) if folder != self._folder else None
            if lock is not None:
                with lock:
                    remove_folder(folder)
                    _lock_path(folder).unlink(missing_ok=True)
                removed.append(folder.name)
        return tuple(removed)

    @contextmanager
    def attempt(self, claim: str) -> Iterator[Path]:
        """Yield an empty folder for one attempt, and remove it afterwards.

        If it cannot be removed (user code may nest folders deeper than programs can handle), this
        is logged and left for the next start; it does not change the attempt's outcome.

        Raises:
            AttemptError: host failed, if it cannot be made.
        """
        folder = self._folder / claim
        try:
            folder.mkdir()
        except OSError as error:
            raise host_failed("no scratch folder can be made", error) from error
        try:
            yield folder
        finally:
            try:
                remove_folder(folder)
            except (OSError, RecursionError) as error:
                _log.warning("scratch folder not removed", folder=str(folder), error=str(error))

    def restore(self) -> None:
        """Make the worker's folder again, with its lock, where its disk was lost and is back.

        Raises:
            OSError: it cannot be made.
            WorkerNameTakenError: another worker took the name meanwhile.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        path = _lock_path(self._folder)
        if not path.exists():
            if (lock := try_lock(path)) is None:
                raise WorkerNameTakenError(self._folder.name)
            self._held.close()
            self._held = lock
        self._folder.mkdir(exist_ok=True)

    def close(self) -> None:
        """Remove the worker's folder, as far as its disk allows, and release its lock."""
        try:
            remove_folder(self._folder)
            _lock_path(self._folder).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("scratch folder not removed", error=str(error))
        self._held.close()


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
