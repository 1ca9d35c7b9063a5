"""The tasks of cubes: each layer of the results over all its dates in one file."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from service_manager.planner.draft import Draft, PlannedRaster
from service_manager.planner.expected import Dates
from service_manager.planner.layers import RasterPart
from tasks.bag.spec import CubeSpec, Input


class Cubes:
    """The rasters planned so far, by the folder of the results they go to."""

    def __init__(self, form: Literal["netcdf", "zarr"], parts: Sequence[RasterPart]) -> None:
        self._form = form
        self._parts = parts
        self._folders: dict[str, list[PlannedRaster]] = defaultdict(list)

    def add(self, rasters: Iterable[PlannedRaster]) -> None:
        """Take rasters in."""
        for raster in rasters:
            if raster.is_raster:
                self._folders[raster.folder].append(raster)

    def plan(self, draft: Draft, dates: Dates) -> None:
        """Take in the draft's rasters, the last, and add a cube for each folder to it."""
        self.add(draft.rasters)
        for folder, found in self._folders.items():
            part = next(one for one in self._parts if folder.endswith(one.folder("")))
            rasters = sorted(found, key=lambda raster: (raster.day, raster.time))
            named, unnamed = dates.absent(folder, (raster.day for raster in rasters))
            spec = CubeSpec(
                inputs=tuple(Input(key=r.key, name=r.file, file=r.file) for r in rasters),
                missing=named,
                missing_unnamed=unnamed,
                name=folder.replace("/", "."),
                form=self._form,
                grid=part.grid,
                days=tuple(raster.day for raster in rasters),
                times=tuple(raster.time for raster in rasters if raster.time),
            )
            draft.add(spec, folder)
