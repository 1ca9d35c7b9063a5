"""Granule names: `MYD04_L2.A2007103.0250.006.2014051174308.hdf` and its kin.

Format: "MODIS Level 1B, land and atmosphere product naming", as LP DAAC and LAADS document it:
product, `A` + year + day of year, HHMM for swaths or hXXvYY for tiles, collection, production time.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from modis.collection import Collection

_NAME = re.compile(
    r"^(?P<product>[A-Za-z][A-Za-z0-9_]{2,})\.A(?P<year>\d{4})(?P<day>\d{3})"
    r"(?:\.(?P<hour>\d{2})(?P<minute>\d{2}))?"
    r"(?:\.h(?P<h>\d{2})v(?P<v>\d{2}))?"
    r"\.(?P<collection>\d{3})"
    r"(?:\.(?P<production>\d{13}))?(?:\.|$)"
)


@dataclass(frozen=True, kw_only=True)
class NameParts:
    """What a granule's name says."""

    product: str
    collection: Collection
    start: datetime
    tile: tuple[int, int] | None
    production_time: str


def parse_name(name: str) -> NameParts | None:
    """Split a granule's file name, or None when it does not follow the pattern."""
    match = _NAME.match(name)
    if match is None:
        return None
    day = int(match["day"])
    hour, minute = int(match["hour"] or 0), int(match["minute"] or 0)
    if not (1 <= day <= 366 and hour < 24 and minute < 60 and int(match["year"]) >= 1):
        return None
    start = datetime(int(match["year"]), 1, 1, hour, minute, tzinfo=UTC) + timedelta(days=day - 1)
    tile = (int(match["h"]), int(match["v"])) if match["h"] else None
    return NameParts(
        product=match["product"],
        collection=Collection(match["collection"]),
        start=start,
        tile=tile,
        production_time=match["production"] or "",
    )
