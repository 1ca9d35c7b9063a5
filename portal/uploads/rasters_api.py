"""The HTTP API of users' rasters: push, list, show, share and delete them."""

import datetime as dt
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import UploadFile

from portal.serving.documents import turn
from portal.serving.identity import Caller, person
from portal.serving.portal import CurrentPortal, Portal, portal_of
from portal.serving.quantities import moment
from portal.serving.tokens import Person
from portal.uploads.packages import PackageView
from portal.uploads.rasters import (
    RasterUpload,
    RasterVersionView,
    offered,
    push,
    raster_view,
    received,
)
from portal.uploads.state import Uploads
from reprojection.catalogue.user_raster import PREFIX, RasterLayer
from tasks.packages.rasters import reference_of
from tasks.uploads import upload_operations
from tasks.uploads.raster_operations import RASTER_UPLOADS
from tasks.uploads.upload_operations import NoSuchUploadError
from tasks.uploads.upload_table import UploadRow, Visibility

router = APIRouter(prefix="/api/rasters", tags=["rasters"])

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


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class RasterVersionAnswer(_Answer):
    """A version of a raster: what it holds, and the digest and bytes of its file."""

    version: str
    digest: str
    size: int
    pushed: dt.datetime
    came_from: str = Field(description="The names of its files, or its address.")
    layers: tuple[RasterLayer, ...]
    dates: tuple[dt.date, ...] = Field(description="Empty: it is of no date.")
    period: int = Field(description="The days for which each date stands.")
    crs: str
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int
    bbox: tuple[float, float, float, float]

    @classmethod
    def of(cls, view: RasterVersionView) -> Self:
        """Build the answer for a version."""
        row, raster = view.row, view.row.raster
        return cls(
            version=row.version,
            digest=row.digest,
            size=row.size,
            pushed=moment(row.pushed),
            came_from=row.came_from,
            layers=raster.layers,
            dates=raster.days,
            period=raster.period,
            crs=raster.crs,
            transform=raster.transform,
            width=raster.width,
            height=raster.height,
            bbox=raster.box,
        )


class RasterAnswer(_Answer):
    """A raster. `reference` is what a request names; `link` is told to its owner alone."""

    id: str
    reference: str
    owner: str
    name: str
    visibility: Visibility
    newest: str = Field(description="The version that its name alone means.")
    layers: str = Field(description="The layers of the newest version, separated by commas.")
    link: str = ""
    versions: tuple[RasterVersionAnswer, ...] = ()
    url: str

    @classmethod
    def of(cls, view: PackageView, versions: tuple[RasterVersionView, ...] = ()) -> Self:
        """Build the answer for a raster."""
        return cls(
            id=view.id,
            reference=view.reference,
            owner=view.owner,
            name=view.name,
            visibility=view.visibility,
            newest=view.newest,
            layers=view.description,
            link=view.link,
            versions=tuple(map(RasterVersionAnswer.of, versions)),
            url=f"/rasters/{view.id}",
        )


def look(
    portal: Portal, caller: Person, raster: str
) -> tuple[PackageView, tuple[RasterVersionView, ...]]:
    """Find a raster that the caller may see, by its id; raise NoSuchUploadError."""
    row = upload_operations.load_for(RASTER_UPLOADS.table(portal.runtime), caller.owner, raster)
    versions = RASTER_UPLOADS.table(portal.runtime).versions(row.id)
    view = raster_view(row, caller.owner, portal.settings.portal_url)
    return view, tuple(RasterVersionView(row=one) for one in versions)


def push_form(
    portal: Portal, caller: Person, upload: RasterUpload, files: Sequence[UploadFile]
) -> UploadRow:
    """Push a form's raster for a person; raise BusyError and what `push` raises."""
    with turn(portal.state(Uploads).uploading):
        return push(portal.runtime, portal.settings, caller.owner, upload, files)


def _answer(portal: Portal, caller: Person, row: UploadRow) -> RasterAnswer:
    return RasterAnswer.of(*look(portal, caller, row.id))


@router.get("", summary="The rasters that you may name")
def list_rasters(caller: Caller, portal: CurrentPortal) -> list[RasterAnswer]:
    """List your own rasters, everyone's, and those opened by a link."""
    return [RasterAnswer.of(view) for view in offered(portal.runtime, caller.owner)]


@router.post("", status_code=201, openapi_extra=_UPLOAD_SCHEMA, summary="Upload a raster")
async def upload(request: Request, caller: Annotated[Person, Depends(person)]) -> RasterAnswer:
    """Store a raster as a version of yours; a new raster is private.

    The same content again changes nothing; without a version it gets the next number.
    """
    portal = portal_of(request)
    row = await received(request, partial(push_form, portal, caller))
    return await run_in_threadpool(_answer, portal, caller, row)


@router.get("/find", summary="What a reference means to you")
def find(reference: str, caller: Caller, portal: CurrentPortal) -> RasterAnswer:
    """Find a raster as a request names it, `raster:NAME`; `raster:` may be left out."""
    text = reference[:400]
    text = text if text.startswith(PREFIX) else f"{PREFIX}{text}"
    try:
        asked = reference_of(text)
    except ValueError:
        raise NoSuchUploadError(text, "raster") from None
    found = upload_operations.meant(RASTER_UPLOADS.table(portal.runtime), caller.owner, asked)
    if found is None:
        raise NoSuchUploadError(text, "raster")
    row, version = found
    view, versions = look(portal, caller, row.id)
    if asked.version or asked.digest:
        versions = tuple(one for one in versions if one.row.version == version.version)
    return RasterAnswer.of(view, versions)


@router.post("/open", summary="Take up a raster by its link")
def open_link(link: str, caller: Caller, portal: CurrentPortal) -> RasterAnswer:
    """Add the raster of a link to those that you may name."""
    raster, _, secret = link[:200].rpartition("link=")[2].partition(".")
    row = upload_operations.open_link(
        RASTER_UPLOADS.table(portal.runtime), caller.owner, raster, secret
    )
    return _answer(portal, caller, row)


@router.get("/{raster_id}", summary="A raster and its versions")
def show(raster_id: str, caller: Caller, portal: CurrentPortal) -> RasterAnswer:
    """Return a raster with its versions, the last one pushed first."""
    return RasterAnswer.of(*look(portal, caller, raster_id))


@router.post("/{raster_id}/share", summary="Say who sees a raster")
def share(
    raster_id: str,
    visibility: Visibility,
    caller: Caller,
    portal: CurrentPortal,
    renew: Annotated[bool, Query(description="A new link; the old one opens nothing.")] = False,
) -> RasterAnswer:
    """Have yourself alone, whoever has a link, or everyone see a raster and name it."""
    row = upload_operations.own(RASTER_UPLOADS.table(portal.runtime), caller.owner, raster_id)
    row = upload_operations.share(
        RASTER_UPLOADS.table(portal.runtime), row, visibility, renew=renew
    )
    return _answer(portal, caller, row)


@router.delete("/{raster_id}", status_code=204, summary="Delete a raster")
def delete(raster_id: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Delete a raster with all its versions; requests that use it by now go on."""
    row = upload_operations.own(RASTER_UPLOADS.table(portal.runtime), caller.owner, raster_id)
    upload_operations.delete(RASTER_UPLOADS.table(portal.runtime), row)
    return Response(status_code=204)


@router.delete("/{raster_id}/versions/{version}", status_code=204, summary="Delete a version")
def delete_version(raster_id: str, version: str, caller: Caller, portal: CurrentPortal) -> Response:
    """Delete a version, and the raster with its last one; requests that use it by now go on."""
    row = upload_operations.own(RASTER_UPLOADS.table(portal.runtime), caller.owner, raster_id)
    upload_operations.delete(RASTER_UPLOADS.table(portal.runtime), row, version)
    return Response(status_code=204)
