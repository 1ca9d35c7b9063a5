"""What the manager tells of an archive, at its bound."""

from pathlib import Path

import pytest

from reprojection.read.outline import LayersSeen
from service_manager.storage.holdings import Teller
from tasks.holdings import holdings
from tasks.service.memory_runtime import memory_runtime
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
