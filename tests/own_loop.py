"""Coroutines in tests: on a loop of their own, whatever loop the thread of the test has."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def run_on_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in another thread: tests with a browser leave a loop in theirs."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, work).result()


@contextmanager
def served_on_own_loop(listen: Callable[[], Coroutine[Any, Any, asyncio.Server]]) -> Iterator[int]:
    """Serve in another thread; gives the port that is listened at."""
    listening: Future[tuple[int, Callable[[], object]]] = Future()

    async def serve() -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await listen()
        except Exception as error:
            listening.set_exception(error)
            raise
        stop = partial(loop.call_soon_threadsafe, stopping.set)
        listening.set_result((server.sockets[0].getsockname()[1], stop))
        await stopping.wait()
        server.close()

    with ThreadPoolExecutor(1) as other:
        other.submit(asyncio.run, serve())
        port, stop = listening.result()
        try:
            yield port
        finally:
            stop()


_LEFT = list[asyncio.AbstractEventLoop]()
"""Loops that stay open: s3fs leaves in them what ends a session, as it does in Playwright's."""


@contextmanager
def loop_in_this_thread() -> Iterator[None]:
    """Have a loop that runs in this thread, as Playwright leaves one in the thread of tests."""
    loop = asyncio.new_event_loop()
    _LEFT.append(loop)
    asyncio.events._set_running_loop(loop)
    yield
    asyncio.events._set_running_loop(None)
