"""Parse the structure of an HDF-EOS file, its grids and swaths, from `StructMetadata`.

The corners of a grid are the OUTER corners of its corner pixels, whatever `PixelRegistration` says:
all MODIS and VIIRS land products are written that way.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from modis.sphere import SPHERE_RADIUS
from modis.tile import Tile
from reprojection.errors import GridError, UnreadableGranuleError
from reprojection.formats import odl

MAX_SIDE = 200_000  # the whole sinusoidal grid at 250 m has 172,800 columns


@dataclass(frozen=True, kw_only=True)
class FieldInfo:
    """A field of a grid or swath: its name, HDF number type and dimension names."""

    name: str
    dtype: str
    dims: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DimensionMap:
    """Geolocation element `i` along `geo` lies on data element `offset + increment * i`."""

    geo: str
    data: str
    offset: int
    increment: int


@dataclass(frozen=True, kw_only=True)
class GridInfo:
    """A grid of a granule; edges are outer pixel edges in units of `crs`: metres or degrees.

    `own_crs` is the text of a CRS that takes the place of a projection of HDF-EOS.
    """

    name: str
    width: int
    height: int
    left: float
    top: float
    right: float
    bottom: float
    projection: str
    params: tuple[float, ...]
    fields: tuple[FieldInfo, ...]
    own_crs: str = ""

    @property
    def pixel_width(self) -> float:
        """Metres or degrees from one column to the next."""
        return (self.right - self.left) / self.width

    @property
    def pixel_height(self) -> float:
        """Metres or degrees from one row to the next, positive southward."""
        return (self.top - self.bottom) / self.height

    @property
    def crs(self) -> str:
        """The grid's CRS as a PROJ string; raises GridError for an unknown projection."""
        if self.own_crs:
            return self.own_crs
        if self.is_sinusoidal:
            return self._sinusoidal_crs
        if self.is_geographic:
            return "EPSG:4326"
        if self.projection in ("GCTP_LAMAZ", "HE5_GCTP_LAMAZ") and len(self.params) >= 6:
            return self._equal_area_crs
        raise GridError(
            f"grid {self.name!r} has projection {self.projection!r}, which Swathmill cannot place; "
            "sinusoidal (GCTP_SNSOID), geographic (GCTP_GEO) and polar (GCTP_LAMAZ) grids are read"
        )

    @property
    def is_sinusoidal(self) -> bool:
        """True for a sinusoidal grid, also of one that is rotated to another central meridian."""
        return self.projection in ("GCTP_SNSOID", "HE5_GCTP_SNSOID")

    @property
    def is_rotated(self) -> bool:
        """True if a sinusoidal grid has another origin than that of the MODIS tiles.

        MAIAC of VIIRS has a central meridian for each part of the Earth.
        """
        return self.is_sinusoidal and any(self._origin)

    @property
    def _origin(self) -> tuple[float, float, float]:
        """The central meridian in degrees, and what is added to x and y in metres.

        GCTP has them at 4, 6 and 7 (HDF-EOS Library Users Guide, volume 1, table of projection
        parameters).
        """
        lon, _, x, y = (*self.params, *[0.0] * 8)[4:8]
        return _packed_degrees(lon), x, y

    @property
    def _sinusoidal_crs(self) -> str:
        """The sinusoidal projection of the sphere; WGS84 latitudes are the sphere's.

        PROJ has no operation between a sphere and WGS84: @null says that there is nothing to do.
        That of the MODIS tiles is computed by formula (`reprojection/grid/crs.py`).
        """
        radius = self.params[0] if self.params and self.params[0] > 0 else SPHERE_RADIUS
        lon, x, y = self._origin
        as_wgs84 = " +nadgrids=@null" if self.is_rotated else ""
        return (
            f"+proj=sinu +lon_0={lon:.12g} +x_0={x:.12g} +y_0={y:.12g} +R={radius:.3f}{as_wgs84} "
            "+units=m +no_defs"
        )

    @property
    def _equal_area_crs(self) -> str:
        """Lambert's azimuthal equal-area projection, of a sphere for the EASE-Grids.

        GCTP's parameters are the radius, and packed angles of the centre: longitude at 4, latitude
        at 5 (HDF-EOS Library Users Guide, volume 1, table of projection parameters). NSIDC projects
        WGS84 latitudes by the sphere's formula ("EASE-Grid"), which @null says.
        """
        lon, lat = _packed_degrees(self.params[4]), _packed_degrees(self.params[5])
        return (
            f"+proj=laea +lat_0={lat:g} +lon_0={lon:g} +x_0=0 +y_0=0 +R={self.params[0]:.3f} "
            "+nadgrids=@null +units=m +no_defs"
        )

    @property
    def is_geographic(self) -> bool:
        """True if rows and columns run along parallels and meridians, in degrees."""
        return self.projection in ("GCTP_GEO", "HE5_GCTP_GEO")

    @property
    def tile(self) -> Tile | None:
        """The (h, v) of the sinusoidal tile that this grid is; None if it is not a whole tile.

        Tiles of a rotated grid have numbers, too, and lie elsewhere.
        """
        if not self.is_sinusoidal or self.is_rotated:
            return None
        return Tile.of_edges(self.left, self.top, self.right, self.bottom)


@dataclass(frozen=True, kw_only=True)
class SwathInfo:
    """A swath of a granule: dimensions by name, maps from geolocation to data, and fields."""

    name: str
    dimensions: Mapping[str, int]
    maps: tuple[DimensionMap, ...]
    geo_fields: tuple[FieldInfo, ...]
    data_fields: tuple[FieldInfo, ...]

    def map_onto(self, data_dim: str) -> DimensionMap | None:
        """Return the map from geolocation onto `data_dim`, if there is one."""
        return next((found for found in self.maps if found.data == data_dim), None)


@dataclass(frozen=True, kw_only=True)
class Structure:
    """All grids and swaths of a file."""

    grids: tuple[GridInfo, ...]
    swaths: tuple[SwathInfo, ...]


def parse_structure(text: str) -> Structure:
    """Parse the joined text of StructMetadata.0, .1, ...

    Raises UnreadableGranuleError if the text is damaged, or if a grid or swath lacks the entries
    that give its position.
    """
    root = odl.parse(text)
    grids = root.child("GridStructure")
    swaths = root.child("SwathStructure")
    return Structure(
        grids=tuple(_grid(node) for node in grids.children) if grids else (),
        swaths=tuple(_swath(node) for node in swaths.children) if swaths else (),
    )


def _grid(node: odl.Node) -> GridInfo:
    name = _text(node, "GridName")
    width, height = (_integer(node, key) for key in ("XDim", "YDim"))
    left, top = _pair(node, "UpperLeftPointMtrs")
    right, bottom = _pair(node, "LowerRightMtrs")
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        raise UnreadableGranuleError(
            f"grid {name!r} claims {width} x {height} pixels: damaged metadata"
        )
    projection = _text(node, "Projection")
    if projection.endswith("GCTP_GEO"):
        left, top, right, bottom = _degrees((left, top, right, bottom))
    edges = (left, top, right, bottom)
    if not all(map(math.isfinite, edges)) or not (right > left and top > bottom):
        raise UnreadableGranuleError(f"grid {name!r} has corners {edges}: damaged metadata")
    raw_params = node.values.get("ProjParams", ())
    params = raw_params if isinstance(raw_params, tuple) else (raw_params,)
    return GridInfo(
        name=name,
        width=width,
        height=height,
        left=left,
        top=top,
        right=right,
        bottom=bottom,
        projection=projection,
        params=tuple(float(item) for item in params if isinstance(item, int | float)),
        fields=_fields(node, "DataField", "DataFieldName"),
    )


def _degrees(edges: tuple[float, ...]) -> tuple[float, ...]:
    """Return the corners of a geographic grid in degrees, plain or packed in the file.

    Packed corners within 360 would be less than a second of arc from (0, 0), so they are plain.
    """
    if all(abs(edge) <= 360.0 for edge in edges):
        return edges
    return tuple(map(_packed_degrees, edges))


def _packed_degrees(packed: float) -> float:
    """Decode a GCTP packed angle DDDMMMSSS.SS."""
    sign = -1.0 if packed < 0 else 1.0
    whole, seconds = divmod(abs(packed), 1000.0)
    degrees, minutes = divmod(whole, 1000.0)
    return sign * (degrees + minutes / 60.0 + seconds / 3600.0)


def _swath(node: odl.Node) -> SwathInfo:
    dimensions: dict[str, int] = {}
    group = node.child("Dimension")
    for item in group.children if group else ():
        dimensions[_text(item, "DimensionName")] = _integer(item, "Size")
    maps = []
    group = node.child("DimensionMap")
    for item in group.children if group else ():
        found = DimensionMap(
            geo=_text(item, "GeoDimension"),
            data=_text(item, "DataDimension"),
            offset=_integer(item, "Offset"),
            increment=_integer(item, "Increment"),
        )
        if found.increment == 0:
            raise UnreadableGranuleError(
                f"dimension map {found.geo!r} -> {found.data!r} has increment 0: damaged metadata"
            )
        maps.append(found)
    return SwathInfo(
        name=_text(node, "SwathName"),
        dimensions=dimensions,
        maps=tuple(maps),
        geo_fields=_fields(node, "GeoField", "GeoFieldName"),
        data_fields=_fields(node, "DataField", "DataFieldName"),
    )


def _fields(node: odl.Node, group_name: str, name_key: str) -> tuple[FieldInfo, ...]:
    group = node.child(group_name)
    found = []
    for item in group.children if group else ():
        dims = item.values.get("DimList", ())
        found.append(
            FieldInfo(
                name=_text(item, name_key),
                dtype=str(item.values.get("DataType", "")),
                dims=tuple(map(str, dims)) if isinstance(dims, tuple) else (str(dims),),
            )
        )
    return tuple(found)


def _text(node: odl.Node, key: str) -> str:
    value = node.values.get(key)
    if value is None or isinstance(value, tuple):
        raise UnreadableGranuleError(f"{node.name} has no {key} in StructMetadata: damaged file")
    return str(value)


def _integer(node: odl.Node, key: str) -> int:
    value = node.values.get(key)
    if not isinstance(value, int):
        raise UnreadableGranuleError(
            f"{node.name} has {key}={value!r} in StructMetadata, not a whole number: damaged file"
        )
    return value


def _pair(node: odl.Node, key: str) -> tuple[float, float]:
    value = node.values.get(key)
    if isinstance(value, tuple) and len(value) == 2:
        first, second = value
        if isinstance(first, int | float) and isinstance(second, int | float):
            return float(first), float(second)
    raise UnreadableGranuleError(
        f"{node.name} has {key}={value!r} in StructMetadata, not two numbers: damaged file"
    )
