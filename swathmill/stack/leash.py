"""Start a program that dies when its supervisor does: `leash.py SIGNAL PARENT PROGRAM...`.

Linux sends a process the signal it asked for when its parent ends (prctl(2), PR_SET_PDEATHSIG),
and the wish survives execve(2). Asking from a launcher, and not between fork and exec of the
supervisor, keeps Python code out of a forked copy of a threaded process. Elsewhere than on Linux
the program is started without the leash. It runs without site-packages, to start quickly, so it
imports nothing of ours; `processes.parents` says the same for processes that fork.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request the signal, check that the parent still lives, and become the program."""
    signal_number, parent, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:
            raise SystemExit(f"the supervisor {parent} ended before {program[0]} started")
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
