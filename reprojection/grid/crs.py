"""Coordinate reference systems: which are accepted, and how they reach longitude and latitude.

Every transform goes CRS -> EPSG:4326 -> sinusoidal formula, never directly: PROJ's direct path to
the MODIS sphere is a ballpark shift, 110 to 300 m wrong for EPSG:27700, 28992 and 2100.
"""

import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

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


class Crs:
    """A coordinate reference system, parsed once: `Crs.of` has one object for each text.

    Attributes:
        text: WKT, an authority code or a PROJ string.
        parsed: The same as pyproj has it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.parsed = _parsed(text)
        self._of_thread = threading.local()

    @staticmethod
    def of(text: str) -> "Crs":
        """Return the CRS of a text; accept only 2-D horizontal CRSs.

        Raises GridError for text PROJ does not know and for vertical, compound, geocentric,
        three-dimensional or engineering CRSs.
        """
        return _known(text)

    def __reduce__(self) -> tuple[Callable[[str], "Crs"], tuple[str]]:
        return Crs.of, (self.text,)

    @cached_property
    def normal_text(self) -> str:
        """One spelling: the authority code where there is one that means the same, else WKT.

        Equal CRSs then have equal task keys.
        """
        authority = self.parsed.to_authority(min_confidence=100)
        if authority is not None:
            code = ":".join(authority)
            if Crs.of(code).parsed == self.parsed:
                return code
        return self.parsed.to_wkt()

    @property
    def metres(self) -> float:
        """Metres of one unit of the axes; radians where they are angles."""
        return self.parsed.axis_info[0].unit_conversion_factor or 1.0

    @cached_property
    def is_modis_sinusoidal(self) -> bool:
        """True for the MODIS sinusoidal projection, whatever its WKT looks like."""
        crs = self.parsed
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

    @cached_property
    def is_plain_lonlat(self) -> bool:
        """True if the coordinates are plain WGS84 longitude and latitude in degrees."""
        if self.is_modis_sinusoidal or not self.parsed.is_geographic:
            return False
        lon = np.array([-170.0, -3.25, 0.0, 10.5, 100.125, 179.5])
        lat = np.array([-89.0, 55.75, 0.0, -33.5, 12.25, 80.0])
        east, north = self._transformer.transform(lon, lat)
        return bool(np.array_equal(east, lon) and np.array_equal(north, lat))

    @property
    def _transformer(self) -> pyproj.Transformer:
        """This thread's own: pyproj's transformers must not be shared between threads."""
        found: pyproj.Transformer | None = getattr(self._of_thread, "transformer", None)
        if found is None:
            try:
                found = pyproj.Transformer.from_crs(
                    self.parsed, "EPSG:4326", always_xy=True, allow_ballpark=False
                )
            except ProjError as error:
                raise GridError(
                    f"CRS {self.parsed.name!r} has no known transformation to EPSG:4326 (only a "
                    "ballpark one, 100 m wrong or more); name a CRS with a defined datum"
                ) from error
            self._of_thread.transformer = found
        return found

    @cached_property
    def operation(self) -> Operation:
        """The way from this CRS to EPSG:4326, with PROJ's stated accuracy.

        A CRS with several area-dependent operations names the most accurate one available. Raises
        GridError if only a ballpark transformation exists.
        """
        if self.is_modis_sinusoidal:
            return Operation(description="MODIS sinusoidal formula on WGS84 latitude", accuracy=0.0)
        transformer = self._transformer
        if transformer.accuracy >= 0:
            return Operation(description=transformer.description, accuracy=transformer.accuracy)
        if _is_exact(transformer):
            return Operation(description=transformer.description, accuracy=0.0)
        with warnings.catch_warnings():
            # PROJ warns that a better operation needs a missing grid file; the accuracy shows it.
            warnings.simplefilter("ignore")
            group = TransformerGroup(self.parsed, "EPSG:4326", always_xy=True, allow_ballpark=False)
        best = group.transformers[0]
        accuracy = best.accuracy if best.accuracy >= 0 else None
        several = f" (and {len(group.transformers) - 1} more by area)"
        return Operation(
            description=best.description + (several if len(group.transformers) > 1 else ""),
            accuracy=accuracy,
        )

    @property
    def has_seams(self) -> bool:
        """True if PROJ chooses among several operations by place; coordinates may then jump."""
        if self.is_modis_sinusoidal:
            return False
        transformer = self._transformer
        return transformer.accuracy < 0 and not _is_exact(transformer)

    def check(self) -> None:
        """Raise GridError unless this CRS can be a target: not ballpark."""
        if not self.is_modis_sinusoidal:
            _ = self._transformer

    def to_lonlat(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Convert points to WGS84 longitude and latitude in degrees.

        Longitudes are in [-180, 180]. A point gives NaN if it is not on the map: its longitude and
        latitude do not lead back to it, as beyond a projection's rim.
        """
        x = np.asarray(x, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64)
        if self.is_modis_sinusoidal:
            return _sinusoidal_to_lonlat(x, y)
        if self.is_plain_lonlat:
            lon, lat = x.copy(), y.copy()
        else:
            with np.errstate(all="ignore"):
                lon, lat = self._transformer.transform(x, y, errcheck=False)
            lon, lat = np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)
        nowhere = ~(np.isfinite(lon) & np.isfinite(lat)) | (np.abs(lat) > 90.0)
        if self.parsed.is_projected:
            nowhere |= ~self._leads_back(x, y, lon, lat)
        lon = wrap_longitude(lon)
        lon[nowhere] = np.nan
        lat[nowhere] = np.nan
        return lon, lat

    def _leads_back(self, x: Floats, y: Floats, lon: Floats, lat: Floats) -> NDArray[np.bool_]:
        """Tell whether longitude and latitude lead back to the point, to a metre or 1e-7 of it.

        The limit is a kilometre if PROJ chooses among operations by place: near a border it may
        choose one operation there and another one back, which differ by some 100 m.
        """
        slack = 1000.0 if self.has_seams else 1.0
        back_x, back_y = self.from_lonlat(lon, lat)
        with np.errstate(invalid="ignore"):
            away = np.hypot(back_x - x, back_y - y) * self.metres
            return np.asarray(away <= slack + 1e-7 * np.hypot(x, y) * self.metres)

    def from_lonlat(self, lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
        """Convert WGS84 longitude and latitude in degrees; NaN where this CRS is not defined."""
        lon = np.asarray(lon, dtype=np.float64)
        lat = np.asarray(lat, dtype=np.float64)
        if self.is_modis_sinusoidal:
            return lonlat_to_sinusoidal(lon, lat)
        if self.is_plain_lonlat:
            return lon.copy(), lat.copy()
        with np.errstate(all="ignore"):
            x, y = self._transformer.transform(
                lon, lat, direction=TransformDirection.INVERSE, errcheck=False
            )
        x, y = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
        nowhere = ~(np.isfinite(x) & np.isfinite(y))
        x[nowhere] = np.nan
        y[nowhere] = np.nan
        return x, y


@lru_cache(maxsize=256)
def _known(text: str) -> Crs:
    return Crs(text)


def _parsed(text: str) -> pyproj.CRS:
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


def _is_exact(transformer: pyproj.Transformer) -> bool:
    """Tell whether all steps are conversions, such as map projections, without a change of datum.

    PROJ 9.5 states an accuracy of 0 for them, PROJ 9.8 none.
    """
    steps = transformer.operations or ()
    return bool(steps) and all(step.type_name == "Conversion" for step in steps)


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
