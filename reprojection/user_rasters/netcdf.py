"""Read a user's raster from a netCDF-4 file by the CF conventions, without following its links."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import h5py
import numpy as np
import numpy.typing as npt
import pyproj
from pyproj.exceptions import CRSError

from reprojection.catalogue.layers import LayerKind, guess_kind
from reprojection.catalogue.user_raster import RasterLayer
from reprojection.errors import PointingFileError
from reprojection.formats.own_values import open_hdf5
from reprojection.formats.structmetadata import MAX_SIDE
from reprojection.grid.grids import Grid
from reprojection.user_rasters.source import (
    MOST_DAYS,
    Block,
    RasterFile,
    RasterRefusedError,
    Source,
    check_type,
    finite,
    plain_crs,
)

_SINCE = re.compile(r"(days?|hours?|minutes?|seconds?) since (\d{4}-\d{1,2}-\d{1,2})(.*)")
_SECONDS = {"day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
_CALENDARS = ("", "standard", "gregorian", "proleptic_gregorian")
_EVEN = 0.05  # of a pixel: how far rows and columns may lie off, as coordinates in float32 do
_CLOCK = re.compile(
    r"(?:[T ]\s*(\d{1,2}):(\d{2})(?::\d{1,2}(?:\.\d*)?)?)?\s*(?:Z|UTC|([+-]\d{1,2}):?(\d{2})?)?\s*$"
)


@dataclass(frozen=True, kw_only=True)
class _NetcdfSource(Source):
    """The variables of a netCDF-4 file; `upward`: their rows are stored from the south."""

    file: h5py.File
    upward: bool

    def read(self, key: int | str, number: int, first: int, rows: int) -> Block:
        found = self.file[str(key)]
        if self.upward:
            first = self.grid.height - first - rows
        at: tuple[int | slice, ...] = (slice(first, first + rows), slice(None))
        block = found[(number, *at) if found.ndim == 3 else at]
        values = np.asarray(block).astype(found.dtype.newbyteorder("="), copy=False)
        return values[::-1] if self.upward else values


def open_netcdf(file: RasterFile) -> Source:
    """Open a netCDF-4 file: variables of the root on one grid, perhaps over time (CF conventions).

    Raises RasterRefusedError for one without a CRS or such variables, and for one that leads to
    other files.
    """
    try:
        opened = open_hdf5(file.path)
    except PointingFileError as error:
        raise RasterRefusedError(
            f"{file.name}: the values of {error.part} lie in other files. A raster holds its "
            "values itself."
        ) from error
    found = {str(name): item for name, item in opened.items() if isinstance(item, h5py.Dataset)}
    dims = {name: _dims(item) for name, item in found.items()}
    axes = {
        word: name
        for name, item in found.items()
        if dims[name] == (name,) and (word := _axis(name, item))
    }
    if "x" not in axes or "y" not in axes:
        raise RasterRefusedError(
            f"{file.name} has no coordinates of rows and columns: one-dimensional variables "
            "latitude and longitude, or x and y of a projection (CF conventions)."
        )
    plane = (axes["y"], axes["x"])
    dated = (axes.get("time", ""), *plane)
    names = [
        name
        for name, item in found.items()
        if dims[name] in (plane, dated) and item.dtype.kind in "iuf"
    ]
    if not names:
        shapes = ", ".join(f"{name} ({', '.join(there)})" for name, there in dims.items())
        raise RasterRefusedError(
            f"{file.name} has no variable over rows and columns alone, or time, rows and columns "
            f"in this order. It has: {shapes[:500]}."
        )
    if len({dims[name] for name in names}) > 1:
        raise RasterRefusedError(
            f"{file.name} has variables with and without time. Push them as two rasters."
        )
    crs = _netcdf_crs(file.name, opened, found[names[0]], plane, found)
    xs, ys = (_even(file.name, name, found[name]) for name in plane[::-1])
    wide, high = (xs[-1] - xs[0]) / (len(xs) - 1), (ys[-1] - ys[0]) / (len(ys) - 1)
    if wide <= 0:
        raise RasterRefusedError(f"{file.name}: columns run from east to west. Turn them round.")
    top = max(ys[0], ys[-1]) + abs(high) / 2
    grid = Grid(
        crs=crs,
        transform=(wide, 0.0, float(xs[0] - wide / 2), 0.0, -abs(high), float(top)),
        width=len(xs),
        height=len(ys),
    )
    over_time = dims[names[0]] == dated
    return _NetcdfSource(
        grid=grid,
        layers=tuple((_variable(file.name, name, found[name]), name) for name in names),
        days=_times(file.name, found[axes["time"]]) if over_time else (),
        file=opened,
        upward=bool(high > 0),
    )


def _dims(item: h5py.Dataset) -> tuple[str, ...]:
    """Return dimension names by attached scales; a scale bears its own name."""
    if item.is_scale and item.ndim == 1:
        return (str(item.name).lstrip("/"),)
    names = [next((str(scale.name) for scale in dim.values()), "") for dim in item.dims]
    return tuple(name.lstrip("/") for name in names)


def _attribute(item: h5py.Dataset, name: str) -> str:
    value = item.attrs.get(name, "")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(item: h5py.Dataset, name: str) -> float | None:
    value = item.attrs.get(name)
    if value is None:
        return None
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "iuf":
        raise RasterRefusedError(f"{item.name}: {name} is {value!r}, which is not a number.")
    return float(array.reshape(-1)[0])


def _axis(name: str, item: h5py.Dataset) -> str:
    """Tell what a coordinate runs along: x, y, time, or nothing known (CF, chapter 4)."""
    standard, units = _attribute(item, "standard_name"), _attribute(item, "units")
    if standard in ("longitude", "projection_x_coordinate") or units.startswith("degrees_e"):
        return "x"
    if standard in ("latitude", "projection_y_coordinate") or units.startswith("degrees_n"):
        return "y"
    if standard == "time" or " since " in units:
        return "time"
    words = {"lon": "x", "longitude": "x", "x": "x", "lat": "y", "latitude": "y", "y": "y"}
    return words.get(name.lower(), "")


def _netcdf_crs(
    name: str,
    opened: h5py.File,
    variable: h5py.Dataset,
    plane: tuple[str, str],
    found: Mapping[str, h5py.Dataset],
) -> str:
    mapping = _attribute(variable, "grid_mapping")
    if mapping and isinstance(opened.get(mapping), h5py.Dataset):
        attributes = {
            key: _plain(value)
            for key, value in opened[mapping].attrs.items()
            if not key.startswith(("_Netcdf4", "CLASS", "NAME", "DIMENSION", "REFERENCE"))
        }
        try:
            return plain_crs(name, pyproj.CRS.from_cf(attributes))
        except (CRSError, KeyError, ValueError) as error:
            raise RasterRefusedError(
                f"{name}: its grid mapping {mapping} is not a CRS that is known ({error})."
            ) from None
    units = [_attribute(found[axis], "units") for axis in plane]
    words = [_attribute(found[axis], "standard_name") or axis.lower() for axis in plane]
    named = [word.startswith(start) for word, start in zip(words, ("lat", "lon"), strict=True)]
    if all(unit.startswith("degree") for unit in units) or all(named):
        return "EPSG:4326"
    raise RasterRefusedError(
        f"{name} does not say its CRS: {variable.name} names no grid_mapping (CF conventions, "
        "5.6), and its coordinates are not degrees."
    )


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return value.tolist()[0] if value.size == 1 else value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _even(name: str, axis: str, item: h5py.Dataset) -> npt.NDArray[np.float64]:
    if item.size > MAX_SIDE:
        raise RasterRefusedError(f"{name}: {axis} has {item.size:,} values; {MAX_SIDE:,} are taken")
    values = np.asarray(item[()], np.float64)
    if _attribute(item, "units").strip() in ("km", "kilometers", "kilometres"):
        values = values * 1000.0
    if len(values) < 2 or not np.isfinite(values).all() or values[0] == values[-1]:
        even = False
    else:
        evenly = np.linspace(values[0], values[-1], len(values))
        even = bool(np.abs(values - evenly).max() <= _EVEN * abs(evenly[1] - evenly[0]))
    if not even:
        raise RasterRefusedError(
            f"{name}: the coordinates {axis} are not evenly spaced. Put it onto an even grid."
        )
    return values


def _variable(file: str, name: str, item: h5py.Dataset) -> RasterLayer:
    """Describe a variable by its attributes (CF, chapters 2, 3 and 8; NUG, Appendix A)."""
    dtype = item.dtype.newbyteorder("=")
    fills = [_number(item, key) for key in ("_FillValue", "missing_value")]
    fill = next((one for one in fills if one is not None), None)
    units = _attribute(item, "units")
    scale, offset = _number(item, "scale_factor"), _number(item, "add_offset")
    low, high = item.attrs.get("valid_min"), item.attrs.get("valid_max")
    both = item.attrs.get("valid_range", () if low is None or high is None else (low, high))
    ends = [finite(float(one)) for one in np.ravel(np.asarray(both))]
    flags, meanings = item.attrs.get("flag_values"), _attribute(item, "flag_meanings").split()
    classes = {}
    if flags is not None and dtype.kind in "iu":
        codes = [int(one) for one in np.ravel(np.asarray(flags))]
        classes = dict(zip(codes, meanings, strict=False))
    kind = guess_kind(name, dtype, units, scaled=scale is not None or offset is not None)
    return RasterLayer(
        name=name,
        dtype=check_type(file, name, dtype),
        kind=LayerKind.CLASS if classes else kind,
        units=units,
        title=_attribute(item, "long_name")[:200],
        nodata=finite(fill),
        valid_range=(ends[0], ends[1]) if len(ends) == 2 and None not in ends else None,
        scale=1.0 if scale is None else scale,
        offset=offset or 0.0,
        classes=classes,
    )


def _times(name: str, item: h5py.Dataset) -> tuple[date, ...]:
    """Return the days of a time axis, `UNIT since DATE` (CF, section 4.4)."""
    units, calendar = _attribute(item, "units"), _attribute(item, "calendar")
    since = _SINCE.match(units)
    if since is None or calendar not in _CALENDARS:
        raise RasterRefusedError(
            f"{name}: the times have the units {units!r} and the calendar {calendar!r}. Write days "
            "since a date, in the standard calendar."
        )
    if item.size > MOST_DAYS:
        raise RasterRefusedError(f"{name} has {item.size:,} times; {MOST_DAYS:,} are taken.")
    year, month, day = map(int, since[2].split("-"))
    start = datetime(year, month, day, tzinfo=UTC)
    clock = _CLOCK.match(since[3])
    if clock is None:
        raise RasterRefusedError(
            f"{name}: the units {units!r} end with {since[3]!r}. Write a clock time and a time "
            "zone, such as 00:00 +01:00, or nothing."
        )
    if clock[1]:
        start += timedelta(hours=int(clock[1]), minutes=int(clock[2]))
    if clock[3]:
        minutes = int(f"{clock[3][0]}{clock[4] or 0}")
        start -= timedelta(hours=int(clock[3]), minutes=minutes)
    factor = _SECONDS[since[1].rstrip("s")]
    days = tuple(
        (start + timedelta(seconds=float(value) * factor)).date() for value in item[()].tolist()
    )
    if [*days] != sorted(days):
        raise RasterRefusedError(f"{name}: the times are not in order. Sort them.")
    return days
