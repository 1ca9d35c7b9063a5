"""Describe a request's results as a STAC collection: an item for each date, an asset for each file.

Formats: STAC 1.1.0, File Info extension 2.1.0, Projection extension 1.2.0, the one that has both
`proj:code` and `proj:epsg`: GDAL before 3.10 reads only the latter.

What an item says of a raster is read from the STAC item that lies beside the raster
(reprojection/write/stac.py). An item is named after its date, as the names of files are. Files
without a date, such as cubes and tables, are one item, `all`.
"""

import datetime as dt
import json
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import shapely
from pydantic import JsonValue
from shapely.geometry.base import BaseGeometry

from modis.collection import versioned
from portal.results.downloads import MEDIA_TYPES
from portal.results.result_files import ResultFile, ResultIndex, ResultReader
from portal.serving.problems import GoneError
from reprojection.write.stac import as_geojson, cut_at_antimeridian, outline_box
from tasks.bag.runtime import Runtime
from tasks.request import windows
from tasks.request.document import Request
from tasks.request.region.kinds import region_area
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

VERSION = "1.1.0"
FILE_INFO = "https://stac-extensions.github.io/file/v2.1.0/schema.json"
_PROJECTION = "https://stac-extensions.github.io/projection/"
PROJECTION = f"{_PROJECTION}v1.2.0/schema.json"
UNDATED = "all"
_DATED = re.compile(rf"{windows.NAME}|\d{{4}}-\d\d-\d\dT\d{{4}}")  # a window or an overpass
_READERS = 8  # sidecars read at once
_REMEMBERED = 16  # requests whose items are remembered
_SHARED = (  # said once for an item if all its assets say the same
    "proj:code",
    "proj:epsg",
    "proj:wkt2",
    "proj:shape",
    "proj:transform",
    "proj:bbox",
    "processing:software",
    "instruments",
)
_TIMES = ("datetime", "start_datetime", "end_datetime")

Object = dict[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item, with paths of results where its addresses will be.

    `start` and `end` enclose its time, `geometry` is in longitude and latitude.
    """

    id: str
    start: dt.datetime
    end: dt.datetime
    geometry: BaseGeometry
    properties: Object
    assets: Mapping[str, Object]
    extensions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A result and, of a raster, the properties, geometry and asset of the item beside it."""

    result: ResultFile
    said: Mapping[str, Any]

    @property
    def label(self) -> str:
        path = PurePosixPath(self.result.path)
        last = path.stem.rpartition(".")[2]
        if _DATED.fullmatch(last):
            return last
        start = self.properties.get("start_datetime") or self.properties.get("datetime")
        return str(start)[:10] if start else UNDATED

    @cached_property
    def properties(self) -> Mapping[str, Any]:
        found: dict[str, Any] = dict(self.said.get("properties", {}))
        if "proj:code" in found:
            authority, _, number = str(found["proj:code"]).partition(":")
            found["proj:epsg"] = int(number) if authority == "EPSG" else None
        return found

    @property
    def extensions(self) -> list[str]:
        urls = self.said.get("stac_extensions", [])
        return [PROJECTION if url.startswith(_PROJECTION) else url for url in urls]

    @property
    def asset(self) -> Object:
        path = PurePosixPath(self.result.path)
        beside: Object = dict(self.said.get("assets", {}).get("data", {}))
        beside.setdefault("type", MEDIA_TYPES.get(path.suffix.lower(), "application/octet-stream"))
        beside.setdefault("title", path.name)
        beside.setdefault("roles", ["data"])
        beside["href"] = self.result.path
        beside["file:size"] = self.result.file.size
        beside["file:checksum"] = f"1220{self.result.file.sha256}"
        for name, value in self.properties.items():
            if name.startswith("swathmill:"):
                beside[name] = value
        return beside


class StacIndex:
    """Keep the items of the requests looked at last. Thread-safe."""

    def __init__(self, results: ResultIndex) -> None:
        self._results = results
        self._known: OrderedDict[str, tuple[int, tuple[Item, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def items(self, runtime: Runtime, row: RequestRow) -> tuple[Item, ...]:
        """Return the items of a request in the order of time."""
        files = self._results.files(runtime, row)
        version = hash(tuple((path, found.file.sha256) for path, found in files.items()))
        with self._lock:
            known = self._known.get(row.id)
            if known is not None and known[0] == version:
                self._known.move_to_end(row.id)
                return known[1]
        if not files:
            return ()
        if not row.document:
            row = request_operations.load(runtime, row.id)
        items = make_items(
            request_operations.document_of(row),
            list(_parts(self._results.reader(runtime, row), files)),
        )
        with self._lock:
            self._known[row.id] = version, items
            self._known.move_to_end(row.id)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return items


def _parts(reader: ResultReader, files: Mapping[str, ResultFile]) -> Iterator[_Part]:
    """Yield all results but the items beside rasters; those are read."""
    beside = {
        path: files[name]
        for path in files
        for name in [str(PurePosixPath(path).with_suffix(".json"))]
        if path.endswith(".tif") and name in files
    }
    with ThreadPoolExecutor(_READERS) as pool:
        said = dict(
            zip(beside, pool.map(lambda one: _read(reader, one), beside.values()), strict=True)
        )
    sidecars = {one.path for one in beside.values()}
    for path, found in files.items():
        if path not in sidecars:
            yield _Part(result=found, said=said.get(path, {}))


def _read(reader: ResultReader, sidecar: ResultFile) -> Mapping[str, Any]:
    """Read the item beside a raster; storage may have lost it, which the raster outlives."""
    try:
        text = b"".join(reader.whole(reader.current(sidecar)))
    except GoneError:
        return {}
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


def make_items(request: Request, parts: Sequence[_Part]) -> tuple[Item, ...]:
    """Group results by date into items, in the order of time."""
    region = cut_at_antimeridian(region_area(request.region))
    groups: dict[str, list[_Part]] = {}
    for part in parts:
        groups.setdefault(part.label, []).append(part)
    items = [_item(label, members, request, region) for label, members in groups.items()]
    return tuple(sorted(items, key=lambda item: (item.start, item.end, item.id)))


def _item(label: str, parts: Sequence[_Part], request: Request, region: BaseGeometry) -> Item:
    first, last = _span(parts, request)
    outlines = {
        shapely.from_geojson(json.dumps(part.said["geometry"]))
        for part in parts
        if part.said.get("geometry")
    }
    outline = shapely.union_all(list(outlines)) if outlines else region
    described = [part for part in parts if part.said]
    shared = {
        name: described[0].properties[name]
        for name in _SHARED
        if described and all(_same(one, described[0], name) for one in described)
    }
    assets = {
        name: {**part.asset, **_own(part, shared, (first, last))}
        for name, part in zip(_names(parts), parts, strict=True)
    }
    known = {url for part in described for url in part.extensions}
    return Item(
        id=label,
        start=first,
        end=last,
        geometry=outline,
        properties={**_time(first, last), **shared},
        assets=assets,
        extensions=tuple(sorted(known | {FILE_INFO})),
    )


def _same(one: _Part, other: _Part, name: str) -> bool:
    return name in one.properties and one.properties[name] == other.properties.get(name)


def _own(part: _Part, shared: Object, span: tuple[dt.datetime, dt.datetime]) -> Object:
    """Return what a raster's item says that its group's does not."""
    own: Object = {
        name: part.properties[name]
        for name in _SHARED
        if name not in shared and name in part.properties
    }
    if part.properties and _span_of(part) != span:
        own |= {name: part.properties[name] for name in _TIMES if part.properties.get(name)}
    return own


def _names(parts: Sequence[_Part]) -> list[str]:
    """Name the assets of an item by layer, by folder where a layer is there twice, else by file."""
    paths = [PurePosixPath(part.result.path) for part in parts]
    names = [path.parent.name or path.stem for path in paths]
    for longer in (
        [".".join(path.parent.parts) or path.stem for path in paths],
        [".".join(path.parts) for path in paths],
    ):
        count = Counter(names)
        names = [
            more if count[name] > 1 else name for name, more in zip(names, longer, strict=True)
        ]
    return names


def _span(parts: Sequence[_Part], request: Request) -> tuple[dt.datetime, dt.datetime]:
    spans = [_span_of(part) for part in parts if part.properties]
    if spans:
        return min(first for first, _ in spans), max(last for _, last in spans)
    return _request_span(request)


def _request_span(request: Request) -> tuple[dt.datetime, dt.datetime]:
    """Return the first and the last second of a request's days and of its steps' windows."""
    spans = [(request.time.start, request.time.end)]
    spans += [windows.enclosing(step.window_kind, request.time) for step in request.steps]
    return (
        dt.datetime.combine(min(first for first, _ in spans), dt.time(), dt.UTC),
        dt.datetime.combine(max(last for _, last in spans), dt.time(23, 59, 59), dt.UTC),
    )


def _span_of(part: _Part) -> tuple[dt.datetime, dt.datetime]:
    said = part.properties
    first, last = said.get("start_datetime"), said.get("end_datetime")
    moment = said.get("datetime")
    return (
        dt.datetime.fromisoformat(first or moment or "1970-01-01T00:00:00Z"),
        dt.datetime.fromisoformat(last or moment or "1970-01-01T00:00:00Z"),
    )


def _time(first: dt.datetime, last: dt.datetime) -> Object:
    if first == last:
        return {"datetime": rfc3339(first)}
    # A date-time of its own, because many readers ignore the start and the end.
    return {
        "datetime": rfc3339(first),
        "start_datetime": rfc3339(first),
        "end_datetime": rfc3339(last),
    }


def rfc3339(moment: dt.datetime) -> str:
    """Format a time in UTC as STAC wants it: 2012-04-14T00:00:00Z."""
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def feature(item: Item, row: RequestRow, base: str) -> Object:
    """Return an item as GeoJSON with absolute addresses."""
    collection = f"{base}/collections/{row.id}"
    files = f"{base}/api/requests/{row.id}/results"
    assets: Object = {
        name: {**asset, "href": f"{files}/{quote(str(asset['href']))}"}
        for name, asset in item.assets.items()
    }
    links: JsonValue = [
        link("self", f"{collection}/items/{item.id}", GEOJSON),
        link("parent", collection),
        link("collection", collection),
        link("root", f"{base}/"),
        link("derived_from", f"{base}/api/requests/{row.id}/document"),
    ]
    return {
        "type": "Feature",
        "stac_version": VERSION,
        "stac_extensions": list(item.extensions),
        "id": item.id,
        "collection": row.id,
        "geometry": as_geojson(item.geometry),
        "bbox": outline_box(item.geometry),
        "properties": item.properties,
        "links": links,
        "assets": assets,
    }


GEOJSON = "application/geo+json"
JSON = "application/json"


def link(rel: str, href: str, kind: str = JSON, **more: JsonValue) -> Object:
    """Return a link object."""
    return {"rel": rel, "href": href, "type": kind, **more}


def collection(row: RequestRow, base: str) -> Object:
    """Return a request as a STAC collection; its row has the document."""
    request = request_operations.document_of(row)
    here = f"{base}/collections/{row.id}"
    area = cut_at_antimeridian(region_area(request.region))
    first, last = _request_span(request)
    products: list[JsonValue] = [versioned(one.name, one.collection) for one in request.products]
    return {
        "type": "Collection",
        "stac_version": VERSION,
        "stac_extensions": [],
        "id": row.id,
        "title": row.title or row.id,
        "description": f"Results of a request over {', '.join(map(str, products))}. "
        f"It is {row.state.value}: {row.delivered} of {row.outputs} results are there.",
        "keywords": products,
        "license": "other",
        "extent": {
            "spatial": {
                "bbox": [outline_box(area)],
                "crs": "http://www.opengis.net/def/crs/OGC/1.3/CRS84",
            },
            "temporal": {"interval": [[rfc3339(first), rfc3339(last)]]},
        },
        "links": [
            link("self", here),
            link("root", f"{base}/"),
            link("parent", f"{base}/"),
            link("items", f"{here}/items", GEOJSON),
            link("via", f"{base}/requests/{row.id}", "text/html", title="Page of the request"),
            link("about", f"{base}/jobs/{row.id}", title="Status"),
        ],
    }
