"""The runs of a request's reduction: as JSON, as pages, and their inputs as one download."""

import json
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from portal.requests.answers import AttemptAnswer
from portal.requests.api import task_for
from portal.requests.runs import (
    Run,
    inputs_of,
    load_run,
    owner_has_run,
    runs_of,
)
from portal.requests.task_page import show_task
from portal.results.downloads import send_archive
from portal.results.result_files import ResultReader
from portal.results.state import Results
from portal.serving.access import load_for
from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError
from tasks.answers.answer import Answer
from tasks.bag.task_keys import is_key
from tasks.requests.request_table import RequestRow

api = Router(prefix="/api", tags=["runs"])
pages = Router(include_in_schema=False)


class RunAnswer(Answer):
    """One run of a package over a group; `mean` are the usual seconds of such runs, 0: unknown.

    `reading` is the tier in which its group was made of cells; "" where it was not noted.
    """

    key: str
    group: str
    reading: str
    outcome: str
    mean: float
    attempts: tuple[AttemptAnswer, ...]
    log_url: str
    inputs_url: str


class RunsAnswer(Answer):
    """The runs of a request's reduction, those that failed first."""

    runs: tuple[RunAnswer, ...]
    more: bool = Field(description="Whether there are others; ask for those of one result.")


@api.get("/requests/{request_id}/runs", summary="The runs of a request's reduction")
def list_runs(
    request_id: str,
    caller: Caller,
    portal: CurrentPortal,
    result: Annotated[str, Query(description="Only the runs of the result with this path.")] = "",
) -> RunsAnswer:
    """List the runs, or those of one result, with outcome, duration and peak memory of each."""
    row = load_for(portal.runtime, caller, request_id)
    file = portal.state(Results).index.find(portal.runtime, row, result) if result else None
    found = runs_of(portal.runtime, row, file)
    return RunsAnswer(runs=tuple(_answer(row, run) for run in found.runs), more=found.more)


@api.get("/requests/{request_id}/runs/{key}", summary="A run with its logs")
def show_run(
    request_id: str, key: str, caller: Caller, portal: CurrentPortal
) -> tuple[AttemptAnswer, ...]:
    """Return the attempts of a run, each with its log, which ends with what the run has used."""
    row = load_for(portal.runtime, caller, request_id)
    task = load_run(portal.runtime, row, key)
    attempts = portal.runtime.tasks.attempts(task.key)
    return tuple(AttemptAnswer.of(attempt, with_log=True) for attempt in attempts)


@api.get(
    "/requests/{request_id}/runs/{key}/inputs.zip",
    response_class=StreamingResponse,
    summary="What a run was given, as one ZIP",
)
def run_inputs(request_id: str, key: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Return manifest, rasters and parameters of a run, for `swathmill package try`."""
    row = load_for(portal.runtime, caller, request_id)
    load_run(portal.runtime, row, key)
    return _inputs(portal, key)


@api.get(
    "/tasks/{key}/inputs.zip",
    response_class=StreamingResponse,
    summary="What a run was given, as one ZIP, by its task alone",
)
def task_inputs(key: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Return the same for a run of any of your newest requests."""
    try:
        task_for(portal, caller, key)
    except NotFoundError:
        if not is_key(key) or not owner_has_run(portal.runtime, caller.owner, key):
            raise
    return _inputs(portal, key)


def _inputs(portal: Portal, key: str) -> Response:
    given = inputs_of(portal.runtime, key)
    texts = {}
    if given.kind == "reduce":
        texts["parameters.json"] = json.dumps(given.parameters, indent=1, sort_keys=True) + "\n"
    reader = ResultReader(runtime=portal.runtime, index=portal.state(Results).index, request="")
    return send_archive(reader, given.files, f"inputs-{key[-12:]}.zip", texts)


@pages.get("/requests/{request_id}/runs")
def runs_page(request_id: str, caller: Caller, portal: CurrentPortal, result: str = "") -> Response:
    """Show the runs of a request, or those of one result."""
    row = load_for(portal.runtime, caller, request_id)
    file = portal.state(Results).index.find(portal.runtime, row, result) if result else None
    found = runs_of(portal.runtime, row, file)
    return portal.pages.page(
        "runs.html", caller, "requests", 200, row=row, result=result, found=found
    )


@pages.get("/requests/{request_id}/runs/{key}")
def run_page(request_id: str, key: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Show a run: its attempts with their logs, and its inputs to download."""
    row = load_for(portal.runtime, caller, request_id)
    task = load_run(portal.runtime, row, key)
    return show_task(portal, caller, task, f"/api/requests/{row.id}/runs/{key}/inputs.zip")


def _answer(row: RequestRow, run: Run) -> RunAnswer:
    place = f"/api/requests/{row.id}/runs/{run.key}"
    return RunAnswer(
        key=run.key,
        group=run.group,
        reading=run.reading,
        outcome=run.outcome,
        mean=run.mean,
        attempts=tuple(AttemptAnswer.of(attempt) for attempt in run.attempts),
        log_url=place,
        inputs_url=f"{place}/inputs.zip",
    )
