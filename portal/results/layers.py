"""Results by layer and date: the matrix on a request's page, and what the map can draw."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
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
        place = " ".join(PurePosixPath(self.folder).parts)
        if self.name.replace(".", " ") == place.replace(".", " "):
            return place
        return self.name if not place else f"{place} {self.name}"

    @property
    def dates(self) -> tuple[str, ...]:
        """The dates, the earliest first."""
        return tuple(sorted(self.rasters, key=_order))

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

    `state` is "complete", "partial", "failed", "missing", or "" where nothing is expected. `text`
    is what the cell shows, `note` the number of its reason in `Matrix.notes`, 0 for none.
    """

    state: str = ""
    text: str = ""
    path: str = ""
    note: int = 0


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Dates by layers: the columns, the rows of this page, the reasons, and the number of dates."""

    columns: tuple[ResultLayer, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...]
    dates: int
    counts: Mapping[str, int] = field(default_factory=dict)


def matrix(
    layers: Sequence[ResultLayer],
    gaps: Iterable[Gap],
    failures: Iterable[Interest],
    page: int,
    size: int,
) -> Matrix:
    """Lay the results out by date and layer; `page` counts from 1, of `size` dates each."""
    absent = _absent(gaps)
    failed = _failed(failures)
    products = {layer.folder.partition("/")[0] for layer in layers}
    every = {day for layer in layers for day in layer.rasters}
    every |= {day for product, day in absent if product in products}
    every |= {day for _, day in failed}
    dates = sorted(every, key=_order)
    notes: dict[str, int] = {}
    counts: dict[str, int] = defaultdict(int)

    def cell(layer: ResultLayer, day: str) -> Cell:
        result = layer.rasters.get(day)
        if result is not None:
            said = result.file.completeness
            if said == WHOLE:
                return Cell(state="complete", text="complete", path=result.path)
            why = "; ".join(f"{one.what}: {one.why}" for one in said.missing[:3])
            if said.count > 3:
                why += f"; and {said.count - 3} more"
            return Cell(
                state="partial", text=in_percent(said.share), path=result.path, note=_number(why)
            )
        if why := failed.get((layer.folder, day), ""):
            return Cell(state="failed", text="failed", note=_number(why))
        if why := absent.get((layer.folder.partition("/")[0], day), ""):
            return Cell(state="missing", text="missing", note=_number(why))
        return Cell()

    def _number(why: str) -> int:
        return notes.setdefault(why, len(notes) + 1)

    for layer in layers:
        partial = sum(bool(one.file.completeness.count) for one in layer.rasters.values())
        counts["partial"] += partial
        counts["complete"] += len(layer.rasters) - partial
    shown = dates[size * (page - 1) : size * page]
    rows = tuple((day, tuple(cell(layer, day) for layer in layers)) for day in shown)
    return Matrix(
        columns=tuple(layers), rows=rows, notes=tuple(notes), dates=len(dates), counts=dict(counts)
    )


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
