"""Waiting for a condition, with a limit."""

import time
from collections.abc import Callable
from pathlib import Path


def until(
    condition: Callable[[], bool], seconds: float = 60.0, what: str = "", log: Path | None = None
) -> float:
    """Wait for a condition; returns the seconds it took.

    Fails after `seconds`, and shows what was waited for and the end of the log.
    """
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            written = log.read_text()[-3000:] if log is not None else ""
            raise AssertionError(f"not within {seconds:g} s: {what}\n{written}")
        time.sleep(0.02)
    return time.monotonic() - start
