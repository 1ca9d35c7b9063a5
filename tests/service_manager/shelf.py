"""An archive of records without files, requests for it, and what their plans hold."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archives.model import Archive, Fetched, GranuleRecord, Holding, Progress, newest_editions
from modis.box import LonLatBox
from modis.collection import Collection
from modis.tile import Tile
from service_manager.planner.plan_stream import PlanStream
from tasks.bag.spec import MosaicSpec, RasterSpec
from tasks.packages.packages import Packages
from tasks.request.document import Request, parse_request
from tasks.requests.plan import Plan
from tasks.settings import Settings

LIMITS = Settings()
REQUEST: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
    "resampling": "nearest",
}
SWATHS: dict[str, Any] = {
    "products": [{"name": "MYD99_L2", "collection": "6", "layers": ["Depth"]}],
    "region": {"bbox": [0, 0, 10, 10]},
    "time": {"start": "2007-04-13", "end": "2007-04-15"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.1},
}


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """An archive of records without files."""

    records: Sequence[GranuleRecord]

    def search(
        self,
        product: str,
        collection: str,
        start_day: dt.date,
        end_day: dt.date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        del box
        yield from newest_editions(
            r
            for r in self.records
            if (r.product, r.collection) == (product, collection)
            and start_day <= r.start_day <= end_day
        )

    def holdings(self, product: str) -> list[Holding]:
        days: dict[str, list[dt.date]] = {}
        for r in self.records:
            if r.product == product:
                days.setdefault(r.collection, []).append(r.start_day)
        return [
            Holding(product=product, collection=Collection(c), first=min(d), last=max(d))
            for c, d in sorted(days.items())
        ]

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        del progress
        raise AssertionError(f"planning must not open {record.name}, least of all write {to}")


COVERED = {"MCD12Q1": 366, "MOD10A1": 1, "MOD13A2": 16}
"""Days that a tile covers, if not 8."""


def tile_granule(
    day: dt.date, h: int, v: int, product: str = "MCD15A2", collection: str = "5", made: str = "1"
) -> GranuleRecord:
    start = dt.datetime.combine(day, dt.time(), dt.UTC)
    near = ".NRT" if collection.endswith("NRT") else ""
    number = collection.removesuffix("NRT")
    name = f"{product}.A{day:%Y%j}.h{h:02d}v{v:02d}.00{number}.{made:0>13}{near}.hdf"
    return GranuleRecord(
        name=name,
        product=product,
        collection=Collection(collection),
        start=start,
        end=start + dt.timedelta(days=COVERED.get(product, 8)),
        tile=Tile(h, v),
        boundary=None,
        production_time=f"{made:0>13}",
        size=1000,
        checksum=None,
        checksum_type=None,
        url=f"here/{name}",
        day_night="",
    )


def swath_granule(
    start: dt.datetime, box: tuple[float, float, float, float], day_night: str = "Day"
) -> GranuleRecord:
    west, south, east, north = box
    name = f"MYD99_L2.A{start:%Y%j}.{start:%H%M}.006.2014051174308.hdf"
    ring = tuple(
        [(west + (east - west) * i / 8, south) for i in range(8)]
        + [(east, south + (north - south) * i / 8) for i in range(8)]
        + [(east - (east - west) * i / 8, north) for i in range(8)]
        + [(west, north - (north - south) * i / 8) for i in range(8)]
    )
    return GranuleRecord(
        name=name,
        product="MYD99_L2",
        collection=Collection("6"),
        start=start,
        end=start + dt.timedelta(minutes=5),
        tile=None,
        boundary=(ring,),
        production_time="2014051174308",
        size=500,
        checksum=None,
        checksum_type=None,
        url=name,
        day_night=day_night,
    )


def composites(tiles: Iterable[tuple[int, int]] = ((17, 3), (18, 3))) -> list[GranuleRecord]:
    first = dt.date(2012, 1, 1)
    return [
        tile_granule(first + dt.timedelta(days=8 * n), h, v) for n in range(16) for h, v in tiles
    ]


def plan(request: Request, archive: Archive, packages: Packages, limits: Settings) -> Plan:
    """All tasks of a request, inputs first, and what it asks for that cannot be had."""
    course = PlanStream(request, archive, packages, limits)
    tasks = {task.key: task for stretch in course.stretches() for task in stretch.tasks()}
    return Plan(
        tasks=tuple(tasks.values()),
        gaps=tuple(course.gaps()),
        notes=course.notes,
        archives=course.archives,
        packages=course.packages,
        windows=tuple(course.windows),
    )


def made(records: Sequence[GranuleRecord], base: dict[str, Any] = REQUEST, **changes: Any) -> Plan:
    request = parse_request({**base, **changes})
    return plan(request, Shelf(records=records), Packages.of(LIMITS), LIMITS)


def specs(found: Plan, kind: type[Any]) -> list[Any]:
    return [planned.spec for planned in found if isinstance(planned.spec, kind)]


def outputs(found: Plan) -> list[str]:
    return [
        f"{p.output}/{p.spec.name}.tif"
        for p in found
        if p.output and isinstance(p.spec, MosaicSpec | RasterSpec)
    ]
