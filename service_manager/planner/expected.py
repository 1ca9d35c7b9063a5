"""What a reduction or a cube expects of the archive, day by day, and what of it is not there.

Expected are the tiles that the region enters, on each day on which their product starts. Of swaths
only whole days are: nothing says how many were taken.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from service_manager.planner.chosen import Chosen
from service_manager.planner.gaps import Seen, expected_days, phase_of, starts
from service_manager.planner.layers import NOT_THERE, ProductLayers
from service_manager.planner.listing import raster_days
from tasks.bag.absence import Absence, Absent, bounded
from tasks.request.document import Time
from tasks.request.joins import StepJoin
from tasks.request.taking import band_of
from tasks.request.windows import Window, windows

SeenOf = Callable[[int], Seen]
"""The days on which there are granules of a product choice, by its number."""


@dataclass(frozen=True, kw_only=True)
class Lack:
    """What is not there of a product choice on a day, by name, in one place or everywhere."""

    choice: int
    day: date
    names: tuple[str, ...]


class WindowLacks:
    """What is not there in one window of a reduction."""

    def __init__(
        self,
        wanted: Sequence[ProductLayers],
        chosen: Chosen,
        window: Window,
        seen: SeenOf,
    ) -> None:
        used = chosen.used(wanted)
        self._heads = {one.number: one.head for one in used}
        # Of products that stand for one another the first speaks for all.
        wanted = [one for one in used if one.number == one.head]
        self._wanted = wanted
        self._seen = {one.number: seen(one.number) for one in wanted}
        self._days = {
            one.number: window_days(one, window, self._seen[one.number]) for one in wanted
        }

    @property
    def places(self) -> Iterable[int]:
        """The places where anything is expected whatever is there."""
        tiled = [one for one in self._wanted if one.geometry == "tile"]
        return tiled[0].layout.place_tiles if tiled else ()

    def has_none_by_calendar(self, wanted: ProductLayers) -> bool:
        """Tell whether no date of a product begins in the window, whatever the archive has."""
        return wanted.join.use == "same-day" and not self._days[wanted.head]

    def at(self, place: int, made: Iterable[tuple[int, date]]) -> list[Lack]:
        """List what is missing in a place, apart from the choices and days that were `made`."""
        there = {(self._heads[number], day) for number, day in made}
        return [
            Lack(choice=one.number, day=day, names=names)
            for one in self._wanted
            for day in self._days[one.number]
            if (one.number, day) not in there
            for names in [self._names(one, place, day)]
            if names
        ]

    def everywhere(self) -> list[str]:
        """Name what is missing anywhere in the window."""
        found: list[str] = []
        for one in self._wanted:
            seen = self._seen[one.number]
            for day in self._days[one.number]:
                whole = f"{one.product} {day.isoformat()}"
                if day not in seen:
                    found.append(whole)
                elif one.geometry == "tile":
                    there = seen[day]
                    tiles = [tile for tile, at in one.layout.tile_places.items() if at]
                    found += [f"{whole} {tile.name}" for tile in tiles if tile not in there]
        return found

    def _names(self, wanted: ProductLayers, place: int, day: date) -> tuple[str, ...]:
        seen = self._seen[wanted.number]
        whole = f"{wanted.product} {day.isoformat()}"
        if wanted.geometry != "tile":
            return () if day in seen else (whole,)
        tiles = wanted.layout.place_tiles.get(place, ())
        if tiles and day not in seen:
            return (whole,)
        return tuple(f"{whole} {tile.name}" for tile in tiles if tile not in seen[day])


def bands(
    lacks: Iterable[Lack],
    wanted: Sequence[ProductLayers],
    chosen: Chosen,
    more: Iterable[Absent] = (),
) -> Absence:
    """Name the missing bands of a group.

    They are each layer that the step takes, for each missing day, and those of earlier steps in
    `more`.
    """
    found = [*more]
    for lack in lacks:
        one = wanted[lack.choice]
        for layer in chosen.taken(one):
            part = band_of(one.choice, layer, lack.day).text
            found += [Absent(part=part, what=what, why=NOT_THERE) for what in lack.names]
    return bounded(found)


@dataclass(frozen=True, kw_only=True)
class Dates:
    """The dates that cubes expect, with the names of what each is made of.

    The names of layers are kept by folder; `windows` holds those of a reduction's windows, by step.
    """

    layers: Mapping[str, Mapping[date, tuple[str, ...]]]
    windows: Mapping[str, Mapping[date, tuple[str, ...]]]

    @classmethod
    def of(cls, wanted: Sequence[ProductLayers], steps: Sequence[Chosen], seen: SeenOf) -> "Dates":
        """Return the dates of a request whose whole span has been seen."""
        layers: dict[str, dict[date, tuple[str, ...]]] = {}
        for one in wanted:
            span = one.layout.request.time
            days = [day for day in raster_days(one, one.layout.request) if span.holds(day)]
            if one.choice.exact is None:
                days = [*expected_days(one.period, span, seen(one.number), one.phase)]
            names: dict[date, tuple[str, ...]] = {
                day: (f"{one.product} {day.isoformat()}",) for day in days
            }
            for layer in one.layers:
                folder = f"{one.product}/{one.names[layer.name]}"
                layers.update((part.folder(folder), names) for part in one.layout.parts)
        found: dict[str, dict[date, tuple[str, ...]]] = {}
        for step in steps:
            request = wanted[0].layout.request
            kind = step.step.reduction.window_kind
            earlier = [
                (found[steps[number].name], StepJoin(other, kind, request))
                for number in step.steps
                for other in [steps[number].step.reduction.window_kind]
            ]
            found[step.name] = {}
            for window in windows(kind, request.time):
                own = [
                    f"{one.product} {day.isoformat()}"
                    for one in step.used(wanted)
                    for day in window_days(one, window, seen(one.number))
                ]
                for names, join in earlier:
                    own += [what for there, _ in join.pick(window) for what in names[there.first]]
                found[step.name][window.first] = tuple(dict.fromkeys(own))
        return cls(layers=layers, windows=found)

    def absent(self, folder: str, there: Iterable[date]) -> Absence:
        """Name the inputs that a cube lacks when its rasters are those of the days `there`."""
        present = set(there)
        expected = self.layers.get(folder)
        if expected is None:
            expected = self.windows.get(folder.partition("/")[0], {})
        return bounded(
            Absent(part=day.isoformat(), what=name, why=NOT_THERE)
            for day in sorted(expected)
            if day not in present
            for name in expected[day]
        )


def window_days(wanted: ProductLayers, window: Window, seen: Seen) -> list[date]:
    """List the dates of a product choice that a window is expected to take.

    Where the window chooses one date among those that are there and finds none, its own first day
    stands for it.
    """
    join, period = wanted.join, wanted.period
    own = raster_days(wanted, wanted.layout.request)
    if own and not join.chooses:
        return [day for day, _ in join.pick(window, join.composites(own))]
    if join.chooses:
        return [day for day, _ in join.pick(window, join.composites(seen))] or [window.first]
    inside = Time(
        start=max(join.needed_from(window.first), join.first), end=min(window.last, join.last)
    )
    days = (
        [*expected_days(1, inside, ())]
        if period <= 1
        else starts(period, phase_of(period, seen, wanted.phase), inside, seen)
    )
    return [day for day, _ in join.pick(window, join.composites(days))]
