"""Locks on files (flock(2)): the kernel releases them with the process that holds them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedWriter
from pathlib import Path


def try_lock(path: Path) -> BufferedWriter | None:
    """Take a file's lock, or return None while another process has it.

    The file is made where it is missing. Closing what is returned releases the lock. The holder may
    remove the file before that: whoever locks next makes a new one.
    """
    while True:
        lock = path.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        if _is_at(path, lock):
            return lock
        lock.close()


@contextmanager
def locked(path: Path) -> Iterator[BufferedRandom]:
    """Hold a file's lock, waiting for it, and yield the file, open to read and write.

    The file is made where it is missing. It must not be removed while others may use it.
    """
    # Made by appending, which never truncates what another process has written.
    path.open("ab").close()
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def hold_shared(path: Path) -> BufferedWriter:
    """Take a file's lock together with others that share it, until what is returned is closed.

    The file is made where it is missing. Who has its lock alone may remove it.
    """
    while True:
        lock = path.open("ab")
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(path, lock):
            return lock
        lock.close()


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a file's lock together with others that share it, waiting for who holds it alone.

    The file is made where it is missing. It must not be removed while others may use it.
    """
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _is_at(path: Path, lock: BufferedWriter) -> bool:
    """Tell whether the file was not removed between opening and locking it."""
    try:
        return path.stat().st_ino == os.fstat(lock.fileno()).st_ino
    except FileNotFoundError:
        return False
