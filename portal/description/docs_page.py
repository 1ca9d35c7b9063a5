"""The HTTP API as a page, made from the OpenAPI description that programs read."""

from fastapi import Request, Response

from portal.serving.identity import find_person
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal

router = Router(include_in_schema=False)


@router.get("/docs")
def docs(request: Request, portal: CurrentPortal) -> Response:
    """Show every address of the API, its parameters and its answers."""
    schema = request.app.openapi()
    calls = [
        (method.upper(), path, call)
        for path, methods in schema["paths"].items()
        for method, call in methods.items()
    ]
    return portal.pages.page(
        "docs.html", find_person(request), "", 200, calls=calls, portal_url=str(request.base_url)
    )
