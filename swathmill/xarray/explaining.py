"""Explain pixels of datasets by the granules that they were made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from modis.axes import Pixel
from reprojection.errors import ChoiceRefusedError
from reprojection.explain.explain import Explanation, explain_pixel
from reprojection.files import AnyPath, as_paths
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_at import pixel_at
from reprojection.reproject import Options

OPTIONS = "swathmill_options"
"""Where the encoding of a variable has the `Options` that made it."""

GRANULES = "swathmill_granules"
"""Where the encoding of a variable of many dates has the paths of each, by day."""

_TINY = 1e-7
"""Side, in degrees, of a pixel that stands for a place: a centimetre."""


def explain_in(
    dataset: xr.Dataset,
    held: xr.DataArray,
    layer: str,
    lon: float,
    lat: float,
    granules: AnyPath | Iterable[AnyPath],
    time: str | None,
) -> Explanation:
    """Explain a pixel of a variable; raises what `SwathmillAccessor.explain` does."""
    options = held.encoding.get(OPTIONS)
    if not isinstance(options, Options):
        raise ChoiceRefusedError(
            f"{held.name!r} was computed or written, and does not say how it was made; explain a "
            "layer of a dataset as it was opened"
        )
    paths = _paths(dataset, held, granules, time)
    grid = grid_of(dataset)
    if grid is None:
        corner = (_TINY, 0.0, lon - _TINY / 2, 0.0, -_TINY, lat + _TINY / 2)
        place = Grid(crs="EPSG:4326", transform=corner, width=1, height=1)
        found = explain_pixel(paths, layer, place, options, Pixel(0, 0))
        if found.origin is None:
            return found
        return replace(found, row=found.origin.row, column=found.origin.column)
    at = pixel_at(grid, lon, lat)
    if at is None:
        raise ChoiceRefusedError(
            f"longitude {lon}, latitude {lat} is outside the dataset, whose bounds in its CRS are "
            f"{tuple(grid.bounds)}; write longitude before latitude"
        )
    a, b, c, d, e, f = grid.transform
    corner = (a, b, a * at.col + b * at.row + c, d, e, d * at.col + e * at.row + f)
    pixel = Grid(crs=grid.crs, transform=corner, width=1, height=1)
    return explain_pixel(paths, layer, pixel, options, at)


def grid_of(dataset: xr.Dataset | xr.DataArray) -> Grid | None:
    """Return the grid of a dataset's rows and columns; None without a grid mapping."""
    mapping = dataset.coords.get("spatial_ref")
    if mapping is None or "x" not in dataset.coords or "y" not in dataset.coords:
        return None
    _, a, _, _, _, e = map(float, str(mapping.attrs["GeoTransform"]).split())
    x, y = dataset.coords["x"], dataset.coords["y"]
    left, top = float(x[0]) - a / 2, float(y[0]) - e / 2
    return Grid(
        crs=str(mapping.attrs["crs_wkt"]),
        transform=(a, 0.0, left, 0.0, e, top),
        width=x.size,
        height=y.size,
    )


def _paths(
    dataset: xr.Dataset,
    held: xr.DataArray,
    granules: AnyPath | Iterable[AnyPath],
    time: str | None,
) -> list[Path]:
    by_day: Mapping[str, Sequence[Path]] = held.encoding.get(GRANULES, {})
    source = dataset.encoding.get("source")
    found = list(as_paths(granules))
    if not found and by_day:
        found = list(by_day[_day(held, time, by_day)])
    elif not found and source:
        found = [Path(source)]
    lost = [str(path) for path in found if not path.exists()]
    if lost or not found:
        where = f"{', '.join(lost)} is not there" if lost else "the dataset does not name them"
        raise ChoiceRefusedError(f"{where}: name the granules' files by granules=...")
    return found


def _day(held: xr.DataArray, time: str | None, by_day: Mapping[str, Sequence[Path]]) -> str:
    """Return the day that is meant: the one named, or the only one there."""
    there = [str(one)[:10] for one in np.atleast_1d(held.time.values)]
    day = time[:10] if time is not None else there[0] if len(there) == 1 else ""
    if day not in by_day or day not in there:
        raise ChoiceRefusedError(
            f"{f'{time!r} is no date of the dataset' if time else 'it has several dates'}: name "
            f"one by time=..., like {there[0]!r}"
        )
    return day
