"""What the archive lists for a request: day by day over all its products, in stretches of days.

A stretch is what is planned, kept and begun again as a whole. Where stretches end depends on the
listing alone, and so does their digest: equal listings give equal stretches.
"""

import hashlib
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import groupby
from operator import attrgetter, itemgetter

from archives.model import Archive, GranuleRecord, newest_by_day
from modis.box import LonLatBox
from modis.collection import Collection
from modis.granule_name import near_editions
from modis.sphere import METRES_PER_DEGREE, wrap_longitude
from reprojection.catalogue import collections_beside
from service_manager.planner.gaps import starts_on
from service_manager.planner.granules import is_lit
from tasks.errors import RequestRefusedError
from tasks.request.document import ProductChoice, Request
from tasks.request.resolved import ResolvedProduct, ResolvedRequest
from tasks.request.vertices import Area

STRETCH = 5000  # tasks, about
_AROUND = 2.0  # degrees about the region: the archive's boundaries are not exact to a kilometre
_POLAR = 75.0
_LATE = 16  # days, and two periods, without a granule after which a product counts as ended


@dataclass(frozen=True, kw_only=True)
class Day:
    """The granules of one UTC start day by the number of the product choice, sorted by name."""

    day: date
    records: Mapping[int, tuple[GranuleRecord, ...]]


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Days from `first` to `last`, inclusive; `final`: none come after."""

    first: date
    last: date
    final: bool
    days: tuple[Day, ...]

    def digest(self) -> str:
        """Return the SHA-256 of what the archive lists for these days.

        It covers each granule's name, size, checksum, last day, and stamp where it has one.
        """
        found = hashlib.sha256()
        for day in self.days:
            for number, records in day.records.items():
                every = [one for r in records for one in (r, *r.companions)]
                lines = [
                    f"{r.name} {r.size} {r.checksum} {r.end.date()} {r.stamp}".rstrip()
                    for r in every
                ]
                found.update(f"{day.day} {number}\n".encode())
                found.update("\n".join(lines).encode())
        return found.hexdigest()


def stretches(
    resolved: ResolvedRequest,
    archive: Archive,
    weights: Sequence[int],
    box: LonLatBox,
    first: date,
    searched: Callable[[date], None] = lambda _day: None,
) -> Iterator[Stretch]:
    """Stretches from a day to the last that is searched, at least one, without a day left out.

    A granule whose product needs a companion to say where it lies, and has none, is left out.
    `weights` is by product choice the most tasks that a day with granules adds beside theirs;
    `searched` is told of each day up to which the archive has listed all.
    Raises ArchiveError as the archive does.
    """
    held: list[Day] = []
    count = 0
    end = max(product.join.last for product in resolved.products)
    for day in _days(resolved, archive, box, first):
        searched(day.day)
        if count >= STRETCH:
            yield Stretch(first=first, last=held[-1].day, final=False, days=tuple(held))
            first, held, count = held[-1].day + timedelta(days=1), [], 0
        held.append(day)
        count += sum(len(day.records[number]) + weights[number] for number in day.records)
    searched(end)
    yield Stretch(first=first, last=end, final=True, days=tuple(held))


def newest_day(resolved: ResolvedRequest, archive: Archive, box: LonLatBox) -> date | None:
    """Return the last day asked for of which all products have a granule near the region.

    Composites count by their first day. Products whose dates are chosen by a reduction, and rasters
    of users, are not waited for. Of a record a day counts when no product that would be taken for
    it is still to come. None: a product has none.

    Raises ArchiveError as the archive does.
    """
    time = resolved.request.time
    awaited = [
        product
        for product in resolved.products
        if product.choice.exact is None and product.choice.use == "same-day"
    ]
    listed: dict[int, list[_Listed]] = {}
    for product in awaited:
        place = product.choice.part_place
        first = product.number if place is None else _first_of(resolved, place)
        choice, span = product.choice, (max(time.start, product.first_start), product.join.last)
        since = span[0] if place is None else time.start - _late(product)
        records = list(search_editions(choice, archive, since, span[1], box))
        found = _of_days(resolved, product, archive, box, span, records)
        days = frozenset(day for day, _ in found if time.holds(day))
        starts = frozenset(record.start_day for record in records)
        listed.setdefault(first, []).append(_Listed(product, days, starts))
    newest = [day for group in listed.values() if (day := _newest_of(group))]
    return min(newest) if newest and len(newest) == len(listed) else None


@dataclass(frozen=True)
class _Listed:
    """The days of a product that are asked for, and all on which granules start.

    Those of a record's product begin before the days asked for.
    """

    product: ResolvedProduct
    days: frozenset[date]
    starts: frozenset[date]

    def comes(self, day: date) -> bool:
        """Tell whether a granule of a day is still to come: the product has it, and goes on."""
        entry = self.product.entry
        if entry is None or not starts_on(day, entry.period, entry.phase):
            return False
        late = _late(self.product)
        return day not in self.starts and any(day - late <= one < day for one in self.starts)


def _late(product: ResolvedProduct) -> timedelta:
    return timedelta(days=max(_LATE, 2 * product.entry.period if product.entry else 0))


def _newest_of(group: Sequence[_Listed]) -> date | None:
    """Return the last day of products that stand for one another, of which all are there.

    The products are in order of preference, and only those before the first that has a day would
    be taken instead of it; where all are wanted, all.
    """
    for day in sorted({day for one in group for day in one.days}, reverse=True):
        there = next(number for number, one in enumerate(group) if day in one.days)
        part = group[0].product.choice.part
        first = part is None or part.overlap == "prefer"
        wanted = group[:there] if first else group
        if not any(one.comes(day) for one in wanted):
            return day
    return None


def _first_of(resolved: ResolvedRequest, place: int) -> int:
    """Return the number of the first product of a record, by its place in the document."""
    return next(one.number for one in resolved.products if one.choice.part_place == place)


def search_box(area: Area, reach: float) -> LonLatBox:
    """Return the box in which to search for granules of a region.

    `reach` is how far, in metres, kernels look beyond the region.
    """
    west, south, east, north = area.bounds
    up = _AROUND + reach / METRES_PER_DEGREE
    south, north = max(-90.0, south - up), min(90.0, north + up)
    farthest = max(-south, north)
    across = up / math.cos(math.radians(min(farthest, _POLAR)))
    if farthest > _POLAR or east - west + 2 * across >= 360.0:
        return LonLatBox(-180.0, south, 180.0, north)
    return LonLatBox(wrap_longitude(west - across), south, wrap_longitude(east + across), north)


def _days(
    resolved: ResolvedRequest, archive: Archive, box: LonLatBox, first: date
) -> Iterator[Day]:
    merged = heapq.merge(
        *(_of_product(resolved, product, archive, box, first) for product in resolved.products),
        key=itemgetter(0, 1),
    )
    for day, group in groupby(merged, key=itemgetter(0)):
        yield Day(day=day, records={number: records for _, number, records in group})


def _of_product(
    resolved: ResolvedRequest,
    product: ResolvedProduct,
    archive: Archive,
    box: LonLatBox,
    first: date,
) -> Iterator[tuple[date, int, tuple[GranuleRecord, ...]]]:
    choice, last = product.choice, product.join.last
    first = max(first, product.first_start)
    if first > last:
        return
    if choice.exact is not None:
        for day in raster_days(product, resolved.request):
            if first <= day <= last and resolved.dates_of(product.number, day):
                yield day, product.number, (choice.exact.record(day),)
        return
    found = search_editions(choice, archive, first, last, box)
    for day, records in _of_days(resolved, product, archive, box, (first, last), found):
        yield day, product.number, records


def _of_days(
    resolved: ResolvedRequest,
    product: ResolvedProduct,
    archive: Archive,
    box: LonLatBox,
    span: tuple[date, date],
    found: Iterable[GranuleRecord],
) -> Iterator[tuple[date, tuple[GranuleRecord, ...]]]:
    """Yield the days of a span, both ends included, with what is taken of the granules found."""
    choice, (first, last) = product.choice, span
    for day, records in groupby(found, key=attrgetter("start_day")):
        if not first <= day <= last or not resolved.dates_of(product.number, day):
            continue
        lit = sorted(records, key=attrgetter("name"))
        if choice.day_night != "any":
            lit = [record for record in lit if is_lit(record, choice)]
        for name in product.companions:
            lit = accompanied(lit, name, archive, box, near=choice.near_real_time)
        if lit:
            yield day, tuple(lit)


def search_editions(
    choice: ProductChoice, archive: Archive, first: date, last: date, box: LonLatBox | None
) -> Iterator[GranuleRecord]:
    """List the granules of a product choice, as `Archive.search`.

    Near real time granules, where they are asked for, stand for those that are not there yet.
    """
    wanted = choice.name, choice.collection
    return _editions(wanted, archive, first, last, box, near=choice.near_real_time)


def _editions(
    wanted: tuple[str, str],
    archive: Archive,
    first: date,
    last: date,
    box: LonLatBox | None,
    *,
    near: bool,
) -> Iterator[GranuleRecord]:
    """List the granules of a product and collection, as the standard one also `near` ones."""
    found = archive.search(*wanted, first, last, box)
    if not near:
        return found
    name, own = wanted[0], Collection(wanted[1])
    early = (
        replace(record, product=name, collection=own)
        for record in archive.search(*near_editions(name, own), first, last, box)
    )
    return newest_by_day(heapq.merge(found, early, key=attrgetter("start_day")))


def raster_days(product: ResolvedProduct, request: Request) -> tuple[date, ...]:
    """Return the dates of a user's raster; one of no date counts as of the first day asked for."""
    exact = product.choice.exact
    if exact is None:
        return ()
    undated = request.time.start if request.steps else request.time.pieces[0][0]
    return exact.raster.days or (undated,)


def accompanied(
    records: Sequence[GranuleRecord],
    product: str,
    archive: Archive,
    box: LonLatBox | None,
    *,
    near: bool,
) -> list[GranuleRecord]:
    """Give granules of one day one more companion: of a product that which starts with them.

    It may be of another collection, and of near real time where such are asked for and it is the
    only one. Granules without it are left out.
    """
    there: dict[datetime, GranuleRecord] = {}
    for collection in collections_beside(product, records[0].collection) if records else ():
        if all(record.start in there for record in records):
            break
        day = records[0].start_day
        found = _editions((product, collection), archive, day, day, box, near=near)
        there = {record.start: record for record in found} | there
    return [
        replace(record, companions=(*record.companions, there[record.start]))
        for record in records
        if record.start in there
    ]


def unplaced(
    resolved: ResolvedRequest, archive: Archive, box: LonLatBox | None
) -> RequestRefusedError | None:
    """Say which product's granules are not there that would say where pixels lie, if it is so."""
    span = resolved.request.time
    for product in resolved.products:
        choice = product.choice
        if not product.companions:
            continue
        found = search_editions(choice, archive, span.start, span.end, box)
        lit = [record for record in found if is_lit(record, choice)]
        days = [[*group] for _, group in groupby(lit, key=attrgetter("start_day"))]
        for name in product.companions:
            guided = (
                accompanied(day, name, archive, box, near=choice.near_real_time) for day in days
            )
            if lit and not any(guided):
                return RequestRefusedError(
                    product.field,
                    f"granules of {choice.name} do not say where their pixels lie, those of {name} "
                    f"do, and the archive has no granule of {name} that starts with one of the "
                    f"{len(lit):,} from {span.start} to {span.end}.",
                    f"Add {name} of the same times to the archive, or ask for other days.",
                )
    return None
