"""What operators look at, where there is more than the page has."""

from dataclasses import replace

import pytest

from portal.operations import overview
from portal.operations.board import Board
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import LaterMarker
from tests.portal.scripted import LivePortal, put_running_task, settings
from tests.portal.submissions import submitted


@pytest.mark.parametrize("most", [2, 3])
def test_those_nearest_to_their_limits_are_listed_and_all_are_counted(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(overview, "_MOST_RUNNING", most)
    name = submitted(runtime)
    keys = [put_running_task(runtime, name, f"{n}.hdf", "worker-1") for n in range(3)]
    sight, now = Board(runtime).look(), runtime.clock.now()
    aged = [replace(one, claimed_at=now - 100 * (1 + keys.index(one.key))) for one in sight.running]
    shown = overview.running(replace(sight, running=tuple(aged)), settings(), now)
    assert [one.key for one in shown] == [*reversed(keys)][:most]
    with portal.browser("op@example.org", "operator") as operator:
        page = operator.get("/operations").text
    assert 'Running attempts <span class="soft">3</span>' in page
    assert sum(f"/tasks/{key}" in page for key in keys) == most


@pytest.mark.parametrize("most", [2, 3])
def test_the_earliest_to_be_tried_again_are_listed(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(overview, "_MOST_LATER", most)
    name = submitted(runtime)
    keys = [put_running_task(runtime, name, f"{n}.hdf", "worker-1") for n in range(3)]
    later = tuple(LaterMarker(due=10.0 - at, key=key) for at, key in enumerate(keys))
    shown = overview.later(runtime, replace(Board(runtime).look(), later=later))
    assert [one.key for one in shown] == [*reversed(keys)][:most]
