"""The HTTP API as a page, from the same description programs read."""

from fastapi import APIRouter, Request, Response

from portal.core.identity import find_person
from portal.web.context import Here

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def docs(request: Request, here: Here) -> Response:
    """Every address of the API, what it takes and what it answers."""
    schema = request.app.openapi()
    calls = [
        (method.upper(), path, call)
        for path, methods in schema["paths"].items()
        for method, call in methods.items()
    ]
    return here.pages.page(
        "docs.html", find_person(request), "", 200, calls=calls, portal_url=str(request.base_url)
    )
