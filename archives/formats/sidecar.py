"""Read the `.hdf.xml` beside a granule: ECS inventory metadata (`ScienceGranuleMetadata.dtd`)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from archives.model import Ring

MAX_BYTES = 4 << 20  # real sidecars have 20 kB; limits what an index reads


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """The content of a sidecar; absent items are None or empty."""

    name: str
    product: str
    collection: str
    start: datetime | None
    end: datetime | None
    boundary: tuple[Ring, ...] | None
    size: int | None
    checksum: str | None
    checksum_type: str | None
    day_night: str


def read_sidecar(path: Path) -> Sidecar | None:
    """Read a sidecar; return None if it is absent, truncated or something else (an error page)."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return parse_sidecar(path.read_bytes())
    except OSError:
        return None


def parse_sidecar(text: bytes) -> Sidecar | None:
    """Parse the bytes of a sidecar; return None if they are not one."""
    # Entities could expand without bound; the sidecar's DTD declares none.
    if b"<!ENTITY" in text:
        return None
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    granule = root.find("GranuleURMetaData")
    if granule is None:
        return None
    size = _text(granule, "DataFiles/DataFileContainer/FileSize")
    return Sidecar(
        name=_text(granule, "ECSDataGranule/LocalGranuleID"),
        product=_text(granule, "CollectionMetaData/ShortName"),
        collection=_text(granule, "CollectionMetaData/VersionID"),
        start=_moment(granule, "Beginning"),
        end=_moment(granule, "Ending"),
        boundary=_boundary(granule),
        size=int(size) if size.isdecimal() else None,
        checksum=_text(granule, "DataFiles/DataFileContainer/Checksum") or None,
        checksum_type=_text(granule, "DataFiles/DataFileContainer/ChecksumType").lower() or None,
        day_night=_text(granule, "ECSDataGranule/DayNightFlag").lower(),
    )


def _text(node: ElementTree.Element, path: str) -> str:
    return (node.findtext(path) or "").strip()


def _moment(granule: ElementTree.Element, which: str) -> datetime | None:
    day = _text(granule, f"RangeDateTime/Range{which}Date")
    time = _text(granule, f"RangeDateTime/Range{which}Time") or "00:00:00"
    try:
        return datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=UTC)
    except ValueError:
        return None


def _boundary(granule: ElementTree.Element) -> tuple[Ring, ...] | None:
    rings = []
    path = "SpatialDomainContainer/HorizontalSpatialDomainContainer/GPolygon/Boundary"
    for boundary in granule.iterfind(path):
        points = []
        for point in boundary.iterfind("Point"):
            try:
                lon = float(_text(point, "PointLongitude"))
                lat = float(_text(point, "PointLatitude"))
            except ValueError:
                return None
            points.append((lon, lat))
        if len(points) > 3 and points[0] == points[-1]:
            points.pop()
        if len(points) >= 3:
            rings.append(tuple(points))
    return tuple(rings) or None
