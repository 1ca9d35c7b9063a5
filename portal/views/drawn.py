"""What all tiles share: their forms, and how they are sent."""

from typing import Annotated, Literal

from fastapi import Query, Request, Response

from modis.box import LonLatBox
from portal.serving.problems import BadCallError

FRESH = "private, max-age=600"
"""How long a browser takes a tile as it was."""

_MEDIA = {"png": "image/png", "npy": "application/octet-stream", "tif": "image/tiff"}

Form = Literal["png", "npy", "tif"]
Matrix = Annotated[str, Query(description="A tile matrix set of /maps/tileMatrixSets.")]


def send_drawn(request: Request, drawn: tuple[str, bytes], form: Form) -> Response:
    """Send what was drawn, or that it has not changed."""
    tag, found = f'"{drawn[0]}"', drawn[1]
    headers = {"ETag": tag, "Cache-Control": FRESH}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(found, media_type=_MEDIA[form], headers=headers)


def box_named(text: str) -> LonLatBox:
    """Read a box of degrees. Raises BadCallError."""
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        west = south = east = north = 0.0
    if not (-360 <= west <= 360 and -360 <= east <= 360 and -90 <= south < north <= 90):
        raise BadCallError(
            f"{text!r} is no box.", "Write west,south,east,north in degrees.", field="bbox"
        )
    return LonLatBox(west, south, east, north)
