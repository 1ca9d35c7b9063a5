"""The texts and scripts that go with a request's results, in its ZIP and one by one."""

from collections.abc import Mapping

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from portal.core.downloads import attachment
from portal.core.identity import Reader
from portal.core.problems import NotFoundError
from portal.core.results import ResultFile
from portal.core.submissions import read_for
from portal.core.takeaway import texts
from portal.web.context import CurrentPortal, Portal
from portal.web.forms import request_yaml
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

router = APIRouter(prefix="/api", tags=["requests"])


def beside(portal: Portal, row: RequestRow, files: Mapping[str, ResultFile]) -> dict[str, str]:
    """Return the texts that go with results: names of results take precedence."""
    document = request_operations.document_of(row)
    made = texts(
        row,
        document,
        request_yaml(document),
        files,
        portal.results.gaps(portal.runtime, row)[0],
        portal.settings.portal_url,
    )
    return {name: text for name, text in made.items() if name not in files}


@router.get("/requests/{request_id}/scripts/{name}", summary="A script to fetch or open results")
def script(request_id: str, name: str, caller: Reader, portal: CurrentPortal) -> Response:
    """Return a text that the ZIP holds, too, such as `open_results.py` or `results.qgs`."""
    row = read_for(portal.runtime, caller, request_id)
    made = beside(portal, row, portal.results.files(portal.runtime, row))
    if name not in made:
        raise NotFoundError(f"There is no script {name!r}.", f"There are: {', '.join(made)}.")
    return PlainTextResponse(made[name], headers={"Content-Disposition": attachment(name)})
