"""What the HTTP API of packages has besides: push, deprecate and download them."""

from pathlib import Path
from typing import Annotated

from fastapi import Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from portal.serving.attachments import attachment
from portal.serving.caller_limits import CountedResponse
from portal.serving.documents import turn
from portal.serving.identity import Caller
from portal.serving.portal import CurrentPortal
from portal.uploads.package_kind import PACKAGES, PackageAnswer
from portal.uploads.packages import archive_of, push, received
from portal.uploads.state import Uploads
from portal.uploads.upload_api import upload_api
from tasks.uploads import upload_operations

router = upload_api(PACKAGES)

Uploaded = Annotated[Path, Depends(received)]
_UPLOAD_SCHEMA = {
    "requestBody": {
        "required": True,
        "description": "A zip, or a tar as it is or packed by gzip, bzip2 or xz.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("", status_code=201, openapi_extra=_UPLOAD_SCHEMA, summary="Upload a package")
def upload(body: Uploaded, caller: Caller, portal: CurrentPortal) -> PackageAnswer:
    """Store the uploaded archive as a version of your package; a new package is private.

    The name and the version are those of its `package.yaml`. The same content again changes
    nothing; other content needs another version.
    """
    with turn(portal.state(Uploads).uploading):
        row, _ = push(portal.runtime, portal.settings, caller.owner, body)
    return PackageAnswer.of(*PACKAGES.look(portal, caller.owner, row.id))


@router.post("/{package_id}/versions/{version}/deprecate", summary="Deprecate a version")
def deprecate(
    package_id: str,
    version: str,
    caller: Caller,
    portal: CurrentPortal,
    why: Annotated[str, Query(max_length=500, description="Empty: no longer deprecated.")] = "",
) -> PackageAnswer:
    """Advise against a version. The name alone no longer means it; requests that name it run it."""
    row = PACKAGES.own(portal, caller.owner, package_id)
    upload_operations.deprecate(PACKAGES.table(portal), row, version, why)
    return PackageAnswer.of(*PACKAGES.look(portal, caller.owner, row.id))


@router.get(
    "/{package_id}/versions/{version}/archive.tar",
    response_class=StreamingResponse,
    summary="A version's archive",
)
def archive(
    package_id: str, version: str, request: Request, caller: Caller, portal: CurrentPortal
) -> Response:
    """Return the archive of a version; its SHA-256 is the version's digest and the ETag."""
    digest, size, content = archive_of(portal, caller.owner, package_id, version)
    headers = {"ETag": f'"{digest}"', "Content-Length": str(size), "Cache-Control": "no-store"}
    view, _ = PACKAGES.look(portal, caller.owner, package_id)
    headers["Content-Disposition"] = attachment(f"{view.name}-{version}.tar")
    if request.headers.get("if-none-match", "") == headers["ETag"]:
        del headers["Content-Length"]
        return Response(status_code=304, headers=headers)
    return CountedResponse(content(), 200, headers, "application/x-tar")
