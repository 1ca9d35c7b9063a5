"""The grid that a user means: odc-geo's GeoBox, an xarray object, a rasterio profile, a lattice."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprojection.errors import GridError
from reprojection.grid.covering import project_bounds
from reprojection.grid.grids import Grid, Lattice
from swathmill.regions import region_box

if TYPE_CHECKING:
    pass


def target_grid(
    target: object = None,
    *,
    crs: str | None = None,
    resolution: float | None = None,
    bounds: Sequence[float] | None = None,
    region: object = None,
) -> Grid:
    """Make the grid that is meant: by what has one, or by CRS, pixel size and extent.

    Args:
        target: A `Grid`, a GeoBox, an xarray object with a CRS, or a rasterio profile.
        crs: The CRS of another grid, as WKT, authority code or PROJ string.
        resolution: Its pixels' side in CRS units.
        bounds: Its extent in CRS units: west, south, east, north.
        region: Its extent as anything with `__geo_interface__`, or west, south, east, north, in
            longitude and latitude.

    Raises:
        GridError: neither says a grid, or both do.
    """
    parts = {"crs": crs, "resolution": resolution}
    given = [name for name, value in parts.items() if value is not None]
    if target is not None:
        if given or bounds is not None or region is not None:
            raise GridError(
                "a target grid was given, and crs, resolution, bounds or region as well: give one "
                "or the other"
            )
        return _grid_of(target)
    if crs is None or resolution is None or (bounds is None) == (region is None):
        raise GridError(
            "no target grid: give a Grid, a GeoBox, an xarray object (like=) or a rasterio "
            "profile; or crs=, resolution= and either bounds= (in CRS units) or region= (in "
            "longitude and latitude)"
        )
    lattice = Lattice(crs=crs, resolution=resolution)
    box = bounds if bounds is not None else project_bounds(region_box(region), crs)
    return lattice.snap(box)


def _grid_of(target: Any) -> Grid:
    if isinstance(target, Grid):
        return target
    if isinstance(target, Lattice):
        raise GridError(
            "a Lattice has no extent: give lattice.snap(bounds), or crs=, resolution= and region="
        )
    if isinstance(target, Mapping) and {"crs", "transform", "width", "height"} <= set(target):
        crs = target["crs"]
        return Grid(
            crs=crs if isinstance(crs, str) else crs.to_wkt(),
            transform=tuple(target["transform"])[:6],
            width=target["width"],
            height=target["height"],
        )
    if hasattr(target, "affine") and hasattr(target, "crs"):
        return Grid.of_geobox(target)
    if hasattr(target, "coords"):
        import odc.geo.xr  # noqa: F401

        geobox = target.odc.geobox
        if geobox is None:
            raise GridError(
                "the xarray object says no CRS, or no grid by its coordinates: give it a CRS by "
                "odc.geo.xr.assign_crs or rio.write_crs"
            )
        return Grid.of_geobox(geobox)
    raise GridError(
        f"{type(target).__name__} is no target grid: give a Grid, a GeoBox, an xarray object or a "
        "rasterio profile"
    )
