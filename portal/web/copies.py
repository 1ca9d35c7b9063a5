"""Copy results to their owner's own storage."""

from typing import Annotated

from fastapi import APIRouter, Depends

from portal.core.copying import SECONDS, CopyAnswer, CopyOrder, copy, open_sink, read_order
from portal.core.documents import read_body
from portal.core.identity import Caller
from portal.core.problems import BusyError, NotFoundError
from portal.core.submissions import load_for
from portal.web.context import CurrentPortal

router = APIRouter(prefix="/api", tags=["requests"])


@router.post(
    "/requests/{request_id}/copies",
    summary="Copy results to a container of Azure or a bucket of S3",
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
    files = list(portal.results.files(portal.runtime, row).values())
    if not files:
        raise NotFoundError(
            f"Request {row.id} has no finished result yet.", "Copy when its page shows results."
        )
    sink = open_sink(order, portal.settings.allowed_copy_hosts)
    if not portal.copying.acquire(blocking=False):
        raise BusyError("Other results are being copied.", "Try again in some seconds.")
    clock = portal.runtime.clock
    end = clock.monotonic() + SECONDS

    def goes_on() -> bool:
        return clock.monotonic() < end and not portal.stopping.is_set()

    try:
        reader = portal.results.reader(portal.runtime, row)
        return copy(reader, files, sink, after=order.after, goes_on=goes_on)
    finally:
        portal.copying.release()
