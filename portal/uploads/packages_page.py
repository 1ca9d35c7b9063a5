"""The pages of packages: the list with the upload, and one package with all that its owner does."""

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import UploadFile

from portal.serving.documents import turn
from portal.serving.identity import Caller, person
from portal.serving.portal import CurrentPortal, Portal, portal_of
from portal.serving.problems import TooLargeError
from portal.serving.tokens import Person
from portal.uploads.packages import (
    MOST_UPLOADED,
    keep_upload,
    offered,
    push,
)
from portal.uploads.packages_api import look
from portal.uploads.sharing_pages import SHARING, sharing_pages
from portal.uploads.state import Uploads
from tasks.packages.packages import PackageError
from tasks.uploads import upload_operations
from tasks.uploads.package_operations import PACKAGE_UPLOADS
from tasks.uploads.upload_operations import UploadConflictError

router = APIRouter(include_in_schema=False)
router.include_router(sharing_pages("packages", "run", PACKAGE_UPLOADS.table))

_FORM_BYTES = 64 * 2**10  # of a form besides its file


@router.get("/packages")
def packages(caller: Caller, portal: CurrentPortal) -> Response:
    """List the packages that the caller may run, with a form to upload one."""
    return _list(portal, caller)


@router.post("/packages")
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
            return await run_in_threadpool(_list, portal, caller, wrong=wrong)
        return await run_in_threadpool(_push, portal, caller, file)


def _push(portal: Portal, caller: Person, file: UploadFile) -> Response:
    with tempfile.TemporaryDirectory(prefix="swathmill-") as folder:
        path = Path(folder) / "upload"
        keep_upload(file.file, path)
        try:
            with turn(portal.state(Uploads).uploading):
                row, _ = push(portal.runtime, portal.settings, caller.owner, path)
        except (PackageError, UploadConflictError) as error:
            return _list(portal, caller, wrong=str(error))
    return RedirectResponse(f"/packages/{row.id}", 303)


@router.get("/packages/{package_id}")
def package(package_id: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Show a package: what it computes, its versions, who sees it."""
    view, versions = look(portal, caller, package_id)
    chosen = next((one for one in versions if one.version == view.newest), None)
    chosen = chosen or next(iter(versions), None)
    return portal.pages.page(
        "package.html",
        caller,
        "packages",
        200,
        package=view,
        versions=versions,
        manifest=chosen.manifest if chosen else None,
        sharing=SHARING,
    )


@router.post("/packages/{package_id}/deprecate")
def deprecate(
    package_id: str,
    caller: Caller,
    portal: CurrentPortal,
    version: Annotated[str, Form(max_length=40)],
    why: Annotated[str, Form(max_length=500)] = "",
) -> RedirectResponse:
    """Deprecate a version, or take that back."""
    row = upload_operations.own(PACKAGE_UPLOADS.table(portal.runtime), caller.owner, package_id)
    upload_operations.deprecate(PACKAGE_UPLOADS.table(portal.runtime), row, version, why)
    return RedirectResponse(f"/packages/{package_id}", 303)


def _list(portal: Portal, caller: Person, *, wrong: str = "") -> Response:
    return portal.pages.page(
        "packages.html",
        caller,
        "packages",
        422 if wrong else 200,
        packages=offered(portal.runtime, portal.state(Uploads).local, caller.owner),
        wrong=wrong,
    )
