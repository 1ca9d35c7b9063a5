"""What the run of a package was given at a pixel, from its lineage, down to granules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from reprojection.explain.at_hand import lacking
from reprojection.explain.made_with import options_from
from reprojection.explain.origins import InputOrigin, PixelOrigin
from reprojection.grid.grids import Grid
from reprojection.read.description import Description, Provenance, SourceGranule
from reprojection.read.lineage import InputRecord, LayerRecord, Lineage
from reprojection.reproject import reproject

_NO_VALUE = "the output of an earlier step, which is not kept; its own inputs follow"


class Trace(Protocol):
    """Finds the source pixel of a raster of a layer, and says why if there is none."""

    def __call__(
        self, said: Description, pixel: Grid, found: Mapping[str, Path], *, empty: bool
    ) -> tuple[PixelOrigin | None, str]: ...


class RunAtPixel:
    """The run that made a pixel of a reduction's raster.

    `said` describes the raster, `pixel` is the grid of the pixel alone, and `found` are the
    granules at hand by name.
    """

    def __init__(
        self,
        said: Description,
        lineage: Lineage,
        pixel: Grid,
        found: Mapping[str, Path],
        trace: Trace,
    ) -> None:
        self._said = said
        self._lineage = lineage
        self._pixel = pixel
        self._found = found
        self._trace = trace

    @property
    def made(self) -> str:
        """Name the package, its parameters and the window."""
        window = self._lineage.windows[-1]
        step = self._lineage.steps[window.step]
        given = ", ".join(f"{name} {value}" for name, value in step.parameters)
        return f"{step.package} {step.version}, window {window.window}" + (
            f", with {given}" if given else ""
        )

    def inputs(self) -> tuple[InputOrigin, ...]:
        """Explain what the run was given at the pixel; empty if none was made there."""
        return self._inputs(len(self._lineage.windows) - 1)

    def _inputs(self, number: int) -> tuple[InputOrigin, ...]:
        window = self._lineage.windows[number]
        return tuple(
            self._input(self._lineage.inputs[given], cell, window.counted(given).weight)
            for run in window.runs
            if self._holds(run.cell)
            for given, cell in run.inputs()
            if self._holds(cell)  # others are of its halo
        )

    def _holds(self, number: int) -> bool:
        """Tell whether a cell has the pixel."""
        cell = self._lineage.cells[number]
        a, b, c, d, e, f = cell.transform
        x, y = self._pixel.transform[2] + (a + b) / 2, self._pixel.transform[5] + (d + e) / 2
        column = (e * (x - c) - b * (y - f)) / (a * e - b * d)
        row = (a * (y - f) - d * (x - c)) / (a * e - b * d)
        return 0 <= column < cell.width and 0 <= row < cell.height

    def _input(self, given: InputRecord, cell: int, weight: float) -> InputOrigin:
        layer = self._lineage.layers[given.layer]
        files = self._said.provenance.files
        granules = tuple(files[number - 1] for number in given.files(cell))
        stored, value, origin, note = None, None, None, _NO_VALUE
        inputs: tuple[InputOrigin, ...] = ()
        if given.window is None:
            stored, value, origin, note = self._layer(layer, granules)
        else:
            inputs = self._inputs(given.window)
        made_in = "" if given.window is None else self._lineage.windows[given.window].window
        return InputOrigin(
            product=layer.product,
            layer=layer.layer,
            date=given.date,
            time=given.time,
            window=made_in,
            weight=weight,
            stored=stored,
            value=value,
            units=layer.units,
            granules=tuple(one.name for one in granules),
            origin=origin,
            note=note,
            inputs=inputs,
        )

    def _layer(
        self, layer: LayerRecord, granules: tuple[SourceGranule, ...]
    ) -> tuple[float | int | None, float | None, PixelOrigin | None, str]:
        """Make a layer's pixel again, and trace it."""
        said = self._said.model_copy(
            update={
                "provenance": Provenance(
                    product=layer.product,
                    collection=layer.collection,
                    layer=layer.layer,
                    granules=granules,
                    parameters=layer.parameters,
                )
            }
        )
        if note := lacking(granules, self._found):
            return None, None, None, note
        found = {one.name: self._found[one.name] for one in granules}
        options = options_from(dict(layer.parameters))
        made = reproject(list(found.values()), layer.layer, self._pixel, options)
        stored, value = made.data[0, 0, 0].item(), made.values()[0, 0].item()
        empty = not made.valid()[0, 0]
        origin, note = self._trace(said, self._pixel, found, empty=empty)
        return stored, None if empty else value, origin, note
