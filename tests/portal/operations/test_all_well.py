"""Whether all is well: what is told to operators, and that nothing is told in calm."""

from dataclasses import replace

from portal.operations.all_well import concerns
from portal.operations.overview import Health, ManagerHealth, RunningTask
from tasks.bag.model import Phase
from tasks.bag.workers import WorkerRow
from tasks.operators.manager_lease import Acting
from tasks.operators.manager_rows import ManagerRow, PhaseQueue, PlaceQueue


def worker(state: str) -> Health:
    row = WorkerRow(name=state, host="h", slots=2, version="1", started=0.0, beat_at=0.0)
    return Health(worker=row, silence=1.0, state=state)


def manager(oldest: float = 0.0) -> ManagerHealth:
    queue = PhaseQueue(phase=Phase.COLLECTION, ready=3, oldest=oldest)
    row = ManagerRow(
        name="m", host="h", version="1", started=0.0, beat_at=0.0, acts=True, queues=(queue,)
    )
    return ManagerHealth(row=row, silence=0.0)


def attempt(age: float) -> RunningTask:
    return RunningTask(
        key="k",
        attempt=1,
        phase=Phase.COLLECTION,
        task_class="c",
        worker="w",
        sponsor="",
        age=age,
        mean=None,
        limit=10.0,
        progress=0.0,
        note="",
        ordered=False,
    )


def test_in_calm_nothing_is_told() -> None:
    calm = [worker("running"), worker("ready")]
    assert (
        concerns(Acting(acts=True), (), [manager(599.0)], calm, [attempt(9)], 0, silent=False) == ()
    )


def test_work_whose_place_has_no_worker_is_told() -> None:
    waits = PlaceQueue(place="gpu", ready=2, heard=1.0)
    places = (PlaceQueue(place="", workers=1, ready=9), PlaceQueue(place="big"), waits)
    row = replace(manager().row, places=places)
    of = ManagerHealth(row=row, silence=0.0)
    (found,) = concerns(Acting(acts=True), (), [of], [worker("ready")], [], 0, silent=False)
    assert (found.part, found.urgent) == ("places-title", True)
    assert found.text == "2 tasks wait for a worker of place gpu: the last one is gone."


def test_each_thing_that_needs_an_operator_is_told_the_urgent_first() -> None:
    found = concerns(
        Acting(acts=False),
        ("/granules",),
        [manager(601.0)],
        [worker("running"), worker("lost"), worker("drained")],
        [attempt(11)],
        2,
        silent=True,
    )
    assert [(one.text, one.urgent) for one in found] == [
        ("No service manager acts.", True),
        ("The message server does not answer.", True),
        ("The archive's folder /granules is not there.", True),
        ("2 of 3 workers: drained, lost.", False),
        ("3 tasks wait for a slot, the oldest for 10 min 1 s.", False),
        ("1 attempt is over the time limit.", False),
        ("2 failed, and will be tried again.", False),
    ]


def test_a_fleet_without_a_worker_is_urgent_where_work_waits() -> None:
    found = concerns(Acting(acts=True), (), [manager(1.0)], [], [], 0, silent=False)
    assert [(one.text, one.urgent) for one in found] == [("No worker reports.", True)]
