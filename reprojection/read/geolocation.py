"""Compute where a swath's pixels lie: interpolate coarse geolocation to a layer's resolution.

A MODIS scan is ten 1 km lines recorded at once, and neighbouring scans overlap away from nadir (the
bow-tie). Interpolating across scans would blur that, so each scan is interpolated alone: its edge
lines and edge columns are extrapolated. HDF-EOS dimension maps place coarse element `i` on fine
element `offset + increment * i` ("HDF-EOS Library Users Guide", volume 1, section on geolocation
mapping).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from modis.sphere import SPHERE_RADIUS_KM
from reprojection.catalogue import Product
from reprojection.catalogue.layers import Layer, is_fill, split_index
from reprojection.errors import NoGeolocationError
from reprojection.formats.container import AttributeValue, coordinate
from reprojection.formats.structmetadata import SwathInfo
from reprojection.grid.orbit import ALTITUDE_KM, PIXEL_RADIANS, PIXELS_PER_SCAN
from reprojection.read.interpolation import AxisMap, interpolate_positions, interpolate_values

KM_LINES_PER_SCAN = 10
"""MODIS records 10 lines of 1 km per scan (MODIS Level 1A Earth Location ATBD, section 2)."""

MAX_SCANS = 210
_LINES_PER_SCAN = (1, 2, 10, 20, 40)  # at 10 km, 5 km, 1 km, 500 m and 250 m

_VIIRS_LINES = {3200: 16, 4064: 16, 6400: 32}
"""Lines per scan by columns: M bands, DNB, I bands (VIIRS Geolocation ATBD, section 2)."""

_SCAN_COUNTS = ("Number_of_Instrument_Scans", "Number of Scans", "Number_of_Scans")
_ZENITH_NAMES = (
    "sensor_zenith",
    "sensorzenith",
    "sensor_zenith_angle",
    "view_angle",
    "viewzenith",
    "satellite_zenith_angle",
)


class SwathGranule(Protocol):
    """An open granule, as far as the geolocation of its layers needs it."""

    @property
    def name(self) -> str: ...
    @property
    def swaths(self) -> Mapping[str, SwathInfo]: ...
    @property
    def layers(self) -> Mapping[str, Layer]: ...
    @property
    def entry(self) -> Product | None: ...
    @property
    def attributes(self) -> Mapping[str, AttributeValue]: ...
    def read(self, layer: Layer) -> npt.NDArray[np.generic]:
        """Read the stored values of a layer, shape (rows, columns)."""


@dataclass(frozen=True, kw_only=True)
class Geolocation:
    """Pixel centres of a swath layer.

    `lat` and `lon` are float64 WGS84 degrees, shape (rows, columns), NaN where unknown.
    `sensor_zenith` is float32 degrees of the same shape, NaN where unknown; it is None if the
    granule does not hold it and is not a MODIS swath. `scan_lines` is the number of the layer's
    lines in one scan.
    """

    lat: npt.NDArray[np.float64]
    lon: npt.NDArray[np.float64]
    sensor_zenith: npt.NDArray[np.float32] | None
    scan_lines: int


def locate(granule: SwathGranule, layer: Layer) -> Geolocation:
    """Compute the geolocation of a layer; raise NoGeolocationError if the granule has none."""
    swath = granule.swaths.get(layer.swath) if layer.swath else None
    latitude, longitude = _geo_layers(granule, layer, swath)
    rows, columns = _axis_maps(granule, layer, latitude, swath)
    lat = _degrees(granule, latitude, 90.0)
    lon = _degrees(granule, longitude, 180.0)
    unknown = np.isnan(lat) | np.isnan(lon)
    if unknown.any():
        lat[unknown] = lon[unknown] = np.nan
    fine_lat, fine_lon = interpolate_positions(lat, lon, rows, columns)
    return Geolocation(
        lat=np.asarray(fine_lat, np.float64),
        lon=np.asarray(fine_lon, np.float64),
        sensor_zenith=_sensor_zenith(granule, layer, latitude, (rows, columns)),
        scan_lines=rows.group,
    )


def _geo_layers(
    granule: SwathGranule, layer: Layer, swath: SwathInfo | None
) -> tuple[Layer, Layer]:
    found: dict[str, Layer] = {}
    for name in granule.layers:
        word = coordinate(name)
        if not word or swath is None:
            continue
        if granule.layers[name].swath == layer.swath:
            found.setdefault(word, granule.layers[name])
    if swath is None or len(found) != 2 or found["latitude"].shape != found["longitude"].shape:
        entry = granule.entry
        needed = entry.facts(layer.name).geolocation if entry is not None else ""
        remedy = "it lies on a grid: use the grid"
        if entry is not None and needed:
            remedy = f"{entry.name} needs its {needed} of the same start: give that granule, too"
        elif layer.grid is None:
            remedy = "give the granule that holds it, too"
        raise NoGeolocationError(
            f"layer {layer.name!r} of {granule.name} has no latitude and longitude: {remedy}"
        )
    return found["latitude"], found["longitude"]


def _axis_maps(
    granule: SwathGranule, layer: Layer, geo: Layer, swath: SwathInfo | None
) -> tuple[AxisMap, AxisMap]:
    maps = []
    for axis, group in ((0, scan_lines(granule, layer)), (1, layer.shape[1])):
        dim, geo_dim = layer.dims[axis], geo.dims[axis]
        if dim == geo_dim:
            offset, increment = 0, 1
        else:
            found = swath.map_onto(dim) if swath else None
            if found is None or found.geo != geo_dim:
                raise NoGeolocationError(
                    f"layer {layer.name!r} of {granule.name} cannot be placed: nothing maps its "
                    f"dimension {dim!r} onto the geolocation's {geo_dim!r}; choose a layer of the "
                    "geolocation's resolution"
                )
            offset, increment = found.offset, found.increment
        maps.append(
            AxisMap(
                fine=layer.shape[axis],
                coarse=geo.shape[axis],
                offset=offset,
                increment=increment,
                group=group,
            )
        )
    return maps[0], maps[1]


def scan_lines(granule: SwathGranule, layer: Layer) -> int:
    """Return the layer's lines per scan, by the file's scan count or the usual 203 or 204 scans."""
    rows = layer.shape[0]
    counts = [granule.attributes.get(name) for name in _SCAN_COUNTS]
    for scans in [*(item for item in counts if isinstance(item, int)), 203, 204]:
        # MOD06 records its number of lines as its number of scans; five minutes hold at most 204.
        if 0 < scans <= MAX_SCANS and rows % scans == 0 and rows // scans in _LINES_PER_SCAN:
            return rows // scans
    viirs = _VIIRS_LINES.get(layer.shape[1], 0)
    if viirs and rows % viirs == 0:
        return viirs
    if granule.entry is not None:
        nominal = round(KM_LINES_PER_SCAN * 1000 / granule.entry.resolution)
        return nominal if nominal >= 1 and rows % nominal == 0 else 1
    return 1


def _degrees(granule: SwathGranule, layer: Layer, bound: float) -> npt.NDArray[np.float64]:
    stored = granule.read(layer)
    values = stored.astype(np.float64)
    if (layer.scale, layer.offset) != (1.0, 0.0):
        values *= layer.scale
        values += layer.offset
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(values) <= bound)
    bad |= is_fill(stored, layer)
    values[bad] = np.nan
    return values


def _sensor_zenith(
    granule: SwathGranule, layer: Layer, geo: Layer, maps: tuple[AxisMap, AxisMap]
) -> npt.NDArray[np.float32] | None:
    """Return sensor zenith at the layer's pixels: the layer's own, or interpolated."""
    on_layer = _zenith_layer(granule.layers, layer)
    if on_layer is not None:
        return _angles(granule, on_layer)
    coarse = _zenith_layer(granule.layers, geo)
    if coarse is None:
        return _scan_zenith(granule, layer)
    return interpolate_values(_angles(granule, coarse), *maps)


def _scan_zenith(granule: SwathGranule, layer: Layer) -> npt.NDArray[np.float32] | None:
    """Compute sensor zenith from the scan's geometry, for MODIS swaths that do not store it.

    A pixel's angle off nadir follows from its position in the scan; on a sphere, the sine rule then
    gives the zenith at the ground (MODIS Level 1A Earth Location ATBD, section 2). The result is
    within 0.3 degrees of the angles stored in MYD04.
    """
    if granule.entry is None or granule.entry.geometry != "swath":
        return None
    columns = layer.shape[1]
    per_cell = (
        round(PIXELS_PER_SCAN / columns) if columns < PIXELS_PER_SCAN else PIXELS_PER_SCAN / columns
    )
    pixels = (np.arange(columns) + 0.5) * per_cell - 0.5
    look = np.abs(pixels - (PIXELS_PER_SCAN - 1) / 2) * PIXEL_RADIANS
    ratio = (SPHERE_RADIUS_KM + ALTITUDE_KM) / SPHERE_RADIUS_KM
    zenith = np.degrees(np.arcsin(np.minimum(ratio * np.sin(np.minimum(look, 1.2)), 1.0)))
    return np.tile(zenith.astype(np.float32), (layer.shape[0], 1))


def _zenith_layer(layers: Mapping[str, Layer], like: Layer) -> Layer | None:
    for name in layers:
        word = split_index(name)[0].rsplit("/", 1)[-1].lower().replace(" ", "_")
        if word not in _ZENITH_NAMES:
            continue
        candidate = layers[name]
        same = candidate.swath == like.swath and candidate.dims == like.dims
        if same and all(size == 1 for _, size in candidate.bands):
            return candidate
    return None


def _angles(granule: SwathGranule, layer: Layer) -> npt.NDArray[np.float32]:
    stored = granule.read(layer)
    values = (stored.astype(np.float64) * layer.scale + layer.offset).astype(np.float32)
    bad = ~(np.abs(values) <= 90.0)
    bad |= is_fill(stored, layer)
    values[bad] = np.nan
    return values
