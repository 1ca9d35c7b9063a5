"""A manager's process: how it ends."""

import threading
from dataclasses import replace

from service_manager.leader.service import serve
from tasks.messages.wakeups import MemoryWakeUps
from tests.service_manager.workbench import Bench


class Blocking(MemoryWakeUps):
    """As Redis's: a wait does not see `stop`, and ends by a wake-up."""

    def __init__(self, waits: threading.Event) -> None:
        super().__init__()
        self.waits = waits
        self.woken = threading.Event()
        self.ended_by_wake_up: list[bool] = []

    def publish(self, *keys: str) -> None:
        super().publish(*keys)
        self.woken.set()

    def wait(self, _stop: threading.Event, _seconds: float) -> None:
        self.waits.set()
        self.ended_by_wake_up.append(self.woken.wait(60.0))


def test_a_manager_that_waits_for_a_wake_up_is_woken_by_the_order_to_stop() -> None:
    b, stop, waits = Bench(plans={}), threading.Event(), threading.Event()
    wakeups = Blocking(waits)
    runtime = replace(b.runtime, wakeups=wakeups)

    def order() -> None:
        waits.wait(60.0)
        stop.set()

    ordering = threading.Thread(target=order)
    ordering.start()
    serve(runtime, b.options, lambda _epoch: b.manager, stop)
    ordering.join()
    assert wakeups.ended_by_wake_up == [True]
