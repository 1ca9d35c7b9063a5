"""Pieces of work among threads."""

import threading

import pytest

from reprojection.kernels.threads import share

LIMIT_SECONDS = 20.0


@pytest.mark.parametrize("threads", [1, 2, 5, 50])
def test_every_piece_is_done_once(threads: int) -> None:
    done: list[int] = []
    share(done.append, range(20), threads)
    assert sorted(done) == list(range(20))


def test_one_thread_is_the_caller_and_keeps_the_order() -> None:
    done: list[tuple[int, int]] = []
    share(lambda piece: done.append((piece, threading.get_ident())), range(5), 1)
    assert done == [(piece, threading.get_ident()) for piece in range(5)]


def test_the_caller_works_beside_the_others() -> None:
    met = threading.Barrier(3)
    workers: list[int] = []

    def work(_piece: int) -> None:
        met.wait(LIMIT_SECONDS)
        workers.append(threading.get_ident())

    share(work, range(3), 3)
    assert len(set(workers)) == 3
    assert threading.get_ident() in workers


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_is_raised_and_ends_the_rest(threads: int) -> None:
    begun: list[int] = []

    def work(piece: int) -> None:
        begun.append(piece)
        if piece == 2:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        share(work, range(100_000), threads)
    assert len(begun) < 100_000


def test_an_error_of_another_thread_reaches_the_caller() -> None:
    caller, failed = threading.get_ident(), threading.Event()

    def work(_piece: int) -> None:
        if threading.get_ident() != caller:
            failed.set()
            raise MemoryError("no room")
        assert failed.wait(LIMIT_SECONDS)

    with pytest.raises(MemoryError, match="no room"):
        share(work, range(4), 2)


def test_nothing_to_do_is_done() -> None:
    share(lambda _piece: pytest.fail("there is no piece"), [], 4)
