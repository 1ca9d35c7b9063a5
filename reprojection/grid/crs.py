"""Coordinate reference systems: which are accepted, and how they reach longitude and latitude.

Every transform goes CRS -> EPSG:4326 -> sinusoidal formula, never directly: PROJ's direct path to
the MODIS sphere is a ballpark shift, 110 to 300 m wrong for EPSG:27700, 28992 and 2100.
"""

import math
import threading
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyproj
from numpy.typing import NDArray
from pyproj.enums import TransformDirection
from pyproj.exceptions import CRSError, ProjError
from pyproj.transformer import TransformerGroup

from modis.sphere import SPHERE_RADIUS
from reprojection.errors import GridError

Floats = NDArray[np.float64]

MODIS_SINUSOIDAL = (
    f'PROJCRS["MODIS Sinusoidal",BASEGEOGCRS["Sphere {SPHERE_RADIUS}",DATUM["Not specified '
    f'(based on authalic sphere)",ELLIPSOID["Authalic sphere",{SPHERE_RADIUS},0,'
    'LENGTHUNIT["metre",1]]],PRIMEM["Greenwich",0,ANGLEUNIT["degree",0.0174532925199433]]],'
    'CONVERSION["Sinusoidal",'
    'METHOD["Sinusoidal"],PARAMETER["Longitude of natural origin",0,ANGLEUNIT["degree",'
    '0.0174532925199433]],PARAMETER["False easting",0,LENGTHUNIT["metre",1]],'
    'PARAMETER["False northing",0,LENGTHUNIT["metre",1]]],CS[Cartesian,2],AXIS["easting",east,'
    'ORDER[1],LENGTHUNIT["metre",1]],AXIS["northing",north,ORDER[2],LENGTHUNIT["metre",1]]]'
)
"""WKT2 of the MODIS sinusoidal CRS. Its latitudes and longitudes are WGS84 by MODIS convention."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The coordinate operation used between a CRS and EPSG:4326, for provenance.

    `accuracy` is in metres, None if PROJ states none.
    """

    description: str
    accuracy: float | None


@lru_cache(maxsize=256)
def parse_crs(text: str) -> pyproj.CRS:
    """Parse WKT, an authority code or a PROJ string; accept only 2-D horizontal CRSs.

    Raises GridError for text PROJ does not know and for vertical, compound, geocentric,
    three-dimensional or engineering CRSs.
    """
    try:
        crs = pyproj.CRS.from_user_input(text)
    except CRSError as error:
        raise GridError(
            f"CRS {text[:80]!r} is not known; give an EPSG code, WKT or a PROJ string"
        ) from error
    horizontal = (crs.is_projected or crs.is_geographic) and not crs.is_compound
    if not horizontal or len(crs.axis_info) > 2:
        raise GridError(
            f"CRS {crs.name!r} is a {crs.type_name}; choose a two-dimensional projected or "
            "geographic CRS"
        )
    return crs


@lru_cache(maxsize=256)
def is_modis_sinusoidal(text: str) -> bool:
    """Tell whether the CRS is the MODIS sinusoidal projection, whatever its WKT looks like."""
    crs = parse_crs(text)
    if not crs.is_projected or crs.coordinate_operation is None:
        return False
    if crs.coordinate_operation.method_name.lower() != "sinusoidal":
        return False
    ellipsoid = crs.ellipsoid
    if ellipsoid is None or abs(ellipsoid.semi_major_metre - SPHERE_RADIUS) > 0.01:
        return False
    round_body = abs(ellipsoid.semi_minor_metre - SPHERE_RADIUS) <= 0.01
    unshifted = all(float(p.value) == 0.0 for p in crs.coordinate_operation.params)
    metres = all(axis.unit_conversion_factor == 1.0 for axis in crs.axis_info)
    return round_body and unshifted and metres


@lru_cache(maxsize=256)
def is_plain_lonlat(text: str) -> bool:
    """Tell whether the CRS's coordinates are plain WGS84 longitude and latitude in degrees."""
    if is_modis_sinusoidal(text):
        return False
    crs = parse_crs(text)
    if not crs.is_geographic:
        return False
    lon = np.array([-170.0, -3.25, 0.0, 10.5, 100.125, 179.5])
    lat = np.array([-89.0, 55.75, 0.0, -33.5, 12.25, 80.0])
    east, north = _transformer(text).transform(lon, lat)
    return bool(np.array_equal(east, lon) and np.array_equal(north, lat))


class _Transformers(threading.local):
    """The transformers of one thread; pyproj transformers must not be shared between threads."""

    def __init__(self) -> None:
        self.by_crs: dict[str, pyproj.Transformer] = {}


_TRANSFORMERS = _Transformers()


def _transformer(text: str) -> pyproj.Transformer:
    found = _TRANSFORMERS.by_crs.get(text)
    if found is not None:
        return found
    crs = parse_crs(text)
    try:
        made = pyproj.Transformer.from_crs(crs, "EPSG:4326", always_xy=True, allow_ballpark=False)
    except ProjError as error:
        raise GridError(
            f"CRS {crs.name!r} has no known transformation to EPSG:4326 (only a ballpark one, "
            "100 m wrong or more); name a CRS with a defined datum"
        ) from error
    _TRANSFORMERS.by_crs[text] = made
    return made


@lru_cache(maxsize=256)
def operation(text: str) -> Operation:
    """Return how coordinates of this CRS become EPSG:4326, with PROJ's stated accuracy.

    A CRS with several area-dependent operations names the most accurate one available. Raises
    GridError if only a ballpark transformation exists.
    """
    if is_modis_sinusoidal(text):
        return Operation(description="MODIS sinusoidal formula on WGS84 latitude", accuracy=0.0)
    transformer = _transformer(text)
    if transformer.accuracy >= 0:
        return Operation(description=transformer.description, accuracy=transformer.accuracy)
    if _is_exact(transformer):
        return Operation(description=transformer.description, accuracy=0.0)
    with warnings.catch_warnings():
        # PROJ warns that a better operation needs a missing grid file; the accuracy shows it.
        warnings.simplefilter("ignore")
        group = TransformerGroup(parse_crs(text), "EPSG:4326", always_xy=True, allow_ballpark=False)
    best = group.transformers[0]
    accuracy = best.accuracy if best.accuracy >= 0 else None
    several = f" (and {len(group.transformers) - 1} more by area)"
    return Operation(
        description=best.description + (several if len(group.transformers) > 1 else ""),
        accuracy=accuracy,
    )


def has_seams(text: str) -> bool:
    """Tell whether PROJ chooses among several operations by place; coordinates may then jump."""
    if is_modis_sinusoidal(text):
        return False
    transformer = _transformer(text)
    return transformer.accuracy < 0 and not _is_exact(transformer)


def _is_exact(transformer: pyproj.Transformer) -> bool:
    """Tell whether all steps are conversions, such as map projections, without a change of datum.

    PROJ 9.5 states an accuracy of 0 for them, PROJ 9.8 none.
    """
    steps = transformer.operations or ()
    return bool(steps) and all(step.type_name == "Conversion" for step in steps)


def check_crs(text: str) -> None:
    """Raise GridError unless this CRS can be a target: horizontal, known, not ballpark."""
    parse_crs(text)
    if not is_modis_sinusoidal(text):
        _transformer(text)


def to_lonlat(text: str, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Convert points of a CRS to WGS84 longitude and latitude in degrees.

    Longitudes are in [-180, 180]. A point gives NaN if it is not on the map: its longitude and
    latitude do not lead back to it, as beyond a projection's rim.
    """
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    if is_modis_sinusoidal(text):
        return _sinusoidal_to_lonlat(x, y)
    if is_plain_lonlat(text):
        lon, lat = x.copy(), y.copy()
    else:
        with np.errstate(all="ignore"):
            lon, lat = _transformer(text).transform(x, y, errcheck=False)
        lon, lat = np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)
    nowhere = ~(np.isfinite(lon) & np.isfinite(lat)) | (np.abs(lat) > 90.0)
    if parse_crs(text).is_projected:
        nowhere |= ~_leads_back(text, x, y, lon, lat)
    lon = wrap_longitude(lon)
    lon[nowhere] = np.nan
    lat[nowhere] = np.nan
    return lon, lat


def _leads_back(text: str, x: Floats, y: Floats, lon: Floats, lat: Floats) -> NDArray[np.bool_]:
    """Tell whether longitude and latitude lead back to the point, to a metre or 1e-7 of its size.

    The limit is a kilometre if PROJ chooses among operations by place: near a border it may choose
    one operation there and another one back, which differ by some 100 m.
    """
    slack = 1000.0 if has_seams(text) else 1.0
    back_x, back_y = from_lonlat(text, lon, lat)
    scale = parse_crs(text).axis_info[0].unit_conversion_factor or 1.0
    with np.errstate(invalid="ignore"):
        away = np.hypot(back_x - x, back_y - y) * scale
        return np.asarray(away <= slack + 1e-7 * np.hypot(x, y) * scale)


def from_lonlat(text: str, lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
    """Convert WGS84 longitude and latitude in degrees to a CRS; NaN where it is not defined."""
    lon = np.asarray(lon, dtype=np.float64)
    lat = np.asarray(lat, dtype=np.float64)
    if is_modis_sinusoidal(text):
        return lonlat_to_sinusoidal(lon, lat)
    if is_plain_lonlat(text):
        return lon.copy(), lat.copy()
    with np.errstate(all="ignore"):
        x, y = _transformer(text).transform(
            lon, lat, direction=TransformDirection.INVERSE, errcheck=False
        )
    x, y = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    nowhere = ~(np.isfinite(x) & np.isfinite(y))
    x[nowhere] = np.nan
    y[nowhere] = np.nan
    return x, y


def wrap_longitude(lon: Floats) -> Floats:
    """Wrap longitudes in degrees into [-180, 180]; those already there do not change."""
    with np.errstate(invalid="ignore"):
        outside = np.abs(lon) > 180.0
        wrapped = lon - 360.0 * np.floor((lon + 180.0) / 360.0)
    return np.where(outside, wrapped, lon)


def lonlat_to_sinusoidal(lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
    """Convert to MODIS sinusoidal metres.

    x = R lon cos(lat), y = R lat (Snyder 1987, eqs. 30-1 and 30-2).
    """
    phi = np.radians(lat)
    return SPHERE_RADIUS * np.radians(lon) * np.cos(phi), SPHERE_RADIUS * phi


def _sinusoidal_to_lonlat(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    phi = y / SPHERE_RADIUS
    with np.errstate(divide="ignore", invalid="ignore"):
        lon = np.degrees(x / (SPHERE_RADIUS * np.cos(phi)))
        lat = np.degrees(phi)
        nowhere = (np.abs(phi) > math.pi / 2) | (np.abs(lon) > 180.0) | ~np.isfinite(lon)
    return np.where(nowhere, np.nan, lon), np.where(nowhere, np.nan, lat)
