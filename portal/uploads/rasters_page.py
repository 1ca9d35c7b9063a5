"""The pages of users' rasters: the list with the upload, and one raster with all its owner does."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import UploadFile

from portal.serving.identity import Caller, person
from portal.serving.portal import CurrentPortal, Portal, portal_of
from portal.serving.problems import begun
from portal.serving.tokens import Person
from portal.uploads.rasters import RasterUpload, offered, received
from portal.uploads.rasters_api import look, push_form
from portal.uploads.sharing_pages import SHARING, sharing_pages
from reprojection.user_rasters.source import RasterRefusedError
from tasks.uploads.raster_operations import RASTER_UPLOADS
from tasks.uploads.upload_operations import UploadConflictError
from tasks.uploads.upload_table import UploadRow

router = APIRouter(include_in_schema=False)
router.include_router(sharing_pages("rasters", "name", RASTER_UPLOADS.table))


@router.get("/rasters")
def rasters(caller: Caller, portal: CurrentPortal) -> Response:
    """List the rasters that the caller may name, with a form to upload one."""
    return _list(portal, caller)


@router.post("/rasters")
async def upload(request: Request, caller: Annotated[Person, Depends(person)]) -> Response:
    """Store an uploaded raster, and show it; or show what is wrong with it."""
    portal = portal_of(request)
    typed = [RasterUpload()]

    def noted(upload: RasterUpload, files: Sequence[UploadFile]) -> UploadRow:
        typed.append(upload)
        return push_form(portal, caller, upload, files)

    try:
        row = await received(request, noted)
    except (RasterRefusedError, UploadConflictError) as error:
        wrong = begun(str(error))
        return await run_in_threadpool(_list, portal, caller, typed=typed[-1], wrong=wrong)
    return RedirectResponse(f"/rasters/{row.id}", 303)


@router.get("/rasters/{raster_id}")
def raster(raster_id: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Show a raster: what it holds, where it lies, its versions, who sees it."""
    view, versions = look(portal, caller, raster_id)
    chosen = next((one for one in versions if one.row.version == view.newest), None)
    return portal.pages.page(
        "raster.html",
        caller,
        "rasters",
        200,
        raster=view,
        versions=versions,
        newest=chosen,
        sharing=SHARING,
    )


def _list(
    portal: Portal, caller: Person, *, typed: RasterUpload | None = None, wrong: str = ""
) -> Response:
    """Show the list, and the form with what was typed."""
    return portal.pages.page(
        "rasters.html",
        caller,
        "rasters",
        422 if wrong else 200,
        rasters=offered(portal.runtime, caller.owner),
        typed=typed or RasterUpload(),
        wrong=wrong,
        fetches=bool(portal.settings.allowed_hosts.endpoints),
    )
