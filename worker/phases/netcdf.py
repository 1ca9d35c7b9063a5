"""Stacks as NetCDF, for programs that prefer it: one file for each layer, a value for each band.

Conventions: CF-1.11, sections 4 (coordinates) and 5.6 (grid mapping). Values are float32 in
physical units, NaN where there is none. The optional package netCDF4 writes them.
"""

import datetime as dt
from pathlib import Path

import numpy as np
import rasterio
from pyproj import CRS
from rasterio.windows import Window

from tasks.bag.categories import Category
from tasks.service.classify import AttemptError
from worker.phases.flat import physical

_EPOCH = dt.datetime(1970, 1, 1)
_DAY, _MINUTE = dt.timedelta(days=1), dt.timedelta(minutes=1)
_ROWS = 512


def write_netcdf(source: Path, to: Path) -> None:
    """Write a stack as NetCDF: the variable `values` over time, y and x, with its coordinates.

    Raises:
        AttemptError: choice refused: this worker cannot write NetCDF.
    """
    try:
        from netCDF4 import Dataset  # optional
    except ImportError:
        raise AttemptError(
            Category.CHOICE_REFUSED,
            "this worker cannot write NetCDF inputs: install swathmill[cube] there",
        ) from None
    with rasterio.open(source) as stack, Dataset(to, "w", format="NETCDF4") as out:
        a, _, c, _, e, f = tuple(stack.transform)[:6]
        crs = CRS.from_user_input(stack.crs.to_wkt())
        out.Conventions = "CF-1.11"
        mapping = out.createVariable("crs", "i4")
        mapping.setncatts(
            {**crs.to_cf(), "GeoTransform": " ".join(map(repr, (c, a, 0.0, f, 0.0, e)))}
        )
        moments = [_moment(text) for text in stack.descriptions]
        sides = {"time": stack.count, "y": stack.height, "x": stack.width}
        for name, size in sides.items():
            out.createDimension(name, size)
        along_x = c + a * (np.arange(stack.width) + 0.5)
        along_y = f + e * (np.arange(stack.height) + 0.5)
        for name, values in (("y", along_y), ("x", along_x)):
            axis = out.createVariable(name, "f8", (name,))
            axis.setncatts(_axis(crs, name))
            axis[:] = values
        if all(moment is not None for moment in moments):
            by_overpass = any("T" in (text or "") for text in stack.descriptions)
            unit, step = ("minutes", _MINUTE) if by_overpass else ("days", _DAY)
            time = out.createVariable("time", "i4", ("time",))
            time.setncatts({"standard_name": "time", "units": f"{unit} since 1970-01-01"})
            time.calendar = "standard"
            time[:] = [(moment - _EPOCH) // step for moment in moments if moment is not None]
        found = out.createVariable(
            "values", "f4", ("time", "y", "x"), zlib=True, complevel=1, fill_value=np.float32("nan")
        )
        found.setncatts({"grid_mapping": "crs", "long_name": source.stem})
        if stack.units[0]:
            found.units = stack.units[0]
        for number in stack.indexes:
            for row in range(0, stack.height, _ROWS):
                rows = min(_ROWS, stack.height - row)
                window = Window(0, row, stack.width, rows)
                found[number - 1, row : row + rows] = physical(stack, number, window)


def _moment(text: str | None) -> dt.datetime | None:
    """Read a band's day, or the start of its overpass."""
    try:
        return dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None


def _axis(crs: CRS, name: str) -> dict[str, str]:
    if crs.is_geographic:
        standard = {"x": "longitude", "y": "latitude"}[name]
        return {"standard_name": standard, "units": f"degrees_{'east' if name == 'x' else 'north'}"}
    return {"standard_name": f"projection_{name}_coordinate", "units": "m"}
