"""Executions are counted by the day in UTC, wherever the machine stands."""

import datetime as dt
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from tasks.bag import history
from tasks.bag.task_rows import CompletionEvent


@pytest.fixture(params=["XXX-13", "XXX+11", "UTC"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine 13 hours before UTC, 11 behind, and one in UTC."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize("moment", ["2012-03-31T23:59:59", "2012-04-01T00:00:00"])
def test_the_day_of_an_execution_is_that_of_utc(moment: str) -> None:
    at = dt.datetime.fromisoformat(f"{moment}+00:00")
    event = cast("CompletionEvent", SimpleNamespace(ended=at.timestamp()))
    assert history._day(event) == at.date()
