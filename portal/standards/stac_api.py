"""STAC API 1.0 (Core, Collections, Item Search) and OGC API - Features 1.0 (Core, GeoJSON).

A collection is a request's results, an item one date of them, an asset one file. Everyone finds
their own.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import shapely
from fastapi import Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from shapely.errors import ShapelyError
from shapely.geometry.base import BaseGeometry

from portal.results.result_files import SHORTLY
from portal.serving.access import load_for
from portal.serving.addresses import base_url, this_url
from portal.serving.identity import Caller
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import BadCallError, NotFoundError
from portal.serving.repeated_calls import made_from_row
from portal.serving.tokens import Person
from portal.standards.datetimes import Interval
from portal.standards.landing_page import STRICT, GeoJsonAnswer
from portal.standards.stac_items import GEOJSON, Item, collection, feature, link
from portal.standards.state import Standards
from tasks.answers.answer import Answer
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow
from tasks.strict_model import StrictModel

MOST = 1000  # items or collections on a page
_LOOKED_AT = 50  # requests whose items one search reads

router = Router(tags=["stac"], dependencies=STRICT)

_Capped = AfterValidator(lambda limit: min(limit, MOST))
Limit = Annotated[
    int, Query(ge=1, description=f"Items on a page; {MOST:,} at most are sent."), _Capped
]
BoxText = Annotated[str, Query(description="West, south, east, north in degrees.")]
When = Annotated[str, Query(description="A time or an interval; `..` is an open end.")]
Token = Annotated[str, Query(description="From the link `next`.")]


class CollectionAnswer(BaseModel):
    """A STAC collection (https://schemas.stacspec.org/v1.1.0/collection-spec)."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["Collection"]
    id: str
    title: str
    description: str
    license: str
    extent: dict[str, JsonValue]
    links: tuple[dict[str, JsonValue], ...]


class CollectionList(Answer):
    """A page of collections; the link `next` leads to older ones."""

    collections: tuple[CollectionAnswer, ...]
    links: tuple[dict[str, JsonValue], ...]


class ItemAnswer(BaseModel):
    """A STAC item (https://schemas.stacspec.org/v1.1.0/item-spec)."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["Feature"]
    id: str
    collection: str
    geometry: dict[str, JsonValue]
    bbox: tuple[float, ...]
    properties: dict[str, JsonValue]
    assets: dict[str, dict[str, JsonValue]]
    links: tuple[dict[str, JsonValue], ...]


class ItemList(Answer):
    """A page of items; the link `next` leads to more."""

    type: Literal["FeatureCollection"]
    features: tuple[ItemAnswer, ...]
    links: tuple[dict[str, JsonValue], ...]
    numberReturned: int  # noqa: N815 - the standard's spelling


class Search(StrictModel):
    """What to search for; what is left out does not narrow the search."""

    collections: tuple[str, ...] | None = Field(None, max_length=100)
    ids: tuple[str, ...] | None = Field(None, max_length=1000)
    bbox: tuple[float, ...] | None = Field(
        None, max_length=6, description="West, south, east, north in degrees."
    )
    intersects: dict[str, JsonValue] | None = Field(None, description="A GeoJSON geometry.")
    datetime: str = Field("", description="A time or an interval; `..` is an open end.")
    limit: Annotated[int, _Capped] = Field(10, ge=1)
    token: str = Field("", description="From the link `next`.")


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A search as it is carried out; None does not narrow it."""

    place: BaseGeometry | None
    time: Interval
    ids: tuple[str, ...] | None = None

    @classmethod
    def of(cls, asked: Search) -> "_Wanted":
        if asked.bbox is not None and asked.intersects is not None:
            raise BadCallError(
                "bbox and intersects are both there.", "Give one of them.", field="intersects"
            )
        place = _geometry(asked.intersects) if asked.intersects is not None else _box(asked.bbox)
        return cls(place=place, time=Interval.parse(asked.datetime), ids=asked.ids)

    def suits(self, item: Item) -> bool:
        return (
            (self.ids is None or item.id in self.ids)
            and self.time.meets(item.start, item.end)
            and (self.place is None or bool(shapely.intersects(item.geometry, self.place)))
        )


@dataclass(frozen=True, kw_only=True)
class _Page:
    """Items with their requests; `token` leads on, "" at the end."""

    found: tuple[tuple[RequestRow, Item], ...]
    token: str


@router.get("/collections", summary="Collections: one for each request, newest first")
def collections(
    request: Request,
    caller: Caller,
    portal: CurrentPortal,
    limit: Limit = 100,
    token: Token = "",
) -> CollectionList:
    """List the caller's requests as STAC collections."""
    base = base_url(request, portal.settings)
    after = load_for(portal.runtime, caller, token) if token else None
    rows = list(request_operations.list_requests(portal.runtime, caller.owner, limit + 1, after))
    links = [link("self", this_url(request, portal.settings)), link("root", f"{base}/")]
    if len(rows) > limit:
        href = this_url(request, portal.settings, token=rows[limit - 1].id)
        links.append(link("next", href))
    full = (request_operations.load(portal.runtime, row.id) for row in rows[:limit])
    shown = tuple(CollectionAnswer.model_validate(collection(row, base)) for row in full)
    return CollectionList(collections=shown, links=tuple(links))


@router.get("/collections/{collection_id}", summary="A collection: the results of a request")
def one_collection(
    collection_id: str, request: Request, caller: Caller, portal: CurrentPortal
) -> CollectionAnswer:
    """Describe a request's results as a STAC collection."""
    row = load_for(portal.runtime, caller, collection_id)
    return CollectionAnswer.model_validate(collection(row, base_url(request, portal.settings)))


@router.get(
    "/collections/{collection_id}/items",
    summary="Items of a collection, one for each date",
    response_class=GeoJsonAnswer,
    response_model=ItemList,
)
def items(
    collection_id: str,
    request: Request,
    caller: Caller,
    portal: CurrentPortal,
    limit: Limit = 10,
    bbox: BoxText = "",
    datetime: When = "",
    collections: Annotated[
        str, Query(description="Other collections than this one have no items here.")
    ] = "",  # pystac-client sends it
    token: Token = "",
) -> Response:
    """List the items of a collection in the order of time."""
    row = load_for(portal.runtime, caller, collection_id)
    made_from_row(request, caller, row, SHORTLY)
    asked = Search(bbox=_numbers(bbox), datetime=datetime, limit=limit, token=token)
    named = _names(collections, 100)
    page = _search(portal, iter([row] if named is None or row.id in named else []), asked)
    return _answer(request, portal, page)


@router.get(
    "/collections/{collection_id}/items/{item_id}",
    summary="An item: the files of one date",
    response_class=GeoJsonAnswer,
    response_model=ItemAnswer,
)
def one_item(
    collection_id: str, item_id: str, request: Request, caller: Caller, portal: CurrentPortal
) -> Response:
    """Describe the files of one date as a STAC item."""
    row = load_for(portal.runtime, caller, collection_id)
    for item in portal.state(Standards).stac.items(portal.runtime, row):
        if item.id == item_id:
            return GeoJsonAnswer(feature(item, row, base_url(request, portal.settings)))
    raise NotFoundError(
        f"Collection {collection_id} has no item {item_id!r}.",
        f"Its items are listed at /collections/{collection_id}/items.",
    )


@router.get(
    "/search",
    summary="Search items in all collections",
    response_class=GeoJsonAnswer,
    response_model=ItemList,
)
def search(
    request: Request,
    caller: Caller,
    portal: CurrentPortal,
    limit: Limit = 10,
    bbox: BoxText = "",
    intersects: Annotated[str, Query(description="A GeoJSON geometry.")] = "",
    datetime: When = "",
    ids: Annotated[str, Query(description="Items, separated by commas.")] = "",
    collections: Annotated[str, Query(description="Collections, separated by commas.")] = "",
    token: Token = "",
) -> Response:
    """Find items of the caller's requests, newest request first. A page may be short."""
    asked = Search(
        collections=_names(collections, 100),
        ids=_names(ids, 1000),
        bbox=_numbers(bbox),
        intersects=_object(intersects),
        datetime=datetime,
        limit=limit,
        token=token,
    )
    page = _search(portal, _rows(portal, caller, asked), asked)
    return _answer(request, portal, page)


@router.post(
    "/search",
    summary="Search items in all collections, by a document",
    response_class=GeoJsonAnswer,
    response_model=ItemList,
)
def search_by_document(
    asked: Search, request: Request, caller: Caller, portal: CurrentPortal
) -> Response:
    """Find items of the caller's requests, newest request first. A page may be short."""
    page = _search(portal, _rows(portal, caller, asked), asked)
    return _answer(request, portal, page, asked)


def _rows(portal: Portal, caller: Person, asked: Search) -> Iterator[RequestRow]:
    """Yield the requests to search, from the token's on."""
    start = asked.token.partition(":")[0]
    if asked.collections is not None:
        named = list(dict.fromkeys(asked.collections))
        for name in named[named.index(start) :] if start in named else named:
            try:
                yield load_for(portal.runtime, caller, name)
            except NotFoundError:
                continue
        return
    after = load_for(portal.runtime, caller, start) if start else None
    if after is not None:
        yield after
    yield from request_operations.list_requests(portal.runtime, caller.owner, _LOOKED_AT + 1, after)


def _search(portal: Portal, rows: Iterator[RequestRow], asked: Search) -> _Page:
    """Find a page of items; the token is the request and the number of its item to go on with."""
    wanted = _Wanted.of(asked)
    start, _, text = asked.token.partition(":")
    if asked.token and not text.isdecimal():
        problem = f"{asked.token!r} is not a token."
        raise BadCallError(problem, "Follow the link next.", field="token")
    found: list[tuple[RequestRow, Item]] = []
    for looked, row in enumerate(rows):
        if looked == _LOOKED_AT:
            return _Page(found=tuple(found), token=f"{row.id}:0")
        first = int(text) if row.id == start else 0
        items = portal.state(Standards).stac.items(portal.runtime, row)
        for number in range(first, len(items)):
            if not wanted.suits(items[number]):
                continue
            if len(found) == asked.limit:
                return _Page(found=tuple(found), token=f"{row.id}:{number}")
            found.append((row, items[number]))
    return _Page(found=tuple(found), token="")


def _answer(
    request: Request, portal: Portal, page: _Page, asked: Search | None = None
) -> GeoJsonAnswer:
    base = base_url(request, portal.settings)
    links = [link("self", this_url(request, portal.settings), GEOJSON), link("root", f"{base}/")]
    if page.token and asked is None:
        href = this_url(request, portal.settings, token=page.token)
        links.append(link("next", href, GEOJSON, method="GET"))
    elif page.token and asked is not None:
        body = {**asked.model_dump(mode="json", exclude_none=True), "token": page.token}
        links.append(link("next", f"{base}/search", GEOJSON, method="POST", body=body))
    features: JsonValue = [feature(item, row, base) for row, item in page.found]
    return GeoJsonAnswer(
        {
            "type": "FeatureCollection",
            "features": features,
            "links": links,
            "numberReturned": len(page.found),
        }
    )


def _names(text: str, most: int) -> tuple[str, ...] | None:
    if not text:
        return None
    names = tuple(text.split(","))
    if len(names) > most:
        raise BadCallError(f"{len(names)} names are too many.", f"Give at most {most}.")
    return names


def _numbers(text: str) -> tuple[float, ...] | None:
    if not text:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (4, 6):
        raise _no_box(text)
    return numbers


def _object(text: str) -> dict[str, JsonValue] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _no_geometry()
    return found


def _box(numbers: tuple[float, ...] | None) -> BaseGeometry | None:
    """Return a box as a geometry, in two parts if it crosses the antimeridian; heights are left."""
    if numbers is None:
        return None
    if len(numbers) not in (4, 6):
        raise _no_box(numbers)
    half = len(numbers) // 2
    west, south, east, north = numbers[0], numbers[1], numbers[half], numbers[half + 1]
    inside = all(-180.0 <= x <= 180.0 for x in (west, east))
    if not (inside and -90.0 <= south <= north <= 90.0):
        raise _no_box(numbers)
    if west <= east:
        return shapely.box(west, south, east, north)
    parts = shapely.box(west, south, 180.0, north), shapely.box(-180.0, south, east, north)
    return shapely.union_all(parts)


def _geometry(document: dict[str, JsonValue]) -> BaseGeometry:
    try:
        found = shapely.from_geojson(json.dumps(document))
    except (ShapelyError, ValueError):
        raise _no_geometry() from None
    if "Feature" in str(document.get("type")) or found.is_empty or not found.is_valid:
        raise _no_geometry()
    return found


def _no_box(given: object) -> BadCallError:
    return BadCallError(
        f"{given!r} is not a box on the Earth.",
        "Write west, south, east, north in degrees: -8,50.5,6,58.5.",
        field="bbox",
    )


def _no_geometry() -> BadCallError:
    return BadCallError(
        "intersects is not a valid GeoJSON geometry.",
        'Write a geometry, not a feature: {"type": "Polygon", "coordinates": [...]}.',
        field="intersects",
    )
