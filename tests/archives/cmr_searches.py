"""Searches of a CMR that the file server plays."""

from datetime import date, timedelta

from archives.fetch.timing import Timing
from archives.kinds.cmr import CmrArchive
from archives.model import GranuleRecord
from tests.archives.catalogues import (
    QUICK,
    Cmr,
    Json,
    credentials,
    downloader,
    minutes,
    swath_name,
    umm,
    umm_collection,
    web,
)
from tests.archives.servers import FileServer

DAY = date(2018, 1, 1)
RING = ((0.0, 0.0), (20.0, 2.0), (18.0, 20.0), (-2.0, 18.0))
MODERN = umm_collection("MYD04_L2", "6.1", "LAADS", "2002-07-04T00:00:00.000Z")


def archive(
    cmr: Cmr,
    server: FileServer,
    waits: list[float] | None = None,
    timing: Timing = QUICK,
) -> CmrArchive:
    own = credentials(server)
    return CmrArchive(
        web(own, server, waits, timing), downloader(own, server), url=cmr.mount(server)
    )


def swaths(count: int, day: int = 1) -> list[Json]:
    return [umm(swath_name(start), start, ring=RING) for start in minutes(count, day)]


def found(of: CmrArchive, collection: str = "61", days: int = 1) -> list[GranuleRecord]:
    return list(of.search("MYD04_L2", collection, DAY, DAY + timedelta(days=days - 1)))
