"""Compute statistics within polygons: `zonal.py INPUT_DIR OUTPUT_DIR`.

Each pixel counts with the share of it that a polygon covers, by exactextract. `zones.csv` and
`zones.parquet` have a row for each polygon, layer and day: `pixels` is the number of pixels with a
value that it covers, in shares; `sum` and the other statistics are those of their values. A polygon
that this cell does not touch has no row. Where a polygon lies in several cells, add up `pixels` and
`sum`: the mean is their quotient.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import shapely
from pyproj import CRS, Transformer
from rasterio.windows import Window
from shapely import ops

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, Layer, read_group, refuse

try:
    import pyarrow
    from exactextract import exact_extract
    from exactextract.raster import NumPyRasterSource
    from pyarrow import parquet
except ImportError as error:
    refuse(f"{error.name} is not installed on this worker: install swathmill[zonal] there")

STATISTICS = {
    "pixels": "count",
    "sum": "sum",
    "mean": "mean",
    "standard_deviation": "stdev",
    "minimum": "min",
    "maximum": "max",
    "median": "median",
}
COLUMNS = ("zone", "layer", "date", "units", *STATISTICS)
_FORMULA = ("=", "+", "-", "@")
_PARTS = 200  # of the longer side of a polygon, so that its edges bend with the grid's CRS


def zones(group: Group) -> list[dict[str, Any]]:
    """Return the polygons as features that have their name as `zone`."""
    text = group.parameters.get("zones", "")
    own = Path("zones.geojson")
    if not text and own.is_file():
        text = own.read_text("utf-8")
    try:
        document = json.loads(text or "null")
    except ValueError as error:
        refuse(f"zones is not JSON: {error}")
    listed = document.get("features", [document]) if isinstance(document, dict) else []
    if not listed:
        refuse("there are no zones: give polygons as GeoJSON in the parameter zones")
    named = group.parameters.get("name", "")
    return [_zone(feature, number, named) for number, feature in enumerate(listed, 1)]


def _zone(feature: dict[str, Any], number: int, named: str) -> dict[str, Any]:
    properties = feature.get("properties") or {}
    if named and named not in properties:
        refuse(f"zone {number} has no property {named!r}; it has: {', '.join(properties)}")
    try:
        shape = shapely.from_geojson(json.dumps(feature.get("geometry") or feature))
    except shapely.errors.GEOSException as error:
        refuse(f"zone {number} is not GeoJSON: {error}")
    if shape.geom_type not in ("Polygon", "MultiPolygon") or shape.is_empty:
        refuse(f"zone {number} is a {shape.geom_type}; it should be a polygon")
    west, south, east, north = shape.bounds
    shape = shapely.segmentize(shape, max(east - west, north - south) / _PARTS)
    return {"zone": str(properties[named]) if named else str(number), "shape": shape}


def main() -> None:
    """Write the two tables."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    features = []
    with rasterio.open(group.layers[0].path) as like:
        crs = CRS.from_user_input(like.crs.to_wkt())
        corner, side = np.array(like.bounds[:2]), np.array(like.res)
    if not crs.is_geographic:
        forward = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    for zone in zones(group):
        shape = zone["shape"]
        if not crs.is_geographic:
            shape = ops.transform(forward.transform, shape)
        if not shape.is_valid or not np.isfinite(shape.bounds).all():
            refuse(
                f"zone {zone['zone']} cannot be put onto the grid: give it in longitude, latitude"
            )
        # In columns and rows, to a millionth: exactextract loses pixels, and takes a neighbour for
        # the least value, where an edge passes a pixel's corner or side by a rounding error.
        shape = shapely.transform(shape, lambda points: ((points - corner) / side).round(6))
        if shape.intersects(shapely.box(0, 0, *reversed(group.shape))):
            geometry = shapely.geometry.mapping(shape)
            properties = {"zone": zone["zone"]}
            features.append({"type": "Feature", "properties": properties, "geometry": geometry})
    rows = [row for layer in group.layers for row in _rows(layer, group, features)]
    with (group.target / "zones.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    kinds = [(name, pyarrow.string()) for name in COLUMNS[:4]]
    kinds += [(name, pyarrow.float64()) for name in STATISTICS]
    schema = pyarrow.schema(kinds)
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), group.target / "zones.parquet")
    print(f"{len(features)} zones touch this cell, {len(rows)} rows")


def _cell(value: object) -> object:
    """Put an apostrophe before a text that a spreadsheet would run: a zone's name is a user's."""
    return f"'{value}" if isinstance(value, str) and value.strip().startswith(_FORMULA) else value


def _rows(
    layer: Layer, group: Group, features: list[dict[str, Any]]
) -> Iterator[dict[str, object]]:
    if not features:
        return
    rows, columns = group.shape
    statistics = [f"{name}={kind}" for name, kind in STATISTICS.items()]
    whole = Window(0, 0, columns, rows)
    for number, day in zip(layer.numbers, layer.days, strict=True):
        values = layer.one(number, whole)
        source = NumPyRasterSource(values, 0, 0, columns, rows, nodata=float("nan"))
        for found in exact_extract(source, features, statistics, include_cols=["zone"]):
            said = found["properties"]
            row: dict[str, object] = {"zone": said["zone"], "layer": layer.label}
            row |= {"date": day.isoformat(), "units": layer.units}
            for name in STATISTICS:
                value = said[name]
                there = value is not None and np.isfinite(value)
                row[name] = float(value) if there else None
            yield row


if __name__ == "__main__":
    main()
