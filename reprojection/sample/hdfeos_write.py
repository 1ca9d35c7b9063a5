"""Write small HDF4-EOS files, for the sample archive and the tests only.

The layout is that of the HDF-EOS 2 library: SDSs held by Vgroups of class GRID or SWATH, described
by StructMetadata.0 ("HDF-EOS Library Users Guide", volume 1), so that GDAL and other programs read
them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pyhdf.HC import HC
from pyhdf.HDF import HDF
from pyhdf.SD import SD, SDC
from pyhdf.V import VG

from modis.sphere import EASE_RADIUS, SPHERE_RADIUS

Attribute = str | int | float | tuple[int | float, ...]

_TYPES: dict[str, tuple[int, str]] = {
    "i1": (SDC.INT8, "DFNT_INT8"),
    "u1": (SDC.UINT8, "DFNT_UINT8"),
    "i2": (SDC.INT16, "DFNT_INT16"),
    "u2": (SDC.UINT16, "DFNT_UINT16"),
    "i4": (SDC.INT32, "DFNT_INT32"),
    "u4": (SDC.UINT32, "DFNT_UINT32"),
    "f4": (SDC.FLOAT32, "DFNT_FLOAT32"),
    "f8": (SDC.FLOAT64, "DFNT_FLOAT64"),
}

_DFTAG_NDG = 720  # HDF4 reference manual: numeric data group, by which a Vgroup refers to an SDS
_DFTAG_VG = 1965

_GRID_DIMS = ("XDim", "YDim")  # the grid's own dimensions; others are bands
_STRUCT_BYTES = 32000  # the HDF-EOS library always writes this many


@dataclass(frozen=True, kw_only=True)
class FieldToWrite:
    """One field: values, dimension names, attributes; `typed` attributes get the field's type."""

    name: str
    values: npt.NDArray[np.generic]
    dims: tuple[str, ...]
    typed: Mapping[str, int | float | tuple[int | float, ...]] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GridToWrite:
    """A grid; corners are outer corners, in metres of the sinusoidal projection.

    With `corners` in degrees, plain or packed as DDDMMMSSS, it is a geographic grid; with `pole`
    90 or -90 a polar one, Lambert's azimuthal equal-area projection (EASE-Grid). `meridian` is the
    sinusoidal projection's central one, in whole degrees.
    """

    name: str
    upper_left: tuple[float, float]
    lower_right: tuple[float, float]
    fields: Sequence[FieldToWrite]
    corners: Literal["metres", "degrees", "packed degrees"] = "metres"
    pole: Literal[90, -90] | None = None
    meridian: int = 0


@dataclass(frozen=True, kw_only=True)
class SwathToWrite:
    """A swath; `maps` are (geo dimension, data dimension, offset, increment)."""

    name: str
    geo_fields: Sequence[FieldToWrite]
    data_fields: Sequence[FieldToWrite]
    maps: Sequence[tuple[str, str, int, int]] = ()


@dataclass(frozen=True, kw_only=True)
class GranuleToWrite:
    """A whole file. `local_name` is its LOCALGRANULEID, `ring` its GRing (longitude, latitude).

    `more` are grids beside the first structure.
    """

    local_name: str
    product: str
    collection: int
    start: datetime
    end: datetime
    produced: datetime
    day_night: str
    ring: Sequence[tuple[float, float]]
    structure: GridToWrite | SwathToWrite
    more: Sequence[GridToWrite] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def write_granule(path: Path, granule: GranuleToWrite) -> None:
    """Write a granule.

    HDF4 stores the path as given: pass a bare name to get the same bytes in any folder.
    """
    structures = (granule.structure, *granule.more)
    struct_text = struct_metadata(granule)
    file = SD(str(path), SDC.WRITE | SDC.CREATE | SDC.TRUNC)
    _set(file, "HDFEOSVersion", "HDFEOS_V2.19")
    _set(file, "StructMetadata.0", struct_text.ljust(_STRUCT_BYTES, "\0"))
    _set(file, "CoreMetadata.0", core_metadata(granule))
    for name, value in granule.attributes.items():
        _set(file, name, value)
    references = [
        {
            group: [_write_field(file, structure.name, item) for item in fields]
            for group, fields in _groups(structure).items()
        }
        for structure in structures
    ]
    file.end()
    for structure, found in zip(structures, references, strict=True):
        kind = "GRID" if isinstance(structure, GridToWrite) else "SWATH"
        _write_groups(path, structure.name, kind, found)


def struct_metadata(granule: GranuleToWrite) -> str:
    """Return the StructMetadata of a granule."""
    swaths, grids = list[str](), list[str]()
    for structure in (granule.structure, *granule.more):
        if isinstance(structure, GridToWrite):
            grids += _grid_struct(structure, 1 + grids.count("\t\tGROUP=MergedFields"))
        else:
            swaths += _swath_struct(structure)
    return _struct_text(swaths, grids)


def _groups(structure: GridToWrite | SwathToWrite) -> dict[str, Sequence[FieldToWrite]]:
    """Return the fields of a structure by the Vgroup that holds them."""
    if isinstance(structure, GridToWrite):
        return {"Data Fields": structure.fields, "Grid Attributes": ()}
    return {
        "Geolocation Fields": structure.geo_fields,
        "Data Fields": structure.data_fields,
        "Swath Attributes": (),
    }


def _write_field(file: SD, structure: str, item: FieldToWrite) -> int:
    number_type, _ = _TYPES[item.values.dtype.str[1:]]
    sds = file.create(item.name, number_type, item.values.shape)
    for axis, dim in enumerate(item.dims):
        sds.dim(axis).setname(f"{dim}:{structure}")
    sds.setcompress(SDC.COMP_DEFLATE, 4)
    for name, value in item.typed.items():
        sds.attr(name).set(number_type, list(value) if isinstance(value, tuple) else value)
    for name, attribute in item.attributes.items():
        _set(sds, name, attribute)
    sds.set(item.values)
    reference = int(sds.ref())
    sds.endaccess()
    return reference


def _set(holder: SD, name: str, value: Attribute) -> None:
    if isinstance(value, str):
        holder.attr(name).set(SDC.CHAR8, value)
    elif isinstance(value, tuple):
        whole = all(isinstance(item, int) for item in value)
        holder.attr(name).set(SDC.INT32 if whole else SDC.FLOAT64, list(value))
    else:
        holder.attr(name).set(SDC.INT32 if isinstance(value, int) else SDC.FLOAT64, value)


def _write_groups(
    path: Path, name: str, kind: str, references: Mapping[str, Sequence[int]]
) -> None:
    file = HDF(str(path), HC.WRITE)
    groups = file.vgstart()
    top: VG = groups.create(name)
    top._class = kind
    for group, members in references.items():
        inner = groups.create(group)
        inner._class = f"{kind} Vgroup"
        for reference in members:
            inner.add(_DFTAG_NDG, reference)
        top.add(_DFTAG_VG, inner._refnum)
        inner.detach()
    top.detach()
    groups.end()
    file.close()


def _number(value: float) -> str:
    return f"{value:.6f}"


def _corner(value: float, grid: GridToWrite) -> str:
    if grid.corners != "packed degrees":
        return _number(value)
    degrees, rest = divmod(abs(value) * 3600.0, 3600.0)
    minutes, seconds = divmod(rest, 60.0)
    return _number(math.copysign(degrees * 1e6 + minutes * 1e3 + seconds, value))


def _fields_struct(fields: Sequence[FieldToWrite], word: str) -> list[str]:
    lines = [f"\t\tGROUP={word}"]
    for place, item in enumerate(fields, start=1):
        _, number_type = _TYPES[item.values.dtype.str[1:]]
        dims = ",".join(f'"{dim}"' for dim in item.dims)
        lines += [
            f"\t\t\tOBJECT={word}_{place}",
            f'\t\t\t\t{word}Name="{item.name}"',
            f"\t\t\t\tDataType={number_type}",
            f"\t\t\t\tDimList=({dims})",
            f"\t\t\tEND_OBJECT={word}_{place}",
        ]
    return [*lines, f"\t\tEND_GROUP={word}"]


def _grid_struct(grid: GridToWrite, number: int) -> list[str]:
    sizes = _sizes(grid.fields)
    corners = [
        f"{key}=({_corner(x, grid)},{_corner(y, grid)})"
        for key, (x, y) in (
            ("UpperLeftPointMtrs", grid.upper_left),
            ("LowerRightMtrs", grid.lower_right),
        )
    ]
    return [
        f"\tGROUP=GRID_{number}",
        f'\t\tGridName="{grid.name}"',
        f"\t\tXDim={sizes['XDim']}",
        f"\t\tYDim={sizes['YDim']}",
        *(f"\t\t{line}" for line in corners),
        *_projection(grid),
        "\t\tSphereCode=-1",
        "\t\tGridOrigin=HDFE_GD_UL",
        *_dimensions_struct({dim: size for dim, size in sizes.items() if dim not in _GRID_DIMS}),
        *_fields_struct(grid.fields, "DataField"),
        "\t\tGROUP=MergedFields",
        "\t\tEND_GROUP=MergedFields",
        f"\tEND_GROUP=GRID_{number}",
    ]


def _projection(grid: GridToWrite) -> tuple[str, ...]:
    if grid.corners != "metres":
        return ("\t\tProjection=GCTP_GEO",)
    if grid.pole is not None:
        latitude = math.copysign(90e6, grid.pole)
        params = f"({EASE_RADIUS:.0f},0,0,0,0,{latitude:.0f},0,0,0,0,0,0,0)"
        return ("\t\tProjection=GCTP_LAMAZ", f"\t\tProjParams={params}")
    params = f"({SPHERE_RADIUS:.6f},0,0,0,{grid.meridian * 10**6},0,0,0,0,0,0,0,0)"
    return ("\t\tProjection=GCTP_SNSOID", f"\t\tProjParams={params}")


def _sizes(fields: Iterable[FieldToWrite]) -> dict[str, int]:
    """Collect the dimensions of fields by name."""
    sizes: dict[str, int] = {}
    for item in fields:
        sizes |= dict(zip(item.dims, item.values.shape, strict=True))
    return sizes


def _dimensions_struct(sizes: Mapping[str, int]) -> list[str]:
    lines = ["\t\tGROUP=Dimension"]
    for place, (dim, size) in enumerate(sizes.items(), start=1):
        lines += [
            f"\t\t\tOBJECT=Dimension_{place}",
            f'\t\t\t\tDimensionName="{dim}"',
            f"\t\t\t\tSize={size}",
            f"\t\t\tEND_OBJECT=Dimension_{place}",
        ]
    return [*lines, "\t\tEND_GROUP=Dimension"]


def _swath_struct(swath: SwathToWrite) -> list[str]:
    body = [
        "\tGROUP=SWATH_1",
        f'\t\tSwathName="{swath.name}"',
        *_dimensions_struct(_sizes((*swath.geo_fields, *swath.data_fields))),
        "\t\tGROUP=DimensionMap",
    ]
    for place, (geo, data, offset, increment) in enumerate(swath.maps, start=1):
        body += [
            f"\t\t\tOBJECT=DimensionMap_{place}",
            f'\t\t\t\tGeoDimension="{geo}"',
            f'\t\t\t\tDataDimension="{data}"',
            f"\t\t\t\tOffset={offset}",
            f"\t\t\t\tIncrement={increment}",
            f"\t\t\tEND_OBJECT=DimensionMap_{place}",
        ]
    return [
        *body,
        "\t\tEND_GROUP=DimensionMap",
        "\t\tGROUP=IndexDimensionMap",
        "\t\tEND_GROUP=IndexDimensionMap",
        *_fields_struct(swath.geo_fields, "GeoField"),
        *_fields_struct(swath.data_fields, "DataField"),
        "\t\tGROUP=MergedFields",
        "\t\tEND_GROUP=MergedFields",
        "\tEND_GROUP=SWATH_1",
    ]


def _struct_text(swaths: Sequence[str], grids: Sequence[str]) -> str:
    lines = [
        "GROUP=SwathStructure",
        *swaths,
        "END_GROUP=SwathStructure",
        "GROUP=GridStructure",
        *grids,
        "END_GROUP=GridStructure",
        "GROUP=PointStructure",
        "END_GROUP=PointStructure",
        "END",
        "",
    ]
    return "\n".join(lines)


def core_metadata(granule: GranuleToWrite) -> str:
    """Return the CoreMetadata of a granule."""

    def instant(moment: datetime) -> tuple[str, str]:
        return moment.strftime("%Y-%m-%d"), moment.strftime("%H:%M:%S.000000")

    begin_day, begin_time = instant(granule.start)
    end_day, end_time = instant(granule.end)
    points = len(granule.ring)
    items: list[tuple[str, int, str]] = [
        ("LOCALGRANULEID", 1, f'"{granule.local_name}"'),
        ("PRODUCTIONDATETIME", 1, f'"{granule.produced.strftime("%Y-%m-%dT%H:%M:%S.000Z")}"'),
        ("DAYNIGHTFLAG", 1, f'"{granule.day_night}"'),
        ("SHORTNAME", 1, f'"{granule.product}"'),
        ("VERSIONID", 1, str(granule.collection)),
        ("RANGEBEGINNINGDATE", 1, f'"{begin_day}"'),
        ("RANGEBEGINNINGTIME", 1, f'"{begin_time}"'),
        ("RANGEENDINGDATE", 1, f'"{end_day}"'),
        ("RANGEENDINGTIME", 1, f'"{end_time}"'),
        ("GRINGPOINTLONGITUDE", points, _tuple(lon for lon, _ in granule.ring)),
        ("GRINGPOINTLATITUDE", points, _tuple(lat for _, lat in granule.ring)),
        ("GRINGPOINTSEQUENCENO", points, f"({', '.join(map(str, range(1, points + 1)))})"),
    ]
    lines = [
        "",
        "GROUP                  = INVENTORYMETADATA",
        "  GROUPTYPE            = MASTERGROUP",
    ]
    for name, count, value in items:
        lines += [
            "",
            f"  OBJECT                 = {name}",
            f"    NUM_VAL              = {count}",
            f"    VALUE                = {value}",
            f"  END_OBJECT             = {name}",
        ]
    return "\n".join([*lines, "", "END_GROUP              = INVENTORYMETADATA", "", "END", ""])


def _tuple(values: Iterable[float]) -> str:
    return f"({', '.join(f'{value:.6f}' for value in values)})"
