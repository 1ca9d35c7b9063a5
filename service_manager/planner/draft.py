"""A stretch of a plan while it is made: each task once, inputs first."""

from dataclasses import dataclass, field, replace
from datetime import date

from tasks.errors import RequestRefusedError
from tasks.plan import PlannedTask
from tasks.spec import Input, MosaicSpec, Spec


@dataclass(frozen=True, kw_only=True)
class PlannedRaster:
    """A raster among the results: its task and file, the folder it goes to, its first day."""

    key: str
    file: str
    folder: str
    day: date


@dataclass(kw_only=True)
class Draft:
    """The tasks of the stretch so far, and the rasters among its results; `limit` is the most tasks
    it may have."""

    limit: int
    tasks: dict[str, PlannedTask] = field(default_factory=dict)
    rasters: list[PlannedRaster] = field(default_factory=list)

    def add(self, spec: Spec, output: str = "") -> str:
        """Put a task at the end unless it is there; its key.

        Raises RequestRefusedError, naming the setting, when the plan grows beyond the limit.
        """
        key = spec.key
        there = self.tasks.get(key)
        if there is None:
            self.tasks[key] = PlannedTask(spec=spec, output=output, key=key)
            self.expect(0)
        elif output and not there.output:
            self.tasks[key] = replace(there, output=output)
        return key

    def input(self, spec: Spec, name: str, file: str = "", output: str = "") -> Input:
        """Add a task and name it as an input of another."""
        return Input(key=self.add(spec, output), name=name, file=file)

    def raster(self, spec: MosaicSpec, folder: str, day: date) -> None:
        """Add a raster of the results; errors as `add`."""
        key = self.add(spec, folder)
        self.rasters.append(PlannedRaster(key=key, file=f"{spec.name}.tif", folder=folder, day=day))

    def expect(self, more: int) -> None:
        """Refuse at once what will come to too many tasks; errors as `add`."""
        if len(self.tasks) + more > self.limit:
            raise RequestRefusedError(
                "request",
                "it comes to more tasks than a plan may have (SWATHMILL_MAX_TASKS).",
                "Ask for fewer days, layers or a coarser grid, or have the limit raised.",
            )
