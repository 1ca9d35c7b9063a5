"""Planning under way: stretch after stretch of days, in bounded memory, from any stretch on.

Equal requests on an equal archive give equal stretches. No granule is opened: the archive's
records say where each lies. What is kept in memory are the days seen, and the cells of reductions
whose window has not ended.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Protocol, runtime_checkable

from archives.errors import ArchiveError
from archives.model import Archive, GranuleRecord, Stamped
from modis.collection import versioned
from modis.granule_name import is_near_real_time, near_editions
from modis.tile import Tile
from reprojection.catalogue import Geometry, collections_beside
from service_manager.planner.cells import WindowCell, places
from service_manager.planner.chosen import Chosen, archives, chosen
from service_manager.planner.counts import Counts
from service_manager.planner.cubes import Cubes
from service_manager.planner.draft import Compared, Draft, Line, PlannedRaster
from service_manager.planner.expected import Dates
from service_manager.planner.gaps import (
    Seen,
    absent_tiles,
    date_gaps,
    expected_days,
    tile_gaps,
    unserved,
)
from service_manager.planner.granules import geometry, misnamed, nothing_found, tile_of
from service_manager.planner.layers import (
    Layout,
    Made,
    ProductLayers,
    covered_until,
    plan_date,
    plan_mean,
)
from service_manager.planner.listing import Stretch, search_box, stretches, unplaced
from service_manager.planner.located import Locatable, Locator
from service_manager.planner.overlaps import Overlaps
from service_manager.planner.parts import PartsPlan, Reads, Why, told
from service_manager.planner.record_dates import RecordDates
from service_manager.planner.reductions import Groups
from service_manager.planner.sites import SitesPlan
from tasks.bag.kinds import load_spec
from tasks.canonical import canonical, digest_of
from tasks.errors import RequestRefusedError
from tasks.packages.packages import PackageSource
from tasks.request.checks import check_overpasses, check_request
from tasks.request.compared import check_outputs
from tasks.request.document import UNPLANNED, Request, Time
from tasks.request.memory import memory_notes
from tasks.request.notes import request_notes
from tasks.request.region.kinds import region_tiles
from tasks.request.resolved import ResolvedProduct, ResolvedRequest, resolve
from tasks.request.taking import taking_notes
from tasks.requests.plan import Gap, PlannedTask, PlannedWindow
from tasks.settings import Settings
from tasks.storage.schema import PARTS_AND_RECORDS, written

MOST_WHOLE = 40_000_000
"""Pixels of all bands of a raster that an attempt may make as a whole, as of the globe at 4 km."""
MOST_SOURCE = 9_600**2  # pixels of the tiles it is made of: two by two of 250 m
_TILE_SIDE = 1_200_000.0  # nominal metres: 1,200 pixels of 1 km
MOST_CELLS = 20_000  # of the lattice: only a raster that is all edge has more
VERSION = 17  # raise it when the same request on the same listing would be planned otherwise


@dataclass(frozen=True, kw_only=True)
class PlanOutcome:
    """What is known of a planned stretch without its tasks.

    `geometries` are those of products the catalogue does not know; `rasters` are the inputs of
    cubes; `windows` are those of a reduction that closed, and `gaps` what they lack. `overpasses`
    counts those that are each by itself, by product choice; `reads` what of its granules is read,
    `granules` those in the region of the products of records; `near` has the days on which near
    real time granules are taken.
    """

    first: date
    last: date
    final: bool
    listing: str
    counts: Counts
    seen: dict[int, Seen]
    geometries: dict[int, Geometry]
    rasters: tuple[PlannedRaster, ...] = ()
    gaps: tuple[Gap, ...] = ()
    windows: tuple[PlannedWindow, ...] = ()
    overpasses: Mapping[int, int] = field(default_factory=dict)
    reads: Mapping[int, Mapping[Why, Reads]] = field(default_factory=dict)
    granules: Mapping[int, int] = field(default_factory=dict)
    near: Mapping[int, frozenset[date]] = field(default_factory=dict)


@runtime_checkable
class _Chain(Protocol):
    """An archive that goes on when one of its sources fails, and counts that."""

    failures: int


class Planned(Protocol):
    """A stretch of a plan."""

    @property
    def outcome(self) -> PlanOutcome: ...

    def tasks(self) -> Iterable[PlannedTask]:
        """Its tasks, inputs first; inputs may be tasks of stretches before."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """A stretch as planned just now."""

    outcome: PlanOutcome
    lines: Mapping[str, Line]

    def tasks(self) -> Iterator[PlannedTask]:
        """Its tasks."""
        for key, line in self.lines.items():
            yield PlannedTask(spec=load_spec(line.text), output=line.output, key=key)

    def rows(self) -> list[str]:
        """Its tasks as text: key, output, specification, between tabs."""
        return [f"{key}\t{line.output}\t{line.text}" for key, line in self.lines.items()]


class Readings(Protocol):
    """What a request reads at places, beside its rasters or (with `places`) in place of them."""

    @property
    def places(self) -> Sequence[Locatable]: ...

    @property
    def notes(self) -> Sequence[str]: ...

    @property
    def compared(self) -> frozenset[Compared]:
        """The layers and outputs that it needs of a draft."""
        ...

    def plan_date(
        self,
        wanted: ProductLayers,
        day: date,
        band: int,
        records: Sequence[GranuleRecord],
        locator: Locator,
        draft: Draft,
    ) -> bool:
        """Plan a date's readings in granules; whether any is expected."""
        ...

    def plan_after(self, draft: Draft, *, final: bool) -> None:
        """Plan what follows the dates of a stretch, and after the last what needs all of them."""
        ...

    def add(self, made: Iterable[PlannedRaster]) -> None:
        """Take in what a stretch made that is not the last."""
        ...


READINGS: Sequence[
    Callable[[ResolvedRequest, Sequence[WindowCell], PartsPlan], Readings | None]
] = (SitesPlan.of,)
"""All readings that there are; each is None for a request without it."""


class PlanStream:
    """The planning of one request. `stretches` is to be exhausted before `gaps` is asked.

    `there` tells whether the artifact of a task key is in storage.

    Raises:
        RequestRefusedError: the request means nothing here, or is too large.
    """

    def __init__(
        self,
        request: Request,
        archive: Archive,
        packages: PackageSource,
        limits: Settings,
        there: Callable[[str], bool] = lambda _: False,
    ) -> None:
        resolved = resolve(request)
        check_request(resolved, limits)
        self.request = request
        self._resolved = resolved
        self._archive = archive
        self._limit = limits.max_tasks
        self._steps = chosen(resolved, packages)
        goal = resolved.target
        _check_cells(len(goal.lattice.cells(goal.grid)))
        fused = _is_fused(resolved, self._steps)
        cells = () if request.region.in_place else places(goal, request.region, fused=fused)
        self._parts = PartsPlan(archive, there, request.mask, cells)
        made = (of(resolved, cells, self._parts) for of in READINGS)
        self._readings = [one for one in made if one is not None]
        self._in_place = next((one for one in self._readings if one.places), None)
        check_outputs(resolved, {one.number: one.rasters for one in self._steps})
        self._layout = Layout.of(resolved, cells, fused=fused)
        self._wanted = [
            ProductLayers(**vars(one), layout=self._layout) for one in resolved.products
        ]
        self._records = RecordDates(resolved.products)
        self._overlaps = Overlaps(resolved, len(cells))
        self._near_days: dict[int, frozenset[date]] = {}
        self._compares = bool(self._overlaps)
        self._near = Locator(cells, self._overlaps.places)
        self._cubes = Cubes(request.cube, self._layout.parts) if request.cube != "none" else None
        self._locator = Locator(self._in_place.places if self._in_place is not None else cells)
        self._groups = (
            Groups(resolved, self._layout, self._steps, self._locator, self._parts)
            if self._steps
            else None
        )
        reach = max(layer.reach for wanted in self._wanted for layer in wanted.layers)
        self._box = search_box(goal.area, reach)
        self._failures = _failures(archive)
        self._seen: dict[int, Seen] = {}
        self._same: dict[frozenset[Tile], frozenset[Tile]] = {}
        self._geometries: dict[int, Geometry] = {}
        self._window_gaps: list[Gap] = []
        self._overpasses: Counter[int] = Counter()
        self._reads: dict[int, dict[Why, Reads]] = {}
        self._granules: Counter[int] = Counter()
        self._means: dict[date, list[tuple[ProductLayers, Sequence[GranuleRecord], list[Made]]]]
        self._means = {}
        self.days_searched = 0  # of the request's; other threads may read it
        self.counts = Counts()
        self.windows: list[PlannedWindow] = []
        self.archives = tuple(archives(self._steps))
        self.packages = ", ".join(dict.fromkeys(step.exact for step in self._steps))
        taking = taking_notes(resolved, [step.package for step in self._steps])
        memory = memory_notes(resolved, limits)
        self._notes = (*request_notes(resolved), *taking, *memory, *_unknown(resolved))

    @property
    def identity(self) -> str:
        """The plan, whoever asks: equal for requests that equal listings plan equally."""
        asked = self.request.model_dump(
            mode="json",
            exclude={
                **dict.fromkeys(UNPLANNED, True),
                "on_missing": True,
                "steps": {"__all__": {"rehearse"}},
            },
            exclude_none=True,
        )
        products = repr(self._resolved.products)
        digests = [step.digest for step in self._steps]
        parts = [repr(one.choice.part) for one in self._resolved.products if one.choice.part]
        return digest_of(canonical([VERSION, asked, products, digests, *parts]).decode("ascii"))

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for the scientist; all of them once the stretches are planned."""
        passed = (
            f"{one.product}: {self._overpasses[one.number]:,} overpasses, each by itself."
            for one in self._wanted
            if one.by_overpass
        )
        run = self._groups.notes if self._groups is not None else ()
        outside = (note for one in self._readings for note in one.notes)
        said = (told(one.product, self._reads.get(one.number, {})) for one in self._wanted)
        sensors = self._records.notes(self._seen, self._granules)
        near = (_near_note(one, self._near_days.get(one.number)) for one in self._wanted)
        of_products = filter(None, (*near, *said))
        return (*self._notes, *sensors, *passed, *run, *outside, *of_products)

    def stamp(self) -> str:
        """Return a text that changes when the archive lists anything else for the request.

        It is empty when the archive cannot say, and after a search in which a source failed.
        """
        archive = self._archive
        if not isinstance(archive, Stamped) or _failures(archive) != self._failures:
            return ""
        try:
            found = [
                one.choice.exact.digest
                if one.choice.exact is not None
                else archive.stamp(name, collection, one.first_start, one.join.last, self._box)
                for one in self._resolved.products
                for name, collection in _listed(one)
            ]
        except ArchiveError:
            return ""  # the search will say so, if it fails too
        return digest_of(canonical(found).decode("ascii")) if all(found) else ""

    def stretches(
        self, known: Sequence[Planned] = (), *, trusted: bool = False
    ) -> Iterator[Planned]:
        """Yield the plan, stretch by stretch.

        Stretches of `known` are used as long as the archive lists the same for their days (or
        `trusted` says so, where no reduction joins them); fresh ones follow.

        Raises:
            RequestRefusedError: nothing matches, or there is too much.
            ArchiveError: the archive could not be searched.
        """
        waiting = [*known]
        last = waiting[-1].outcome if waiting else None
        whole = last is not None and last.final
        first = min(product.first_start for product in self._resolved.products)
        joined = self._groups is not None or self._compares
        if trusted and self._groups is None and (whole or not self._compares):
            for stretch in waiting:
                self._take(stretch.outcome)
                yield stretch
            if whole:
                return
            if last is not None:
                first = last.last + timedelta(days=1)
            waiting = []
        for listed in self._listing(first):
            digest = listed.digest()
            old = waiting.pop(0) if waiting else None
            outcome = old.outcome if old is not None else None
            if outcome is not None and not _matches(outcome, listed, digest):
                old, outcome, waiting = None, None, []
            if old is not None and outcome is not None and not joined:
                self._take(outcome)
                yield old
                continue
            # The windows of later stretches need its cells, and the comparison of sensors.
            fresh = self._plan(listed, digest)
            yield old or fresh
        if not self.counts.tasks:
            unseen = [
                one.choice
                for one in self._wanted
                if one.choice.exact is not None and not self._seen.get(one.number)
            ]
            raise unplaced(self._resolved, self._archive, self._box) or nothing_found(
                self._resolved.request, self._archive, unseen, self._box
            )

    def gaps(self) -> Iterator[Gap]:
        """Yield what the request asks for and the archive does not have."""
        for wanted in self._wanted:
            if wanted.head != wanted.number:
                continue  # the first of a record's products speaks for all
            seen = self._records.seen(wanted.number, lambda number: self._seen.get(number, {}))
            if wanted.choice.exact is not None:
                if not seen:
                    reason = "the raster has no date in the time, or does not touch the region"
                    yield Gap(what=wanted.product, reason=reason)
                continue  # which dates it has is its owner's choice
            if not seen and wanted.choice.part is None:
                absent = [*unserved(wanted.choice, self._archive.holdings(wanted.choice.name))]
                if absent:
                    yield from absent
                    continue
            if (
                self._groups is not None
                and self.request.deliver != "both"
                and (wanted.join.chooses or not self._groups.takes(wanted))
            ):
                if wanted.geometry == "tile" and seen:
                    tiles = region_tiles(self.request.region)
                    present = frozenset().union(*seen.values())
                    yield from absent_tiles(wanted.choice, tiles, present)
                continue  # what a window chose in place of an absent date is no gap
            span = self._expected_span(wanted)
            wrong = misnamed(wanted.choice, span, self._archive)
            if wanted.geometry in ("swath", "outlined"):
                placed = "".join(f" and has its {name}" for name in wanted.companions)
                where = f"day that touches the region{placed}"
                yield from date_gaps(wanted.choice, span.each_day(), seen, wrong, where)
            elif wanted.geometry == "globe":
                days = expected_days(wanted.period, span, seen, wanted.phase)
                yield from date_gaps(wanted.choice, days, seen, wrong)
            else:
                tiles = region_tiles(self.request.region)
                yield from tile_gaps(
                    wanted.choice, wanted.period, span, tiles, seen, wrong, wanted.phase
                )
        yield from self._window_gaps

    def _listing(self, first: date) -> Iterator[Stretch]:
        everywhere = len(self._layout.places) + 1
        weights = [len(choice.layers) * everywhere for choice in self._resolved.request.products]
        return stretches(self._resolved, self._archive, weights, self._box, first, self._searched)

    def _searched(self, day: date) -> None:
        pieces = self.request.time.pieces
        self.days_searched = sum(
            max(0, (min(day, last) - first).days + 1) for first, last in pieces
        )

    def _look_at(self, number: int, record: GranuleRecord) -> None:
        """Learn the geometry of a product the catalogue does not know from its first granule."""
        if number not in self._geometries and self._resolved.products[number].entry is None:
            self._learn(number, geometry(record))

    def _learn(self, number: int, kind: Geometry) -> None:
        self._geometries[number] = kind
        learned = self._resolved.with_geometry(number, kind)
        check_overpasses(learned)
        self._wanted[number] = ProductLayers(**vars(learned), layout=self._layout)

    def _plan(self, listed: Stretch, digest: str) -> Fresh:
        compared = frozenset[Compared]().union(*(one.compared for one in self._readings))
        draft = Draft(limit=self._limit - self.counts.tasks, compared=compared)
        self._locator.forget()
        self._locator.look_up(
            record for day in listed.days for found in day.records.values() for record in found
        )
        seen: dict[int, Seen] = {}
        granules: Counter[int] = Counter()
        near: dict[int, frozenset[date]] = {}

        def own(number: int) -> Seen:
            return {**self._seen.get(number, {}), **seen.get(number, {})}

        def so_far(number: int) -> Seen:
            return self._records.seen(number, own)

        for day in listed.days:
            if self._groups is not None:
                self._groups.close(day.day, self._wanted, so_far, draft)
            if self._compares:
                self._overlaps.look_at(day.day, day.records, self._locator.touches)
            taken = self._records.chosen(day.records, self._locator.touches)
            granules += self._records.counted(taken, self._locator.touches)
            for number, records in taken.items():
                self._look_at(number, records[0])
                if self._has_near(records):
                    near[number] = near.get(number, frozenset()) | {day.day}
                for band, when in self._resolved.dates_of(number, day.day):
                    if self._plan_date(number, when, band, records, draft):
                        tiles = self._tiles(self._wanted[number], records)
                        seen.setdefault(number, {})[when] = tiles
            self._plan_means(draft)
        self._plan_after(draft, so_far, final=listed.final)
        counts = Counts()
        counts.add_kinds((line.kind, line.output) for line in draft.lines.values())
        outcome = PlanOutcome(
            first=listed.first,
            last=listed.last,
            final=listed.final,
            listing=digest,
            counts=counts,
            seen=seen,
            geometries=dict(self._geometries),
            rasters=tuple(draft.rasters) if self._cubes or self._readings else (),
            gaps=self._groups.take_gaps() if self._groups is not None else (),
            windows=self._groups.take_windows() if self._groups is not None else (),
            overpasses=dict(draft.overpasses),
            reads=self._parts.take(),
            granules=dict(granules),
            near=near,
        )
        self._take(outcome)
        return Fresh(outcome=outcome, lines=draft.lines)

    def _has_near(self, records: Sequence[GranuleRecord]) -> bool:
        """Tell whether a granule of the region, or its companion, is of near real time."""
        named = [
            record
            for record in records
            if any(is_near_real_time(one.name) for one in (record, *record.companions))
        ]
        return any(map(self._locator.touches, named))

    def _plan_after(self, draft: Draft, seen: Callable[[int], Seen], *, final: bool) -> None:
        """Plan what follows the dates of a stretch, and after the last what needs all of them."""
        if final and self._groups is not None:
            self._groups.close(None, self._wanted, seen, draft)
        if final:
            self._overlaps.plan(self._wanted, self._near, self._parts, draft)
        if final and self._cubes is not None:
            self._cubes.plan(draft, Dates.of(self._wanted, self._steps, seen))
        for one in self._readings:
            one.plan_after(draft, final=final)

    def _plan_means(self, draft: Draft) -> None:
        """Plan the means of the dates that were planned since the last call."""
        for when, members in self._means.items():
            for head in dict.fromkeys(one.head for one, *_ in members):
                plan_mean([one for one in members if one[0].head == head], when, draft)
        self._means.clear()

    def _plan_date(
        self, number: int, day: date, band: int, records: Sequence[GranuleRecord], draft: Draft
    ) -> bool:
        """Plan what a date is certain to be used for; whether it has anything in the region."""
        wanted, groups = self._wanted[number], self._groups
        if self._in_place is not None:
            return self._in_place.plan_date(wanted, day, band, records, self._locator, draft)
        delivered = self.request.delivers(day)
        last = covered_until(wanted, day, records)
        used = groups is not None and wanted.join.wants(day, last) and groups.takes(wanted)
        if not delivered and not (used and groups is not None and groups.is_certain(wanted)):
            there = any(self._locator.touches(record) for record in records)
            if there and used and groups is not None:
                groups.hold(number, day, last, band, records)
            return there or wanted.geometry == "tile"
        mosaics = self.request.makes_rasters and self.request.delivers_layers(day)
        part = wanted.choice.part
        joined = mosaics and part is not None and part.is_mean
        cells = plan_date(
            *(wanted, day, band, records, self._locator, self._parts, draft),
            mosaics=mosaics and not joined,
        )
        if self._compares and cells is not None:
            self._overlaps.take(number, day, cells)
        if joined and cells is not None:
            self._means.setdefault(day, []).append((wanted, records, cells))
        if used and cells and groups is not None:
            groups.add(wanted, day, last, cells)
        return cells is not None or wanted.geometry == "tile"

    def _expected_span(self, wanted: ProductLayers) -> Time:
        """Return the days on which dates of a product choice are expected.

        It begins earlier for composites that cover the first day asked for.
        """
        span, join = self.request.time, wanted.join
        if join.use != "covering" or span.every is not None:
            return span
        first = next(
            day for day in Time(start=join.first, end=span.start).each_day() if join.wants(day)
        )
        return Time(start=first, end=span.end)

    def _tiles(self, wanted: ProductLayers, records: Sequence[GranuleRecord]) -> frozenset[Tile]:
        if wanted.geometry != "tile":
            return frozenset()
        found = frozenset(tile for r in records if (tile := tile_of(r)) is not None)
        return self._same.setdefault(found, found)

    def _take(self, outcome: PlanOutcome) -> None:
        """Know what a stretch knew."""
        self.counts.merge(outcome.counts)
        self._window_gaps += outcome.gaps
        self.windows += outcome.windows
        self._overpasses.update(outcome.overpasses)
        for number, counted in outcome.reads.items():
            own = self._reads.setdefault(number, {})
            for why, reads in counted.items():
                own[why] = own.get(why, Reads()).joined(reads)
        self._granules.update(outcome.granules)
        for number, found in outcome.near.items():
            self._near_days[number] = self._near_days.get(number, frozenset()) | found
        for number, days in outcome.seen.items():
            mine = self._seen.setdefault(number, {})
            for day, tiles in days.items():
                mine[day] = self._same.setdefault(tiles, tiles)
        for number, kind in outcome.geometries.items():
            if self._geometries.get(number) != kind:
                self._learn(number, kind)
        if self._cubes is not None and not outcome.final:
            self._cubes.add(outcome.rasters)
        if not outcome.final:
            for one in self._readings:
                one.add(outcome.rasters)


def _listed(product: ResolvedProduct) -> Iterator[tuple[str, str]]:
    """Yield each product and collection in which granules of a product choice are looked up."""
    own = product.choice.collection
    named = [(product.choice.name, own)]
    for name in product.companions:
        named += [(name, collection) for collection in collections_beside(name, own)]
    for name, collection in named:
        yield name, collection
        if product.choice.near_real_time:
            yield near_editions(name, collection)


def _near_note(product: ResolvedProduct, days: frozenset[date] | None) -> str:
    """Say on which days a product's granules are of near real time; empty for none."""
    if not days:
        return ""
    of = versioned(product.choice.name, product.choice.collection)
    span = f"{min(days)} to {max(days)}" if len(days) > 1 else f"{min(days)}"
    return (
        f"{of}: near real time granules on {len(days):,} "
        f"day{'s' if len(days) != 1 else ''}, {span}. The standard ones were not in the archive; "
        "a later run takes those."
    )


def _failures(archive: Archive) -> int:
    return archive.failures if isinstance(archive, _Chain) else 0


def _is_fused(resolved: ResolvedRequest, steps: Sequence[Chosen]) -> bool:
    """Tell whether the rasters of a request are made of granules, without cells.

    That is where layers are delivered, a raster is one cell or an attempt may hold it, and whoever
    else takes the cell may as well take the raster: a step that needs no pixels around it, if no
    region is cut out. Sensors are joined cell by cell, and pixels around sites may lie beyond the
    raster.
    """
    request = resolved.request
    if written() < PARTS_AND_RECORDS or not (
        resolved.target.is_one_cell or (not steps and _is_held_whole(resolved))
    ):
        return False
    if request.hands_over_cells or request.deliver == "results" or request.read_at is not None:
        return False
    if any(one.choice.part is not None for one in resolved.products):
        return False
    return not (steps and request.region.clip) and not any(
        step.package.inputs.halo for step in steps
    )


def _is_held_whole(resolved: ResolvedRequest) -> bool:
    """Tell whether an attempt may hold a raster of several cells, and the tiles it is made of.

    Swaths of a day over so much are too many, and so are pixels of a grid of the whole globe.
    """
    target, request = resolved.target, resolved.request
    bands = 1 + (request.codes == "keep") + len(request.extra_bands)
    pixels = target.grid.pixels * bands
    if target.modis is not None or target.whole_cells or pixels > MOST_WHOLE:
        return False
    (place,) = places(target, request.region, fused=True)
    for one in resolved.products:
        if one.geometry != "tile" or one.entry is None:
            return False
        finest = min(layer.facts.resolution or one.entry.resolution for layer in one.layers)
        reaches = {(layer.reach, layer.whole_pixel) for layer in one.layers}
        tiles = max(len(place.tiles(*reach)) for reach in reaches)
        if tiles * (_TILE_SIDE / finest) ** 2 > MOST_SOURCE:
            return False
    return True


def _check_cells(count: int) -> None:
    if count > MOST_CELLS:
        raise RequestRefusedError(
            "grid",
            f"the results lie in {count:,} cells; {MOST_CELLS:,} are the most.",
            "Ask for a smaller region or a coarser grid.",
        )


def _matches(old: PlanOutcome, listed: Stretch, digest: str) -> bool:
    mine = listed.first, listed.last, listed.final, digest
    return mine == (old.first, old.last, old.final, old.listing)


def _unknown(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Products that the catalogue does not know: worked from their files' own attributes."""
    taken = "layers, scale, fill and classes"
    method = resolved.request.resampling
    if isinstance(method, str) and method != "nearest":
        taken = "layers, scale, fill, classes and resampling"
    return tuple(
        f"{versioned(product.choice.name, product.choice.collection)} is not in the catalogue: "
        f"{taken} are taken from the files' own attributes."
        for product in resolved.products
        if product.entry is None
    )
