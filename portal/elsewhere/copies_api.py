"""Copy results to their owner's own storage."""

from typing import Annotated

from fastapi import Depends

from portal.elsewhere.copies import (
    SECONDS,
    CopyAnswer,
    CopyFailedError,
    CopyOrder,
    copy,
    open_sink,
    read_order,
)
from portal.elsewhere.state import Elsewhere
from portal.results.state import Results
from portal.serving.access import load_for
from portal.serving.documents import read_body
from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.serving.problems import BusyError, NotFoundError, answers_with

router = Router(prefix="/api", tags=["requests"])


@router.post(
    "/requests/{request_id}/copies",
    summary="Copy results to a container of Azure or a bucket of S3",
    responses=answers_with(CopyFailedError),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": CopyOrder.model_json_schema()}},
        }
    },
)
def copy_results(
    request_id: str,
    body: Annotated[bytes, Depends(read_body)],
    caller: Caller,
    portal: CurrentPortal,
) -> CopyAnswer:
    """Copy finished results for some seconds, in the order of their paths.

    Call again with the answer's `after` until nothing is `left`. Files that are there are replaced.
    Keys and signatures are used in this call alone: nothing keeps or logs them.
    """
    row = load_for(portal.runtime, caller, request_id)
    order = read_order(body)
    files = list(portal.state(Results).index.files(portal.runtime, row).values())
    if not files:
        raise NotFoundError(
            f"Request {row.id} has no finished result yet.", "Copy when its page shows results."
        )
    sink = open_sink(order, portal.settings.allowed_copy_hosts)
    if not portal.state(Elsewhere).copying.acquire(blocking=False):
        raise BusyError("Other results are being copied.", "Try again in some seconds.")
    clock = portal.runtime.clock
    end = clock.monotonic() + SECONDS

    def goes_on() -> bool:
        return clock.monotonic() < end and not portal.stopping.is_set()

    try:
        reader = portal.state(Results).index.reader(portal.runtime, row)
        return copy(reader, files, sink, after=order.after, goes_on=goes_on)
    finally:
        portal.state(Elsewhere).copying.release()
