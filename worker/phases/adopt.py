"""Adopt a package's raster: describe it, and write it as a COG.

What a package wrote is opened by `worker/sandbox/reading` alone: inside the sandbox, if the package
is not ours. What comes from there are plain pixels and a short report.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from pydantic import Field, ValidationError

from reprojection.read.description import Band, Provenance
from reprojection.read.lineage import StepRecord
from reprojection.read.raster import Pixels, Raster
from reprojection.write.joined_lineage import LineageJoiner
from reprojection.write.write import write_cog
from tasks.bag.categories import Category
from tasks.bag.spec import ReduceSpec
from tasks.packages.packages import Package
from tasks.service.classify import AttemptError
from tasks.shown_text import shown
from tasks.strict_model import StrictModel
from worker.phases.group import Manifest, ManifestBand
from worker.phases.reproject import grid_of
from worker.sandbox.confined import run_confined
from worker.sandbox.reading import read_rasters
from worker.sandbox.reading.read_rasters import REPORT, Found, RefusedError, Wanted
from worker.sandbox.sandbox import Places, SandboxLimits, Tier

_LONGEST_REPORT = 16 * 2**20
_READING_SECONDS = 60.0  # at least; the package's own limit, if it is longer
_READING_PROCESSES = 8

Reader = Callable[[Sequence[str]], Iterator[tuple[Found, Pixels]]]
"""Reads the package's rasters of these names.

Raises:
    AttemptError: user code failed: one does not open, or does not lie on the group's grid.
"""


@dataclass(frozen=True, kw_only=True)
class OutputOrigin:
    """What an output was made from: the group's manifest, and the layer in its name, if any.

    `lineage` is the group's, if it has one.
    """

    spec: ReduceSpec
    package: Package
    manifest: Manifest
    bands: tuple[ManifestBand, ...]
    lineage: Provenance | None


def adopt(found: Found, data: Pixels, to: Path, origin: OutputOrigin) -> float:
    """Write a package's raster to `to` with provenance; return the valid share of its pixels.

    The halo around the cell is cut off.
    Pixels, nodata, scale, offset, units and band names are the package's own.
    """
    if origin.manifest.grid is None:
        raise failed(to.name, "has no grid to lie on: its group has none")
    halo = origin.manifest.halo
    if halo:
        data = np.ascontiguousarray(data[:, halo:-halo, halo:-halo])
    raster = Raster(
        data=data,
        grid=grid_of(origin.manifest.grid.widened(-halo)),
        nodata=found.nodata,
        kind="continuous",
        bands=tuple(Band(name=shown(name)) for name in found.bands),
        scale=found.scale,
        offset=found.offset,
        units=shown(found.units),
        provenance=_provenance(to, origin),
        completeness=origin.manifest.said,
    )
    write_cog(raster, to, overviews=False, statistics=False, compress="quick")
    return raster.valid_share


def read_here(folder: Path, manifest: Manifest, most_bytes: int) -> Reader:
    """Make the reader of what our own packages wrote."""

    def read(names: Sequence[str]) -> Iterator[tuple[Found, Pixels]]:
        wanted = _wanted(names, manifest, most_bytes)
        for name in names:
            try:
                with read_rasters.Opening(folder / name, wanted) as (dataset, found):
                    data: Pixels = dataset.read()
            except RefusedError as error:
                raise failed(name, str(error)) from error
            yield found, data

    return read


def read_confined(
    tier: Tier, folder: Path, manifest: Manifest, bounds: SandboxLimits, scratch: Path
) -> Reader:
    """Make the reader of what a stranger's package wrote: it opens nothing outside the sandbox.

    `bounds` are the package's own, `scratch` is an empty folder.
    """

    def read(names: Sequence[str]) -> Iterator[tuple[Found, Pixels]]:
        wanted = _wanted(names, manifest, bounds.memory // 2)
        places = Places(
            package=Path(read_rasters.__file__).parent,
            inputs=folder,
            outputs=scratch / "pixels",
            temporary=scratch / "temporary",
        )
        places.outputs.mkdir()
        places.temporary.mkdir()
        argument = json.dumps(dataclasses.asdict(wanted))
        command = ("python", "-I", Path(read_rasters.__file__).name, argument)
        own = SandboxLimits(
            memory=bounds.memory,
            seconds=max(_READING_SECONDS, bounds.seconds),
            processes=_READING_PROCESSES,
            output=len(names) * wanted.most_bytes + _LONGEST_REPORT,
        )
        try:
            run_confined(tier, command, places, own, called="the reading of its rasters")
        except AttemptError as error:
            if error.category is not Category.USER_CODE_FAILED:
                raise
            raise AttemptError(
                Category.USER_CODE_FAILED, f"the package's rasters cannot be read: {error}"
            ) from error
        report = _report(places.outputs / REPORT)
        for number, (name, said) in enumerate(zip(names, report.found, strict=False)):
            found = said.found()
            shape = (len(found.bands), wanted.height, wanted.width)
            data = np.fromfile(places.outputs / str(number), found.dtype)
            if data.size != np.prod(shape):
                raise failed(name, "was not read whole")
            (places.outputs / str(number)).unlink()
            yield found, data.reshape(shape)
        if report.problem:
            raise failed(report.file, report.problem)

    return read


class _Said(StrictModel):
    """A `Found` as the reader inside the sandbox reports it; nothing of it is believed unread."""

    dtype: str = Field(pattern=r"^(u?int(8|16|32|64)|float(32|64))$")
    nodata: float | int | None
    scale: float = Field(allow_inf_nan=False)
    offset: float = Field(allow_inf_nan=False)
    units: str = Field(max_length=200)
    bands: tuple[str, ...] = Field(min_length=1, max_length=read_rasters.MOST_BANDS)

    def found(self) -> Found:
        return Found(**self.model_dump())


class _Report(StrictModel):
    found: tuple[_Said, ...]
    file: str = ""
    problem: str = Field("", max_length=2000)


def _report(path: Path) -> _Report:
    try:
        if path.stat().st_size > _LONGEST_REPORT:
            raise ValueError("it is too long")
        return _Report.model_validate_json(path.read_bytes())
    except (OSError, ValidationError, ValueError) as error:
        raise AttemptError(
            Category.USER_CODE_FAILED, "the package's rasters cannot be read: no report of them"
        ) from error


def _wanted(names: Sequence[str], manifest: Manifest, most_bytes: int) -> Wanted:
    grid = manifest.grid
    if grid is None:
        raise failed(names[0], "has no grid to lie on: its group has none")
    return Wanted(
        names=tuple(names),
        crs=grid.crs,
        transform=grid.transform,
        width=grid.width,
        height=grid.height,
        most_bytes=most_bytes,
    )


def _provenance(path: Path, origin: OutputOrigin) -> Provenance:
    bands = origin.bands
    sources = {source for band in bands for source in band.granules}
    time = origin.manifest.time
    taken = (
        min((band.start for band in bands if band.start), default=""),
        max((band.end for band in bands), default=""),
    )
    made = Provenance(
        product=_one([band.product for band in bands]),
        collection=_one([band.collection for band in bands]),
        layer=path.stem,
        granules=tuple(sorted(sources, key=lambda source: source.name)),
        start=taken[0] if time is None else time.start,
        end=taken[1] if time is None else time.end,
        parameters=(
            ("package", origin.spec.package),
            ("package_sha256", origin.spec.digest),
            ("window", origin.manifest.window),
            *sorted(origin.spec.parameters.items()),
        ),
        software=f"swathmill {version('swathmill')}",
        window=time,
        taken=None if time is None else taken,
        cell_method=_method(path.name, origin),
    )
    return made if origin.lineage is None else _with_lineage(made, origin, origin.lineage)


def _method(name: str, origin: OutputOrigin) -> str:
    """Return how the package says that an output's values come of those of the window."""
    labels = dict.fromkeys(Path(band.file).stem for band in origin.manifest.bands)
    return dict(origin.package.expand_outputs(labels))[name].cell_method


def _with_lineage(made: Provenance, origin: OutputOrigin, group: Provenance) -> Provenance:
    """Add the lineage of the group, and the step that was run over it."""
    if group.lineage is None:
        return made
    step = StepRecord(
        package=origin.spec.package,
        version=origin.package.version,
        sha256=origin.spec.digest,
        parameters=tuple(sorted(origin.spec.parameters.items())),
        halo=origin.manifest.halo,
        masked=bool(origin.manifest.region),
    )
    steps = (*group.lineage.steps, step)
    joiner = LineageJoiner()
    joiner.add(group, group.lineage.model_copy(update={"steps": steps}))
    return joiner.finish(made)


def _one(values: list[str]) -> str:
    """Return the common value, or the different values sorted and joined."""
    return ", ".join(np.unique(values).tolist())


def failed(name: str, problem: str) -> AttemptError:
    """Make the error that names an output and says what is wrong with it."""
    return AttemptError(Category.USER_CODE_FAILED, f"the package's output {name} {problem}")
