"""A plan of many cells."""

import pytest

from service_manager.planner import plan_stream
from tasks.errors import RequestRefusedError
from tests.service_manager.shelf import REQUEST, composites, made


def test_the_results_lie_in_so_many_cells_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    time = {"start": "2012-01-01", "end": "2012-01-01"}
    counts: list[int] = []
    monkeypatch.setattr(plan_stream, "_check_cells", counts.append)
    made(composites(), REQUEST, time=time)
    monkeypatch.undo()
    (cells,) = counts
    assert cells > 1
    monkeypatch.setattr(plan_stream, "MOST_CELLS", cells)
    made(composites(), REQUEST, time=time)
    monkeypatch.setattr(plan_stream, "MOST_CELLS", cells - 1)
    with pytest.raises(RequestRefusedError, match=rf"in {cells} cells; {cells - 1} are the most"):
        made(composites(), REQUEST, time=time)
