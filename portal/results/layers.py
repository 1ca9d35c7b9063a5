"""Results by layer and date: the matrix on a request's page, and what the map can draw."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import groupby, pairwise
from pathlib import PurePosixPath
from typing import Self

import numpy as np

from portal.results.result_files import ResultFile
from reprojection.read.completeness import WHOLE
from tasks.bag.categories import Category
from tasks.bag.task_rows import Interest
from tasks.packages.items import without_items
from tasks.request import windows
from tasks.requests.gaps import in_percent
from tasks.requests.plan import Gap

_WHEN = re.compile(rf"[._-]?(\d{{4}}-\d\d-\d\dT\d{{4}}|{windows.NAME})$")


@dataclass(frozen=True, kw_only=True)
class ResultLayer:
    """One layer of the results: its folder, the start of its files' names, its rasters by date.

    A date is "2012-01-09", or the name of another window ("2012-01", "2012-041", "DJF"); of an
    overpass that began at 10:35 "2012-01-09T1035"; it is "" for a raster without one.
    """

    folder: str
    name: str
    rasters: Mapping[str, ResultFile]

    @property
    def id(self) -> str:
        """The name in addresses."""
        return f"{self.folder}/{self.name}".lstrip("/")

    @property
    def title(self) -> str:
        """The name for people: the folder names product and layer; a file may add an output."""
        parts = PurePosixPath(self.folder).parts
        place = " ".join(parts)
        if parts and self.name == parts[-1]:
            return place
        if self.name.replace(".", " ") == place.replace(".", " "):
            return place
        return self.name if not place else f"{place} {self.name}"

    @property
    def dates(self) -> tuple[str, ...]:
        """The dates, the earliest first."""
        return tuple(sorted(self.rasters, key=_order))

    @property
    def best(self) -> str:
        """The date on which most pixels have a value, the earliest of such."""
        return max(self.dates, key=lambda day: self.rasters[day].file.valid_share or 0.0)

    def nearest(self, day: str) -> str:
        """Return a date of the layer: this one, else the last before it, else the first."""
        before = [one for one in self.dates if _order(one) <= _order(day)]
        return before[-1] if before else self.dates[0]


def result_layers(files: Iterable[ResultFile]) -> dict[str, ResultLayer]:
    """Group the rasters that Swathmill wrote into layers, by id."""
    found: dict[tuple[str, str], dict[str, ResultFile]] = defaultdict(dict)
    for file in files:
        if is_raster(file):
            folder, name, when = _parts(file.path)
            found[folder, name][when] = file
    layers = [
        ResultLayer(folder=folder, name=name, rasters=rasters)
        for (folder, name), rasters in sorted(found.items())
    ]
    return {layer.id: layer for layer in layers}


@dataclass(frozen=True, kw_only=True)
class Arranged:
    """A request's results as its pages show them.

    All files by path, those to list (no STAC items of rasters), the layers by id, the bytes of all
    files, and how many are incomplete.
    """

    files: Mapping[str, ResultFile]
    listed: Mapping[str, ResultFile]
    layers: Mapping[str, ResultLayer]
    size: int
    incomplete: int

    @classmethod
    def of(cls, files: Mapping[str, ResultFile]) -> Self:
        """Arrange the files of a request."""
        listed = {path: files[path] for path in without_items(files)}
        return cls(
            files=files,
            listed=listed,
            layers=result_layers(files.values()),
            size=sum(one.file.size for one in files.values()),
            incomplete=sum(one.file.completeness != WHOLE for one in listed.values()),
        )


def layer_of(path: str) -> tuple[str, str]:
    """Return the id of a result's layer, and its date."""
    folder, name, when = _parts(path)
    return f"{folder}/{name}".lstrip("/"), when


def is_raster(result: ResultFile) -> bool:
    """Tell whether a result is a raster that Swathmill wrote.

    What a package handed over as a file is never opened by the portal, whatever its name.
    """
    suffix = PurePosixPath(result.path).suffix.lower()
    return suffix in (".tif", ".tiff") and result.file.valid_share is not None


def selected(
    files: Mapping[str, ResultFile], layers: Sequence[str], start: str, end: str
) -> dict[str, ResultFile]:
    """Select results by layer id and by date, inclusive; "" and no layers select everything.

    A file without a date is selected by its layer's folder alone. Windows count by their first day,
    those of all years always. The last day's overpasses count.
    """
    folders = {layer.rpartition("/")[0] for layer in layers}
    found = {}
    for path, file in files.items():
        folder, name, when = _parts(path)
        of_layer = f"{folder}/{name}".lstrip("/") in layers or (not when and folder in folders)
        at = windows.begin(when)
        dated = bool(when) and not at.startswith("0000")
        early = bool(start) and dated and at < start[: len(at)]
        late = bool(end) and dated and at[: len(end)] > end[: len(at)]
        if (of_layer or not layers) and not early and not late:
            found[path] = file
    return found


def minute_of(when: str) -> int:
    """Return the first minute of a date or a window, counted from 1970."""
    day, _, clock = windows.begin(when).partition("T")
    moment = np.datetime64(f"{day}T{clock[:2]}:{clock[2:]}" if clock else day)
    return int(moment.astype("datetime64[m]").astype(int))


def _order(when: str) -> tuple[str, str]:
    """Return what puts dates and windows in the order of time."""
    return windows.begin(when), when


def _parts(path: str) -> tuple[str, str, str]:
    """Split a path into folder, name without its date and suffix, and date."""
    folder, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    when = _WHEN.search(stem)
    return (folder, stem[: when.start()], when[1]) if when else (folder, stem, "")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What there is of a layer on a date.

    `state` is "complete", "partial", "failed" or "missing". `inputs` is the share of the inputs of
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
        parts = [self.date or "without a date", self.state]
        if self.inputs:
            parts[1] += f", {self.inputs} of the inputs"
        if self.valid is not None:
            parts.append(f"{_percent(self.valid)} of pixels have a value")
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
    counts: Mapping[str, int] = field(default_factory=dict)


def matrix(
    layers: Sequence[ResultLayer],
    gaps: Iterable[Gap],
    failures: Sequence[Interest],
    page: int,
    size: int,
) -> Matrix:
    """Lay the results out by layer and date; `page` counts from 1, of `size` dates each.

    A layer of which every raster failed has a row, too.
    """
    layers = _with_failed(layers, failures)
    absent = _absent(gaps)
    failed = _failed(failures)
    products = {layer.folder.partition("/")[0] for layer in layers}
    every = {day for layer in layers for day in layer.rasters}
    every |= {day for product, day in absent if product in products}
    every |= {day for _, day in failed}
    dates = sorted(every, key=_order)
    notes: dict[str, int] = {}

    def cell(layer: ResultLayer, day: str) -> Cell | None:
        result = layer.rasters.get(day)
        if result is not None:
            said = result.file.completeness
            made = Cell(date=day, state="complete", valid=result.file.valid_share, path=result.path)
            if said == WHOLE:
                return made
            why = "; ".join(f"{one.what}: {one.why}" for one in said.missing[:3])
            if said.count > 3:
                why += f"; and {said.count - 3} more"
            return replace(made, state="partial", inputs=in_percent(said.share), note=_number(why))
        if why := failed.get((layer.folder, day), ""):
            return Cell(date=day, state="failed", note=_number(why))
        if why := absent.get((layer.folder.partition("/")[0], day), ""):
            return Cell(date=day, state="missing", note=_number(why))
        return None

    def _number(why: str) -> int:
        return notes.setdefault(why, len(notes) + 1)

    shown = dates[size * (page - 1) : size * page]
    rows = []
    for layer in layers:
        cells = [found for day in shown if (found := cell(layer, day)) is not None]
        months = groupby(cells, lambda one: _month(one.date))
        drawn = [one for one in cells if one.path]
        best = max(drawn, key=lambda one: one.valid or 0.0, default=None)
        rows.append(
            Row(layer=layer, months=tuple((name, tuple(some)) for name, some in months), best=best)
        )
    return Matrix(
        rows=tuple(rows),
        shown=tuple(shown),
        notes=tuple(notes),
        dates=len(dates),
        counts=_counts(layers, failed),
    )


def _counts(layers: Iterable[ResultLayer], failed: Mapping[tuple[str, str], str]) -> dict[str, int]:
    """Count the rasters of all dates by state."""
    found: Counter[str] = Counter()
    for layer in layers:
        partial = sum(bool(one.file.completeness.count) for one in layer.rasters.values())
        found["partial"] += partial
        found["complete"] += len(layer.rasters) - partial
        found["empty"] += sum(one.file.valid_share == 0.0 for one in layer.rasters.values())
        found["failed"] += sum(
            folder == layer.folder and day not in layer.rasters for folder, day in failed
        )
    return dict(found)


def _with_failed(layers: Sequence[ResultLayer], failures: Iterable[Interest]) -> list[ResultLayer]:
    """Add the layers of which no raster was made, and some failed."""
    known = {layer.folder for layer in layers}
    more: dict[str, ResultLayer] = {}
    for one in failures:
        folder, name, when = _parts(f"{one.output.strip('/')}/{one.name}.tif")
        if one.output and when and folder not in known:
            more.setdefault(folder, ResultLayer(folder=folder, name=name, rasters={}))
    return [*layers, *(more[folder] for folder in sorted(more))]


def _month(day: str) -> str:
    """Return under what a date is listed: its month, its year, or "all years"."""
    if not day or "_" in day:
        return ""
    parts = day.partition("T")[0].split("-")
    return "-".join(parts[:-1]) or ("years" if parts[0].isdigit() else "all years")


def _percent(share: float) -> str:
    """Write a share: "below 1%" for what is little, not nothing."""
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


def _failed(failures: Iterable[Interest]) -> dict[tuple[str, str], str]:
    """Return the reasons by folder and date of the results that failed."""
    found: dict[tuple[str, str], str] = {}
    for interest in failures:
        days = re.findall(r"\d{4}-\d\d(?!\d)(?:-\d\d)?(?:T\d{4})?", interest.name)
        days = days or [_parts(f"{interest.name}.tif")[2]]
        if interest.output and days[-1]:
            category = interest.category.value if interest.category else "failed"
            why = f"{category}: {interest.message}" if interest.message else category
            if interest.message and interest.category is Category.UPSTREAM_FAILED:
                why = interest.message  # it says what failed upstream
            found[interest.output.strip("/"), days[-1]] = why
    return found


def _is_day(word: str) -> bool:
    try:
        date.fromisoformat(word)
    except ValueError:
        return False
    return True
