"""What the pages of packages do besides: upload one from a form, and deprecate a version."""

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import UploadFile

from portal.serving.documents import turn
from portal.serving.identity import Caller, person
from portal.serving.portal import CurrentPortal, Portal, portal_of
from portal.serving.problems import TooLargeError
from portal.serving.tokens import Person
from portal.uploads.package_kind import PACKAGES
from portal.uploads.packages import MOST_UPLOADED, keep_upload, push
from portal.uploads.state import Uploads
from portal.uploads.upload_pages import list_page, upload_pages
from tasks.packages.packages import PackageError
from tasks.uploads import upload_operations
from tasks.uploads.upload_operations import UploadConflictError

router = upload_pages(PACKAGES)

_FORM_BYTES = 64 * 2**10  # of a form besides its file


@router.post("")
async def upload(request: Request, caller: Annotated[Person, Depends(person)]) -> Response:
    """Store an uploaded package, and show it; or show what is wrong with it."""
    portal = portal_of(request)
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > MOST_UPLOADED + _FORM_BYTES:
        raise TooLargeError(
            f"The file is larger than {MOST_UPLOADED >> 20} MiB, or does not say its size.",
            "Make the package smaller.",
        )
    async with request.form(max_files=1, max_fields=4) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            wrong = "Choose a file: a zip or a tar of your package."
            return await run_in_threadpool(list_page, PACKAGES, portal, caller, wrong=wrong)
        return await run_in_threadpool(_push, portal, caller, file)


def _push(portal: Portal, caller: Person, file: UploadFile) -> Response:
    with tempfile.TemporaryDirectory(prefix="swathmill-") as folder:
        path = Path(folder) / "upload"
        keep_upload(file.file, path)
        try:
            with turn(portal.state(Uploads).uploading):
                row, _ = push(portal.runtime, portal.settings, caller.owner, path)
        except (PackageError, UploadConflictError) as error:
            return list_page(PACKAGES, portal, caller, wrong=str(error))
    return RedirectResponse(f"/packages/{row.id}", 303)


@router.post("/{package_id}/deprecate")
def deprecate(
    package_id: str,
    caller: Caller,
    portal: CurrentPortal,
    version: Annotated[str, Form(max_length=40)],
    why: Annotated[str, Form(max_length=500)] = "",
) -> RedirectResponse:
    """Deprecate a version, or take that back."""
    row = PACKAGES.own(portal, caller.owner, package_id)
    upload_operations.deprecate(PACKAGES.table(portal), row, version, why)
    return RedirectResponse(f"/packages/{package_id}", 303)
