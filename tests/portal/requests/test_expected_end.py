"""When a request is expected to end, beside others on the same slots."""

from dataclasses import replace

from portal.requests.expected_end import MARGIN, ExpectedEnd, before, expected_end
from tasks.bag.history import ClassStatistics
from tasks.bag.model import Phase, RequestState
from tasks.bag.workers import Hold, WorkerRow
from tasks.requests.request_table import PhaseCount, Preview, RequestRow

WORKER = WorkerRow(name="w", host="h", slots=4, started=0.0, beat_at=0.0)
ROW = RequestRow(
    id="r1",
    owner="a",
    state=RequestState.RUNNING,
    submitted=10.0,
    phases={Phase.COLLECTION: PhaseCount(total=10), Phase.REPROJECTION: PhaseCount(total=10)},
    preview=Preview(tasks=20, busy=400.0, cost=2.0),
)


def half(row: RequestRow) -> RequestRow:
    """The row once its granules are collected."""
    return replace(row, phases={**row.phases, Phase.COLLECTION: PhaseCount(total=10, done=10)})


def test_alone_its_work_is_divided_by_the_slots() -> None:
    found = expected_end(ROW, [ROW], [WORKER], {})
    assert found == ExpectedEnd(earliest=100.0, latest=MARGIN * 100.0, others=0)
    assert found.text == "Expected to end in 1 min 40 s to 2 min 30 s."
    assert replace(found, latest=59.0).text == "Expected to end in less than a minute."


def test_phases_count_by_how_long_their_tasks_take() -> None:
    names = ("collection MCD15A2.5", "reprojection MCD15A2.5")
    timed = {
        name: ClassStatistics(task_class=name, count=5, mean=mean)
        for name, mean in zip(names, (1.0, 3.0), strict=True)
    }
    found = expected_end(half(ROW), [], [WORKER], timed)
    assert found is not None
    assert found.earliest == 75.0
    plain = expected_end(half(ROW), [], [WORKER], {})
    assert plain is not None
    assert plain.earliest == 50.0


def test_what_was_there_already_is_no_work() -> None:
    reused = {
        Phase.COLLECTION: PhaseCount(total=10, done=10, reused=10),
        Phase.REPROJECTION: PhaseCount(total=10, done=5),
    }
    row = replace(ROW, phases=reused, preview=Preview(tasks=20, reused=10, busy=400.0))
    found = expected_end(row, [], [WORKER], {})
    assert found is not None
    assert found.earliest == 50.0


def test_others_take_as_much_as_it_has_left_and_no_more() -> None:
    small = replace(ROW, id="r2", preview=Preview(tasks=20, busy=40.0))
    large = replace(ROW, id="r3", preview=Preview(tasks=20, busy=4000.0))
    waits = replace(ROW, id="r4", state=RequestState.SUBMITTED)
    stands = replace(ROW, id="r5", paused=True)
    found = expected_end(ROW, [ROW, small, large, waits, stands], [WORKER], {})
    assert found is not None
    assert (found.earliest, found.latest) == (100.0, MARGIN * (400 + 40 + 400) / 4)
    assert "2 other requests share the workers." in found.text


def test_only_workers_that_take_tasks_count() -> None:
    others = [replace(WORKER, hold=Hold.DRAINED), replace(WORKER, draining=True)]
    assert expected_end(ROW, [], others, {}) is None
    found = expected_end(ROW, [], [WORKER, *others], {})
    assert found is not None
    assert found.earliest == 100.0


def test_nothing_is_said_of_what_was_never_timed() -> None:
    assert (
        expected_end(replace(ROW, preview=Preview(tasks=20, unmeasured=10)), [], [WORKER], {})
        is None
    )
    assert expected_end(replace(ROW, preview=Preview()), [], [WORKER], {}) is None
    assert expected_end(replace(ROW, paused=True), [], [WORKER], {}) is None


def test_place_among_those_that_wait() -> None:
    row = replace(ROW, state=RequestState.SUBMITTED)
    earlier = replace(row, id="r0", submitted=9.0, state=RequestState.PLANNING)
    later = replace(row, id="r2", submitted=11.0)
    assert before(row, [row, earlier, later, replace(ROW, id="r3", submitted=1.0)]) == 1


def test_granules_come_no_faster_than_over_the_connections_to_their_host() -> None:
    wide = replace(WORKER, slots=400)
    found = expected_end(ROW, [ROW], [wide], {}, places=8)
    assert found is not None
    assert (found.earliest, found.latest) == (200.0 / 8, MARGIN * 200.0 / 8)
    assert found.text.endswith(
        "Its granules come over at most 8 connections to an archive's host: that is this "
        "Swathmill's own limit (SWATHMILL_HOST_CONNECTIONS)."
    )
    few = expected_end(ROW, [ROW], [WORKER], {}, places=8)
    assert few == expected_end(ROW, [ROW], [WORKER], {})
    collected = expected_end(half(ROW), [], [wide], {}, places=1)
    assert collected is not None
    assert (collected.earliest, collected.places) == (0.5, 0)
