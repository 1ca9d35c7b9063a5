"""The overpasses of a day: the granules that a satellite took of a region in one go.

A satellite sees a place again an orbit later at the earliest: after 99 minutes for Terra and Aqua,
101 for Suomi NPP and its successors. So granules that begin within half an orbit of the first one
are of one overpass, and no pixel is seen twice in it but where granules adjoin. A region that the
satellite does not leave, such as the globe, begins the next overpass then.
"""

from collections.abc import Iterable
from datetime import timedelta
from operator import attrgetter

from archives.model import GranuleRecord

HALF_ORBIT = timedelta(minutes=49)


def overpasses(records: Iterable[GranuleRecord]) -> list[tuple[str, list[GranuleRecord]]]:
    """Sort the granules of one product and day that touch a region into overpasses.

    Returns:
        The overpasses in the order of time, each with its start, HH:MM in UTC, and its granules
        sorted by name.
    """
    found: list[list[GranuleRecord]] = []
    for record in sorted(records, key=attrgetter("start", "name")):
        if found and record.start - found[-1][0].start < HALF_ORBIT:
            found[-1].append(record)
        else:
            found.append([record])
    return [(f"{one[0].start:%H:%M}", sorted(one, key=attrgetter("name"))) for one in found]
