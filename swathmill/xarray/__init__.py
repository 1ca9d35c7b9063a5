"""Granules as xarray's datasets: the engine "swathmill", the accessor of that name, and `load`.

xarray finds the engine by itself. All of it needs the extra `swathmill[xarray]`.
"""

try:
    from swathmill.xarray.accessor import SwathmillAccessor
except ImportError as problem:
    raise ImportError(f"{problem}: install swathmill[xarray]") from problem

__all__ = ["SwathmillAccessor"]
