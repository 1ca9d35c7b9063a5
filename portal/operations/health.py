"""Tell whether the service works: for monitoring, for the host, and for people on each page.

`/livez` tells whether this process answers; a host may restart the process if it does not.
`/healthz` tells whether storage answers, a manager acts, workers come if work waits, and the
message server answers; restarting the portal would not help if they do not.
"""

from http import HTTPStatus
from importlib.metadata import version

from fastapi import Request, Response

from portal.serving.identity import find_person
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.serving.quantities import duration_text
from tasks.answers.answer import Answer
from tasks.operators.manager_lease import Acting

router = Router(tags=["health"])
pages = Router(include_in_schema=False)


class HealthAnswer(Answer):
    """The state of the service: `ok`, or what is wrong with the reason and a remedy.

    What is wrong is `no manager acts`, `no worker is at work` or `the message server does not
    answer`.
    """

    status: str
    version: str
    reason: str = ""
    remedy: str = ""


class LiveAnswer(Answer):
    """The state of this process, which answers."""

    status: str = "ok"
    version: str


@router.get("/livez", summary="Whether this process answers")
def livez() -> LiveAnswer:
    """Tell whoever restarts processes that this one answers; do not ask storage or manager."""
    return LiveAnswer(version=version("swathmill"))


@router.get(
    "/healthz",
    summary="Whether the service works: storage, a manager, workers if work waits, messages",
    responses={503: {"model": HealthAnswer}},
)
def healthz(portal: CurrentPortal, response: Response) -> HealthAnswer:
    """Tell monitoring whether requests are worked on; answer 503 with the reason if not."""
    acting = portal.manager.look()
    response.headers["Cache-Control"] = "no-store"
    if acting.without_workers:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        return HealthAnswer(
            status="no worker is at work",
            version=version("swathmill"),
            reason=f"Work has waited for {duration_text(acting.starved)}, and "
            + (
                f"no worker's machine can begin an attempt. {acting.unfit}"
                if acting.unfit
                else "no worker gives a sign."
            ),
            remedy="Start workers. On one machine read logs/stack.log in the data folder: workers "
            "stop while the disk is full. `swathmill doctor` helps to find the cause. Requests are "
            "kept and continue when a worker comes.",
        )
    if acting.acts and not portal.redis.silent:
        return HealthAnswer(status="ok", version=version("swathmill"))
    response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    if acting.acts:
        return HealthAnswer(
            status="the message server does not answer",
            version=version("swathmill"),
            reason=f"{portal.redis.fault}: no message reaches a worker.",
            remedy="Read the log of the message server, Redis or Swathmill's own (one machine: "
            "logs/redis.log in the data folder). If its process hangs, kill it; `swathmill up` "
            "starts it again. Requests are kept and continue when it answers.",
        )
    return HealthAnswer(
        status="no manager acts",
        version=version("swathmill"),
        reason=reason_of(acting),
        remedy="Read the manager's log (one machine: logs/manager.log in the data folder) and "
        "start it again. Requests are kept and continue when a manager acts.",
    )


@pages.get("/service-notice")
def notice(request: Request, portal: CurrentPortal) -> Response:
    """Return the notice that each page shows while no work starts; nothing otherwise."""
    return portal.pages.part("service_notice.html", me=find_person(request))


def reason_of(acting: Acting) -> str:
    """Explain why the portal concludes that no manager acts."""
    said = f"No service manager has given a sign for {duration_text(acting.silence)}"
    return f"{said}." if acting.epoch else f"{said}; none has acted here before."
