"""Whether the service works: for monitoring, for the processes' host, and for people on each page.

`/livez` says that this process answers; a host may restart it when it does not. `/healthz` says
whether storage answers and a manager acts: no restart of the portal mends that.
"""

from http import HTTPStatus
from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from portal.core.identity import find_person
from portal.core.quantities import duration_text
from portal.web.context import Here
from tasks.tables.manager_lease import Acting

router = APIRouter(tags=["health"])
pages = APIRouter(include_in_schema=False)


class HealthAnswer(BaseModel):
    """The state of the service: `ok`, or `no manager acts` with the reason and a remedy."""

    model_config = ConfigDict(frozen=True)

    status: str
    version: str
    reason: str = ""
    remedy: str = ""


class LiveAnswer(BaseModel):
    """This process answers."""

    model_config = ConfigDict(frozen=True)

    status: str = "ok"
    version: str


@router.get("/livez", summary="Whether this process answers")
def livez() -> LiveAnswer:
    """For whoever restarts processes: storage and manager are not asked."""
    return LiveAnswer(version=version("swathmill"))


@router.get(
    "/healthz",
    summary="Whether the service works: storage answers and a manager acts",
    responses={503: {"model": HealthAnswer}},
)
def healthz(here: Here, response: Response) -> HealthAnswer:
    """For monitoring: 503 with the reason when requests are not worked on."""
    acting = here.manager.look()
    response.headers["Cache-Control"] = "no-store"
    if acting.acts:
        return HealthAnswer(status="ok", version=version("swathmill"))
    response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return HealthAnswer(
        status="no manager acts",
        version=version("swathmill"),
        reason=reason_of(acting),
        remedy="Read the manager's log (one machine: logs/manager.log in the data folder) and "
        "start it again. Requests are kept, and go on by themselves when a manager acts.",
    )


@pages.get("/service-notice")
def notice(request: Request, here: Here) -> Response:
    """What each page says while no manager acts; nothing otherwise."""
    return here.pages.part("service_notice.html", me=find_person(request))


def reason_of(acting: Acting) -> str:
    """Why no manager is said to act."""
    said = f"No service manager has given a sign for {duration_text(acting.silence)}"
    return f"{said}." if acting.epoch else f"{said}; none has acted here before."
