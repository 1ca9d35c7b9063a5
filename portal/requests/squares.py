"""The squares on a request's page: what there is of each layer on each date, by the plan."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import groupby, pairwise

from portal.results.layers import ResultLayer, order_of, parts_of
from reprojection.read.completeness import WHOLE
from tasks.bag.categories import Category
from tasks.bag.model import TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.requests.gaps import in_percent
from tasks.requests.plan import Gap

_DATES = 50  # of a page, at most
_FEWEST = 7  # of a page, however many layers there are
_WORDS = {
    "left out": "left out, as its inputs failed",
    "missing": "missing in the archive",
    "to come": "still to come",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What there is of a layer on a date.

    `state` is "complete", "partial", "failed", "left out" (its inputs failed), "missing" (the
    archive has nothing) or "to come". `inputs` is the share of the inputs of
    a partial raster, in words; `valid` the share of pixels that have a value, None without a
    raster; `note` the number of its reason in `Matrix.notes`, 0 for none.
    """

    date: str
    state: str
    inputs: str = ""
    valid: float | None = None
    path: str = ""
    note: int = 0

    @property
    def kind(self) -> str:
        """The state as a name of a style."""
        return self.state.replace(" ", "-")

    @property
    def shade(self) -> int:
        """The step of its colour, by its valid share: 0 for no pixel, 5 from 80%."""
        return 0 if not self.valid else min(5, 1 + int(5 * self.valid))

    @property
    def short(self) -> str:
        """The date within its month or year: "09", "09 10:35" for an overpass, "DJF"."""
        day, _, clock = self.date.partition("T")
        part = day.rpartition("-")[2] if "_" not in day else day
        return f"{part} {clock[:2]}:{clock[2:]}" if clock else part or "all"

    @property
    def text(self) -> str:
        """All of it in words."""
        parts = [self.date or "without a date", _WORDS.get(self.state, self.state)]
        if self.inputs:
            parts[1] += f", {self.inputs} of the inputs"
        if self.valid is not None:
            parts.append(f"{share_text(self.valid)} of pixels have a value")
        if self.note:
            parts.append(f"reason {self.note}")
        return f"{parts[0]}: {'; '.join(parts[1:])}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A layer's cells of some dates, by month or year, and the one of which a picture is shown."""

    layer: ResultLayer
    months: tuple[tuple[str, tuple[Cell, ...]], ...]
    best: Cell | None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells in the order of time."""
        return tuple(cell for _, cells in self.months for cell in cells)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Layers by dates: the rows with the dates of this page, the reasons, the number of dates.

    `shown` are the dates of this page; `counts` are of all dates, by state.
    """

    rows: tuple[Row, ...]
    shown: tuple[str, ...]
    notes: tuple[str, ...]
    dates: int
    pages: int
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def states(self) -> frozenset[str]:
        """The states of the squares of this page, which the key explains."""
        return frozenset(cell.state for row in self.rows for cell in row.cells)

    @property
    def has_rasters(self) -> bool:
        """Tell whether any square of this page has a colour."""
        return any(cell.path for row in self.rows for cell in row.cells)


def matrix(
    layers: Sequence[ResultLayer],
    gaps: Iterable[Gap],
    failures: Sequence[Interest],
    page: int,
    size: int,
    awaited: Sequence[Interest] = (),
) -> Matrix:
    """Lay the results out by layer and date; `page` counts from 1, of `size` squares about each.

    A layer of which no raster is made has a row, too: its rasters failed, or are `awaited`.
    """
    layers = _with_others(layers, [*failures, *awaited])
    there = _There(absent=_absent(gaps), failed=_failed(failures), awaited=_places(awaited))
    products = {layer.folder.partition("/")[0] for layer in layers}
    every = {day for layer in layers for day in layer.rasters}
    every |= {day for product, day in there.absent if product in products}
    every |= {day for _, day in (*there.failed, *there.awaited)}
    dates = sorted(every, key=order_of)
    wide = max(_FEWEST, min(_DATES, size // max(1, len(layers))))
    shown = dates[wide * (page - 1) : wide * page]
    rows = []
    for layer in layers:
        cells = [found for day in shown if (found := there.cell(layer, day)) is not None]
        months = groupby(cells, lambda one: _month(one.date))
        drawn = [one for one in cells if one.path]
        best = max(drawn, key=lambda one: one.valid or 0.0, default=None)
        rows.append(
            Row(layer=layer, months=tuple((name, tuple(some)) for name, some in months), best=best)
        )
    return Matrix(
        rows=tuple(rows),
        shown=tuple(shown),
        notes=tuple(there.notes),
        dates=len(dates),
        pages=max(1, -(-len(dates) // wide)),
        counts=_counts(layers, there),
    )


@dataclass(frozen=True, kw_only=True)
class _There:
    """What is not there and why, by product or folder and date; `notes` numbers the reasons."""

    absent: Mapping[tuple[str, str], str]
    failed: Mapping[tuple[str, str], tuple[str, str]]
    awaited: frozenset[tuple[str, str]]
    notes: dict[str, int] = field(default_factory=dict)

    def cell(self, layer: ResultLayer, day: str) -> Cell | None:
        """Return the square of a layer and date; None where nothing was asked for."""
        result = layer.rasters.get(day)
        if result is None:
            return self._without(layer, day)
        said = result.file.completeness
        made = Cell(date=day, state="complete", valid=result.file.valid_share, path=result.path)
        if said == WHOLE:
            return made
        why = "; ".join(f"{one.what}: {one.why}" for one in said.missing[:3])
        if said.count > 3:
            why += f"; and {said.count - 3} more"
        note = self._number(why)
        return replace(made, state="partial", inputs=in_percent(said.share), note=note)

    def _without(self, layer: ResultLayer, day: str) -> Cell | None:
        place = (layer.folder, day)
        if place in self.awaited:  # a retry may be under way
            return Cell(date=day, state="to come")
        if place in self.failed:
            state, why = self.failed[place]
            return Cell(date=day, state=state, note=self._number(why))
        if why := self.absent.get((layer.folder.partition("/")[0], day), ""):
            return Cell(date=day, state="missing", note=self._number(why))
        return None

    def _number(self, why: str) -> int:
        return self.notes.setdefault(why, len(self.notes) + 1)


def _counts(layers: Iterable[ResultLayer], there: _There) -> dict[str, int]:
    """Count the rasters of all dates by state."""
    found: Counter[str] = Counter(dict.fromkeys(("partial", "complete", "empty"), 0))
    made = {(layer.folder, day) for layer in layers for day in layer.rasters}
    for layer in layers:
        partial = sum(bool(one.file.completeness.count) for one in layer.rasters.values())
        found["partial"] += partial
        found["complete"] += len(layer.rasters) - partial
        found["empty"] += sum(one.file.valid_share == 0.0 for one in layer.rasters.values())
    found["to come"] = len(there.awaited - made)
    for place, (state, _) in there.failed.items():
        found[state] += place not in made and place not in there.awaited
    return {state: found[state] for state in STATES}


STATES = ("complete", "partial", "empty", "failed", "left out", "to come")
"""What is counted; "empty" rasters, without a value, are complete or partial, too."""


def _with_others(layers: Sequence[ResultLayer], lacking: Iterable[Interest]) -> list[ResultLayer]:
    """Add the layers of which no raster was made, by what failed or is awaited of them."""
    known = {layer.folder for layer in layers}
    more: dict[str, ResultLayer] = {}
    for one in lacking:
        folder, name, when = _place(one)
        if one.output and when and folder not in known:
            more.setdefault(folder, ResultLayer(folder=folder, name=name, rasters={}))
    return sorted([*layers, *more.values()], key=lambda layer: layer.id)


def _places(awaited: Iterable[Interest]) -> frozenset[tuple[str, str]]:
    """Return folder and date of each raster that is awaited."""
    return frozenset((folder, day) for folder, _, day in map(_place, awaited) if day)


def _place(one: Interest) -> tuple[str, str, str]:
    """Return folder, name and date of the raster that an interest is in."""
    return parts_of(f"{one.output.strip('/')}/{one.name.removesuffix('.tif')}.tif")


def _month(day: str) -> str:
    """Return under what a date is listed: its month, its year, or "all years"."""
    if not day or "_" in day:
        return ""
    parts = day.partition("T")[0].split("-")
    return "-".join(parts[:-1]) or ("years" if parts[0].isdigit() else "all years")


def share_text(share: float) -> str:
    """Write a share: "below 1%" for what is little, not nothing, "over 99%" for what is not all."""
    if 0.99 < share < 1:
        return "over 99%"
    return "below 1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"


def _absent(gaps: Iterable[Gap]) -> dict[tuple[str, str], str]:
    """Return the reasons by product folder and date of the gaps that name both."""
    found: dict[tuple[str, str], str] = {}
    for gap in gaps:
        words = gap.what.split()
        for before, word in pairwise(words):
            if _is_day(word):
                found.setdefault((before, word), gap.reason)
    return found


def _failed(failures: Iterable[Interest]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return states and reasons by folder and date of the results that were not made."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for interest in failures:
        days = re.findall(r"\d{4}-\d\d(?!\d)(?:-\d\d)?(?:T\d{4})?", interest.name)
        days = days or [parts_of(f"{interest.name}.tif")[2]]
        if interest.output and days[-1]:
            category = interest.category.value if interest.category else "failed"
            why = f"{category}: {interest.message}" if interest.message else category
            if interest.message and interest.category is Category.UPSTREAM_FAILED:
                why = interest.message  # it says what failed upstream
            gap = interest.outcome is TaskOutcome.GAP
            found[interest.output.strip("/"), days[-1]] = ("left out" if gap else "failed", why)
    return found


def _is_day(word: str) -> bool:
    try:
        date.fromisoformat(word)
    except ValueError:
        return False
    return True
