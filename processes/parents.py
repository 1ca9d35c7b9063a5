"""What a process asks of Linux by prctl(2): to die with its parent, to adopt orphans, a name."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> bool:
    """Have the system kill this process when its parent ends; return whether the parent lives.

    `parent` is the process id of the parent that forked this process: it may have ended before the
    system was asked. Linux ties the signal to the parent's thread that forked. Elsewhere than on
    Linux nothing is asked for. Raises OSError.
    """
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def become_subreaper(on: bool = True) -> None:
    """Become the parent of whatever is orphaned below this process, or no longer.

    Raises OSError.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, int(on))


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show of this process, of which Linux keeps 15 bytes.

    Raises OSError.
    """
    _prctl(PR_SET_NAME, name.encode()[:15])


def _prctl(option: int, argument: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"prctl({option})")
