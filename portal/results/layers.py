"""Results by layer and date, as the map draws them and the squares of a request's page show."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Self

import numpy as np

from portal.results.result_files import ResultFile
from reprojection.read.completeness import WHOLE
from tasks.packages.items import without_items
from tasks.request import windows

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
        return tuple(sorted(self.rasters, key=order_of))

    @property
    def best(self) -> str:
        """The date on which most pixels have a value, the earliest of such."""
        return max(self.dates, key=lambda day: self.rasters[day].file.valid_share or 0.0)

    def nearest(self, day: str) -> str:
        """Return a date of the layer: this one, else the last before it, else the first."""
        before = [one for one in self.dates if order_of(one) <= order_of(day)]
        return before[-1] if before else self.dates[0]


def result_layers(files: Iterable[ResultFile]) -> dict[str, ResultLayer]:
    """Group the rasters that Swathmill wrote into layers, by id."""
    found: dict[tuple[str, str], dict[str, ResultFile]] = defaultdict(dict)
    for file in files:
        if is_raster(file):
            folder, name, when = parts_of(file.path)
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
    folder, name, when = parts_of(path)
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
        folder, name, when = parts_of(path)
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


def order_of(when: str) -> tuple[str, str]:
    """Return what puts dates and windows in the order of time."""
    return windows.begin(when), when


def parts_of(path: str) -> tuple[str, str, str]:
    """Split a path into folder, name without its date and suffix, and date."""
    folder, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    when = _WHEN.search(stem)
    return (folder, stem[: when.start()], when[1]) if when else (folder, stem, "")
