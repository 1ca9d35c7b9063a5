"""The folders of LAADS and of earlier FTP servers: set / product / year / day of the year."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from archives.formats.geometa import SwathPlace
from archives.model import GranuleRecord, Holding
from modis.collection import Collection
from modis.formats import GRANULE_SUFFIXES
from modis.granule_name import parse_granule_name

_SWATH = timedelta(minutes=5)
# Archive sets of collections: MODIS by number, VIIRS 1 and 2 in the 5000s (LAADS, "Using LAADS
# APIs": a collection is the version of a product, an archive set the place where it is stored).
_MODIS_SETS = (("5", "5"), ("51", "51"), ("6", "6"), ("61", "61"), ("7", "7"))
_VIIRS_SETS = {
    "VNP": (("1", "5000"), ("2", "5200")),
    "VJ1": (("2", "5201"), ("21", "5201")),
    "VJ2": (("2", "5200"),),
}


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An entry of a folder; size 0 means a folder."""

    name: str
    size: int
    url: str
    checksum: str | None = None
    checksum_type: str | None = None

    @property
    def is_swath(self) -> bool:
        """True if its name is that of a swath granule."""
        parts = parse_granule_name(self.name)
        return parts is not None and parts.is_swath


def held_sets(product: str) -> tuple[tuple[Collection, str], ...]:
    """Return the (collection, archive set) pairs that a product may have."""
    sets = next((s for p, s in _VIIRS_SETS.items() if product.startswith(p)), _MODIS_SETS)
    return tuple((Collection(collection), number) for collection, number in sets)


def archive_set(product: str, collection: str) -> str:
    """Return the archive set of a product's collection, which names its folder."""
    wanted = Collection(collection)
    return dict(held_sets(product)).get(wanted, wanted)


def year_holdings(product: str, listed: Callable[[str], list[str]]) -> list[Holding]:
    """Say which collections of a product have folders of years, and of which.

    `listed` returns the names of the folders below the product's, in an archive set.
    """
    found = []
    for collection, number in held_sets(product):
        years = sorted(int(name) for name in listed(number) if name.isdecimal())
        if years:
            first, last = date(years[0], 1, 1), date(years[-1], 12, 31)
            found.append(Holding(product=product, collection=collection, first=first, last=last))
    return found


def day_folders(
    start_day: date, end_day: date, listed: Callable[[int], list[str]]
) -> Iterator[date]:
    """Yield the days in an inclusive span that have a folder.

    `listed` returns the names of a year's folders, such as `001`.
    """
    for year in range(start_day.year, end_day.year + 1):
        for name in sorted(set(listed(year))):
            if len(name) == 3 and name.isdigit() and 1 <= int(name) <= 366:
                day = date(year, 1, 1) + timedelta(days=int(name) - 1)
                if start_day <= day <= end_day and day.year == year:
                    yield day


def record_of(
    item: Listed,
    product: str,
    collection: Collection,
    source: str,
    places: Mapping[str, SwathPlace],
) -> GranuleRecord | None:
    """Make a granule's record from an entry of a day's folder; None for other products."""
    parts = parse_granule_name(item.name)
    if parts is None or not item.name.lower().endswith(GRANULE_SUFFIXES):
        return None
    if (parts.product, parts.collection) != (product, collection):
        return None
    place = places.get(f"{parts.start:%H%M}") if parts.is_swath else None
    return GranuleRecord(
        name=item.name,
        product=product,
        collection=collection,
        start=parts.start,
        end=parts.start + _SWATH if parts.is_swath else _end_of_day(parts.start),
        tile=parts.tile,
        boundary=(place.ring,) if place else None,
        production_time=parts.production_time,
        size=item.size,
        checksum=item.checksum,
        checksum_type=item.checksum_type,
        url=item.url,
        day_night=place.day_night if place else "",
        source=source,
    )


def _end_of_day(start: datetime) -> datetime:
    return start.astimezone(UTC).replace(hour=23, minute=59, second=59)
