"""Show requests as jobs of OGC API - Processes, and making them as its one process.

Standard: OGC API - Processes - Part 1: Core, 1.0 (OGC 18-062r2).
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from portal.description.request_schema import request_schema
from portal.serving.problems import PortalError
from portal.serving.quantities import moment
from tasks.answers.answer import Answer
from tasks.bag.model import RequestState
from tasks.errors import RequestRefusedError
from tasks.requests.request_table import RequestRow

PROCESS = "reproject"
OUTPUT = "items"
_TYPES = "http://www.opengis.net/def/exceptions/ogcapi-processes-1/1.0/"
_LONLAT = ("http://www.opengis.net/def/crs/OGC/1.3/CRS84", "CRS84", "OGC:CRS84")

Status = Literal["accepted", "running", "successful", "failed", "dismissed"]
STATUSES: Mapping[RequestState, Status] = {
    RequestState.SUBMITTED: "accepted",
    RequestState.PLANNING: "running",
    RequestState.HELD: "accepted",
    RequestState.WRITING: "running",
    RequestState.RUNNING: "running",
    RequestState.CANCELLING: "dismissed",
    RequestState.COMPLETE: "successful",
    RequestState.GAPS: "successful",
    RequestState.FAILED: "failed",
    RequestState.CANCELLED: "dismissed",
    RequestState.REFUSED: "failed",
    RequestState.PREVIEWED: "successful",
}


class NoSuchProcessError(PortalError):
    """There is no process of this name."""

    status = 404
    type = f"{_TYPES}no-such-process"


class NoSuchJobError(PortalError):
    """There is no job of this id, or the caller may not see it."""

    status = 404
    type = f"{_TYPES}no-such-job"


class NotReadyError(PortalError):
    """The job has not ended."""

    status = 404
    type = f"{_TYPES}result-not-ready"


class JobFailedError(PortalError):
    """The job has failed or was dismissed, so it has no results."""

    status = 410
    type = f"{_TYPES}job-results-failed"


class Link(Answer):
    """A link to another address."""

    href: str
    rel: str
    type: str = "application/json"
    title: str = ""


class JobAnswer(Answer):
    """A job: where a request stands. `progress` is the percentage of tasks that have ended."""

    processID: str = PROCESS  # noqa: N815 - the standard's spelling
    type: Literal["process"] = "process"
    jobID: str  # noqa: N815
    status: Status
    message: str
    created: dt.datetime
    finished: dt.datetime | None = None
    progress: int = Field(ge=0, le=100)
    links: tuple[Link, ...]

    @classmethod
    def of(cls, row: RequestRow, base: str) -> Self:
        """Build the answer for a request's row."""
        here = f"{base}/jobs/{row.id}"
        status = STATUSES[row.state]
        links = [
            Link(href=here, rel="self", title="This job"),
            Link(href=f"{base}/requests/{row.id}", rel="alternate", type="text/html"),
            Link(href=f"{base}/collections/{row.id}", rel="related", title="STAC collection"),
        ]
        if status == "successful":
            rel = "http://www.opengis.net/def/rel/ogc/1.0/results"
            links.append(Link(href=f"{here}/results", rel=rel, title="Results"))
        return cls(
            jobID=row.id,
            status=status,
            message=row.message or row.state.text(paused=row.paused),
            created=moment(row.submitted),
            finished=moment(row.ended) if row.ended else None,
            progress=_percent(row),
            links=tuple(links),
        )


class JobList(Answer):
    """A page of jobs, newest first; the link `next` leads to older ones."""

    jobs: tuple[JobAnswer, ...]
    links: tuple[Link, ...]


class ProcessSummary(Answer):
    """What a process is, without its inputs and outputs."""

    id: str = PROCESS
    version: str
    title: str = "Reproject, mosaic and reduce MODIS granules"
    description: str = (
        "Find the granules of MODIS products that touch a region and a time span, bring them onto "
        "one grid, mosaic them by date, and run a reduction over them."
    )
    jobControlOptions: tuple[str, ...] = ("async-execute", "dismiss")  # noqa: N815
    outputTransmission: tuple[str, ...] = ("value",)  # noqa: N815
    links: tuple[Link, ...]


class ProcessList(Answer):
    """All processes: there is one."""

    processes: tuple[ProcessSummary, ...]
    links: tuple[Link, ...]


class ProcessAnswer(ProcessSummary):
    """A process with its inputs, which are the fields of a request document, and its output."""

    inputs: dict[str, dict[str, JsonValue]]
    outputs: dict[str, dict[str, JsonValue]]


class Execute(BaseModel):
    """What to run the process on."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "inputs": {
                        "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
                        "region": {"value": {"bbox": [-8.0, 50.5, 6.0, 58.5]}},
                        "time": {"value": {"start": "2012-01-01", "end": "2012-04-30"}},
                        "grid": {"value": {"crs": "EPSG:4326", "resolution": 0.01}},
                    },
                    "response": "document",
                }
            ]
        },
    )

    inputs: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="The fields of a request document, each as it is or as `{value: ...}`.",
    )
    outputs: dict[str, dict[str, JsonValue]] | None = Field(
        None, description=f"The outputs wanted; there is one, `{OUTPUT}`, sent by value."
    )
    response: Literal["raw", "document"] = Field(
        "raw", description="Whether results are the bare output, or an object with each output."
    )


def inputs_of_process() -> dict[str, dict[str, JsonValue]]:
    """Describe the inputs: the fields of a request document."""
    schema = request_schema()
    needed = schema["required"]
    return {
        name: {
            "title": name.replace("_", " ").capitalize(),
            "description": field["description"],
            "minOccurs": int(name in needed),
            "maxOccurs": 1,
            "schema": {k: v for k, v in field.items() if k not in ("title", "description")},
        }
        for name, field in schema["properties"].items()
    }


def outputs_of_process() -> dict[str, dict[str, JsonValue]]:
    """Describe the output."""
    return {
        OUTPUT: {
            "title": "Results",
            "description": "A STAC item for each date, with an asset for each file.",
            "schema": {
                "type": "object",
                "contentMediaType": "application/geo+json",
                "$ref": "https://schemas.stacspec.org/v1.0.0/item-spec/json-schema/item.json",
            },
        }
    }


def document_of(asked: Execute) -> dict[str, Any]:
    """Return the request document that the inputs make.

    Raises RequestRefusedError for an output that is not offered and for values by reference.
    """
    for name, wanted in (asked.outputs or {}).items():
        if name != OUTPUT:
            raise RequestRefusedError(
                f"outputs.{name}", f"there is no output {name!r}.", f"Name {OUTPUT}."
            )
        if wanted.get("transmissionMode", "value") != "value":
            raise RequestRefusedError(
                f"outputs.{name}.transmissionMode",
                f"{wanted['transmissionMode']!r} is not offered.",
                "Leave it out, or write value: the output has links to all files.",
            )
    return {name: _value(name, given) for name, given in asked.inputs.items()}


def _value(name: str, given: JsonValue) -> JsonValue:
    """Return an input's value, which may be given as it is, qualified, or as a box."""
    if not isinstance(given, dict):
        return given
    if "href" in given:
        raise RequestRefusedError(
            f"inputs.{name}", "values by reference are not fetched.", "Give the value itself."
        )
    if "value" in given:
        return _value(name, given["value"])
    if name == "region" and given.get("crs") in _LONLAT:
        return {key: value for key, value in given.items() if key != "crs"}
    return given


def _percent(row: RequestRow) -> int:
    if row.state.ended:
        return 100 if STATUSES[row.state] == "successful" else _share(row)
    return min(99, _share(row))


def _share(row: RequestRow) -> int:
    total = sum(count.total for count in row.phases.values())
    left = sum(count.left for count in row.phases.values())
    return round(100 * (total - left) / total) if total else 0
