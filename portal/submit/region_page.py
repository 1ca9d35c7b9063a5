"""The region on the form: files that give one, outlines for the map, names of places."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import shapely
from fastapi import Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.datastructures import FormData, UploadFile

from portal.serving.documents import MOST_BYTES as MOST_TEXT
from portal.serving.documents import read_form_data, turn
from portal.serving.identity import Caller, person
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.tokens import Person
from portal.submit.field_problems import Problems
from portal.submit.forms import Form, read_form, region_of
from portal.submit.state import Submit
from portal.submit.submit_page import FileRead, Sent, new_page
from tasks.errors import RequestRefusedError
from tasks.plain_text import decoded
from tasks.request.places import search_places
from tasks.request.region.child import read_apart
from tasks.request.region.files import MOST_BYTES, ReadRegion, RegionFileError
from tasks.request.region.kinds import region_area
from tasks.request.region.region import Region
from tasks.request.request_file import file_refusal
from tasks.request.sites import parse_sites
from tasks.request.vertices import MAX_VERTICES, simplified

router = Router(include_in_schema=False)


@router.get("/new/places", dependencies=[Depends(person)])
def find_places(portal: CurrentPortal, place: str = "") -> Response:
    """Offer the countries and states whose names hold the words typed so far."""
    return portal.pages.part("places.html", places=search_places(place[:200]))


@router.post("/new/region")
async def read_file(
    request: Request,
    caller: Caller,
    portal: CurrentPortal,
    hx_request: Annotated[bool, Header()] = False,
) -> Response:
    """Fill in the region from a file or from what was drawn; nothing else of the form changes."""
    data = await read_form_data(request, most=MOST_BYTES + MOST_TEXT, files=1)
    try:
        given = data.get("region_file")
        if isinstance(given, UploadFile) and given.filename:
            content, name = await given.read(), given.filename
        else:
            content, name = str(data.get("drawn", "")).encode(), ""
    finally:
        await data.close()
    return await run_in_threadpool(_read, portal, caller, data, content, name, part=hx_request)


def _read(
    portal: Portal, caller: Person, data: FormData, content: bytes, name: str, *, part: bool
) -> Response:
    form, wrong = read_form(data), ""
    notes: tuple[str, ...] = ()
    with turn(portal.state(Submit).reading_regions):
        try:
            form, notes = with_region(form, content, name)
        except RequestRefusedError as error:
            wrong = f"{error.problem} {error.remedy}".strip()
    read = FileRead(notes=notes, wrong=wrong)
    if part:
        return portal.pages.part("region.html", form=form, problems=Problems(), file_read=read)
    return new_page(portal, caller, form, file_read=read, status=422 if wrong else 200)


def with_region(form: Form, content: bytes, name: str) -> tuple[Form, tuple[str, ...]]:
    """Put the region of a file into the form; return it with what differs from the file.

    Polygons become sites where the form asks for sites and each has an id.

    Raises RequestRefusedError for a file that gives no region.
    """
    if not content and name:
        raise RequestRefusedError("region", f"{name} is empty.", "Choose another file.")
    if not content:
        raise RequestRefusedError("region", "no file was chosen.", "Choose one, or drop it.")
    if form.region_kind == "sites":
        with suppress(ValueError, RecursionError):
            text = decoded(content)
            return replace(form, sites=text), (_sites_note(text),)
    try:
        read = read_apart(content, name)
    except RegionFileError as error:
        raise file_refusal(error, "region", name or "the polygon") from None
    return _filled(form, read, name)


def _filled(form: Form, read: ReadRegion, name: str) -> tuple[Form, tuple[str, ...]]:
    if read.geojson is None:
        form = replace(form, region_kind="sites", sites=read.sites)
        return form, (_sites_note(read.sites), *read.notes)
    form = replace(form, region_kind="geojson", geojson=json.dumps(read.geojson))
    return form, ((f"Read from {name}.", *read.notes) if name else read.notes)


def _sites_note(text: str) -> str:
    """Say how many sites a text has; raise ValueError if it is no table of sites."""
    count = len(parse_sites(text))
    return f"{count:,} site{'s' if count != 1 else ''}."


@router.post("/new/outline", dependencies=[Depends(person)])
def outline(data: Sent) -> Response:
    """Return the region so far as GeoJSON for the map; longitudes may run on beyond 180.

    A region that is not filled in or wrong has no outline: the check of the form says why.
    """
    features: list[object] = []
    with suppress(ValueError, RequestRefusedError):
        region = region_of(read_form(data))
        features = [
            {"type": "Feature", "properties": {}, "geometry": json.loads(shapely.to_geojson(one))}
            for one in _outlines(region)
        ]
    return JSONResponse({"type": "FeatureCollection", "features": features})


def _outlines(region: Region) -> Iterator[shapely.Geometry]:
    """Yield the points and polygons of sites, or else the one area of the region."""
    if region.sites is None:
        yield simplified(region_area(region), MAX_VERTICES)[0]
        return
    for site in parse_sites(region.sites):
        yield site.area if site.area is not None else shapely.Point(site.lon, site.lat)
