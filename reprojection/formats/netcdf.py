"""The structure and inventory of netCDF-4 files: VIIRS L1B and L2, ocean colour L2 and mapped L3.

Such a file has no StructMetadata. Pixels of a swath lie where its variables latitude and longitude
say, in whatever group. A grid has the centres of its columns and rows in one-dimensional variables
of the root, lon and lat or longitude and latitude (CF conventions, section 5.1). The inventory is
in global attributes, named as in LAADS's files (VIIRS Level 1B Product User's Guide, global
attributes) or by ACDD (time_coverage_start).
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from modis.ocean_name import product_of, product_of_map
from reprojection.errors import UnreadableGranuleError
from reprojection.formats import odl
from reprojection.formats.container import (
    LATITUDES,
    LONGITUDES,
    NETCDF,
    AttributeValue,
    Container,
    DataSet,
    coordinate,
)
from reprojection.formats.structmetadata import FieldInfo, GridInfo, Structure, SwathInfo

_EVEN = 1e-3  # of a pixel: how unevenly columns and rows of a grid may be spaced

_NAMES = (
    "ShortName",
    "VersionID",
    "LocalGranuleID",
    "ProductionDateTime",
    "DayNightFlag",
    "RangeBeginningDate",
    "RangeBeginningTime",
    "RangeEndingDate",
    "RangeEndingTime",
    "GRingPointLongitude",
    "GRingPointLatitude",
)

_ALSO = {"GRingPointLongitude": "GRingLongitude", "GRingPointLatitude": "GRingLatitude"}
"""Other names of the same, in files of NASA's Land SIPS."""

_REPROCESSING = re.compile(r"R(\d{4}\.\d)")
"""Which reprocessing a file of ocean colour is of; that of a part (R2022.0.2) is the same one."""

_HALF = re.compile(r".*?\b(Day|Night)\b, Start Node", re.DOTALL)
"""How the comment of PO.DAAC's files of MODIS and VIIRS says which half of the day they are of."""


def netcdf_structure(container: Container) -> Structure:
    """Return the grid or swath of a netCDF-4 file; none for other files.

    Raises UnreadableGranuleError for coordinates that form no even grid.
    """
    mine = [one for one in container.datasets if one.structure == NETCDF]
    if not mine:
        return Structure(grids=(), swaths=())
    lat, lon = (
        next((one for one in mine if one.dims == (dim,) and one.name.lower() in names), None)
        for dim, names in (("YDim", LATITUDES), ("XDim", LONGITUDES))
    )
    if lat is not None and lon is not None:
        return Structure(grids=(_grid(container, lon, lat, mine),), swaths=())
    fields = {
        one.name: FieldInfo(name=one.name, dtype=str(one.dtype), dims=one.dims) for one in mine
    }
    places = [name for name, field in fields.items() if coordinate(name) and len(field.dims) > 1]
    swath = SwathInfo(
        name=NETCDF,
        dimensions={
            dim: size for one in mine for dim, size in zip(one.dims, one.shape, strict=True)
        },
        maps=(),
        geo_fields=tuple(fields[name] for name in places),
        data_fields=tuple(fields[name] for name in fields if name not in places),
    )
    return Structure(grids=(), swaths=(swath,))


def netcdf_inventory(
    attributes: Mapping[str, AttributeValue],
) -> dict[str, tuple[odl.Scalar, ...]]:
    """Return the inventory that global attributes hold, by upper-case name."""
    found: dict[str, tuple[odl.Scalar, ...]] = {}
    for name in _NAMES:
        value = attributes.get(name, attributes.get(_ALSO.get(name, "")))
        if value is not None:
            found[name.upper()] = value if isinstance(value, tuple) else (value,)
    for which, word in (("BEGINNING", "start"), ("ENDING", "end")):
        moment = attributes.get(f"time_coverage_{word}")
        if isinstance(moment, str) and f"RANGE{which}DATE" not in found and "T" in moment:
            day, _, time = moment.partition("T")
            found[f"RANGE{which}DATE"] = (day,)
            found[f"RANGE{which}TIME"] = (time,)
    if "SHORTNAME" not in found and (of_ghrsst := product_of(str(attributes.get("id", "")))):
        product, version = of_ghrsst
        found["SHORTNAME"], found["VERSIONID"] = (product,), (version,)
        if "PRODUCTIONDATETIME" not in found and "date_created" in attributes:
            found["PRODUCTIONDATETIME"] = (str(attributes["date_created"]),)
        said = _HALF.match(str(attributes.get("comment", "")))
        if said is not None and "DAYNIGHTFLAG" not in found:
            found["DAYNIGHTFLAG"] = (said[1],)
    edition = _REPROCESSING.match(str(attributes.get("processing_version", "")))
    of_map = product_of_map(str(attributes.get("product_name", "")))
    if "SHORTNAME" not in found and of_map and edition is not None:
        found["SHORTNAME"], found["VERSIONID"] = (of_map,), (edition[1],)
    return found


def _grid(container: Container, lon: DataSet, lat: DataSet, fields: Sequence[DataSet]) -> GridInfo:
    across, down = _centres(container, lon), _centres(container, lat)
    wide, high = (
        (across[-1] - across[0]) / (len(across) - 1),
        (down[0] - down[-1]) / (len(down) - 1),
    )
    return GridInfo(
        name=NETCDF,
        width=len(across),
        height=len(down),
        left=_on_earth(float(across[0] - wide / 2), 180.0, wide),
        top=_on_earth(float(down[0] + high / 2), 90.0, high),
        right=_on_earth(float(across[-1] + wide / 2), 180.0, wide),
        bottom=_on_earth(float(down[-1] - high / 2), 90.0, high),
        projection="GCTP_GEO",
        params=(),
        fields=tuple(
            FieldInfo(name=one.name, dtype=str(one.dtype), dims=one.dims) for one in fields
        ),
    )


def _on_earth(edge: float, most: float, pixel: float) -> float:
    """Return an outer edge, or the Earth's own where the two differ by a rounding error.

    Coordinates of pixel centres in float32 put the corner of a global map a rounding beyond a pole.
    """
    is_there = abs(abs(edge) - most) <= _EVEN * abs(pixel)
    return math.copysign(most, edge) if is_there else edge


def _centres(container: Container, axis: DataSet) -> npt.NDArray[np.float64]:
    values = container.read(axis, (0,), axis.shape).astype(np.float64)
    step = np.diff(values)
    if len(values) < 2 or not np.isfinite(values).all() or np.ptp(step) > _EVEN * abs(step[0]):
        raise UnreadableGranuleError(f"the coordinates {axis.name} form no even grid: damaged file")
    return values
