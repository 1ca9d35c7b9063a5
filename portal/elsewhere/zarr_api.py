"""Cubes in Zarr as stores of keys, so that xarray reads what it needs and no more."""

from fastapi import Request, Response

from portal.elsewhere.state import Elsewhere
from portal.elsewhere.zarr_store import read_member, read_members, split_address
from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.identity import Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.serving.problems import NotFoundError

router = Router(prefix="/api", tags=["requests"])


@router.head("/requests/{request_id}/zarr/{path:path}", include_in_schema=False)
@router.get(
    "/requests/{request_id}/zarr/{path:path}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}, 304: {"description": "Same."}},
    summary="A key of a cube in Zarr",
)
def key(
    request_id: str, path: str, request: Request, caller: Reader, portal: CurrentPortal
) -> Response:
    """Return the bytes of a key, such as `FOLDER/NAME.zarr/.zmetadata`.

    The store of the result `FOLDER/NAME.zarr.zip` begins at `FOLDER/NAME.zarr`.
    """
    row = read_for(portal.runtime, caller, request_id)
    name, wanted = split_address(path)
    reader = portal.state(Results).index.reader(portal.runtime, row)
    result = reader.current(portal.state(Results).index.find(portal.runtime, row, name))
    members = portal.state(Elsewhere).stores.get(
        result.file.sha256, lambda: read_members(reader, result)
    )
    found = members.get(wanted)
    if found is None:
        raise NotFoundError(
            f"{name} has no key {wanted!r}.", "A chunk without a key has the fill value everywhere."
        )
    etag = f'"{result.file.sha256[:32]}-{found.header:x}"'
    headers = {"ETag": etag, "Cache-Control": "private, max-age=31536000, immutable"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if request.method == "HEAD":
        headers["Content-Length"] = str(found.size)
        return Response(headers=headers, media_type="application/octet-stream")
    data = read_member(reader, result, found)
    return Response(data, headers=headers, media_type="application/octet-stream")
