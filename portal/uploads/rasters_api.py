"""What the HTTP API of users' rasters has besides: push one."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from portal.serving.documents import turn
from portal.serving.identity import person
from portal.serving.portal import Portal, portal_of
from portal.serving.tokens import Person
from portal.uploads.raster_kind import RASTERS, RasterAnswer
from portal.uploads.rasters import RasterUpload, push, received
from portal.uploads.state import Uploads
from portal.uploads.upload_api import upload_api
from tasks.uploads.upload_table import UploadRow

router = upload_api(RASTERS)

_TEXT = {"type": "string"}
_UPLOAD_SCHEMA = {
    "requestBody": {
        "required": True,
        "description": "Files (GeoTIFF, netCDF-4), or the https address of one, and what is said "
        "of them. Lists are separated by commas.",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": _TEXT,
                        "version": _TEXT,
                        "file": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        },
                        "url": _TEXT,
                        "layers": _TEXT,
                        "classes": _TEXT,
                        "units": _TEXT,
                        "dates": _TEXT,
                        "period": _TEXT,
                    },
                }
            }
        },
    }
}


def push_form(
    portal: Portal, caller: Person, upload: RasterUpload, files: Sequence[UploadFile]
) -> UploadRow:
    """Push a form's raster for a person; raise BusyError and what `push` raises."""
    with turn(portal.state(Uploads).uploading):
        return push(portal.runtime, portal.settings, caller.owner, upload, files)


def _answer(portal: Portal, caller: Person, row: UploadRow) -> RasterAnswer:
    return RasterAnswer.of(*RASTERS.look(portal, caller.owner, row.id))


@router.post("", status_code=201, openapi_extra=_UPLOAD_SCHEMA, summary="Upload a raster")
async def upload(request: Request, caller: Annotated[Person, Depends(person)]) -> RasterAnswer:
    """Store a raster as a version of yours; a new raster is private.

    The same content again changes nothing; without a version it gets the next number.
    """
    portal = portal_of(request)
    row = await received(request, partial(push_form, portal, caller))
    return await run_in_threadpool(_answer, portal, caller, row)
