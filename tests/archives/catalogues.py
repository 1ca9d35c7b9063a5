"""Catalogues for the file server: a CMR, a STAC API and LAADS listings over given granules."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr

from archives.fetch.credentials import Credentials
from archives.fetch.download import Downloader
from archives.fetch.limits import LocalLimits
from archives.fetch.timing import Timing
from archives.kinds.web import Web
from tests.archives.servers import Act, FileServer, Request

TOKEN = "an-earthdata-token-that-nobody-may-see"
QUICK = Timing(connect=20.0, stall=20.0, pause=0.01)
# For tests of silence alone, in which an answer that comes late may count as silence too.
HASTY = Timing(connect=2.0, stall=0.15, pause=0.01)

Json = dict[str, Any]


def credentials(*servers: FileServer) -> Credentials:
    """The token, for these servers alone."""
    return Credentials(SecretStr(TOKEN), [urlsplit(server.url).netloc for server in servers])


def web(
    own: Credentials,
    server: FileServer,
    waits: list[float] | None = None,
    timing: Timing = QUICK,
) -> Web:
    return Web(
        own,
        LocalLimits(rate=10_000.0),
        timing=timing,
        context=server.context,
        sleep=(waits if waits is not None else []).append,
    )


def downloader(own: Credentials, server: FileServer) -> Downloader:
    return Downloader(
        own,
        LocalLimits(rate=10_000.0),
        timing=QUICK,
        context=server.context,
        sleep=lambda _: None,
    )


def swath_name(
    start: datetime, product: str = "MYD04_L2", made: str = "2018059000000", ccc: str = "061"
) -> str:
    return f"{product}.A{start:%Y%j.%H%M}.{ccc}.{made}.hdf"


def umm(
    name: str,
    start: datetime,
    *,
    url: str = "",
    ring: Sequence[tuple[float, float]] = (),
    data: bytes | None = None,
    checksum: Json | None = None,
    span: timedelta = timedelta(minutes=5),
    early: timedelta = timedelta(0),
) -> Json:
    """An item as Earthdata Cloud providers write it today."""
    about: Json = {"Name": "Not provided", "SizeUnit": "MB", "Size": 1.5}
    if data is not None:
        about["SizeInBytes"] = len(data)
    if checksum is not None:
        about["Checksum"] = checksum
    geometry: Json = {}
    if ring:
        points = [{"Longitude": x, "Latitude": y} for x, y in [*ring, ring[0]]]
        geometry = {"GPolygons": [{"Boundary": {"Points": points}}]}
    base = "data.laadsdaac.earthdatacloud.nasa.gov/prod-lads"
    begin = start - early
    return {
        "meta": {
            "concept-id": f"G-{name}",
            "provider-id": "LAADS",
            "revision-date": "2018-03-01T00:00:00.000Z",
        },
        "umm": {
            "GranuleUR": f"LAADS:{name}",
            "TemporalExtent": {
                "RangeDateTime": {
                    "BeginningDateTime": f"{begin:%Y-%m-%dT%H:%M:%S}.000Z",
                    "EndingDateTime": f"{begin + span:%Y-%m-%dT%H:%M:%S}.000Z",
                }
            },
            "SpatialExtent": {"HorizontalSpatialDomain": {"Geometry": geometry}},
            "RelatedUrls": [
                {"URL": f"s3://prod-lads/{name}", "Type": "GET DATA VIA DIRECT ACCESS"},
                {"URL": url or f"https://{base}/{name}", "Type": "GET DATA"},
                {"URL": f"https://{base}/{name}.xml", "Type": "EXTENDED METADATA"},
                {"URL": f"https://{base}/{name}.jpg", "Type": "GET RELATED VISUALIZATION"},
            ],
            "DataGranule": {
                "DayNightFlag": "Day",
                "ProductionDateTime": "2018-02-28T00:00:00.000Z",
                "Identifiers": [{"Identifier": name, "IdentifierType": "ProducerGranuleId"}],
                "ArchiveAndDistributionInformation": [about],
            },
        },
    }


def umm_l2p(
    name: str,
    begin: datetime,
    *,
    boxes: Sequence[tuple[float, float, float, float]] = (),
    ring: Sequence[tuple[float, float]] = (),
    url: str = "",
    short_name: str = "MODIS_T-JPL-L2P-v2019.0",
) -> Json:
    """An item of POCLOUD, in the form of the CMR's answers of 2020 and 2022.

    They have no identifiers, no checksum, no size in bytes, no half of the day and no second of the
    name in their times; boxes, and for some a footprint, west, south, east and north.
    """
    stem = name.removesuffix(".nc")
    sides = ("West", "South", "East", "North")
    geometry: Json = {
        "BoundingRectangles": [
            {f"{side}BoundingCoordinate": at for side, at in zip(sides, box, strict=True)}
            for box in boxes
        ]
    }
    if ring:
        points = [{"Longitude": x, "Latitude": y} for x, y in [*ring, ring[0]]]
        geometry["GPolygons"] = [{"Boundary": {"Points": points}}]
    host = "https://archive.podaac.earthdata.nasa.gov"
    public, kept = "podaac-ops-cumulus-public", "podaac-ops-cumulus-protected"
    return {
        "meta": {
            "concept-type": "granule",
            "concept-id": f"G-{stem}",
            "revision-id": 1,
            "native-id": stem,
            "provider-id": "POCLOUD",
            "revision-date": "2020-09-09T06:15:46.676Z",
        },
        "umm": {
            "GranuleUR": stem,
            "TemporalExtent": {
                "RangeDateTime": {
                    "BeginningDateTime": f"{begin:%Y-%m-%dT%H:%M:%S}.000Z",
                    "EndingDateTime": f"{begin + timedelta(seconds=299):%Y-%m-%dT%H:%M:%S}.000Z",
                }
            },
            "SpatialExtent": {"HorizontalSpatialDomain": {"Geometry": geometry}},
            "DataGranule": {
                "ArchiveAndDistributionInformation": [
                    {"SizeUnit": "MB", "Size": 20.032519340515137, "Name": name}
                ],
                "DayNightFlag": "Unspecified",
                "ProductionDateTime": "2020-09-09T06:10:48.000Z",
            },
            "CollectionReference": {"Version": "2019.0", "ShortName": short_name},
            "RelatedUrls": [
                {"URL": f"{host}/{public}/{short_name}/{name}.md5", "Type": "EXTENDED METADATA"},
                {"URL": url or f"{host}/{kept}/{short_name}/{name}", "Type": "GET DATA"},
                {"URL": f"{host}/s3credentials", "Type": "VIEW RELATED INFORMATION"},
                {
                    "URL": f"https://opendap.earthdata.nasa.gov/providers/POCLOUD/granules/{stem}",
                    "Type": "GET DATA",
                    "Subtype": "OPENDAP DATA",
                },
                {"URL": f"s3://{kept}/{short_name}/{name}", "Type": "GET DATA VIA DIRECT ACCESS"},
            ],
        },
    }


def umm_collection(
    product: str,
    version: str,
    provider: str,
    first: str,
    last: str | None = None,
    space: str = "GEODETIC",
) -> Json:
    span = {"BeginningDateTime": first} | ({"EndingDateTime": last} if last else {})
    extent: Json = {"RangeDateTimes": [span], "EndsAtPresentFlag": last is None}
    return {
        "meta": {"concept-id": f"C-{product}-{version}-{provider}", "provider-id": provider},
        "umm": {
            "ShortName": product,
            "Version": version,
            "TemporalExtents": [extent],
            "SpatialExtent": {"GranuleSpatialRepresentation": space},
        },
    }


@dataclass
class Cmr:
    """A CMR with search-after paging. `faults` come first at granule searches, by number."""

    collections: list[Json] = field(default_factory=list)
    granules: list[Json] = field(default_factory=list)
    page: int = 3
    faults: dict[int, Act] = field(default_factory=dict)
    searches: int = 0

    def mount(self, server: FileServer) -> str:
        server.always["/search/collections.umm_json"] = self._collections
        server.always["/search/granules.umm_json"] = self._granules
        return f"{server.url}/search"

    def _collections(self, request: Request) -> None:
        asked = parse_qs(urlsplit(request.path).query)
        wanted = asked["short_name"][0]
        pattern = asked.get("options[short_name][pattern]") == ["true"]

        def meant(name: str) -> bool:
            return fnmatchcase(name, wanted) if pattern else name == wanted

        found = [c for c in self.collections if meant(c["umm"]["ShortName"])]
        request.answer(200, json.dumps({"hits": len(found), "items": found}).encode())

    def _granules(self, request: Request) -> None:
        if "-revision_date" in request.path:
            self._revised_last(request)
            return
        self.searches += 1
        if fault := self.faults.get(self.searches):
            fault(request)
            return
        first = int(request.headers.get("CMR-Search-After", "[0]")[1:-1])
        self.answer(request, first, len(self._found(request)))

    def _found(self, request: Request) -> list[Json]:
        asked = parse_qs(urlsplit(request.path).query)
        low, high = asked["temporal"][0].split(",")

        def span(item: Json) -> tuple[str, str]:
            said = item["umm"]["TemporalExtent"]["RangeDateTime"]
            return said["BeginningDateTime"], said["EndingDateTime"]

        found = [g for g in self.granules if span(g)[1] >= low and span(g)[0] <= high]
        return sorted(found, key=lambda g: (span(g)[0], g["meta"]["concept-id"]))

    def _revised_last(self, request: Request) -> None:
        found = sorted(self._found(request), key=lambda g: g["meta"]["revision-date"])
        page = {"hits": len(found), "took": 5, "items": found[-1:]}
        request.answer(200, json.dumps(page).encode(), CMR_Hits=str(len(found)))

    def answer(self, request: Request, first: int, hits: int) -> None:
        """The page that begins with this item, under this number of hits."""
        items = self._found(request)[first : first + self.page]
        body = json.dumps({"hits": hits, "took": 5, "items": items}).encode()
        headers = {"CMR_Hits": str(hits)}
        if items:
            headers["CMR_Search_After"] = f"[{first + len(items)}]"
        request.answer(200, body, **headers)


@dataclass
class Stac:
    """A STAC API with POST paging, its `next` links merged into the body."""

    collection: str
    items: list[Json] = field(default_factory=list)
    page: int = 2
    faults: dict[int, Act] = field(default_factory=dict)
    searches: int = 0

    def mount(self, server: FileServer) -> str:
        server.always["/stac/search"] = lambda request: self._search(request, server)
        server.always[f"/stac/collections/{self.collection}"] = lambda request: request.answer(
            200,
            json.dumps(
                {
                    "id": self.collection,
                    "extent": {"temporal": {"interval": [["2000-02-18T00:00:00Z", None]]}},
                }
            ).encode(),
        )
        return f"{server.url}/stac"

    def _search(self, request: Request, server: FileServer) -> None:
        self.searches += 1
        if fault := self.faults.get(self.searches):
            fault(request)
            return
        asked = json.loads(request.sent)
        low, high = asked["datetime"].split("/")
        found = [
            item
            for item in self.items
            if asked["collections"] == [self.collection]
            and item["properties"]["end_datetime"] >= low
            and item["properties"]["start_datetime"] <= high
        ]
        found.reverse()  # as the Planetary Computer does: newest first
        first = int(asked.get("token", "0"))
        page: Json = {
            "type": "FeatureCollection",
            "features": found[first : first + self.page],
            "numberMatched": len(found),
            "links": [],
        }
        if first + self.page < len(found):
            page["links"] = [
                {
                    "rel": "next",
                    "href": f"{server.url}/stac/search",
                    "method": "POST",
                    "body": {"token": str(first + self.page)},
                    "merge": True,
                }
            ]
        request.answer(200, json.dumps(page).encode())


def stac_item(name: str, start: datetime, url: str, **asset: object) -> Json:
    """An item with the granule and, as there usually are, images made of it."""
    return {
        "type": "Feature",
        "id": name.removesuffix(".hdf"),
        "properties": {
            "start_datetime": f"{start:%Y-%m-%dT%H:%M:%S}Z",
            "end_datetime": f"{start + timedelta(minutes=5):%Y-%m-%dT%H:%M:%S}Z",
        },
        "geometry": {
            "type": "Polygon",
            "coordinates": [[[0, 0], [20, 2], [18, 20], [-2, 18], [0, 0]]],
        },
        "assets": {
            "LST": {"href": url.partition("?")[0].replace(".hdf", "_LST.tif")},
            "metadata": {"href": f"{url.partition('?')[0]}.xml"},
            "hdf": {"href": url, **asset},
        },
    }


def minutes(count: int, day: int = 1) -> list[datetime]:
    """Starts of swaths, five minutes apart."""
    first = datetime(2018, 1, day, 11, 0, tzinfo=UTC)
    return [first + timedelta(minutes=5 * n) for n in range(count)]


def mount_laads(
    server: FileServer, folders: dict[str, list[Json]], style: Callable[[list[Json]], bytes]
) -> str:
    """Listings of folders below `/archive`, as `.json` in a style."""
    for folder, entries in folders.items():
        server.always[f"/archive/{folder}.json"] = _listing(style(entries))
    return f"{server.url}/archive"


def _listing(body: bytes) -> Act:
    return lambda request: request.answer(200, body)
