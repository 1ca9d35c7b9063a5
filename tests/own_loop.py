"""Coroutines in tests: on a loop of their own, whatever loop the thread of the test has."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_on_own_loop(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in another thread: tests with a browser leave a loop in theirs."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: asyncio.run(ask())).result()
