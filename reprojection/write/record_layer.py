"""Make a raster of a product's layer one of a record's, or of several sensors their mean."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from shapely import MultiPolygon, Polygon

from reprojection.errors import ChoiceRefusedError
from reprojection.grid.grids import Grid
from reprojection.read.cf import cf_units
from reprojection.read.completeness import Missing, of_parts
from reprojection.read.description import Provenance, RecordOf
from reprojection.read.raster import Raster
from reprojection.records import sensor_of
from reprojection.write.mosaic import mosaic, together
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
) -> Raster:
    """Assemble cells of a record's layer and date; of several sensors a pixel is their mean.

    `named` are the record, its layer and the layer's units; the others as of `mosaic`. The mean is
    of the sensors that have a value at the pixel, each counted once.

    Raises:
        ChoiceRefusedError: as `mosaic`, for another unit, or for a mean of what has none.
    """
    opened = [open_raster(path) for path in cell_paths]
    of: dict[str, list[Path]] = {}
    for one in opened:
        of.setdefault(one.said.provenance.product, []).append(one.path)
    made = [
        as_record(mosaic(paths, grid, clip, clip_text=clip_text), *named) for paths in of.values()
    ]
    whole = of_parts([one.said.completeness for one in opened], absent, missing, unnamed)
    return replace(_mean(made, clip_text), completeness=whole)


def _mean(rasters: Sequence[Raster], clip_text: str) -> Raster:
    """Return the mean of rasters of several sensors, as one raster of all of them."""
    first = rasters[0]
    if len(rasters) == 1:
        return first
    if any(one.kind != "continuous" or len(one.bands) > 1 for one in rasters):
        raise ChoiceRefusedError("sensors have a mean of single bands of continuous values alone")
    total = np.zeros(first.data.shape, np.float64)
    count = np.zeros(first.data.shape, np.uint8)
    for one in rasters:
        there = one.valid()[np.newaxis]
        total[there] += one.data[there].astype(np.float64) * one.scale + one.offset
        count += there
    with np.errstate(invalid="ignore", divide="ignore"):
        data = (total / count).astype(np.float32)  # 0/0 is NaN: no sensor has a value
    said = [one.provenance for one in rasters]
    sensors = [one.record.sensor for one in said if one.record is not None]
    joined = replace(
        together(said, clip_text),
        product=", ".join(one.product for one in said),
        collection=", ".join(one.collection for one in said),
        record=said[0].record
        and replace(said[0].record, sensor=", ".join(sensors), sensors=len(sensors)),
    )
    return replace(
        first,
        data=data,
        nodata=float("nan"),
        scale=1.0,
        offset=0.0,
        provenance=joined,
        notes=tuple(sorted({note for one in rasters for note in one.notes})),
    )


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
