"""The service's own calls to storage, by day."""

import datetime as dt

import pytest

from tasks.bag.model import NO_USE, Use
from tasks.errors import StoreError
from tasks.operators import overhead
from tasks.operators.overhead import OverheadMeter
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.traffic import Meter, Traffic

DAY = dt.date(2023, 11, 14)


def test_each_process_adds_its_calls_to_the_day_once() -> None:
    clock = ManualClock()
    runtime = memory_runtime(clock)
    one, other = Meter(), Meter()
    processes = [OverheadMeter(runtime, meter) for meter in (one, other)]
    one.add(Traffic(reads=5, writes=2, received=100, sent=10))
    other.add(Traffic(reads=1))
    for _ in range(2):
        for process in processes:
            process.note()
    assert overhead.between(runtime.store, DAY, DAY) == Use(
        reads=6, writes=2, received=100, sent=10
    )
    clock.sleep(86_400.0)
    one.add(Traffic(writes=3))
    processes[0].note()
    later = DAY + dt.timedelta(days=1)
    assert overhead.between(runtime.store, later, later) == Use(writes=3)
    assert overhead.between(runtime.store, DAY, later).writes == 5


def test_embedded_storage_has_no_calls_and_no_row() -> None:
    runtime = memory_runtime(ManualClock())
    OverheadMeter(runtime, Meter()).note()
    assert overhead.between(runtime.store, DAY, DAY) == NO_USE
    assert isinstance(runtime.store, MemoryStore)
    assert not any(runtime.store.tables().values())


def test_what_could_not_be_noted_is_noted_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = memory_runtime(ManualClock())
    meter = Meter()
    process = OverheadMeter(runtime, meter)
    meter.add(Traffic(reads=4))

    def away(*_: object) -> None:
        raise StoreError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "get", away)
        with pytest.raises(StoreError):
            process.note()
    process.note()
    assert overhead.between(runtime.store, DAY, DAY).reads == 4
