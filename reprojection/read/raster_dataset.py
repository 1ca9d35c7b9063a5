"""Rasters and grids as xarray's datasets (the extra `swathmill[xarray]`).

Coordinates and attributes are those of the CF conventions; rioxarray and odc-geo find the CRS.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from modis.collection import versioned
from reprojection.errors import ChoiceRefusedError
from reprojection.grid.grids import Grid
from reprojection.read.cf import (
    axis_words,
    band_name,
    cf_flags,
    identifier,
    mapping_words,
    product_of,
    quantity,
)
from reprojection.read.description import Description

if TYPE_CHECKING:
    import xarray as xr

MAPPING = "spatial_ref"
"""The name of the grid mapping."""

UNFILLED: "dict[str, object]" = {"_FillValue": None}
"""How coordinates are written that are all known: by CF they have no fill value."""

Attributes = dict[str, object]


def grid_coordinates(grid: Grid) -> "dict[str, xr.Variable]":
    """Return the coordinates y, x and spatial_ref of a grid.

    Raises:
        ChoiceRefusedError: the grid is rotated, or xarray is not installed.
    """
    import xarray as xr

    if not grid.is_upright:
        raise ChoiceRefusedError(
            f"the grid {grid.transform} is rotated, so its rows have no one y: take an upright one"
        )
    a, _, c, _, e, f = grid.transform
    words = axis_words(grid.crs)
    mapping = mapping_words(grid.crs, grid.transform)
    mapping[MAPPING] = mapping["crs_wkt"]
    return {
        "y": xr.Variable(("y",), f + (np.arange(grid.height) + 0.5) * e, words["Y"], UNFILLED),
        "x": xr.Variable(("x",), c + (np.arange(grid.width) + 0.5) * a, words["X"], UNFILLED),
        MAPPING: xr.Variable((), np.int32(0), mapping),
    }


def dataset_of(
    said: Description,
    grid: Grid,
    data: npt.NDArray[np.generic],
    nodata: float | int | None,
) -> "xr.Dataset":
    """Make the dataset of a raster; raises what `Raster.to_xarray` does."""
    try:
        import xarray as xr
    except ImportError as problem:
        raise ChoiceRefusedError(
            "datasets need the package xarray: install swathmill[xarray]"
        ) from problem
    coordinates = grid_coordinates(grid)
    if said.provenance.start:
        start = datetime.fromisoformat(said.provenance.start).astimezone(UTC).replace(tzinfo=None)
        words = {"standard_name": "time"}
        coordinates["time"] = xr.Variable((), np.datetime64(start, "ns"), words)
    variables = {
        name: xr.Variable(("y", "x"), data[number], about, {"grid_mapping": MAPPING})
        for number, (name, about) in enumerate(band_attributes(said, data.dtype, nodata))
    }
    return xr.Dataset(variables, coordinates, dataset_attributes(said))


def with_units(about: Attributes) -> Attributes:
    """Return the attributes with units where they name a quantity: a plain number has "1"."""
    return {**about, "units": "1"} if "standard_name" in about and "units" not in about else about


def band_attributes(
    said: Description, dtype: np.dtype[np.generic], nodata: float | int | None
) -> list[tuple[str, Attributes]]:
    """Return name and attributes of the variable of each band, of values as they are stored."""
    found = []
    for number, band in enumerate(said.bands):
        about: Attributes = {"long_name": band.name, "layer": said.provenance.layer}
        if band.role == "data":
            if (said.scale, said.offset) != (1.0, 0.0):
                about |= {"scale_factor": said.scale, "add_offset": said.offset}
            about |= with_units({**quantity(said)})
        about |= {
            key: value if isinstance(value, str) else np.array(value).astype(dtype)
            for key, value in cf_flags(said, band.role, dtype).items()
        }
        # NaN says itself that it is no value.
        if nodata is not None and nodata == nodata and not band.is_index:
            about["_FillValue"] = dtype.type(nodata)
        found.append((band_name(identifier(said.provenance.layer), band.role, number), about))
    return found


def dataset_attributes(said: Description) -> Attributes:
    """Return the attributes of a dataset of rasters: what it is, and how it was made."""
    own = said.provenance
    about: Attributes = {
        "Conventions": "CF-1.11, ACDD-1.3",
        "title": f"{own.product} {own.layer}".strip(),
        "product": own.product,
        "collection": own.collection,
        "source": f"{versioned(own.product, own.collection)}; {own.software}",
    }
    product = product_of(own)
    if product is not None:
        about |= {"summary": product.title, "institution": "NASA"}
        if doi := product.doi(own.collection):
            about["references"] = f"https://doi.org/{doi}"
    return about
