"""Read the daily `geoMeta` files of LAADS: the positions of a satellite's 5-minute swaths.

Source: the files' own header (`# GranuleID,StartDateTime,ArchiveSet,OrbitNumber,DayNightFlag,
EastBoundingCoord,...,GRingLongitude1..4,GRingLatitude1..4`); 288 lines per day, one per granule of
the geolocation product, such as MOD03.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from archives.model import Ring
from modis.granule_name import parse_granule_name

_FLAGS = {"D": "day", "N": "night", "B": "both"}


@dataclass(frozen=True, kw_only=True)
class SwathPlace:
    """The ring through a swath's four corners, and `day`, `night`, `both` or ""."""

    ring: Ring
    day_night: str


def geometa_path(product: str, day: date) -> str | None:
    """Return the path of the file for a product's satellite and day; None for other satellites."""
    for prefix, (folder, stem) in _SATELLITES.items():
        if product.startswith(prefix):
            return f"{folder}/{day.year}/{stem}_{day.isoformat()}.txt"
    return None


_SATELLITES: Mapping[str, tuple[str, str]] = {
    "MOD": ("geoMeta/61/TERRA", "MOD03"),
    "MYD": ("geoMeta/61/AQUA", "MYD03"),
    "VNP": ("geoMetaVIIRS/5200/NPP", "VNP03MOD"),
    "VJ1": ("geoMetaVIIRS/5201/NOAA-20", "VJ103MOD"),
    "VJ2": ("geoMetaVIIRS/5200/NOAA-21", "VJ203MOD"),
}


def read_geometa(text: str) -> dict[str, SwathPlace]:
    """Read positions by the swath's start, HHMM; unreadable lines are left out."""
    found = {}
    for line in _lines(text):
        name = parse_granule_name(line.get("GranuleID", ""))
        try:
            ring = tuple(
                (float(line[f"GRingLongitude{n}"]), float(line[f"GRingLatitude{n}"]))
                for n in range(1, 5)
            )
        except (KeyError, ValueError, TypeError):
            continue
        if name is None or not all(abs(lon) <= 180.0 and abs(lat) <= 90.0 for lon, lat in ring):
            continue
        found[f"{name.start:%H%M}"] = SwathPlace(
            ring=ring, day_night=_FLAGS.get(line.get("DayNightFlag", "").upper(), "")
        )
    return found


def _lines(text: str) -> Iterator[dict[str, str]]:
    """Yield the lines as columns by name, according to the last header line above them."""
    columns: list[str] = []
    for line in text.splitlines():
        try:
            values = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error:  # a field longer than any
            continue
        if values and values[0].startswith("#"):
            head = [value.strip(" #") for value in values]
            columns = head if "GranuleID" in head else columns
        elif columns and len(values) == len(columns):
            yield dict(zip(columns, values, strict=True))
