"""Share work among threads, which include the caller's own."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")


def share(work: Callable[[Piece], object], pieces: Iterable[Piece], threads: int) -> None:
    """Run `work` on every piece in this many threads; pieces are taken in order.

    The caller works from the first moment and does not wait for the other threads to start: a small
    warp takes a few milliseconds. After an exception no further piece is begun.
    """
    left = deque(pieces)

    def take() -> None:
        while True:
            try:
                piece = left.popleft()
            except IndexError:
                return
            try:
                work(piece)
            except BaseException:
                left.clear()
                raise

    others = min(threads, len(left)) - 1
    if others < 1:
        take()
        return
    with ThreadPoolExecutor(others) as pool:
        begun = [pool.submit(take) for _ in range(others)]
        take()
    for other in begun:
        other.result()
