"""MODIS granules to analysis-ready data on one grid: the public names, and the `swathmill` command.

Everything for users is imported from here; the packages behind it are internal. A name is loaded
when it is first used, so that the command starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprojection.errors import ReprojectionError
    from reprojection.explain.explain import Explanation, explain
    from reprojection.grid.grids import Grid, Lattice
    from reprojection.read.raster import Raster
    from reprojection.reproject import Driver, Options, keep_granules, reproject
    from reprojection.write.write import read_grid, read_raster, write_cog
    from swathmill.async_client import AsyncClient, AsyncJob
    from swathmill.client import Client
    from swathmill.errors import ApiError, ArgumentError, JobFailedError, RefusedError
    from swathmill.granule_search import FoundGranules, search
    from swathmill.job import Job
    from swathmill.xarray.load import load
    from swathmill.xarray.virtual import VirtualStore, virtualize
    from tasks.errors import RequestRefusedError, SwathmillError
    from tasks.request.document import Request
    from tasks.request.request_file import load_request

    __version__: str

__all__ = [
    "ApiError",
    "ArgumentError",
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Driver",
    "Explanation",
    "FoundGranules",
    "Grid",
    "Job",
    "JobFailedError",
    "Lattice",
    "Options",
    "Raster",
    "RefusedError",
    "ReprojectionError",
    "Request",
    "RequestRefusedError",
    "SwathmillError",
    "VirtualStore",
    "__version__",
    "explain",
    "keep_granules",
    "load",
    "load_request",
    "read_grid",
    "read_raster",
    "reproject",
    "search",
    "virtualize",
    "write_cog",
]

_HOMES = {
    "ApiError": "swathmill.errors",
    "ArgumentError": "swathmill.errors",
    "AsyncClient": "swathmill.async_client",
    "AsyncJob": "swathmill.async_client",
    "Client": "swathmill.client",
    "Driver": "reprojection.reproject",
    "Explanation": "reprojection.explain.explain",
    "FoundGranules": "swathmill.granule_search",
    "Grid": "reprojection.grid.grids",
    "Job": "swathmill.job",
    "JobFailedError": "swathmill.errors",
    "Lattice": "reprojection.grid.grids",
    "Options": "reprojection.reproject",
    "Raster": "reprojection.read.raster",
    "RefusedError": "swathmill.errors",
    "ReprojectionError": "reprojection.errors",
    "Request": "tasks.request.document",
    "RequestRefusedError": "tasks.errors",
    "SwathmillError": "tasks.errors",
    "VirtualStore": "swathmill.xarray.virtual",
    "explain": "reprojection.explain.explain",
    "keep_granules": "reprojection.reproject",
    "load": "swathmill.xarray.load",
    "load_request": "tasks.request.request_file",
    "read_grid": "reprojection.write.write",
    "read_raster": "reprojection.write.write",
    "reproject": "reprojection.reproject",
    "search": "swathmill.granule_search",
    "virtualize": "swathmill.xarray.virtual",
    "write_cog": "reprojection.write.write",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that holds it."""
    if name == "__version__":
        return import_module("importlib.metadata").version("swathmill")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
