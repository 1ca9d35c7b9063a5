"""Clients side by side: each makes one call after another, for some seconds or so many times.

Here the clients are threads, shared out over as many processes as there are processors; a fleet
(`fleet.py`) has them on nodes, which may be other machines.
"""

import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from tasks.service.classify import classify

OneCall = Callable[[], int]
"""One call to the platform; it returns how many bytes it moved. Raises NothingLeftError."""


class NothingLeftError(Exception):
    """There was nothing to take: the call does not count, and is the client's last one."""


class Work(Protocol):
    """What each client does. It is sent to other processes, so it can be pickled."""

    def open(self, client: int) -> AbstractContextManager[Iterator[OneCall]]:
        """Connect; yield call after call. What the iterator does between them is not timed."""
        ...


@dataclass(frozen=True, kw_only=True)
class Call:
    """What came of one call: when, in seconds of the machine's clock, and the failure's category.

    `failure` is empty where there was none.
    """

    client: int
    began: float
    ended: float
    size: int = 0  # bytes
    failure: str = ""


def new_names(client: int) -> Iterator[str]:
    """Yield names for what a client uploads, which no other one has."""
    while True:
        yield f"upload-{client:04d}-{uuid.uuid4().hex}"


class Crowd(Protocol):
    """What lets clients work: processes of this machine, or the nodes of a fleet."""

    def run(self, work: Work, number: int, seconds: float, count: int = 0) -> list[Call]:
        """Let `number` clients work; return all calls. Raises Exception: one cannot connect.

        They work for some seconds, at least one call each; with `count`, for so many calls each,
        however long those take; never longer than something is left.
        """
        ...


class Clients:
    """The processes in which clients run. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._many = os.cpu_count() or 1
        self._pool = ProcessPoolExecutor(self._many, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, work: Work, number: int, seconds: float, count: int = 0) -> list[Call]:
        """Let `number` clients work, as `Crowd` says; return all calls.

        Raises:
            Exception: a client cannot connect.
        """
        shares = [range(first, number, self._many) for first in range(min(self._many, number))]
        running = [self._pool.submit(run_share, work, share, seconds, count) for share in shares]
        wait(running)
        return [call for share in running for call in share.result()]


def run_share(
    work: Work,
    numbers: Sequence[int],
    seconds: float,
    count: int = 0,
    meet: Callable[[], None] | None = None,
) -> list[Call]:
    """Run the clients of one process; once all are connected, `meet` waits for the others."""
    ready = threading.Barrier(len(numbers), action=meet)
    with ThreadPoolExecutor(len(numbers)) as pool:
        running: list[Future[list[Call]]] = [
            pool.submit(_client, work, number, seconds, count, ready) for number in numbers
        ]
        wait(running)
        broken = [error for client in running if (error := client.exception())]
        for error in broken:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [call for client in running for call in client.result()]


def _client(
    work: Work, number: int, seconds: float, count: int, ready: threading.Barrier
) -> list[Call]:
    """Run one client, from when all clients of the process are connected."""
    calls: list[Call] = []
    with _aborted_by_failure(ready), work.open(number) as steps:
        ready.wait()
        until = time.monotonic() + seconds
        for step in steps:
            try:
                calls.append(_timed(step, number))
            except NothingLeftError:
                break
            if len(calls) >= count if count else calls[-1].ended >= until:
                break
    return calls


@contextmanager
def _aborted_by_failure(ready: threading.Barrier) -> Iterator[None]:
    """Have the other clients not wait for one that cannot connect."""
    try:
        yield
    except BaseException:
        ready.abort()
        raise


def _timed(step: OneCall, number: int) -> Call:
    size, failure = 0, ""
    began = time.monotonic()
    try:
        size = step()
    except NothingLeftError:
        raise
    except Exception as error:  # noqa: BLE001 - every failure is a result, told by its category
        failure = classify(error).category
    return Call(client=number, began=began, ended=time.monotonic(), size=size, failure=failure)
