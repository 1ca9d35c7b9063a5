"""The tasks of a reduction: groups of cells, a run for each, and a mosaic of each raster output."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from archives.model import GranuleRecord
from service_manager.planner.draft import Draft
from service_manager.planner.expected import Lack, SeenOf, WindowLacks, bands, cells, half, taken
from service_manager.planner.layers import CELL_FILE, Layout, Made, ProductLayers, plan_date
from service_manager.planner.located import Locator
from tasks.errors import RequestRefusedError
from tasks.model.absence import bounded
from tasks.model.packages import (
    Package,
    PackageArchive,
    PackageError,
    PackageSource,
    layer_labels,
)
from tasks.model.plan import Gap
from tasks.model.spec import Band, GroupSpec, Input, MosaicSpec, ReduceSpec
from tasks.request.document import Reduction
from tasks.request.regions import area_geojson
from tasks.request.resolved import ResolvedRequest
from tasks.request.taking import check_taken, takes
from tasks.request.windows import Window, window_kind, windows

_Member = tuple[int, date, int, bytes, float]
"""A cell in a window: product choice, day, layer, task key, weight."""

_Held = tuple[int, Sequence[GranuleRecord]]
"""The granules of a date that is not planned yet, and its band in them."""

_Cell = tuple[int, int, bytes]
"""A planned cell of a date: place, layer, task key."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The reduction a request asks for, with its package.

    `exact` is the package's owner, name and version with the digest of its archive. The archive is
    None if storage has it.
    """

    reduction: Reduction
    package: Package
    digest: str
    archive: PackageArchive | None
    exact: str


def chosen(resolved: ResolvedRequest, packages: PackageSource) -> Chosen | None:
    """Return the request's reduction.

    Raises RequestRefusedError when its package is absent or unusable.
    """
    reduction = resolved.request.reduction
    if reduction is None:
        return None
    try:
        found = packages.find(reduction.package)
        archive = found.archive()
    except PackageError as error:
        raise RequestRefusedError(
            "reduction.package", f"{error}", "Name a package that can be used."
        ) from None
    check_taken(resolved, found.package)
    digest = archive.digest if archive is not None else found.digest
    return Chosen(
        reduction=reduction,
        package=found.package,
        digest=digest,
        archive=archive,
        exact=f"{found.name} {digest}",
    )


class Groups:
    """The dates listed so far that a window may take, and the windows that are still open.

    A date is planned when it is listed if it is certain to be used, and otherwise when a window
    takes it.
    """

    def __init__(
        self, resolved: ResolvedRequest, layout: Layout, chosen: Chosen, locator: Locator
    ) -> None:
        self._layout = layout
        self._chosen = chosen
        self._locator = locator
        self._joins = [product.join for product in resolved.products]
        self._windows = deque(windows(window_kind(chosen.reduction), layout.request.time))
        self._days: dict[int, dict[date, _Held | list[_Cell]]] = {}
        self._gaps: list[Gap] = []
        self._run: list[str] = []  # windows with a run, by name
        self._asked = len(self._windows)
        self._region = area_geojson(resolved.target.area)

    @property
    def note(self) -> str:
        """Which windows are run, for the scientist."""
        if not self._run:
            return ""
        first, last = self._run[0], self._run[-1]
        names = first if first == last else f"{first} to {last}"
        return (
            f"{self._chosen.package.name} runs in {len(self._run):,} of {self._asked:,} windows of "
            f"time: {names}."
        )

    def is_certain(self, wanted: ProductLayers) -> bool:
        """Whether every date of a product choice that a window may take is used by one."""
        certain = self._chosen.package.requires == "any" and not wanted.join.chooses
        return certain and bool(taken(wanted, self._chosen.package))

    def add(self, wanted: ProductLayers, day: date, made: Iterable[Made]) -> None:
        """Take in the planned cells of a date, of the layers that the package takes."""
        self._days.setdefault(wanted.number, {})[day] = self._cells(wanted, made)

    def hold(self, number: int, day: date, band: int, records: Sequence[GranuleRecord]) -> None:
        """Take in the granules of a date that is planned when a window takes it."""
        self._days.setdefault(number, {})[day] = band, records

    def close(
        self, before: date | None, wanted: Sequence[ProductLayers], seen: SeenOf, draft: Draft
    ) -> None:
        """Plan the windows that are complete before a day, or all when it is None.

        Each cell gets a group and a run, and each window its mosaics. `seen` are the days of a
        product choice so far.
        """
        while self._windows:
            window = self._windows[0]
            if before and max(join.waits_for(window) for join in self._joins) >= before:
                return
            self._plan(self._windows.popleft(), wanted, seen, draft)
            self._forget()

    def take_gaps(self) -> tuple[Gap, ...]:
        """Return what windows lack, of those closed since the last call."""
        found, self._gaps = tuple(self._gaps), []
        return found

    def _forget(self) -> None:
        """Leave out the dates that no open window may take."""
        first = min((window.first for window in self._windows), default=date.max)
        for number, days in self._days.items():
            needed = self._joins[number].needed_from(first) if first < date.max else date.max
            for day in [day for day in days if day < needed]:
                del days[day]

    def _plan(
        self, window: Window, wanted: Sequence[ProductLayers], seen: SeenOf, draft: Draft
    ) -> None:
        package = self._chosen.package
        used = [one for one in wanted if taken(one, package)]
        picked = {one.number: one.join.pick(window, self._days.get(one.number, ())) for one in used}
        self._tell_none(window, [one for one in used if not picked[one.number]])
        if package.requires == "all" and not all(picked.values()):
            self._tell_lacking(window.name, [one for one in used if not picked[one.number]])
            return
        places: dict[int, list[_Member]] = {}
        for one in used:
            for day, weight in picked[one.number]:
                for place, layer, key in self._planned(one, day, draft):
                    member = one.number, day, layer, key, weight
                    places.setdefault(place, []).append(member)
        lacks = WindowLacks(wanted, package, window, seen)
        for index in [*places]:
            if not self._has_enough(places[index], lacks.at(index, _dates(places[index])), used):
                name = f"{window.name} {self._layout.places[index].name}"
                there = {member[0] for member in places.pop(index)}
                self._tell_lacking(name, [one for one in used if one.number not in there])
        if places:
            self._run.append(window.name)
            self._group(window, places, wanted, lacks, draft)

    def _has_enough(
        self, members: Sequence[_Member], lacks: Sequence[Lack], used: Sequence[ProductLayers]
    ) -> bool:
        """Whether a place has what the package requires."""
        requires = self._chosen.package.requires
        if requires == "any":
            return True
        if requires == "all":
            return {member[0] for member in members} == {one.number for one in used}
        there = len({*_dates(members)})
        return there >= requires * (there + len(lacks))

    def _tell_none(self, window: Window, lacking: Iterable[ProductLayers]) -> None:
        for one in lacking:
            if one.join.chooses:
                reason = f"the archive has no date of it {one.join.reach_text}"
                self._gaps.append(Gap(what=f"{one.product} for {window.name}", reason=reason))

    def _tell_lacking(self, name: str, lacking: Sequence[ProductLayers]) -> None:
        package = self._chosen.package
        if package.requires == "all":
            absent = " and ".join(one.product for one in lacking)
            reason = f"not run: {package.name} needs every product, and {absent} has no date"
        else:
            reason = (
                f"not run: {package.name} needs {package.requires:.0%} of the dates, and fewer are "
                "there"
            )
        self._gaps.append(Gap(what=f"{package.name} {name}", reason=reason))

    def _planned(self, wanted: ProductLayers, day: date, draft: Draft) -> list[_Cell]:
        """Return the cells of a date, which are planned unless they have been."""
        days = self._days[wanted.number]
        there = days[day]
        if isinstance(there, list):
            return there
        band, records = there
        self._locator.look_up(records)
        made = plan_date(wanted, day, band, records, self._locator, draft, mosaics=False)
        cells = days[day] = self._cells(wanted, made or ())
        return cells

    def _cells(self, wanted: ProductLayers, made: Iterable[Made]) -> list[_Cell]:
        package = self._chosen.package
        return [
            (cell.place, cell.layer, bytes.fromhex(cell.key))
            for cell in made
            if takes(package, wanted.layers[cell.layer])
        ]

    def _group(
        self,
        window: Window,
        places: Mapping[int, list[_Member]],
        wanted: Sequence[ProductLayers],
        lacks: WindowLacks,
        draft: Draft,
    ) -> None:
        layout, chosen = self._layout, self._chosen
        rasters: dict[str, list[tuple[int, Input]]] = defaultdict(list)
        for index in sorted(places):
            name = layout.places[index].name
            members = sorted(places[index])  # by product, day, layer
            stacked = [(name, member) for member in members]
            stacked += self._around(index, members, places)
            named, unnamed = bands(lacks.at(index, _dates(members)), wanted, chosen.package)
            group = GroupSpec(
                inputs=tuple(
                    Input(key=key.hex(), name=f"{cell} {day}", file=CELL_FILE)
                    for cell, (_, day, _, key, _) in stacked
                ),
                missing=named,
                missing_unnamed=unnamed,
                group=f"{name} {window.name}",
                cell=name,
                window=window.name,
                grid=layout.cells[index],
                bands=tuple(_band(wanted, cell, member) for cell, member in stacked),
                halo=chosen.package.inputs.halo,
                region=self._region if chosen.package.inputs.region else "",
            )
            for file, given in _reduce(layout, chosen, group, draft):
                rasters[file].append((index, given))
        for part in layout.parts:
            empty = bounded(
                absent
                for index in lacks.places
                if index not in places and index in part.places
                for absent in cells(
                    f"{layout.places[index].name} {window.name}", lacks.at(index, ())
                )
            )
            for file, inputs in rasters.items():
                mine = tuple(given for index, given in inputs if index in part.places)
                if not mine:
                    continue
                stem = file.rpartition(".")[0]
                spec = MosaicSpec(
                    inputs=mine,
                    missing=empty.named,
                    missing_unnamed=empty.unnamed,
                    name=part.file(stem, window.name),
                    grid=part.grid,
                    clip=layout.clip,
                )
                draft.raster(spec, part.folder(f"{chosen.package.name}/{stem}"), window.first)

    def _around(
        self, index: int, members: Sequence[_Member], places: Mapping[int, Sequence[_Member]]
    ) -> list[tuple[str, _Member]]:
        """Return what the neighbouring cells have of a cell's days, each with its cell's name."""
        halo = self._chosen.package.inputs.halo
        if not halo:
            return []
        wide = self._layout.cells[index].widened(halo)
        own = {(choice, day, layer) for choice, day, layer, _, _ in members}
        return [
            (self._layout.places[other].name, member)
            for other in sorted(places)
            if other != index and wide.meets(self._layout.cells[other])
            for member in sorted(places[other])
            if member[:3] in own
        ]


def _dates(members: Iterable[_Member]) -> list[tuple[int, date]]:
    return [(choice, day) for choice, day, _, _, _ in members]


def _band(wanted: Sequence[ProductLayers], cell: str, member: _Member) -> Band:
    number, day, layer, _, weight = member
    choice = wanted[number].choice
    return Band(
        product=choice.name,
        collection=choice.collection,
        layer=wanted[number].layers[layer].name + half(wanted[number]),
        day=day,
        cell=cell,
        weight=weight,
    )


def _reduce(
    layout: Layout, chosen: Chosen, group: GroupSpec, draft: Draft
) -> list[tuple[str, Input]]:
    """Add one group and its run; the raster files it makes, each as a mosaic's input."""
    outputs = chosen.package.expand_outputs(layer_labels(group.bands).values())
    plain_files = any(output.kind == "file" for _, output in outputs)
    folder = f"{chosen.package.name}/cells/{group.window}/{group.cell}"
    spec = ReduceSpec(
        inputs=(draft.input(group, group.group),),
        package=chosen.package.name,
        digest=chosen.digest,
        outputs=tuple(name for name, _ in outputs),
        parameters=chosen.reduction.parameters,
        pixels=group.amount,
    )
    key = draft.add(spec, folder if plain_files or layout.request.cells else "")
    return [
        (name, Input(key=key, name=group.group, file=name))
        for name, output in outputs
        if output.kind == "raster"
    ]
