"""A task's page: its artifact, its inputs, and every attempt with its log."""

from itertools import islice

from fastapi import Response

from portal.requests.api import task_for
from portal.requests.task_history import history_of
from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.tokens import Person
from tasks.bag import history
from tasks.bag.categories import RULES
from tasks.bag.expectation import Times
from tasks.bag.kinds import Spec
from tasks.bag.model import Phase, Task
from tasks.errors import StoreError
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

router = Router(include_in_schema=False)

_MOST_WANTING = 20  # requests named on the page


@router.get("/tasks/{key}")
def task(key: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Show a task: its artifact, its inputs, and every attempt with its log."""
    found = task_for(portal, caller, key)
    reduces = found.phase is Phase.REDUCTION
    return show_task(portal, caller, found, f"/api/tasks/{key}/inputs.zip" if reduces else "")


def show_task(portal: Portal, caller: Person, found: Task, inputs_url: str = "") -> Response:
    """Show a task to a person who may see it; what it was given may be at an address."""
    tasks = portal.runtime.tasks
    try:
        spec: Spec | None = tasks.spec_of(found)
    except StoreError:
        spec = None
    attempts = tasks.attempts(found.key)
    return portal.pages.page(
        "task.html",
        caller,
        "operations" if caller.is_operator else "requests",
        200,
        task=found,
        spec=spec,
        facts=_facts(spec) if spec else (),
        attempts=list(reversed(attempts)),
        history=history_of(found, attempts),
        rules=RULES,
        wanted=_wanted(portal, caller, found.interests),
        inputs_url=inputs_url,
        usual=_usual(portal, found),
    )


def _usual(portal: Portal, task: Task) -> float:
    """Return the usual seconds of a run of the same class; 0: not known, or no run."""
    if task.phase is not Phase.REDUCTION:
        return 0.0
    return Times(history.class_statistics(portal.runtime.store)).mean(task.task_class) or 0.0


def _facts(spec: Spec) -> tuple[tuple[str, str], ...]:
    """List the fields of a specification, without its inputs, bands and grid."""
    said = spec.model_dump(mode="json", exclude={"inputs", "bands", "grid", "clip", "region"})
    return tuple((name.replace("_", " "), _text(value)) for name, value in said.items() if value)


def _text(value: object) -> str:
    """Write a value of JSON as people do: `a.tif, b.tif`, `threshold: 2.5`."""
    match value:
        case list():
            return ", ".join(map(_text, value))
        case dict():
            return ", ".join(f"{name}: {_text(one)}" for name, one in value.items())
        case _:
            return str(value)


def _wanted(portal: Portal, caller: Person, interests: tuple[str, ...]) -> list[RequestRow]:
    rows = (request_operations.load(portal.runtime, request) for request in interests)
    return [*islice((row for row in rows if caller.may_see(row.owner)), _MOST_WANTING)]
