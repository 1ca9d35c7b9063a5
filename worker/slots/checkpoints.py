"""The checkpoints of one attempt: each state that its program reached is stored, but not too often.

The newest state waits until the last one was stored some time ago, or until the worker is asked to
stop. When the attempt ends without success, what waits is stored first.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from tasks.bag.checkpoints import delete_states, earlier_states, latest_state, state_name
from tasks.bag.model import Task
from tasks.errors import StoreError
from tasks.storage.blobs import CHECKPOINTS, Blobs, file_digest
from tasks.storage.clock import Clock

_LOOK = 0.2  # seconds between two looks whether the worker is asked to stop
_SHARE = 9  # of ten parts of the time, in which nothing is being stored


class Checkpoints:
    """Stores the states of an attempt, in a thread of its own from the first one on."""

    def __init__(
        self, blobs: Blobs, task: Task, every: float, clock: Clock, stops: Callable[[], bool]
    ) -> None:
        self._blobs = blobs
        self._task = task
        self._every = every
        self._clock = clock
        self._stops = stops
        self._changed = threading.Condition()
        self._waiting: Path | None = None
        self._over = False
        self._thread: threading.Thread | None = None
        self._number = 0
        self._some = False  # whether storage may have states of the task
        self._due = float("-inf")

    def found(self) -> str:
        """Return the blob name of the state to go on from; "" if there is none. Raises StoreError.

        There is none before the first attempt, of which nobody is asked.
        """
        name = latest_state(self._blobs, self._task) if self._task.attempt > 1 else ""
        self._some = self._some or bool(name)
        return name

    def take(self, path: Path) -> None:
        """Take over a file with a newer state, to be stored in place of one that still waits."""
        with self._changed:
            own = path.with_name(f"{self._number + 1}.tar")
            try:
                path.replace(own)
            except OSError as error:  # the child told of a state that is not there
                _log().warning("checkpoint not taken", task=self._task.key, error=str(error))
                return
            self._number += 1
            self._drop()
            self._waiting = own
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    @contextmanager
    def during(self, succeeded: Callable[[], bool]) -> Iterator[None]:
        """At the end of the block, store what waits, unless the attempt has succeeded."""
        try:
            yield
        finally:
            with self._changed:
                if succeeded():
                    self._drop()
                self._over = True
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join()

    def forget(self) -> None:
        """Delete what is stored for the task, which has ended: nothing goes on from it any more."""
        if not self._some:
            return
        try:
            delete_states(self._blobs, self._task.key)
        except StoreError as error:  # the manager's next pass deletes them
            _log().warning("checkpoints not deleted", task=self._task.key, error=str(error))

    def _drop(self) -> None:
        if self._waiting is not None:
            self._waiting.unlink(missing_ok=True)
            self._waiting = None

    def _run(self) -> None:
        while (path := self._next()) is not None:
            began = self._clock.monotonic()
            self._store(path)
            path.unlink(missing_ok=True)
            ended = self._clock.monotonic()
            self._due = ended + max(self._every, _SHARE * (ended - began))

    def _next(self) -> Path | None:
        """Wait for a state that is due; None at the end."""
        with self._changed:
            while True:
                path = self._waiting
                now = self._over or self._stops() or self._clock.monotonic() >= self._due
                if path is not None and now:
                    self._waiting = None
                    return path
                if self._over:
                    return None
                self._changed.wait(None if path is None else _LOOK)

    def _store(self, path: Path) -> None:
        log = _log().bind(task=self._task.key, claim=self._task.claim)
        try:
            found = file_digest(path)
            name = state_name(self._task, self._number, found.sha256)
            self._some = True
            self._blobs.put_file(CHECKPOINTS, name, path)
            for earlier in earlier_states(self._blobs, name):
                self._blobs.delete(CHECKPOINTS, earlier)
        except (StoreError, OSError) as error:
            log.warning("checkpoint not stored", error=str(error))
        else:
            log.info("checkpoint stored", bytes=found.size)


def _log() -> structlog.stdlib.BoundLogger:
    logger: structlog.stdlib.BoundLogger = structlog.get_logger("worker")
    return logger
