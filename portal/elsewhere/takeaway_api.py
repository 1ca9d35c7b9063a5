"""The texts and scripts that go with a request's results, in its ZIP and one by one."""

from collections.abc import Mapping

from fastapi import Response
from fastapi.responses import PlainTextResponse

from portal.elsewhere.takeaway import texts
from portal.results.result_files import ResultFile
from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.attachments import attachment
from portal.serving.identity import Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError
from portal.submit.forms import request_yaml
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

router = Router(prefix="/api", tags=["requests"])


def texts_beside(
    portal: Portal, row: RequestRow, files: Mapping[str, ResultFile]
) -> dict[str, str]:
    """Return the texts that go with results: names of results take precedence."""
    document = request_operations.document_of(row)
    made = texts(
        row,
        document,
        request_yaml(document),
        files,
        portal.state(Results).index.gaps(portal.runtime, row)[0],
        portal.settings.portal_url,
    )
    return {name: text for name, text in made.items() if name not in files}


@router.get("/requests/{request_id}/scripts/{name}", summary="A script to fetch or open results")
def script(request_id: str, name: str, caller: Reader, portal: CurrentPortal) -> Response:
    """Return a text that the ZIP holds, too, such as `open_results.py` or `results.qgs`."""
    row = read_for(portal.runtime, caller, request_id)
    made = texts_beside(portal, row, portal.state(Results).index.files(portal.runtime, row))
    if name not in made:
        raise NotFoundError(f"There is no script {name!r}.", f"There are: {', '.join(made)}.")
    return PlainTextResponse(made[name], headers={"Content-Disposition": attachment(name)})
