"""SIGTERM and Ctrl-C, as an exception that is neither lost nor raised in the midst of a start.

Python ignores an exception that is raised in a finalizer, and a process whose start is interrupted
belongs to nobody. So the order is noted, too: whoever runs in a loop asks for it.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Order:
    given = False
    holding = 0


def listen() -> None:
    """Have SIGTERM raise KeyboardInterrupt, and Ctrl-C, unless it is ignored."""
    _Order.given = False
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def check() -> None:
    """Raise KeyboardInterrupt if the order to stop was given and lost, or held back."""
    if _Order.given and not _Order.holding:
        _Order.given = False
        raise KeyboardInterrupt


@contextmanager
def held_back() -> Iterator[None]:
    """Hold the order to stop back until the end of the block."""
    _Order.holding += 1
    try:
        yield
    finally:
        _Order.holding -= 1
    check()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _Order.given = True
    if not _Order.holding:
        raise KeyboardInterrupt
