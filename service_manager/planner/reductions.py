"""The tasks of a reduction: in each step groups of cells, a run for each, and mosaics."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import accumulate
from typing import NamedTuple

from archives.model import GranuleRecord
from modis.composites import Counted
from service_manager.planner.chosen import Chosen
from service_manager.planner.draft import Draft, MadeLayer
from service_manager.planner.expected import SeenOf, WindowLacks, bands
from service_manager.planner.layers import (
    NOT_THERE,
    Layout,
    Made,
    ProductLayers,
    plan_date,
)
from service_manager.planner.located import Locator
from service_manager.planner.naming import moment_name
from service_manager.planner.parts import PartsPlan
from tasks.bag.absence import Absent, bounded
from tasks.bag.spec import GroupSpec, Input, MosaicSpec, ReduceSpec
from tasks.packages.packages import layer_labels
from tasks.packages.parameters import with_defaults
from tasks.request.joins import StepJoin
from tasks.request.region.regions import area_geojson
from tasks.request.resolved import ResolvedRequest
from tasks.request.taking import band_of
from tasks.request.windows import Window, windows
from tasks.requests.plan import Gap, PlannedWindow
from tasks.spec_parts import Band, LayerLabel
from tasks.storage.schema import PADDED_LABELS, written

_Member = tuple[int, date, str, int, bytes, Counted, date, str]
"""A cell in a window: product choice, day, start of its overpass, layer, task key, its count, the
last day that it covers, and its file."""

_Held = tuple[int, Sequence[GranuleRecord]]
"""The granules of a date that is not planned yet, and its band in them."""

_Cell = tuple[int, str, int, bytes, str]
"""A planned cell of a date: place, start of its overpass (empty: none), layer, task key, file."""

_Roots = dict[str, str]
"""What is missing at the root, by name, and why."""


class _Output(NamedTuple):
    """A raster of an earlier step: the step, its window's first day and name, file, key, count."""

    step: int
    day: date
    window: str
    file: str
    key: str
    counted: Counted


@dataclass(frozen=True, kw_only=True)
class _Closed:
    """What a window of a step made, for the steps that take it.

    `runs` have the rasters of each place by name, each with the key of its run. `missing` is what
    the window lacks in a place.
    """

    runs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    missing: Mapping[int, _Roots] = field(default_factory=dict)


class _Course:
    """A step under way: the windows that are still open, and what was made in closed ones.

    `before` are the steps before it.
    """

    def __init__(
        self, resolved: ResolvedRequest, chosen: Chosen, before: Sequence["_Course"]
    ) -> None:
        request = resolved.request
        kind = chosen.step.reduction.window_kind
        found = windows(kind, request.time)
        self.chosen = chosen
        self.windows = deque(found)
        self.asked = len(found)
        self.run: list[str] = []  # windows with a run, by name
        self.closed: dict[str, _Closed] = {}
        self.wanted: Counter[str] = Counter()  # own windows, by open windows of later steps
        self.joins = [one.join for one in resolved.products if one.number in chosen.step.layers]
        # The first day of this window and all after it, which end later but may begin earlier.
        firsts = accumulate((window.first for window in reversed(found)), min)
        self._firsts = [*reversed([*firsts]), date.max]
        earlier = [before[number] for number in chosen.steps]
        joins = [
            (one, StepJoin(one.chosen.step.reduction.window_kind, kind, request)) for one in earlier
        ]
        self._picks: dict[str, list[_Pick]] = {
            window.name: [
                _Pick(course=one, window=there, counted=counted)
                for one, join in joins
                for there, counted in join.pick(window)
            ]
            for window in found
        }
        for picks in self._picks.values():
            for pick in picks:
                pick.course.wanted[pick.window.name] += 1

    @property
    def first(self) -> date:
        """The first day of all open windows."""
        return self._firsts[self.asked - len(self.windows)]

    def is_ready(self, window: Window, before: date | None) -> bool:
        """Tell whether all that a window may take has been seen before a day, or planned."""
        if before and any(join.waits_for(window) >= before for join in self.joins):
            return False
        return all(pick.window.name in pick.course.closed for pick in self.picks(window))

    def picks(self, window: Window) -> Sequence["_Pick"]:
        """Return the windows of earlier steps that a window takes."""
        return self._picks[window.name]

    def close(self, window: Window, closed: _Closed) -> None:
        """Keep what a window made while it is wanted; forget what it was the last to take."""
        self.closed[window.name] = closed if self.wanted[window.name] else _Closed()
        for pick in self._picks.pop(window.name):
            pick.course.wanted[pick.window.name] -= 1
            if not pick.course.wanted[pick.window.name]:
                pick.course.closed[pick.window.name] = _Closed()

    @property
    def note(self) -> str:
        """The windows that are run, for the scientist."""
        if not self.run:
            return ""
        first, last = self.run[0], self.run[-1]
        names = first if first == last else f"{first} to {last}"
        return (
            f"{self.chosen.name} runs in {len(self.run):,} of {self.asked:,} windows of "
            f"time: {names}."
        )


class _Pick(NamedTuple):
    """A window of an earlier step that a window takes, and how it counts there."""

    course: _Course
    window: Window
    counted: Counted

    def made(self, place: int) -> Mapping[str, str]:
        """Return the rasters of a place, each with the key of its run."""
        return self.course.closed[self.window.name].runs.get(place, {})

    def part(self, output: str) -> str:
        """Name an output as part of a group (`Band.text`)."""
        return f"{self.course.chosen.name} {output} {self.window.name}"

    def missing(self, place: int) -> _Roots:
        """Return what the window lacks in a place."""
        return self.course.closed[self.window.name].missing.get(place, {})


class Groups:
    """The dates listed so far that a window may take, and the windows that are still open.

    A date is planned when it is listed if it is certain to be used, and otherwise when a window
    takes it.
    """

    def __init__(
        self,
        resolved: ResolvedRequest,
        layout: Layout,
        chosen: Sequence[Chosen],
        locator: Locator,
        parts: PartsPlan,
    ) -> None:
        self._layout = layout
        self._locator = locator
        self._parts = parts
        self._joins = [product.join for product in resolved.products]
        self._courses: list[_Course] = []
        for one in chosen:
            self._courses.append(_Course(resolved, one, self._courses))
        self._days: dict[int, dict[date, _Held | list[_Cell]]] = {}
        self._lasts: dict[int, dict[date, date]] = {}  # that their composites cover, by first day
        self._gaps: list[Gap] = []
        self._told: list[PlannedWindow] = []
        self._region = area_geojson(resolved.target.area)

    @property
    def notes(self) -> tuple[str, ...]:
        """The windows that are run, for the scientist."""
        return tuple(filter(None, (course.note for course in self._courses)))

    def is_certain(self, wanted: ProductLayers) -> bool:
        """Tell whether every date of a product choice that a window may take is used by one."""
        return not wanted.join.chooses and any(
            course.chosen.requires.dates == "any" and course.chosen.taken(wanted)
            for course in self._courses
        )

    def takes(self, wanted: ProductLayers) -> bool:
        """Tell whether a step takes a layer of a product choice."""
        return any(course.chosen.taken(wanted) for course in self._courses)

    def add(self, wanted: ProductLayers, day: date, last: date, made: Iterable[Made]) -> None:
        """Take in the planned cells of a date, which covers the days until `last`."""
        self._days.setdefault(wanted.number, {})[day] = _cells(made)
        self._lasts.setdefault(wanted.number, {})[day] = last

    def hold(
        self, number: int, day: date, last: date, band: int, records: Sequence[GranuleRecord]
    ) -> None:
        """Take in the granules of a date that is planned when a window takes it."""
        self._days.setdefault(number, {})[day] = band, records
        self._lasts.setdefault(number, {})[day] = last

    def close(
        self, before: date | None, wanted: Sequence[ProductLayers], seen: SeenOf, draft: Draft
    ) -> None:
        """Plan the windows that are complete before a day, or all when it is None.

        Each cell gets a group and a run, and each window its mosaics. `seen` are the days of a
        product choice so far.
        """
        for course in self._courses:
            while course.windows and course.is_ready(course.windows[0], before):
                window = course.windows.popleft()
                course.close(window, self._plan(course, window, wanted, seen, draft))
                self._forget()

    def take_gaps(self) -> tuple[Gap, ...]:
        """Return what windows lack, of those closed since the last call."""
        found, self._gaps = tuple(self._gaps), []
        return found

    def take_windows(self) -> tuple[PlannedWindow, ...]:
        """Return what there is of the windows closed since the last call."""
        found, self._told = tuple(self._told), []
        return found

    def _forget(self) -> None:
        """Leave out the dates that no open window may take."""
        for number, days in self._days.items():
            first = min(
                (one.first for one in self._courses if number in one.chosen.step.layers),
                default=date.max,
            )
            needed = self._joins[number].needed_from(first) if first < date.max else date.max
            lasts = self._lasts[number]
            for day in [day for day in days if day < needed and lasts[day] < first]:
                del days[day], lasts[day]

    def _plan(
        self,
        course: _Course,
        window: Window,
        wanted: Sequence[ProductLayers],
        seen: SeenOf,
        draft: Draft,
    ) -> _Closed:
        """Plan a window of a step; return what it makes and where it makes nothing."""
        chosen = course.chosen
        used = chosen.used(wanted)
        picked = {
            one.number: one.join.pick(window, self._lasts.get(one.number, {})) for one in used
        }
        there_of = {one.head for one in used if picked[one.number]}
        without = [one for one in used if one.head == one.number and one.head not in there_of]
        lacks = WindowLacks(wanted, chosen, window, seen)
        there = _There(course, window, self._layout, lacks)
        needs_all = chosen.requires.dates == "all"
        if needs_all and any(lacks.has_none_by_calendar(one) for one in without):
            pass  # such as the second of 16 days: no window of this product, and no gap
        elif needs_all and without:
            self._tell_none(window, without)
            self._tell_lacking(course, window.name, [one.product for one in without])
        else:
            self._tell_none(window, without)
            for one in used:
                for day, counted in picked[one.number]:
                    last = self._lasts[one.number][day]
                    for place, time, layer, key, file in self._planned(one, day, draft):
                        if chosen.takes(one.number, one.layers[layer]):
                            member = one.number, day, time, layer, key, counted, last, file
                            there.members.setdefault(place, []).append(member)
            there.take_outputs()
            for index in there.places:
                lacking = there.lacking(index, used)
                if lacking is not None:
                    there.drop(index)
                    if lacking:
                        name = f"{window.name} {self._layout.places[index].name}"
                        self._tell_lacking(course, name, lacking)
        self._told.append(there.told(_counts(used, picked)))
        runs: dict[int, dict[str, str]] = {}
        if there.places:
            course.run.append(window.name)
            if self._layout.request.deliver != "inputs":
                runs = self._group(there, wanted, draft)
            else:
                runs = {index: dict.fromkeys(there.rasters, "") for index in there.places}
        missing = there.missing() if course.wanted[window.name] else {}
        return _Closed(runs=runs, missing=missing)

    def _tell_none(self, window: Window, lacking: Iterable[ProductLayers]) -> None:
        for one in lacking:
            if one.join.chooses:
                reason = f"the archive has no date of it {one.join.reach_text}"
                gap = Gap(what=f"{one.product} for {window.name}", reason=reason)
                if gap not in self._gaps:  # of another step
                    self._gaps.append(gap)

    def _tell_lacking(self, course: _Course, name: str, lacking: Sequence[str]) -> None:
        step, dates = course.chosen.name, course.chosen.requires.dates
        if dates == "all":
            absent = " and ".join(lacking)
            reason = f"not run: {step} needs every product, and {absent} has no date"
        else:
            reason = f"not run: {step} needs {dates:.0%} of the dates, and fewer are there"
        self._gaps.append(Gap(what=f"{step} {name}", reason=reason))

    def _planned(self, wanted: ProductLayers, day: date, draft: Draft) -> list[_Cell]:
        """Return the cells of a date, which are planned unless they have been."""
        days = self._days[wanted.number]
        there = days[day]
        if isinstance(there, list):
            return there
        band, records = there
        self._locator.look_up(records)
        asked = self._layout.request.deliver == "inputs"
        made = plan_date(
            wanted, day, band, records, self._locator, self._parts, draft, mosaics=asked
        )
        found = days[day] = _cells(made or ())
        return found

    def _group(
        self, there: "_There", wanted: Sequence[ProductLayers], draft: Draft
    ) -> dict[int, dict[str, str]]:
        """Plan the groups, runs and mosaics of a window; return the runs' rasters by place."""
        layout, chosen, window = self._layout, there.course.chosen, there.window
        rasters: dict[str, list[tuple[int, Input]]] = defaultdict(list)
        runs: dict[int, dict[str, str]] = {}
        for index in there.places:
            group = there.group(index, wanted, self._region)
            runs[index] = {}
            for file, given in _reduce(layout, chosen, group, draft):
                rasters[file].append((index, given))
                runs[index][file] = given.key
        for file, inputs in rasters.items():
            if draft.compares(chosen.name, "", _stem(file)):
                draft.made.append(
                    MadeLayer(
                        product=chosen.name,
                        collection="",
                        layer=_stem(file),
                        first=window.first,
                        last=window.last,
                        time="",
                        cells=dict(inputs),
                    )
                )
        if not chosen.step.delivered or not layout.request.makes_rasters:
            return runs
        for part in layout.parts:
            empty = bounded(there.absent_cells(part.places))
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
                draft.raster(spec, part.folder(f"{chosen.name}/{stem}"), window.first)
        return runs


class _There:
    """What is there and what is missing in one window of a step, by place."""

    def __init__(self, course: _Course, window: Window, layout: Layout, lacks: WindowLacks) -> None:
        self.course = course
        self.window = window
        self.members: dict[int, list[_Member]] = {}
        self.outputs: dict[int, list[_Output]] = {}
        self._layout = layout
        self._lacks = lacks

    @property
    def places(self) -> list[int]:
        """The places with a run."""
        return sorted({*self.members, *self.outputs})

    @property
    def rasters(self) -> list[str]:
        """The files of the rasters that a run makes at most."""
        return [f"{name}.tif" for name in self.course.chosen.rasters]

    def take_outputs(self) -> None:
        """Take the rasters of earlier steps."""
        step = self.course.chosen.step
        for pick in self.course.picks(self.window):
            number = pick.course.chosen.number
            for index, made in pick.course.closed[pick.window.name].runs.items():
                found = [
                    _Output(number, pick.window.first, pick.window.name, file, key, pick.counted)
                    for file, key in made.items()
                    if step.takes_output(number, _stem(file))
                ]
                if found:
                    self.outputs.setdefault(index, []).extend(found)

    def drop(self, index: int) -> None:
        """Make no run of a place."""
        self.members.pop(index, None)
        self.outputs.pop(index, None)

    def lacking(self, index: int, used: Sequence[ProductLayers]) -> list[str] | None:
        """Say what a place lacks that a run requires; None if it has all.

        The list is empty where only steps are lacking, whose own gaps have been named.
        """
        dates = self.course.chosen.requires.dates
        if dates == "any":
            return None
        members, outputs = self.members.get(index, ()), self.outputs.get(index, ())
        if dates == "all":
            heads = {one.number: one.head for one in used}
            there = {heads[member[0]] for member in members}
            absent = [one.product for one in used if one.head not in there]
            absent = [*dict.fromkeys(absent)]
            complete = {one.step for one in outputs}.issuperset(self.course.chosen.steps)
            return None if complete and not absent else absent
        made = {*_dates(members), *((one.step, one.window) for one in outputs)}
        lost = len(self._lacks.at(index, _dates(members)))
        lost += len({pick.window.name for pick, _ in self._absent_outputs(index)})
        return None if len(made) >= dates * (len(made) + lost) else [""]

    def group(self, index: int, wanted: Sequence[ProductLayers], region: str) -> GroupSpec:
        """Return the specification of a place's group; `region` is the request's, as GeoJSON."""
        name = self._layout.places[index].name
        members = sorted(self.members.get(index, ()))  # by product, day, overpass, layer
        outputs = sorted(self.outputs.get(index, ()))
        inputs = self.course.chosen.package.inputs
        around = list(self._around(index, inputs.halo))
        stacked = [(name, one) for one in members]
        stacked += [
            (cell, one)
            for cell, other in around
            for one in sorted(self.members.get(other, ()))
            if one[:4] in {member[:4] for member in members}
        ]
        made = [(name, one) for one in outputs]
        made += [
            (cell, one)
            for cell, other in around
            for one in sorted(self.outputs.get(other, ()))
            if one[:4] in {output[:4] for output in outputs}
        ]
        steps = {
            pick.course.chosen.number: pick.course.chosen.name
            for pick in self.course.picks(self.window)
        }
        absent = bands(
            self._lacks.at(index, _dates(members)),
            wanted,
            self.course.chosen,
            (
                Absent(part=pick.part(output), what=what, why=why)
                for pick, output in self._absent_outputs(index)
                for what, why in pick.missing(index).items()
            ),
        )
        cells = (
            Input(key=key.hex(), name=f"{cell} {moment_name(day, time)}", file=file)
            for cell, (_, day, time, _, key, _, _, file) in stacked
        )
        rasters = (
            Input(key=one.key, name=f"{steps[one.step]} {cell} {one.window}", file=one.file)
            for cell, one in made
        )
        stacks = (
            *(_band(wanted, cell, member) for cell, member in stacked),
            *(_output_band(steps[one.step], cell, one) for cell, one in made),
        )
        return GroupSpec(
            inputs=(*cells, *rasters),
            missing=absent.named,
            missing_unnamed=absent.unnamed,
            group=f"{name} {self.window.name}",
            cell=name,
            window=self.window.name,
            grid=self._layout.cells[index],
            bands=stacks,
            labels=_told_labels(stacks),
            halo=inputs.halo,
            region=region if inputs.region else "",
            time=self.window.time,
        )

    def _around(self, index: int, halo: int) -> Iterator[tuple[str, int]]:
        """Yield name and number of the places within the halo of a cell."""
        if not halo:
            return
        wide = self._layout.cells[index].widened(halo)
        for other in self.places:
            if other != index and wide.meets(self._layout.cells[other]):
                yield self._layout.places[other].name, other

    def absent_cells(self, places: Iterable[int]) -> Iterator[Absent]:
        """Name what mosaics lack in places without a run."""
        there = {*self.places}
        expected = {*self._lacks.places}
        for index in places:
            if index in there:
                continue
            part = f"{self._layout.places[index].name} {self.window.name}"
            for what, why in self._roots(index, tiled=index in expected).items():
                yield Absent(part=part, what=what, why=why)

    def missing(self) -> dict[int, _Roots]:
        """Return what the window lacks in each place, by what is missing at the root."""
        places = range(len(self._layout.places))
        return {index: roots for index in places if (roots := self._roots(index))}

    def told(self, has: Mapping[str, int]) -> PlannedWindow:
        """Return the window as a preview tells it; `has` are the dates of each product."""
        there, lost = dict(has), self._lacks.everywhere()
        for pick in self.course.picks(self.window):
            name = pick.course.chosen.name
            made = bool(pick.course.closed[pick.window.name].runs)
            there[name] = there.get(name, 0) + made
            if not made:
                lost.append(f"{name} {pick.window.name}")
        return PlannedWindow.of(
            self.course.chosen.name,
            self.window.name,
            len(self.places),
            there,
            lost,
            (self.window.first.isoformat(), self.window.last.isoformat()),
        )

    def _absent_outputs(self, index: int) -> Iterator[tuple[_Pick, str]]:
        """Yield the outputs of earlier steps that a place is expected to have and has not."""
        for pick in self.course.picks(self.window):
            made = pick.made(index)
            if pick.missing(index):
                for output in pick.course.chosen.rasters:
                    wanted = self.course.chosen.step.takes_output(pick.course.chosen.number, output)
                    if wanted and f"{output}.tif" not in made:
                        yield pick, output

    def _roots(self, index: int, *, tiled: bool = True) -> _Roots:
        found: _Roots = {}
        if tiled:
            lacks = self._lacks.at(index, _dates(self.members.get(index, ())))
            found = {name: NOT_THERE for lack in lacks for name in lack.names}
        for pick in self.course.picks(self.window):
            found |= pick.missing(index)
        return found


def _counts(
    used: Iterable[ProductLayers], picked: Mapping[int, Sequence[object]]
) -> Mapping[str, int]:
    """Count the dates that a window has of each product, or record."""
    has: Counter[str] = Counter()
    for one in used:
        has[one.product] += len(picked[one.number])
    return has


def _stem(file: str) -> str:
    return file.rpartition(".")[0]


def _dates(members: Iterable[_Member]) -> list[tuple[int, date]]:
    return [(choice, day) for choice, day, *_ in members]


def _cells(made: Iterable[Made]) -> list[_Cell]:
    return [
        (cell.place, cell.time, cell.layer, bytes.fromhex(cell.key), cell.file) for cell in made
    ]


def _band(wanted: Sequence[ProductLayers], cell: str, member: _Member) -> Band:
    number, day, time, layer, _, counted, last, _ = member
    one = wanted[number]
    more = {
        "cell": cell,
        "counted": counted,
        "weighed": one.join.weighted,
        "time": time,
        "use": one.join.use,
        "last": last if one.covers > 1 else None,
    }
    return band_of(one.choice, one.layers[layer].name, day).model_copy(update=more)


def _output_band(step: str, cell: str, output: _Output) -> Band:
    return Band(
        product=step,
        collection="",
        layer=_stem(output.file),
        day=output.day,
        cell=cell,
        counted=output.counted,
        window=output.window,
    )


def _labels_of(bands: Sequence[Band]) -> dict[tuple[str, str, str], str]:
    return layer_labels(bands, short=written() < PADDED_LABELS)


def _told_labels(bands: Sequence[Band]) -> tuple[LayerLabel, ...] | None:
    """Return what a group must be told of its layers' files; None where bands and rule tell it."""
    found = _labels_of(bands)
    if found == layer_labels(bands, short=True):
        return None
    return tuple(
        LayerLabel(product=product, collection=collection, layer=layer, label=label)
        for (product, collection, layer), label in found.items()
    )


def _reduce(
    layout: Layout, chosen: Chosen, group: GroupSpec, draft: Draft
) -> list[tuple[str, Input]]:
    """Add one group and its run; the raster files it makes, each as a mosaic's input."""
    outputs = chosen.package.expand_outputs(_labels_of(group.bands).values())
    plain_files = any(output.kind == "file" for _, output in outputs)
    asked = chosen.step.delivered and (plain_files or layout.request.hands_over_cells)
    spec = ReduceSpec(
        inputs=(draft.input(group, group.group),),
        package=chosen.package.name,
        digest=chosen.digest,
        outputs=tuple(name for name, _ in outputs),
        parameters=with_defaults(chosen.step.reduction.parameters, chosen.package.parameters),
        pixels=group.amount,
        least_valid=chosen.requires.pixels,
    )
    folder = f"{chosen.name}/cells/{group.window}/{group.cell}"
    key = draft.add(spec, folder if asked else "")
    return [
        (name, Input(key=key, name=group.group, file=name))
        for name, output in outputs
        if output.kind == "raster"
    ]
