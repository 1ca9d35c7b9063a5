"""OGC API - Processes 1.0: Core, process description, JSON, OpenAPI 3.0, job list and dismiss.

One process, `reproject`, takes the fields of a request document. A request is a job, however it was
submitted.
"""

import datetime as dt
from importlib.metadata import version
from typing import Annotated

from fastapi import Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import JsonValue

from portal.requests.api import order
from portal.serving.access import load_for
from portal.serving.addresses import base_url, this_url
from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError
from portal.serving.repeated_calls import made_from_row
from portal.serving.tokens import Person
from portal.standards.datetimes import Interval
from portal.standards.jobs import (
    OUTPUT,
    PROCESS,
    STATUSES,
    Execute,
    JobAnswer,
    JobFailedError,
    JobList,
    Link,
    NoSuchJobError,
    NoSuchProcessError,
    NotReadyError,
    ProcessAnswer,
    ProcessList,
    ProcessSummary,
    Status,
    document_of,
    inputs_of_process,
    outputs_of_process,
)
from portal.standards.landing_page import STRICT, GeoJsonAnswer
from portal.standards.stac_items import GEOJSON, Object, feature, link
from portal.standards.state import Standards
from portal.submit.submissions import LONGEST_KEY, submitted
from tasks.bag.model import RequestOrder
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

router = Router(tags=["processes"], dependencies=STRICT)

_LOOKED_AT = 1000  # requests that one call compares with its filters
_EXECUTE = "http://www.opengis.net/def/rel/ogc/1.0/execute"


@router.get("/processes", summary="Processes")
def processes(
    request: Request,
    portal: CurrentPortal,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many at most.")] = 10,  # noqa: ARG001 - there is one process
) -> ProcessList:
    """List the processes: there is one."""
    base = base_url(request, portal.settings)
    summary = ProcessSummary(version=version("swathmill"), links=_process_links(base))
    links = (Link(href=f"{base}/processes", rel="self"),)
    return ProcessList(processes=(summary,), links=links)


@router.get("/processes/{process_id}", summary="A process, its inputs and outputs")
def process(process_id: str, request: Request, portal: CurrentPortal) -> ProcessAnswer:
    """Describe a process; its inputs are the fields of a request document."""
    _check_process(process_id)
    return ProcessAnswer(
        version=version("swathmill"),
        links=_process_links(base_url(request, portal.settings)),
        inputs=inputs_of_process(),
        outputs=outputs_of_process(),
    )


@router.post("/processes/{process_id}/execution", status_code=201, summary="Run a process as a job")
def execute(
    process_id: str,
    asked: Execute,
    request: Request,
    response: Response,
    caller: Caller,
    portal: CurrentPortal,
    prefer: Annotated[str, Header(description="Jobs always run asynchronously.")] = "",
    idempotency_key: Annotated[
        str, Header(max_length=LONGEST_KEY, description="Sent again, it makes no second job.")
    ] = "",
) -> JobAnswer:
    """Submit a request and answer with its job at once."""
    _check_process(process_id)
    row = submitted(
        portal,
        caller,
        parse_request(document_of(asked)),
        key=idempotency_key,
        response=asked.response,
    )
    base = base_url(request, portal.settings)
    response.headers["Location"] = f"{base}/jobs/{row.id}"
    if "respond-async" in prefer:
        response.headers["Preference-Applied"] = "respond-async"
    return JobAnswer.of(row, base)


@router.get("/jobs", summary="Jobs, newest first")
def jobs(
    request: Request,
    caller: Caller,
    portal: CurrentPortal,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many at most.")] = 10,
    kind: Annotated[list[str] | None, Query(alias="type", description="`process`.")] = None,
    process_id: Annotated[
        list[str] | None, Query(alias="processID", description="Of this process.")
    ] = None,
    status: Annotated[list[Status] | None, Query(description="In one of these states.")] = None,
    datetime: Annotated[str, Query(description="When jobs were made: a time or an interval.")] = "",
    min_duration: Annotated[int, Query(alias="minDuration", ge=0, description="Seconds.")] = 0,
    max_duration: Annotated[
        int | None, Query(alias="maxDuration", ge=0, description="Seconds.")
    ] = None,
    before: Annotated[str, Query(description="A job's id: only older ones.")] = "",
) -> JobList:
    """List the caller's jobs. A page may be short; the link `next` leads on."""
    base = base_url(request, portal.settings)
    interval = Interval.parse(datetime)
    after = _job(portal, caller, before) if before else None
    now = portal.runtime.clock.now()
    nothing = "process" not in (kind or ["process"]) or PROCESS not in (process_id or [PROCESS])

    def suits(row: RequestRow) -> bool:
        lasted = (row.ended or now) - row.submitted
        made = dt.datetime.fromtimestamp(row.submitted, dt.UTC)
        return (
            (not status or STATUSES[row.state] in status)
            and interval.meets(made, made)
            and lasted >= min_duration
            and (max_duration is None or lasted <= max_duration)
        )

    found: list[RequestRow] = []
    last: RequestRow | None = None
    if not nothing:
        rows = request_operations.list_requests(portal.runtime, caller.owner, _LOOKED_AT + 1, after)
        for number, row in enumerate(rows):
            if len(found) == limit or number == _LOOKED_AT:
                break
            last = row
            if suits(row):
                found.append(row)
        else:
            last = None
    links = [Link(href=this_url(request, portal.settings), rel="self")]
    if last is not None:
        older = this_url(request, portal.settings, before=last.id)
        links.append(Link(href=older, rel="next"))
    return JobList(jobs=tuple(JobAnswer.of(row, base) for row in found), links=tuple(links))


@router.get("/jobs/{job_id}", summary="A job's status")
async def job(job_id: str, request: Request, caller: Caller, portal: CurrentPortal) -> JobAnswer:
    """Return where a job stands."""
    row = await portal.quickly(_job, portal, caller, job_id)
    made_from_row(request, caller, row)
    return JobAnswer.of(row, base_url(request, portal.settings))


@router.delete("/jobs/{job_id}", summary="Dismiss a job")
def dismiss(job_id: str, request: Request, caller: Caller, portal: CurrentPortal) -> JobAnswer:
    """Cancel a job. Its finished results stay; a job that has ended does not change."""
    _job(portal, caller, job_id)
    row = order(portal, caller, job_id, RequestOrder.CANCEL)
    return JobAnswer.of(row, base_url(request, portal.settings))


@router.get(
    "/jobs/{job_id}/results",
    summary="A job's results",
    response_model=dict[str, JsonValue],
    responses={200: {"content": {GEOJSON: {"schema": {"type": "object"}}}}},
)
def job_results(
    job_id: str, request: Request, caller: Caller, portal: CurrentPortal
) -> JSONResponse:
    """Return the output `items`: bare, or in an object if the job was asked for a document."""
    row = _job(portal, caller, job_id)
    status = STATUSES[row.state]
    if status in ("failed", "dismissed"):
        raise JobFailedError(
            f"Job {row.id} is {row.state.value}. {row.message}".rstrip(),
            f"Its failures are at /api/requests/{row.id}/failures; what was finished before is at "
            f"/collections/{row.id}.",
        )
    if status != "successful":
        raise NotReadyError(
            f"Job {row.id} has not ended: it is {row.state.value}.", "Ask for its status first."
        )
    base = base_url(request, portal.settings)
    value: Object = {
        "type": "FeatureCollection",
        "features": [
            feature(item, row, base)
            for item in portal.state(Standards).stac.items(portal.runtime, row)
        ],
        "links": [link("collection", f"{base}/collections/{row.id}")],
    }
    if row.response == "document":
        return JSONResponse({OUTPUT: {"value": value, "mediaType": GEOJSON}})
    return GeoJsonAnswer(value)


def _job(portal: Portal, caller: Person, job_id: str) -> RequestRow:
    try:
        return load_for(portal.runtime, caller, job_id)
    except NotFoundError:
        raise NoSuchJobError(
            f"There is no job {job_id!r}.", "Your jobs are listed at /jobs."
        ) from None


def _check_process(process_id: str) -> None:
    if process_id != PROCESS:
        raise NoSuchProcessError(
            f"There is no process {process_id!r}.", f"There is one: {PROCESS}."
        )


def _process_links(base: str) -> tuple[Link, ...]:
    here = f"{base}/processes/{PROCESS}"
    return (
        Link(href=here, rel="self"),
        Link(href=f"{here}/execution", rel=_EXECUTE, title="Run it"),
    )
