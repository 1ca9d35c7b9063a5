"""Bars of a request on a terminal."""

import io

from rich.console import Console

from swathmill.answers import RequestStatus
from swathmill.progress import ProgressView
from tasks.answers.requests import PhaseAnswer, PreparationAnswer
from tasks.bag.model import RequestState
from tests.swathmill.answered import read_status

DAYS = PreparationAnswer(done=30, total=120, unit="days")
TASKS = PreparationAnswer(done=5, total=50, unit="tasks")
PHASES = {"collection": PhaseAnswer(total=40, done=7, failed=0, running=0, reused=0, cancelled=0)}


def shown(*states: RequestStatus) -> str:
    """The bars that are left on the terminal after these states."""
    console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=100)
    with ProgressView(console) as view:
        for number, status in enumerate(states):
            view.show(status, now=float(number))
        assert view._bars is not None
        return "\n".join(
            f"{task.description} {task.completed:.0f}/{task.total:.0f} {task.fields['note']}"
            for task in view._bars.tasks
        )


def test_a_state_prints_as_one_line() -> None:
    """`job.watch(progress=print)` is the call that the documentation names."""
    status = read_status(id="r", state=RequestState.RUNNING, outputs=4, delivered=1, phases=PHASES)
    assert str(status) == "running | collection 7/40 | results 1/4"


def test_each_file_is_named_that_came_on_a_terminal_the_last_one() -> None:
    running = read_status(id="r", state=RequestState.RUNNING, outputs=4, delivered=1)
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
        with ProgressView(console) as view:
            view.show(running, now=0.0)
            for day in ("01", "09"):
                view.arrived(f"Lai_1km.2012-01-{day}.tif")
            view.show(running, now=10.0)
        assert isinstance(console.file, io.StringIO)
        said = console.file.getvalue()
        if terminal:
            assert "made, newest Lai_1km.2012-01-09.tif" in said
        else:
            assert "made Lai_1km.2012-01-01.tif\nmade Lai_1km.2012-01-09.tif\n" in said


def test_planning_and_writing_each_have_a_bar_until_they_are_over() -> None:
    submitted = read_status(id="r", state=RequestState.SUBMITTED)
    planning = read_status(id="r", state=RequestState.PLANNING, preparation=DAYS)
    writing = read_status(id="r", state=RequestState.WRITING, preparation=TASKS, phases=PHASES)
    running = read_status(id="r", state=RequestState.RUNNING, phases=PHASES)
    assert shown(submitted) == ""
    assert shown(submitted, planning) == "planning 30/120 days"
    assert shown(planning, writing) == "writing 5/50 tasks\ncollection 7/40 "
    assert shown(planning, writing, running) == "collection 7/40 "
