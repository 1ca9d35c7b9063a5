"""List granules that may touch a box, with those that say where their pixels lie."""

from datetime import date, timedelta

from archives.formats.boundary import touches
from archives.model import GranuleRecord
from archives.sources import Sources
from modis.box import LonLatBox
from reprojection import catalogue


def granules_with_guides(
    sources: Sources,
    product: str,
    collection: str,
    days: tuple[date, date],
    box: LonLatBox | None,
) -> list[GranuleRecord]:
    """List a product's granules that may touch a box, with those that say where they lie.

    Args:
        sources: Where to look.
        product: Short name.
        collection: As it is named in granules; "" where no source has the product.
        days: The first and the last on which they start.
        box: None is the whole Earth.

    Raises:
        ArchiveError: no source answers.
    """
    found = [
        record
        for record in sources.search(product, collection, *days, box)
        if box is None or touches(record, box)
    ]
    entry = catalogue.product(product, collection) if collection else None
    starts = {record.start for record in found}
    for name in entry.geolocations if entry and found else ():
        for other in catalogue.collections_beside(name, collection):
            listed = sources.search(name, other, *days, box)
            guides = [record for record in listed if record.start in starts]
            if guides:
                found += guides
                break
    return found


def granules_of_day(
    sources: Sources, product: str, collection: str, day: date
) -> list[GranuleRecord]:
    """List a product's granules that a day lies in, with those that say where they lie.

    Of composites these are the granules of the latest start up to the day. Raises ArchiveError.
    """
    entry = catalogue.product(product, collection)
    covers = entry.covers if entry is not None else 1
    first = day - timedelta(days=covers - 1)
    found = granules_with_guides(sources, product, collection, (first, day), None)
    latest = max((one.start_day for one in found), default=None)
    return [one for one in found if one.start_day == latest]
