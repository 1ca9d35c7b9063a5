"""Make a raster of a product's layer one of a record's, or of several sensors their mean."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from shapely import MultiPolygon, Polygon

from reprojection.errors import ChoiceRefusedError
from reprojection.grid.grids import Grid
from reprojection.read.cf import cf_units
from reprojection.read.completeness import Missing, of_parts
from reprojection.read.description import Provenance, RecordOf
from reprojection.read.raster import Pixels, Raster
from reprojection.records import sensor_of
from reprojection.write.mosaic import Joined, joined, together
from reprojection.write.sizes import TILE
from reprojection.write.write import open_raster

_SPELT = {
    **dict.fromkeys(("celsius", "degree_c", "degrees_c", "deg_c", "degc", "deg c"), "celsius"),
    **dict.fromkeys(("percent", "percentage", "%"), "percent"),
    **dict.fromkeys(("g/m^2", "g m-2", "g/m2"), "g m-2"),
}
_UNITS = frozenset({*_SPELT.values(), "K", "1", "kg m-2", "mm"})
"""Units that are known to differ from one another."""


def record_mosaic(
    cell_paths: Sequence[Path],
    grid: Grid,
    named: tuple[str, str, str],
    clip: Polygon | MultiPolygon | None = None,
    *,
    clip_text: str = "",
    absent: int = 0,
    missing: Sequence[Missing] = (),
    unnamed: int = 0,
) -> Joined:
    """Join cells of a record's layer and date; of several sensors a pixel is their mean.

    `named` are the record, its layer and the layer's units; the others as of `joined`. The mean is
    of the sensors that have a value at the pixel, each counted once. No pixel is read yet.

    Raises:
        ChoiceRefusedError: as `joined`, for another unit, or for a mean of what has none.
    """
    opened = [open_raster(path) for path in cell_paths]
    of: dict[str, list[Path]] = {}
    for one in opened:
        of.setdefault(one.said.provenance.product, []).append(one.path)
    sensors = [joined(paths, grid, clip, clip_text=clip_text) for paths in of.values()]
    made = [replace(one, about=as_record(one.about, *named)) for one in sensors]
    whole = of_parts([one.said.completeness for one in opened], absent, missing, unnamed)
    mean = _mean(made, clip_text)
    return replace(mean, about=replace(mean.about, completeness=whole))


def _mean(sensors: Sequence[Joined], clip_text: str) -> Joined:
    """Return the mean of rasters of several sensors, as one raster of all of them."""
    rasters = [one.about for one in sensors]
    first = rasters[0]
    if len(rasters) == 1:
        return sensors[0]
    if any(one.kind != "continuous" or len(one.bands) > 1 for one in rasters):
        raise ChoiceRefusedError("sensors have a mean of single bands of continuous values alone")
    said = [one.provenance for one in rasters]
    names = [one.record.sensor for one in said if one.record is not None]
    provenance = replace(
        together(said, clip_text),
        product=", ".join(one.product for one in said),
        collection=", ".join(one.collection for one in said),
        record=said[0].record
        and replace(said[0].record, sensor=", ".join(names), sensors=len(names)),
    )
    about = replace(
        first,
        data=np.broadcast_to(np.zeros((), np.float32), first.data.shape),
        nodata=float("nan"),
        scale=1.0,
        offset=0.0,
        provenance=provenance,
        notes=tuple(sorted({note for one in rasters for note in one.notes})),
    )
    return Joined(about=about, rows=partial(_mean_rows, sensors))


def _mean_rows(sensors: Sequence[Joined], start: int, stop: int) -> Pixels:
    """Return the mean of some rows of several sensors; NaN where none has a value."""
    data = np.empty((1, stop - start, sensors[0].about.grid.width), np.float32)
    for first in range(start, stop, TILE):  # what is summed up takes six times as much memory
        last = min(first + TILE, stop)
        data[:, first - start : last - start] = _mean_at_once(sensors, first, last)
    return data


def _mean_at_once(sensors: Sequence[Joined], start: int, stop: int) -> npt.NDArray[np.float64]:
    shape = (1, stop - start, sensors[0].about.grid.width)
    total, count = np.zeros(shape, np.float64), np.zeros(shape, np.uint8)
    for one in sensors:
        part = replace(one.about, data=one.rows(start, stop))
        there = part.valid()[np.newaxis]
        values = part.data.astype(np.float64)
        values *= part.scale
        values += part.offset
        np.add(total, values, out=total, where=there)
        count += there
    with np.errstate(invalid="ignore"):
        return np.divide(total, count, out=total)  # 0/0 is NaN


def as_record(raster: Raster, record: str, layer: str, units: str) -> Raster:
    """Name a raster as a layer of a record, with the sensor that it is of.

    The bands bear the record's name of the layer, and continuous values are in its units; how
    files spell a unit differs between sensors. The values stay as they are.

    Raises:
        ChoiceRefusedError: the granules state another unit than the record's.
    """
    own = raster.provenance
    if raster.kind == "continuous":
        check_units(own, raster.units, record, units)
    sensor = sensor_of(own.product)
    named = RecordOf(record=record, layer=layer, sensor=sensor.text if sensor else own.product)
    bands = tuple(
        replace(band, name=band.name.replace(own.layer, layer, 1)) for band in raster.bands
    )
    return replace(
        raster,
        bands=bands,
        units=units if raster.kind == "continuous" else raster.units,
        provenance=replace(own, record=named),
    )


def check_units(own: Provenance, stated: str, record: str, units: str) -> None:
    """Raise ChoiceRefusedError if granules state another unit than the record's."""
    if _differ(stated, units):
        raise ChoiceRefusedError(
            f"granules of {own.product} state {stated!r} for {own.layer}, and the record "
            f"{record} is in {units!r}; ask for {own.product} by itself"
        )


def _differ(one: str, other: str) -> bool:
    """Tell whether two texts are known to be different units; False where one is not known."""
    known = {_SPELT.get(text.strip().casefold(), cf_units(text)) for text in (one, other)}
    return len(known) == 2 and known <= _UNITS
