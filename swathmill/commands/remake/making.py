"""Make a raster again from its lineage, by what the worker's phases are made of."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

from modis.composites import Counted
from reprojection.explain.made_with import options_from
from reprojection.grid.grids import Grid
from reprojection.isolation import Rights, run_in_fork
from reprojection.read.description import Description, SourceGranule
from reprojection.read.lineage import (
    CellRecord,
    InputRecord,
    LayerRecord,
    Lineage,
    StepRecord,
    WindowRecord,
)
from reprojection.reproject import keep_granules
from reprojection.write.mosaic import Joined, joined, write_joined
from reprojection.write.record_layer import record_mosaic
from reprojection.write.write import Opened, open_raster
from swathmill.commands.remake.differences import differences
from swathmill.commands.remake.materials import CannotRemakeError, find_granules, find_packages
from tasks.bag.spec import GridSpec, GroupSpec, Input, ReduceSpec
from tasks.packages.packages import load_package, unpack
from tasks.packages.python_dependencies import read_environment
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from tasks.spec_parts import Band
from worker.phases.context import Surroundings
from worker.phases.group import LINEAGE, MANIFEST, Manifest, write_group
from worker.phases.mosaic import read_clip, write_item
from worker.phases.reduce import give_inputs, give_parameters, run_package
from worker.phases.reproject import Cell, cell_pixels, with_lineage, write_cell
from worker.sandbox.sandbox import Places, report

_NO_TASK = "0" * 64
_STANDARD_OUTPUT = 1
_NO_RASTER = {
    ".nc": "a cube",
    ".zip": "a cube or an archive",
    ".csv": "a table",
    ".parquet": "a table",
}


@dataclass(frozen=True, kw_only=True)
class Remade:
    """What came of making a file again: `differences` are none if the bytes are `equal`."""

    equal: bool
    sha256: str
    granules: int
    runs: int
    differences: tuple[str, ...]


def remake(
    file: Path, granules: Sequence[Path], packages: Sequence[Path], out: Path | None = None
) -> Remade:
    """Make a file again in a folder of its own, and compare it.

    Args:
        file: A raster of a request's results, or its STAC item beside it.
        granules: Granules, or folders to look for them in, by name and SHA-256.
        packages: Packages, or folders to look for them in, by the hash of their content.
        out: Where the file that was made is kept, if at all.

    Raises:
        CannotRemakeError: the file does not say how it was made, or what it was made of is missing.
        BadFormatError: it is no raster of Swathmill.
        AttemptError: a package failed.
    """
    raster = file
    if file.suffix == ".json":
        raster = file.with_suffix(".tif")
        if not raster.is_file():
            raise CannotRemakeError(
                f"the raster of the item, {raster}, is not beside it.", "Put it there."
            )
    opened = _open(raster)
    with tempfile.TemporaryDirectory(prefix="swathmill-remake-") as name:
        workshop = _Workshop(opened, Path(name).resolve(), granules, packages)
        made = workshop.make(raster.name)
        if file is not raster:
            item = made.with_suffix(".json")
            write_item(open_raster(made), item)
            made = item
        equal = made.read_bytes() == file.read_bytes()
        found: tuple[str, ...] = ()
        if not equal:
            found = differences(raster, made) if file is raster else ("the item has other words",)
        if out is not None:
            shutil.copyfile(made, out)
        return Remade(
            equal=equal,
            sha256=hashlib.sha256(made.read_bytes()).hexdigest(),
            granules=len(opened.said.provenance.files),
            runs=workshop.runs,
            differences=found,
        )


def _open(raster: Path) -> Opened:
    kind = _NO_RASTER.get(raster.suffix)
    if kind is not None:
        raise CannotRemakeError(
            f"{raster} is {kind}, which is not made again: rasters are, and their STAC items.",
            "Name the rasters that it was made of.",
        )
    return open_raster(raster)


class _Workshop:
    """A folder in which a raster is made again, each part of it once."""

    def __init__(
        self, opened: Opened, folder: Path, granules: Sequence[Path], packages: Sequence[Path]
    ) -> None:
        self._said: Description = opened.said
        self._path = opened.path
        self._lineage = _lineage_of(opened)
        self._folder = folder
        self._archives = find_packages(self._lineage.steps, packages)
        self._granules = find_granules(self._said.provenance.files, granules)
        self._outputs: dict[tuple[int, int], Mapping[str, Path]] = {}
        self.runs = 0

    def make(self, name: str) -> Path:
        """Make the raster; return its file, of this name."""
        pieces = self._pieces()
        files = list(self._granules.values())
        # A damaged granule can crash the HDF4 library; that must end in a message.
        run_in_fork(Rights(tuple(files), (self._folder,)), _reproject, pieces)
        parts = self._parts()
        folder = self._folder / "made"
        folder.mkdir()
        to = folder / name
        if not self._lineage.joined:
            (part,) = parts
            shutil.copyfile(part, to)
            return to
        clip = self._lineage.region if self._lineage.clipped else ""
        assemble: Callable[..., Joined] = joined
        if (record := self._said.provenance.record) is not None:
            named = record.record, record.layer, self._said.units
            assemble = partial(record_mosaic, named=named)
        raster = assemble(parts, self._said.grid.grid(), clip=read_clip(clip), clip_text=clip)
        about = replace(raster.about, completeness=self._said.completeness)
        write_joined(replace(raster, about=about), to)
        return to

    def _parts(self) -> list[Path]:
        """Return the rasters of cells that were put together, in their order."""
        lineage = self._lineage
        if not lineage.windows:
            return [
                self._piece(number, cell)
                for number, given in enumerate(lineage.inputs)
                for cell, _ in given.pieces
            ]
        last = len(lineage.windows) - 1
        layer = self._said.provenance.layer
        return [self._output(last, run.cell, layer) for run in lineage.windows[last].runs]

    def _pieces(self) -> list["_Piece"]:
        """List all cells that are made of granules."""
        files = self._said.provenance.files
        pieces = []
        for number, given in enumerate(self._lineage.inputs):
            if given.window is not None:
                continue
            for cell, numbers in given.pieces:
                to = self._piece(number, cell)
                to.parent.mkdir(parents=True, exist_ok=True)
                taken = [files[one - 1] for one in numbers]
                pieces.append(
                    _Piece(
                        cell=self._cell(given, cell),
                        granules=[(one, self._granules[one]) for one in taken],
                        given=given,
                        number=cell,
                        to=to,
                    )
                )
        return pieces

    def _piece(self, number: int, cell: int) -> Path:
        return self._folder / "cells" / f"{number}-{cell}.tif"

    def _cell(self, given: InputRecord, number: int) -> Cell:
        layer = self._lineage.layers[given.layer]
        return Cell(
            product=layer.product,
            collection=layer.collection,
            layer=layer.layer,
            day=date.fromisoformat(given.date),
            grid=self._grid(number),
            options=options_from(dict(layer.parameters)),
        )

    def _grid(self, number: int) -> Grid:
        cell, crs = self._lineage.cells[number], self._said.grid.crs
        return Grid(crs=crs, transform=cell.transform, width=cell.width, height=cell.height)

    def _output(self, window: int, cell: int, layer: str) -> Path:
        """Return an output of the run of a window in a cell, which is run first if it was not."""
        if (window, cell) not in self._outputs:
            self._outputs[window, cell] = self._run(window, cell)
        return self._outputs[window, cell][layer]

    def _run(self, window: int, cell: int) -> Mapping[str, Path]:
        """Run a window's package in a cell; return its outputs by name without ending."""
        record = self._lineage.windows[window]
        step = self._lineage.steps[record.step]
        (run,) = (one for one in record.runs if one.cell == cell)
        bands, paths = [], []
        for number, of in run.inputs():
            given = self._lineage.inputs[number]
            layer = self._lineage.layers[given.layer]
            counted = record.counted(number)
            bands.append(self._band(given, layer, self._lineage.cells[of], counted))
            paths.append(
                self._piece(number, of)
                if given.window is None
                else self._output(given.window, of, layer.layer)
            )
        spec = self._group(record, self._lineage.cells[cell], step, bands)
        self.runs += 1
        scratch = self._folder / f"run-{window}-{cell}"
        scratch.mkdir()
        group = scratch / "group"
        group.mkdir()
        rasters = {number: open_raster(path) for number, path in enumerate(paths)}
        write_group(spec, rasters, group, _untold, whole=run.completeness)
        return self._reduce(step, group, scratch)

    def _band(
        self, given: InputRecord, layer: LayerRecord, cell: CellRecord, counted: Counted
    ) -> Band:
        product, collection, name = layer.requested or (
            layer.product,
            layer.collection,
            layer.layer,
        )
        window = "" if given.window is None else self._lineage.windows[given.window].window
        return Band(
            product=product,
            collection=collection,
            layer=name,
            day=date.fromisoformat(given.date),
            cell=cell.name,
            counted=counted,
            window=window,
            time=given.time,
            use=given.use,
            last=date.fromisoformat(given.expected) if given.expected else None,
        )

    def _group(
        self, window: WindowRecord, cell: CellRecord, step: StepRecord, bands: Sequence[Band]
    ) -> GroupSpec:
        return GroupSpec(
            inputs=tuple(Input(key=_NO_TASK, name=str(number)) for number in range(len(bands))),
            group=f"{cell.name} {window.window}",
            cell=cell.name,
            window=window.window,
            time=window.time,
            grid=GridSpec(
                crs=self._said.grid.crs,
                transform=cell.transform,
                width=cell.width,
                height=cell.height,
            ),
            bands=tuple(bands),
            halo=step.halo,
            region=self._lineage.region if step.masked else "",
        )

    def _reduce(self, step: StepRecord, group: Path, scratch: Path) -> Mapping[str, Path]:
        settings = Settings(data_dir=scratch)  # which no other run shares
        around = Surroundings(
            scratch=scratch, settings=settings, tell=_untold, sandbox=report(settings).tier
        )
        places = Places(
            package=scratch / "package",
            inputs=around.folder("input"),
            outputs=around.folder("output"),
            temporary=around.folder("temporary"),
        )
        unpack(self._archives[step.sha256], around.folder("package"))
        package = load_package(places.package)
        if read_environment(places.package) is not None:
            raise CannotRemakeError(
                f"the package {step.package} has Python dependencies, which only a service keeps.",
                "Files of packages without them can be made again.",
            )
        given = {path.name: path for path in group.iterdir()}
        manifest = Manifest.model_validate_json(given[MANIFEST].read_text("utf-8"))
        parameters = dict(step.parameters)
        give_parameters(parameters, places.inputs)
        give_inputs(package, given, places.inputs, copied=True)
        spec = ReduceSpec(
            inputs=(Input(key=_NO_TASK, name=manifest.group),),
            package=step.package,
            digest=step.sha256,
            outputs=package.expand(dict.fromkeys(Path(band.file).stem for band in manifest.bands)),
            parameters=parameters,
        )
        with _set_aside(scratch / "log"):
            made = run_package(spec, package, places, around, given.get(LINEAGE))
        return {one.path.stem: one.path for one in made}


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A cell to be made of granules, and the file that it becomes."""

    cell: Cell
    granules: Sequence[tuple[SourceGranule, Path]]
    given: InputRecord
    number: int
    to: Path


def _reproject(pieces: Sequence[_Piece]) -> None:
    """Make cells of granules, as the phase of reprojection does."""
    keep_granules()
    for piece in pieces:
        digests = {one.name: one.sha256 for one, _ in piece.granules}
        paths = [path for _, path in piece.granules]
        said = piece.given.completeness(piece.number)
        raster = cell_pixels(piece.cell, paths)
        write_cell(with_lineage(raster, piece.cell, paths, digests, said), piece.to)


def _lineage_of(opened: Opened) -> Lineage:
    lineage = opened.said.provenance.lineage
    if lineage is None:
        raise CannotRemakeError(
            f"{opened.path} does not say how it was made: it is no result of a request, or of an "
            "older Swathmill.",
            "Make the request again; its results can be made again.",
        )
    return lineage


@contextmanager
def _set_aside(log: Path) -> Iterator[None]:
    """Keep from standard output what packages print; it goes to standard error if one fails."""
    sys.stdout.flush()
    own = os.dup(_STANDARD_OUTPUT)
    try:
        with log.open("a") as file, redirect_stdout(file):
            os.dup2(file.fileno(), _STANDARD_OUTPUT)
            try:
                yield
            finally:
                os.dup2(own, _STANDARD_OUTPUT)
    except AttemptError:
        sys.stderr.write(log.read_text("utf-8", "replace"))
        raise
    finally:
        os.close(own)


def _untold(_share: float, _note: str) -> None:
    """Tell nobody how far a run is."""
