"""Parse granule and collection records of the CMR: UMM-G 1.6 and UMM-C 1.18 JSON.

Source: the schemas at cdn.earthdata.nasa.gov/umm/granule and .../collection. Of PO.DAAC's records:
answers of the CMR of 2020 and 2022 in public repositories (podaac/hitide-backfill-tool,
podaac/tutorials), and its maker of footprints (podaac/forge).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import shapely

from archives.formats.checksums import digest
from archives.model import GranuleRecord, Ring
from modis.box import LonLatBox
from modis.collection import Collection
from modis.formats import GRANULE_SUFFIXES
from modis.granule_name import parse_granule_name
from modis.ocean_name import parse_ocean_name, product_of
from modis.sphere import wrap_longitude

_FEW_DEGREES = 2.0  # between the points on a box's parallels, which are not great circles
_FIVE_MINUTES = timedelta(minutes=5)
_LATEST = datetime.max.replace(tzinfo=UTC) - _FIVE_MINUTES
_WIDEST = 170.0  # degrees: a ring bounds the smaller part of the sphere
_SIMPLIFIED = 0.5
"""Degrees by which PO.DAAC's footprints leave points out (podaac/forge, default tolerance)."""
_PLANE = (-360.0, -90.0, 360.0, 90.0)
_DAILY, _FINEST = "DAY", ".4km"
"""Which level 3 files of ocean colour are listed: their collections hold periods from a day to a
climatology, each in 4 and 9 km."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CmrCollection:
    """A collection of a product: `version` as its provider spells it, `concept` its CMR name.

    `cartesian` tells whether its granules' polygons have straight lines in longitude and latitude;
    those of others have great circles. `region` is where its buckets lie, `keys_at` the address
    that gives temporary keys for them; "" for none.
    """

    product: str
    version: str
    concept: str
    first: date | None
    last: date | None
    cartesian: bool = False
    region: str = ""
    keys_at: str = ""

    @property
    def collection(self) -> Collection:
        """The version in the one spelling."""
        return Collection(self.version)


def collection_of(item: Json) -> CmrCollection:
    """Parse an item of `collections.umm_json`; raise KeyError or ValueError if it is invalid."""
    umm, meta = item["umm"], item["meta"]
    begins, ends, present = [], [], False
    for extent in umm.get("TemporalExtents", ()):
        present = present or bool(extent.get("EndsAtPresentFlag"))
        for span in extent.get("RangeDateTimes", ()):
            begins.append(moment(span["BeginningDateTime"]).date())
            if span.get("EndingDateTime"):
                ends.append(moment(span["EndingDateTime"]).date())
            else:
                present = True
    short_name = str(umm["ShortName"])
    product, version = product_of(short_name) or (short_name, str(umm["Version"]))
    space = umm.get("SpatialExtent", {}).get("GranuleSpatialRepresentation")
    direct = umm.get("DirectDistributionInformation", {})
    return CmrCollection(
        product=product,
        version=version,
        concept=str(meta["concept-id"]),
        first=min(begins, default=None),
        last=None if present else max(ends, default=None),
        cartesian=space == "CARTESIAN",
        region=str(direct.get("Region", "")),
        keys_at=str(direct.get("S3CredentialsAPIEndpoint", "")).strip(),
    )


def direct_url(item: Json, name: str) -> str:
    """Return the `s3://` address of a granule's file; "" if its record has none."""
    links = (str(link.get("URL", "")) for link in item["umm"].get("RelatedUrls", ()))
    found = (url for url in links if url.startswith("s3://") and _base(url) == name)
    return next(found, "")


def concept_of(item: Json) -> str:
    """Return the collection that a granule is of, by its CMR name; "" if its item does not say."""
    return str(item["meta"].get("collection-concept-id", ""))


def record_of(
    item: Json, product: str, collection: Collection, source: str, *, cartesian: bool = False
) -> GranuleRecord | None:
    """Parse an item of `granules.umm_json`; return None if it has no file that can be fetched.

    Product and collection are those of the search, `cartesian` is the collection's. None also for
    level 3 files of ocean colour that are not daily or not in 4 km. Raises KeyError or ValueError
    if the item is not a UMM-G granule.
    """
    umm = item["umm"]
    urls = list(_file_urls(umm))
    if not urls:
        return None
    name = _name(umm, urls)
    url = next((u for u in urls if _base(u) == name), urls[0])
    begin, end = _times(umm)
    parts, ocean = parse_granule_name(name), parse_ocean_name(name)
    if ocean is not None and ocean.period and not _is_listed(name, ocean.period):
        return None
    data = umm.get("DataGranule", {})
    about = _about_file(data, name)
    produced = data.get("ProductionDateTime")
    tile = parts.tile if parts else None
    checksum, checksum_type = _checksum(about)
    return GranuleRecord(
        name=name,
        product=product,
        collection=collection,
        start=parts.start if parts else ocean.start if ocean and ocean.period else begin,
        end=end,
        tile=tile,
        boundary=None if tile else _boundary(umm, cartesian),
        production_time=(parts.production_time if parts else "")
        or (f"{moment(produced):%Y%j%H%M%S}" if produced else ""),
        size=whole(about.get("SizeInBytes") or 0),
        checksum=checksum,
        checksum_type=checksum_type,
        url=url,
        day_night=_day_night(data) or (ocean.day_night if ocean else ""),
        source=source,
    )


def _is_listed(name: str, period: str) -> bool:
    return period == _DAILY and (".L3m." not in name or _FINEST in name)


def beginning(item: Json) -> datetime:
    """Return the beginning of a granule's time span, by which the CMR sorts."""
    return _times(item["umm"])[0]


def moment(text: str) -> datetime:
    """Parse a UMM date and time, in UTC; raise ValueError for one beyond the calendar, too."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text} is in UTC no time of the years 1 to 9999") from error


def whole(number: object) -> int:
    """Return a size that a catalogue states; raise ValueError or TypeError if it is none."""
    try:
        return int(number)  # type: ignore[call-overload, no-any-return]
    except OverflowError as error:  # JSON, as Python reads it, has Infinity
        raise ValueError(f"{number} is no size") from error


def _file_urls(umm: Json) -> Iterator[str]:
    """Yield HTTPS addresses of the data file; s3:// works within the bucket's region alone."""
    for link in umm.get("RelatedUrls", ()):
        url = str(link.get("URL", ""))
        if link.get("Type") != "GET DATA" or not url.startswith(("https://", "http://")):
            continue
        if _base(url).lower().endswith(GRANULE_SUFFIXES):
            yield url


def _base(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2]


def _name(umm: Json, urls: list[str]) -> str:
    said = [
        str(each["Identifier"])
        for each in umm.get("DataGranule", {}).get("Identifiers", ())
        if each.get("IdentifierType") == "ProducerGranuleId"
    ]
    bases = [_base(url) for url in urls]
    return next((n for n in (*said, *bases) if parse_granule_name(n)), bases[0])


def _times(umm: Json) -> tuple[datetime, datetime]:
    extent = umm["TemporalExtent"]
    if "SingleDateTime" in extent:
        only = moment(extent["SingleDateTime"])
        return only, min(only, _LATEST) + _FIVE_MINUTES
    span = extent["RangeDateTime"]
    begin = moment(span["BeginningDateTime"])
    end = moment(span["EndingDateTime"]) if span.get("EndingDateTime") else begin
    return begin, max(begin, end)


def _about_file(data: Json, name: str) -> Json:
    """Find size and checksum of the named file; providers list it alone or in a package."""
    listed: list[Json] = []
    for each in data.get("ArchiveAndDistributionInformation", ()):
        listed.extend(each.get("Files", ()) or (each,))
    named = [each for each in listed if each.get("Name") == name]
    others = [each for each in listed if not str(each.get("Name", "")).endswith(".xml")]
    return (named or others or [{}])[0]


def _checksum(about: Json) -> tuple[str | None, str | None]:
    """Return the checksum with its kind in normal spelling; none for an unknown kind."""
    said = about.get("Checksum") or {}
    value, kind = str(said.get("Value") or ""), str(said.get("Algorithm") or "")
    kind = kind.lower().replace("-", "")
    if not value or digest(kind) is None:
        return None, None
    return value, kind


def _day_night(data: Json) -> str:
    said = str(data.get("DayNightFlag", "")).lower()
    return said if said in ("day", "night", "both") else ""


def _boundary(umm: Json, cartesian: bool) -> tuple[Ring, ...] | None:
    """Read the granule's polygons or boxes; None if they are absent or invalid."""
    try:
        domain = umm.get("SpatialExtent", {}).get("HorizontalSpatialDomain", {})
        return _rings(domain.get("Geometry", {}), cartesian)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _rings(geometry: Json, cartesian: bool) -> tuple[Ring, ...] | None:
    rings: list[Ring | None] = []
    for polygon in geometry.get("GPolygons", ()):
        points = [
            (float(p["Longitude"]), float(p["Latitude"])) for p in polygon["Boundary"]["Points"]
        ]
        if len(points) > 3 and points[0] == points[-1]:
            points.pop()
        if len(points) >= 3:
            rings.append(_widened(points) if cartesian else tuple(points))
    if rings:
        return tuple(ring for ring in rings if ring) if all(rings) else None
    boxes = [
        box_ring(
            LonLatBox(
                float(box["WestBoundingCoordinate"]),
                float(box["SouthBoundingCoordinate"]),
                float(box["EastBoundingCoordinate"]),
                float(box["NorthBoundingCoordinate"]),
            )
        )
        for box in geometry.get("BoundingRectangles", ())
    ]
    return tuple(box for box in boxes if box) if boxes and all(boxes) else None


def _widened(points: Sequence[tuple[float, float]]) -> Ring | None:
    """Make a ring around a polygon of straight lines; None if it is too wide.

    It is wider by what the polygon may have lost, and its lines are cut so short that great circles
    do not differ from them.
    """
    polygon = shapely.Polygon(points)
    lost = (polygon if polygon.is_valid else polygon.convex_hull).buffer(_SIMPLIFIED, quad_segs=2)
    found = shapely.clip_by_rect(lost, *_PLANE)
    west, _, east, _ = found.bounds
    if east - west > _WIDEST or not isinstance(found, shapely.Polygon):
        return None
    lines = shapely.segmentize(found.exterior, _FEW_DEGREES)
    return tuple((wrap_longitude(x), y) for x, y in lines.coords[:-1])


def box_ring(box: LonLatBox) -> Ring | None:
    """Make a ring around a box (west > east crosses the antimeridian); None if it is too wide."""
    width = box.width
    if width > _WIDEST or box.north <= box.south:
        return None
    steps = max(1, round(width / _FEW_DEGREES))
    lons = [wrap_longitude(box.west + width * step / steps) for step in range(steps + 1)]
    return (*((lon, box.south) for lon in lons), *((lon, box.north) for lon in reversed(lons)))
