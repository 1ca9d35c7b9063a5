"""Planning under way: stretch after stretch of days, in bounded memory, from any stretch on.

Equal requests on an equal archive give equal stretches. No granule is opened: the archive's
records say where each lies. What is kept in memory are the days seen, and the cells of reductions
whose window has not ended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Protocol, runtime_checkable

from archives.errors import ArchiveError
from archives.model import Archive, GranuleRecord, Stamped
from modis.tile import Tile
from reprojection.catalogue import Geometry
from service_manager.planner.cells import places
from service_manager.planner.counts import Counts
from service_manager.planner.cubes import Cubes
from service_manager.planner.draft import Draft, Line, PlannedRaster
from service_manager.planner.expected import Dates
from service_manager.planner.gaps import Seen, globe_gaps, swath_gaps, tile_gaps, unserved
from service_manager.planner.granules import geometry, misnamed, nothing_found, tile_of
from service_manager.planner.layers import Layout, Made, ProductLayers, plan_day
from service_manager.planner.listing import Stretch, search_box, stretches
from service_manager.planner.located import Locator
from service_manager.planner.reductions import Groups, chosen
from tasks.errors import RequestRefusedError
from tasks.model.packages import Packages
from tasks.model.plan import Gap, PlannedTask
from tasks.model.spec import ReprojectSpec, load_spec
from tasks.model.task_keys import canonical, digest_of
from tasks.request.checks import Limits, check_request, request_notes
from tasks.request.document import Request
from tasks.request.regions import region_tiles
from tasks.request.resolved import ResolvedRequest, resolve
from tasks.request.taking import taking_notes

MOST_CELLS = 20_000  # of the lattice: only a raster that is all edge has more
VERSION = 5  # raise it when the same request on the same listing would be planned otherwise


@dataclass(frozen=True, kw_only=True)
class PlanOutcome:
    """What is known of a planned stretch without its tasks.

    `geometries` are those of products the catalogue does not know; `cells` name, by task index,
    what a reduction groups: product choice, layer and place; `rasters` are the inputs of cubes.
    """

    first: date
    last: date
    final: bool
    listing: str
    counts: Counts
    seen: dict[int, Seen]
    geometries: dict[int, Geometry]
    cells: tuple[tuple[int, int, int, int], ...]
    rasters: tuple[PlannedRaster, ...] = ()


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


class PlanStream:
    """The planning of one request. `stretches` is to be exhausted before `gaps` is asked.

    Raises:
        RequestRefusedError: the request means nothing here, or is too large.
    """

    def __init__(
        self, request: Request, archive: Archive, packages: Packages, limits: Limits
    ) -> None:
        resolved = resolve(request)
        check_request(resolved, limits)
        self.request = request
        self._resolved = resolved
        self._archive = archive
        self._limit = limits.max_tasks
        reduction = chosen(resolved, packages)
        goal = resolved.target
        _check_cells(len(goal.lattice.cells(goal.grid)))
        self._layout = Layout.of(resolved, places(goal, request.region))
        self._wanted = [
            ProductLayers(resolved=one, layout=self._layout) for one in resolved.products
        ]
        self._groups = Groups(self._layout, reduction) if reduction else None
        self._package = reduction.package if reduction else None
        self._cubes = Cubes(request.cube, self._layout.grid) if request.cube != "none" else None
        self._locator = Locator(self._layout.places)
        reach = max(layer.reach for wanted in self._wanted for layer in wanted.layers)
        self._box = search_box(goal.area, reach)
        self._failures = _failures(archive)
        self._seen: dict[int, Seen] = {}
        self._same: dict[frozenset[Tile], frozenset[Tile]] = {}
        self._geometries: dict[int, Geometry] = {}
        self.days_searched = 0  # of the request's; other threads may read it
        self.counts = Counts()
        self.package = reduction.archive if reduction else None
        taking = taking_notes(resolved, reduction.package) if reduction else ()
        self.notes = (*request_notes(resolved), *taking, *_unknown(resolved))

    @property
    def identity(self) -> str:
        """What is planned, whoever asks: equal for requests that equal listings plan equally."""
        asked = self.request.model_dump(
            mode="json", exclude={"title", "notify", "on_missing"}, exclude_none=True
        )
        products = repr(self._resolved.products)
        package = self.package.digest if self.package else ""
        return digest_of(canonical([VERSION, asked, products, package]).decode("ascii"))

    def stamp(self) -> str:
        """Return a text that changes when the archive lists anything else for the request.

        It is empty when the archive cannot say, and after a search in which a source failed.
        """
        archive, span = self._archive, self.request.time
        if not isinstance(archive, Stamped) or _failures(archive) != self._failures:
            return ""
        try:
            found = [
                archive.stamp(choice.name, choice.collection, span.start, span.end, self._box)
                for choice in self.request.products
            ]
        except ArchiveError:
            return ""  # the search will say so, if it fails too
        return digest_of(canonical(found).decode("ascii")) if all(found) else ""

    def stretches(
        self, known: Sequence[Planned] = (), *, trusted: bool = False
    ) -> Iterator[Planned]:
        """Yield the plan, stretch by stretch.

        Stretches of `known` are used as long as the archive lists the same for their days (or
        `trusted` says so); fresh ones follow.

        Raises:
            RequestRefusedError: nothing matches, or there is too much.
            ArchiveError: the archive could not be searched.
        """
        waiting = [*known]
        kept: list[Planned] = []
        first = self.request.time.start
        if trusted:
            kept, waiting = waiting, []
            if kept:
                first = kept[-1].outcome.last + timedelta(days=1)
        for stretch in kept:
            self._take(stretch.outcome)
            yield stretch
        if kept and kept[-1].outcome.final:
            return
        same = bool(waiting)
        if not same:
            self._remember(kept)
        for listed in self._listing(first):
            digest = listed.digest()
            if same and waiting and _matches(waiting[0].outcome, listed, digest):
                old = waiting.pop(0)
                self._take(old.outcome)
                kept.append(old)
                yield old
                continue
            if same:
                same = False
                self._remember(kept)
            yield self._plan(listed, digest)
        if not self.counts.tasks:
            raise nothing_found(self.request, self._archive)

    def gaps(self) -> Iterator[Gap]:
        """Yield what the request asks for and the archive does not have."""
        span = self.request.time
        for wanted in self._wanted:
            seen = self._seen.get(wanted.number, {})
            if not seen:
                absent = [*unserved(wanted.choice, self._archive.holdings(wanted.choice.name))]
                if absent:
                    yield from absent
                    continue
            wrong = misnamed(wanted.choice, span, self._archive)
            if wanted.geometry == "swath":
                yield from swath_gaps(wanted.choice, span, seen, wrong)
            elif wanted.geometry == "globe":
                yield from globe_gaps(wanted.choice, wanted.period, span, seen, wrong, wanted.phase)
            else:
                tiles = region_tiles(self.request.region)
                yield from tile_gaps(
                    wanted.choice, wanted.period, span, tiles, seen, wrong, wanted.phase
                )

    def _listing(self, first: date) -> Iterator[Stretch]:
        everywhere = len(self._layout.places) + 1
        weights = [len(choice.layers) * everywhere for choice in self.request.products]
        return stretches(self.request, self._archive, weights, self._box, first, self._searched)

    def _searched(self, day: date) -> None:
        self.days_searched = (day - self.request.time.start).days + 1

    def _look_at(self, number: int, record: GranuleRecord) -> None:
        """Learn the geometry of a product the catalogue does not know from its first granule."""
        if number not in self._geometries and self._resolved.products[number].entry is None:
            self._learn(number, geometry(record))

    def _learn(self, number: int, kind: Geometry) -> None:
        self._geometries[number] = kind
        learned = self._resolved.with_geometry(number, kind)
        self._wanted[number] = ProductLayers(resolved=learned, layout=self._layout)

    def _plan(self, listed: Stretch, digest: str) -> Fresh:
        draft = Draft(limit=self._limit - self.counts.tasks)
        self._locator.look_up(
            record for day in listed.days for found in day.records.values() for record in found
        )
        made: list[Made] = []
        seen: dict[int, Seen] = {}

        def so_far(number: int) -> Seen:
            return {**self._seen.get(number, {}), **seen.get(number, {})}

        for day in listed.days:
            if self._groups is not None:
                self._groups.close(day.day, self._wanted, so_far, draft)
            for number, records in day.records.items():
                self._look_at(number, records[0])
                wanted = self._wanted[number]
                cells = plan_day(wanted, day.day, records, self._locator, draft)
                if self._groups is not None and cells:
                    self._groups.add(cells, self._wanted)
                    made.extend(cells)
                if cells is not None or wanted.geometry == "tile":
                    seen.setdefault(number, {})[day.day] = self._tiles(wanted, records)
        if self._groups is not None and listed.final:
            self._groups.close(None, self._wanted, so_far, draft)
        if self._cubes is not None and listed.final:
            self._cubes.plan(draft, Dates.of(self._wanted, self._package, so_far))
        counts = Counts()
        counts.add_kinds((line.kind, line.output) for line in draft.lines.values())
        index = {key: i for i, key in enumerate(draft.lines)} if made else {}
        outcome = PlanOutcome(
            first=listed.first,
            last=listed.last,
            final=listed.final,
            listing=digest,
            counts=counts,
            seen=seen,
            geometries=dict(self._geometries),
            cells=tuple((index[cell.key], cell.choice, cell.layer, cell.place) for cell in made),
            rasters=tuple(draft.rasters) if self._cubes is not None else (),
        )
        self._take(outcome)
        return Fresh(outcome=outcome, lines=draft.lines)

    def _tiles(self, wanted: ProductLayers, records: Sequence[GranuleRecord]) -> frozenset[Tile]:
        if wanted.geometry != "tile":
            return frozenset()
        found = frozenset(tile for r in records if (tile := tile_of(r)) is not None)
        return self._same.setdefault(found, found)

    def _take(self, outcome: PlanOutcome) -> None:
        """Know what a stretch knew, but for the cells that wait for their window."""
        self.counts.merge(outcome.counts)
        for number, days in outcome.seen.items():
            mine = self._seen.setdefault(number, {})
            for day, tiles in days.items():
                mine[day] = self._same.setdefault(tiles, tiles)
        for number, kind in outcome.geometries.items():
            if self._geometries.get(number) != kind:
                self._learn(number, kind)
        if self._cubes is not None and not outcome.final:
            self._cubes.add(outcome.rasters)

    def _remember(self, kept: Iterable[Planned]) -> None:
        """Take in the cells of stretches that are kept, whose windows have not ended."""
        if self._groups is None:
            return
        for stretch in kept:
            if not stretch.outcome.cells:
                continue
            tasks = [*stretch.tasks()]
            cells = []
            for index, choice, layer, place in stretch.outcome.cells:
                spec = tasks[index].spec
                if isinstance(spec, ReprojectSpec):
                    key = tasks[index].key
                    made = Made(choice=choice, layer=layer, place=place, day=spec.day, key=key)
                    cells.append(made)
            self._groups.add(cells, self._wanted)
            self._groups.forget(stretch.outcome.last)


def _failures(archive: Archive) -> int:
    return archive.failures if isinstance(archive, _Chain) else 0


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
        f"{product.choice.name} collection {product.choice.collection} is not in the catalogue: "
        f"{taken} are taken from the files' own attributes."
        for product in resolved.products
        if product.entry is None
    )
