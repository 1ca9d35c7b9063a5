"""What the pages of users' rasters do besides: upload one from a form."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import UploadFile

from portal.serving.identity import person
from portal.serving.portal import portal_of
from portal.serving.problems import begun
from portal.serving.tokens import Person
from portal.uploads.raster_kind import RASTERS
from portal.uploads.rasters import RasterUpload, received
from portal.uploads.rasters_api import push_form
from portal.uploads.upload_pages import list_page, upload_pages
from reprojection.user_rasters.source import RasterRefusedError
from tasks.uploads.upload_operations import UploadConflictError
from tasks.uploads.upload_table import UploadRow

router = upload_pages(RASTERS)


@router.post("")
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
        return await run_in_threadpool(
            list_page, RASTERS, portal, caller, wrong=wrong, typed=typed[-1]
        )
    return RedirectResponse(f"/rasters/{row.id}", 303)
