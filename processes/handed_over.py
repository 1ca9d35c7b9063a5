"""Hand secrets over to a process that has forked others first: they never have them in memory.

A process begins with its whole environment in its memory, and so do its forks. `without` has the
program start anew without some of it, which lies in a file without a name meanwhile; or who starts
it keeps some of it back, and writes it into a `Pipe` when it is known. Its forks are made before
`take` reads that file.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

VARIABLE = "SWATHMILL_HANDED_OVER"
"""Holds the number of the file; absent where nothing was handed over."""

_known = False  # a secret is, or was, in the memory of this process


def without(is_secret: Callable[[str, str], bool]) -> None:
    """Start this program anew without the variables of which `is_secret(name, value)` holds.

    Call it before anything is imported that takes long. It returns at once in the program that was
    started anew, without such a variable, and elsewhere than on Linux.
    """
    if VARIABLE in os.environ or sys.platform != "linux" or not sys.executable:
        return
    secret = {name: value for name, value in os.environ.items() if is_secret(name, value)}
    if not secret:
        return
    file = os.memfd_create("settings")
    with os.fdopen(file, "w", closefd=False) as handed:
        json.dump(secret, handed)
    os.lseek(file, 0, os.SEEK_SET)
    os.set_inheritable(file, True)
    rest = {name: value for name, value in os.environ.items() if name not in secret}
    os.execve(sys.executable, sys.orig_argv, {**rest, VARIABLE: str(file)})


class Pipe:
    """A file of variables for one program, which are written into it once they are known."""

    def __init__(self) -> None:
        """Open it; the program gets `reading`, whose number `VARIABLE` says."""
        self.reading, self._writing = os.pipe()

    def write(self, variables: Mapping[str, str]) -> None:
        """Hand the variables over; a program that has ended takes none."""
        with suppress(BrokenPipeError), os.fdopen(self._writing, "w") as file:
            json.dump(dict(variables), file)
        self._writing = -1

    def close(self) -> None:
        """Hand nothing over: the program waits for it no longer."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


def know() -> None:
    """Take note that a secret is in the memory of this process, and so in that of its forks."""
    global _known
    _known = True


def is_unknown() -> bool:
    """Tell whether this process is handed over something that was never in its memory yet."""
    return VARIABLE in os.environ and not _known


def take() -> None:
    """Have in the environment what was handed over; wait until it is known."""
    know()
    number = os.environ.pop(VARIABLE, "")
    if number:
        with os.fdopen(int(number)) as handed:
            os.environ.update(json.load(handed))


def forgo() -> None:
    """Close what was handed over: for a fork that must not have it."""
    number = os.environ.pop(VARIABLE, "")
    if number:
        with suppress(OSError):  # closed with all other files
            os.close(int(number))
