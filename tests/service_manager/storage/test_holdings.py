"""What the manager tells of an archive, at its bound."""

from pathlib import Path

import pytest

from reprojection.read.outline import LayersSeen
from service_manager.storage.holdings import POLL, Teller
from tasks.holdings import holdings
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tests.portal.archive import StillArchive, inline


@pytest.mark.parametrize("more", [0, 1])
def test_an_archive_of_more_products_than_are_told_counts_as_not_known(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    archive, runtime = StillArchive(), memory_runtime()
    assert archive.held is not None
    monkeypatch.setattr(holdings, "MOST_PRODUCTS", len(archive.held) - more)
    seen: list[Path] = []

    def layers_of(path: Path) -> LayersSeen:
        seen.append(path)
        return LayersSeen(lengths={}, notes={})

    Teller(runtime, archive, layers_of, inline).tick()
    told, _ = holdings.read(runtime.store)
    assert (told is None) == bool(more)
    assert bool(seen) != bool(more)  # no granule is opened in vain


def test_a_question_is_answered_at_once_when_told_of_and_looked_for_now_and_then() -> None:
    clock = ManualClock()
    runtime = memory_runtime(clock)
    teller = Teller(runtime, StillArchive(), lambda _path: LayersSeen(lengths={}, notes={}), inline)
    teller.tick()
    number = holdings.ask(runtime.store, clock)
    clock.sleep(POLL / 2)
    teller.tick()
    assert holdings.read(runtime.store)[1] < number, "nobody told of it"
    teller.look()
    teller.tick()
    assert holdings.read(runtime.store)[1] == number
    number = holdings.ask(runtime.store, clock)
    clock.sleep(POLL)
    teller.tick()
    assert holdings.read(runtime.store)[1] == number, "the wake-up was lost"
