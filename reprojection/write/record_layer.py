"""Make a raster of a product's layer one of a record's."""

from dataclasses import replace

from reprojection.errors import ChoiceRefusedError
from reprojection.read.cf import cf_units
from reprojection.read.raster import Raster, RecordOf
from reprojection.records import sensor_of

_SPELT = {
    **dict.fromkeys(("celsius", "degree_c", "degrees_c", "deg_c", "degc", "deg c"), "celsius"),
    **dict.fromkeys(("percent", "percentage", "%"), "percent"),
    **dict.fromkeys(("g/m^2", "g m-2", "g/m2"), "g m-2"),
}
_UNITS = frozenset({*_SPELT.values(), "K", "1", "kg m-2", "mm"})
"""Units that are known to differ from one another."""


def as_record(raster: Raster, record: str, layer: str, units: str) -> Raster:
    """Name a raster as a layer of a record, with the sensor that it is of.

    The bands bear the record's name of the layer, and continuous values are in its units; how
    files spell a unit differs between sensors. The values stay as they are.

    Raises:
        ChoiceRefusedError: the granules state another unit than the record's.
    """
    own = raster.provenance
    if raster.kind == "continuous" and _differ(raster.units, units):
        raise ChoiceRefusedError(
            f"granules of {own.product} state {raster.units!r} for {own.layer}, and the record "
            f"{record} is in {units!r}; ask for {own.product} by itself"
        )
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


def _differ(one: str, other: str) -> bool:
    """Tell whether two texts are known to be different units; False where one is not known."""
    known = {_SPELT.get(text.strip().casefold(), cf_units(text)) for text in (one, other)}
    return len(known) == 2 and known <= _UNITS
