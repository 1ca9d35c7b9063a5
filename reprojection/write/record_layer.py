"""Make a raster of a product's layer one of a record's."""

from dataclasses import replace

from reprojection.read.raster import Raster, RecordOf
from reprojection.records import sensor_of


def as_record(raster: Raster, record: str, layer: str, units: str) -> Raster:
    """Name a raster as a layer of a record, with the sensor that it is of.

    The bands bear the record's name of the layer, and continuous values are in its units; how
    files spell a unit differs between sensors. The values stay as they are.
    """
    own = raster.provenance
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
