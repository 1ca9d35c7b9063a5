"""How a process says that it is ready: one byte into a pipe that whoever started it reads.

The pipe also says when the process has ended without having been ready: then it closes.
"""

import os

VARIABLE = "SWATHMILL_READY_FD"
"""Holds the number of the pipe's end to write into; absent where nobody waits."""


def say_ready() -> None:
    """Tell whoever started this process that it is ready; do nothing if nobody waits."""
    number = os.environ.pop(VARIABLE, "")
    if not number:
        return
    pipe = int(number)
    try:
        os.write(pipe, b"1")
    except BrokenPipeError:
        pass  # whoever waited has given up
    finally:
        os.close(pipe)
