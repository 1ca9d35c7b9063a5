"""Describe a raster as a STAC item: its content, position and time, and how to read its bands.

Formats: STAC 1.1.0 core and common metadata, Projection extension 2.0.0, Raster extension 2.0.0,
Processing extension 1.2.0, Classification extension 2.0.0, Scientific extension 1.0.0. An item does
not depend on when or where it was made.
"""

import math
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import shapely
from pydantic import JsonValue
from shapely import MultiPolygon, Polygon
from shapely.affinity import translate
from shapely.geometry import mapping
from shapely.geometry.base import BaseGeometry
from shapely.geometry.polygon import orient

from modis.granule_name import is_near_real_time
from reprojection.catalogue.user_raster import PREFIX
from reprojection.grid.crs import Crs
from reprojection.grid.grids import Grid
from reprojection.grid.targets import pixel_centres
from reprojection.read.cf import product_of
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.description import Description, Provenance
from reprojection.write.band_statistics import BandStatistics
from reprojection.write.meanings import CLASSIFICATION, stac_classification
from reprojection.write.write import Opened, open_raster

_EXTENSIONS: list[JsonValue] = [
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/raster/v2.0.0/schema.json",
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
]
_SCIENTIFIC = "https://stac-extensions.github.io/scientific/v1.0.0/schema.json"
_COG = "image/tiff; application=geotiff; profile=cloud-optimized"
_DIGITS = 7
_EDGE_POINTS = 33
_VIIRS = {"VNP": "suomi-npp", "VJ1": "noaa-20", "VJ2": "noaa-21"}
_MODIS = {"MOD": "terra", "MYD": "aqua", "MCD": ""}  # MCD is of both
_PLATFORMS = {
    "_SNPP": "suomi-npp",
    "_NPP": "suomi-npp",
    "_NOAA20": "noaa-20",
    "_N20": "noaa-20",
    "_JPSS1": "noaa-20",
    "_NOAA21": "noaa-21",
    "_N21": "noaa-21",
}
_OF_MODIS = {
    "MODISA": "aqua",
    "MODIS_A-": "aqua",
    "AQUA": "aqua",
    "MODIST": "terra",
    "MODIS_T-": "terra",
    "TERRA": "terra",
}
_NO_DATE = "1970-01-01T00:00:00Z"


def _instrument(product: str) -> dict[str, JsonValue]:
    """Name instrument and platform by the product's name; nothing where it does not say them."""
    if product.startswith(PREFIX):
        return {}
    if ", " in product:  # the mean of several sensors is of no one platform
        every = [_instrument(one) for one in product.split(", ")]
        named = {name for one in every for name in cast("list[str]", one.get("instruments", []))}
        return {"instruments": [*sorted(named)]}
    start, words = product[:3], product.upper()
    if "MODIS" in words:  # ocean colour, and joint products of both instruments
        found = next((name for word, name in _OF_MODIS.items() if word in words), "")
        return {"instruments": ["modis"], **({"platform": found} if found else {})}
    if start in _MODIS:
        platform = _MODIS[start]
        return {"instruments": ["modis"], **({"platform": platform} if platform else {})}
    if start in _VIIRS:
        return {"instruments": ["viirs"], "platform": _VIIRS[start]}
    if "VIIRS" in words:
        found = next((name for word, name in _PLATFORMS.items() if word in words), "")
        return {"instruments": ["viirs"], **({"platform": found} if found else {})}
    return {}


def stac_item(
    path: Path, *, item_id: str | None = None, href: str | None = None
) -> dict[str, JsonValue]:
    """Make the item of a raster's file, as JSON types.

    `item_id` is by default the file's stem, `href` its name. Raises BadFormatError for a file that
    is not a raster of Swathmill.
    """
    return item_of(open_raster(path), item_id=item_id, href=href)


def item_of(
    opened: Opened, *, item_id: str | None = None, href: str | None = None
) -> dict[str, JsonValue]:
    """Make the item of a raster whose file has been opened, as `stac_item`."""
    path, said, grid = opened.path, opened.said, opened.said.grid.grid()
    geometry, box = _outlined(grid)
    bands = [_band(opened, number) for number in range(len(said.bands))]
    doi = _doi(said.provenance)
    named = any(key.startswith("classification:") for band in bands for key in band)
    more = [CLASSIFICATION] * named + [_SCIENTIFIC] * bool(doi)
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [*_EXTENSIONS, *more],
        "id": item_id or path.stem,
        "geometry": geometry,
        "bbox": box,
        "properties": {
            **_times(said.provenance),
            **_projection(grid),
            **_instrument(said.provenance.product),
            "processing:software": _software(said.provenance),
            "swathmill:product": said.provenance.product,
            "swathmill:collection": said.provenance.collection,
            "swathmill:layer": said.provenance.layer,
            **_record(said.provenance),
            **_near(said.provenance),
            "swathmill:granules": [source.name for source in said.provenance.granules],
            **_lineage(said.provenance),
            **_window(said.provenance),
            "swathmill:parameters": dict(said.provenance.parameters),
            **({"sci:doi": doi} if doi else {}),
            **_completeness(said.completeness),
            **({"swathmill:notes": list(said.notes)} if said.notes else {}),
        },
        "links": [],
        "assets": {
            "data": {
                "href": href or path.name,
                "type": _COG,
                "title": said.provenance.called,
                "roles": ["data"],
                "bands": [*bands],
            }
        },
    }


@lru_cache(maxsize=16)  # all rasters of a request have one
def _outlined(grid: Grid) -> tuple[JsonValue, JsonValue]:
    """Return a grid's outline as GeoJSON, and its box."""
    outline = footprint(grid)
    return as_geojson(outline), outline_box(outline)


def footprint(grid: Grid) -> BaseGeometry:
    """Compute a grid's outline in longitude and latitude, cut at the antimeridian.

    If the outline leaves the projection's map or goes around a pole, return the box of the pixel
    centres instead.
    """
    ring = grid.lonlat_outline(_EDGE_POINTS)
    if grid.system.is_plain_lonlat:
        west, south, east, north = grid.bounds
        box = shapely.box(west, max(south, -90.0), min(east, west + 360.0), min(north, 90.0))
        return cut_at_antimeridian(box)
    steps = np.diff(np.concatenate([ring[:, 0], ring[:1, 0]]))
    turns = np.rint(steps / 360.0)
    if np.isnan(ring).any() or turns.sum() != 0:
        return _centre_box(grid)
    lon = ring[:, 0] - 360.0 * np.concatenate([[0.0], np.cumsum(turns)[:-1]])
    polygon = Polygon(np.stack([lon, ring[:, 1]], axis=1))
    return cut_at_antimeridian(polygon) if polygon.is_valid else _centre_box(grid)


def cut_at_antimeridian(polygon: BaseGeometry) -> BaseGeometry:
    """Cut the polygon at the antimeridian, and bring each part into [-180, 180]."""
    west, _, east, _ = polygon.bounds
    parts: list[BaseGeometry] = []
    for turn in range(math.floor((west + 180.0) / 360.0), math.floor((east + 180.0) / 360.0) + 1):
        world = shapely.box(turn * 360.0 - 180.0, -90.0, turn * 360.0 + 180.0, 90.0)
        part = shapely.intersection(polygon, world)
        if part.area > 0.0:
            parts.append(translate(part, -turn * 360.0))
    return parts[0] if len(parts) == 1 else shapely.union_all(parts)


def _centre_box(grid: Grid) -> BaseGeometry:
    """Return the box of sampled pixel centres; the whole world if none of them is on the Earth."""
    coarse = pixel_centres(_coarser(grid))
    lat, lon = np.broadcast_arrays(coarse.lat, coarse.lon)
    known = np.isfinite(lat) & np.isfinite(lon)
    if not known.any():
        return shapely.box(-180.0, -90.0, 180.0, 90.0)
    spread: npt.NDArray[np.float64] = np.sort(lon[known])
    gaps = np.diff(np.concatenate([spread, spread[:1] + 360.0]))
    widest = int(np.argmax(gaps))
    south, north = float(lat[known].min()), float(lat[known].max())
    if gaps[widest] < 30.0:
        # The longitudes go all around, so the pole is inside.
        south, north = (south, 90.0) if abs(north) > abs(south) else (-90.0, north)
        return shapely.box(-180.0, south, 180.0, north)
    west = float(spread[(widest + 1) % len(spread)])
    east = float(spread[widest])
    return cut_at_antimeridian(
        shapely.box(west, south, east + (360.0 if east < west else 0.0), north)
    )


def _coarser(grid: Grid) -> Grid:
    rows, cols = min(grid.height, _EDGE_POINTS), min(grid.width, _EDGE_POINTS)
    down, across = grid.height / rows, grid.width / cols
    a, b, c, d, e, f = grid.transform
    return Grid(
        crs=grid.crs,
        transform=(a * across, b * down, c, d * across, e * down, f),
        width=cols,
        height=rows,
    )


def as_geojson(outline: BaseGeometry) -> JsonValue:
    """Return a geometry as GeoJSON (RFC 7946): exterior rings counter-clockwise, 7 decimals."""
    rounded = shapely.set_precision(shapely.normalize(outline), 10.0**-_DIGITS)
    return _lists(mapping(counter_clockwise(rounded)))


def counter_clockwise(outline: BaseGeometry) -> BaseGeometry:
    """Turn the rings of polygons as RFC 7946 wants them: exteriors counter-clockwise."""
    if isinstance(outline, MultiPolygon):
        return MultiPolygon([orient(part) for part in outline.geoms])
    return orient(outline) if isinstance(outline, Polygon) else outline


def _lists(value: object) -> JsonValue:
    if isinstance(value, dict):
        return {str(key): _lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    return round(value, _DIGITS) if isinstance(value, float) else str(value)


def outline_box(outline: BaseGeometry) -> JsonValue:
    """Return the box of a geometry that is cut at the antimeridian.

    It is west, south, east, north; west > east if the outline crosses the antimeridian.
    """
    west, south, east, north = outline.bounds
    parts = sorted(part.bounds for part in getattr(outline, "geoms", [outline]))
    crosses = len(parts) > 1 and parts[0][0] <= -180.0 + 1e-9 and parts[-1][2] >= 180.0 - 1e-9
    if crosses:
        west, east = parts[-1][0], parts[0][2]
    return [round(number, _DIGITS) for number in (west, south, east, north)]


def _times(said: Provenance) -> dict[str, JsonValue]:
    start = said.start or _NO_DATE
    if not said.end or said.end == start:
        return {"datetime": start}
    return {"datetime": None, "start_datetime": start, "end_datetime": said.end}


def _record(said: Provenance) -> dict[str, JsonValue]:
    """Return the record that it is a layer of, and its sensor; empty for a layer of a product."""
    if said.record is None:
        return {}
    return {
        "swathmill:record": said.record.record,
        "swathmill:record_layer": said.record.layer,
        "swathmill:sensor": said.record.sensor,
    }


def _near(said: Provenance) -> dict[str, JsonValue]:
    """Name the near real time granules; empty where all are standard ones."""
    named: list[JsonValue] = [one.name for one in said.files if is_near_real_time(one.name)]
    return {"swathmill:near_real_time": named} if named else {}


def _window(said: Provenance) -> dict[str, JsonValue]:
    """Return the days of the window, and what its inputs cover; empty for a layer."""
    if said.window is None:
        return {}
    first, last = said.taken or ("", "")
    return {
        "swathmill:window": said.window.model_dump(mode="json"),
        **({"swathmill:inputs_start": first} if first else {}),
        **({"swathmill:inputs_end": last} if last else {}),
        **_own_dates(said),
    }


def _own_dates(said: Provenance) -> dict[str, JsonValue]:
    """Name the inputs that cover other days than the plan expected; empty without any."""
    lineage = said.lineage
    if lineage is None:
        return {}
    told: list[JsonValue] = [
        f"{lineage.layers[one.layer].product} of {one.date} ends {one.end} by its granules; "
        f"it was planned until {one.expected}"
        for one in lineage.inputs
        if one.expected
    ]
    return {"swathmill:own_dates": told} if told else {}


def _projection(grid: Grid) -> dict[str, JsonValue]:
    code, wkt = _code_and_wkt(grid.crs)
    box = grid.bounds
    return {
        "proj:code": code,
        "proj:wkt2": wkt,
        "proj:shape": list(grid.shape),
        "proj:transform": list(grid.transform),
        "proj:bbox": [box.west, box.south, box.east, box.north],
    }


@lru_cache(maxsize=64)  # PROJ looks through its whole database for a CRS that has no code
def _code_and_wkt(text: str) -> tuple[str | None, str]:
    """Return the authority code of a CRS, if it has one, and its WKT."""
    crs = Crs.of(text).parsed
    authority = crs.to_authority()
    return ":".join(authority) if authority else None, crs.to_wkt()


def _completeness(said: Completeness) -> dict[str, JsonValue]:
    """Return the properties of an incomplete raster; empty if the raster lacks nothing."""
    if said == WHOLE:
        return {}
    return {
        "swathmill:completeness": said.share,
        "swathmill:missing": [{"what": one.what, "why": one.why} for one in said.missing],
        **({"swathmill:missing_unnamed": said.unnamed} if said.unnamed else {}),
    }


def _lineage(said: Provenance) -> dict[str, JsonValue]:
    """Return the digests of all granules and the lineage; empty if the raster has none.

    The region is left out: it may be long, and the raster has it.
    """
    if said.lineage is None:
        return {}
    return {
        "swathmill:granule_sha256": {one.name: one.sha256 for one in said.files},
        "swathmill:lineage": said.lineage.model_dump(mode="json", exclude={"region"}),
    }


def _software(said: Provenance) -> JsonValue:
    name, _, version = said.software.partition(" ")
    return {name or "swathmill": version}


def _doi(said: Provenance) -> str:
    product = product_of(said)
    return product.doi(said.collection) if product else ""


def _statistics(found: BandStatistics | None, said: Description) -> dict[str, JsonValue]:
    """Return the common metadata `statistics` of a band of values, in its units."""
    if found is None or found.mean is None:
        return {}
    ends = sorted(said.physical(one) for one in (found.least, found.greatest) if one is not None)
    return {
        "statistics": {
            "minimum": ends[0],
            "maximum": ends[1],
            "mean": said.physical(found.mean),
            "stddev": abs(said.scale) * (found.deviation or 0.0),
            "count": found.pixels,
            "valid_percent": 100 * found.share,
        }
    }


def _band(opened: Opened, number: int) -> dict[str, JsonValue]:
    said, band = opened.said, opened.said.bands[number]
    about: dict[str, JsonValue] = {"name": band.name, "data_type": opened.dtype.name}
    if not band.is_index and opened.nodata is not None:
        about["nodata"] = "nan" if math.isnan(opened.nodata) else opened.nodata
    if band.role == "data":
        about |= {"raster:scale": said.scale, "raster:offset": said.offset}
        if said.units:
            about["unit"] = said.units
        about |= _statistics(opened.statistics[number], said)
    return about | stac_classification(said, band.role, opened.dtype)
