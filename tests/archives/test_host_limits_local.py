"""Places at hosts within one process, on a clock of the test's own."""

import threading
from dataclasses import dataclass

import pytest

from archives.errors import NoPlaceError
from archives.fetch.limits import LocalLimits
from tasks.bag.categories import Category
from tasks.service.classify import classify


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_requests_to_a_host_keep_their_distance() -> None:
    clock = Clock()
    limits = LocalLimits(connections=9, rate=4.0, clock=clock, sleep=clock.sleep)
    for _ in range(5):
        with limits.place("a"):
            pass
    assert clock.now == pytest.approx(101.0)
    with limits.place("b"):
        assert clock.now == pytest.approx(101.0)


def test_a_place_that_never_comes_free_is_our_own_limit_and_no_busy_server() -> None:
    clock = Clock()
    limits = LocalLimits(connections=1, rate=1e9, patience=30, clock=clock, sleep=clock.sleep)
    with limits.place("a"), limits.place("b"):
        with pytest.raises(
            NoPlaceError, match=r"connection to a came free.*SWATHMILL_HOST_CONN"
        ) as caught:
            limits.place("a").__enter__()
        assert clock.now == pytest.approx(130.0)
    diagnosis = classify(caught.value)
    assert (diagnosis.category, diagnosis.asked) == (Category.OPERATION_TIMEOUT, 0.0)
    with limits.place("a"):
        pass


def test_no_more_than_the_connections_at_once() -> None:
    limits = LocalLimits(connections=3, rate=1e9)
    running, most, lock = 0, 0, threading.Lock()
    meet = threading.Barrier(3)

    def hold() -> None:
        nonlocal running, most
        with limits.place("a"):
            with lock:
                running += 1
                most = max(most, running)
            meet.wait(10)  # three are inside together
            with lock:
                running -= 1

    threads = [threading.Thread(target=hold) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
