"""A stretch of a plan while it is made: each task once, inputs first."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from service_manager.planner.counts import CountedClass, kind_of
from tasks.bag.kinds import Spec
from tasks.bag.spec import Input, MosaicSpec
from tasks.errors import RequestRefusedError

Compared = tuple[str, str, str]
"""A layer or an output of a step: product or step, collection, name."""


class Line(NamedTuple):
    """A task of the draft.

    It has the path among the results (empty for none), the specification as JSON, and the class
    under which the task is counted.
    """

    output: str
    text: str
    kind: CountedClass


@dataclass(frozen=True, kw_only=True)
class PlannedRaster:
    """A raster among the results: its task and file, the folder it goes to, its first day.

    A table of values that were read at places counts as one. `time` is the start of the overpass
    that it is of, HH:MM in UTC; empty: it is of no single one.
    """

    key: str
    file: str
    folder: str
    day: date
    time: str = ""

    @property
    def is_raster(self) -> bool:
        """Tell whether it holds pixels."""
        return self.file.endswith(".tif")


@dataclass(frozen=True, kw_only=True)
class MadeLayer:
    """A layer of a date, or an output of a window: the raster of each place, whose task was put.

    A step's output has no collection. `time` is as that of a `PlannedRaster`.
    """

    product: str
    collection: str
    layer: str
    first: date
    last: date
    time: str
    cells: Mapping[int, Input]


@dataclass(kw_only=True)
class Draft:
    """The tasks of the stretch so far, and the rasters among its results.

    `limit` is the largest number of tasks it may have. `overpasses` counts those that are each by
    itself, by product choice. `made` are the planned layers that are among `compared`, each by
    product or step, collection and name.
    """

    limit: int
    lines: dict[str, Line] = field(default_factory=dict)  # by task key
    rasters: list[PlannedRaster] = field(default_factory=list)
    overpasses: Counter[int] = field(default_factory=Counter)
    compared: frozenset[Compared] = frozenset()
    made: list[MadeLayer] = field(default_factory=list)

    def add(self, spec: Spec, output: str = "") -> str:
        """Put a task at the end unless it is there; its key.

        Raises RequestRefusedError, naming the setting, when the plan grows beyond the limit.
        """
        key = spec.key
        self.put(key, Line(output, spec.model_dump_json(), kind_of(spec)))
        return key

    def put(self, key: str, line: Line) -> None:
        """Put a task at the end unless it is there; errors as `add`."""
        there = self.lines.setdefault(key, line)
        if there is not line:
            if line.output and not there.output:
                self.lines[key] = there._replace(output=line.output)
        elif len(self.lines) > self.limit:
            self.expect(0)

    def input(self, spec: Spec, name: str, file: str = "", output: str = "") -> Input:
        """Add a task and name it as an input of another."""
        return Input(key=self.add(spec, output), name=name, file=file)

    def raster(self, spec: MosaicSpec, folder: str, day: date) -> None:
        """Add a raster of the results; errors as `add`."""
        key = self.add(spec, folder)
        self.result(key, spec.name, folder, day)

    def result(self, key: str, name: str, folder: str, day: date, time: str = "") -> None:
        """Make the raster of a task that was put one of the results, `<name>.tif`."""
        made = PlannedRaster(key=key, file=f"{name}.tif", folder=folder, day=day, time=time)
        self.rasters.append(made)

    def compares(self, product: str, collection: str, layer: str) -> bool:
        """Tell whether a layer, or the output of a step, is compared with measurements."""
        return (product, collection, layer) in self.compared

    def expect(self, more: int) -> None:
        """Refuse at once what will come to too many tasks; errors as `add`."""
        if len(self.lines) + more > self.limit:
            raise RequestRefusedError(
                "request",
                "it comes to more tasks than a plan may have (SWATHMILL_MAX_TASKS).",
                "Ask for fewer days, layers or a coarser grid, or have the limit raised.",
            )
