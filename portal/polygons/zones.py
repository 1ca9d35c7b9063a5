"""Compute mean, spread, valid share and count of layers within polygons, by date.

A polygon's shares of pixels are worked out once for a grid, and serve for all dates. Values are
those of the core that pages and tables have, in units, without a value where the pixel has none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely
from shapely import MultiPolygon, Point, Polygon
from shapely.geometry import shape

from portal.results.layers import ResultLayer, selected
from portal.results.result_files import ResultReader
from portal.serving.problems import PortalError
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_at import pixel_at
from reprojection.grid.shares import NotCoveredError, Shares, pixel_areas, shares_of
from reprojection.read.description import Description
from reprojection.read.raster import Raster
from tasks.answers.polygons import ClassShare, PolygonSeries, PolygonValues

MOST_PIXELS = 2**27
"""Pixels that a call reads: of the boxes around all polygons, of all layers and dates."""
MOST_SECONDS = 30.0
"""Time that a call may take."""

MOST_CLASSES = 64
"""Classes of a polygon whose shares are listed."""

_BEYOND = "it reaches beyond the raster; what lies within counts"
_LESS = "Name fewer layers (layer) or dates (start, end), or take smaller polygons."

Features = Sequence[tuple[str, Mapping[str, Any]]]


class PolygonsRefusedError(PortalError):
    """Polygons that have no values here, or take more than a call may."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


@dataclass(frozen=True, kw_only=True)
class _Zone:
    """A polygon or a point; `taken` has its shares by grid, or why there are none."""

    name: str
    geometry: shapely.Geometry
    taken: dict[Grid, Shares | str]

    @property
    def is_point(self) -> bool:
        return isinstance(self.geometry, Point)

    def on(self, grid: Grid) -> Shares | str:
        """Return its shares of a grid's pixels, or why it has none."""
        if grid not in self.taken:
            self.taken[grid] = _shares(grid, self.geometry)
        return self.taken[grid]


def _shares(grid: Grid, geometry: shapely.Geometry) -> Shares | str:
    if isinstance(geometry, Polygon | MultiPolygon):
        try:
            return shares_of(grid, geometry)
        except NotCoveredError as error:
            return str(error)
    if not isinstance(geometry, Point):
        raise TypeError("a geometry is no polygon and no point")
    pixel = pixel_at(grid, geometry.x, geometry.y)
    if pixel is None:
        return "it lies outside the results' raster; choose a place within"
    rows, columns = np.array([pixel.row]), np.array([pixel.col])
    return Shares(
        rows=rows,
        columns=columns,
        shares=np.ones(1),
        areas=pixel_areas(grid, rows, columns),
        reaches_beyond=False,
    )


def zones_of(
    reader: ResultReader,
    layers: Sequence[ResultLayer],
    features: Features,
    start: str = "",
    end: str = "",
) -> Iterator[PolygonSeries]:
    """Yield the values of each feature and layer, between two dates.

    Args:
        reader: The reader of the request's results.
        layers: The layers.
        features: Names and GeoJSON geometries, polygons and points in degrees.
        start: Only dates from this one on; "" has no first one.
        end: Only dates up to this one; "" has no last one.

    Raises:
        PolygonsRefusedError: it takes more pixels or time than a call may, or none has values.
        NotFoundError: a result is no raster of Swathmill. Raises what the reader raises, too.
    """
    clock = reader.runtime.clock.monotonic
    until = clock() + MOST_SECONDS
    zones = [_Zone(name=name, geometry=shape(dict(one)), taken={}) for name, one in features]
    dates = {layer.id: _dates(layer, start, end) for layer in layers}
    if not any(dates.values()):
        raise PolygonsRefusedError(
            f"No layer has a raster from {start or 'the first'} to {end or 'the last'} date.",
            "GET /api/requests/ID/results lists the results.",
        )
    left, done = MOST_PIXELS, 0
    why: list[str] = []

    def take(pixels: int) -> None:
        nonlocal left, done
        left -= pixels
        if left < 0 or clock() > until:
            what = f"{MOST_PIXELS:,} pixels" if left < 0 else f"{MOST_SECONDS:g} s"
            raise PolygonsRefusedError(
                f"These polygons take more than {what}, which is the most for one call: {done} of "
                f"{sum(map(len, dates.values()))} rasters were read.",
                _LESS,
            )
        done += 1

    for layer in layers:
        series = _layer(reader, layer, dates[layer.id], zones, take)
        why += [one.note for one in series if not one.pixels]
        yield from series
    if zones and len(why) == len(zones) * len(layers):
        raise PolygonsRefusedError(f"No polygon has values here: {zones[0].name}: {why[0]}.", _LESS)


def _dates(layer: ResultLayer, start: str, end: str) -> tuple[str, ...]:
    """Return the dates of a layer between two dates."""
    files = {file.path: file for file in layer.rasters.values()}
    chosen = selected(files, (layer.id,), start, end)
    return tuple(day for day in layer.dates if layer.rasters[day].path in chosen)


def _layer(
    reader: ResultReader,
    layer: ResultLayer,
    dates: Sequence[str],
    zones: Sequence[_Zone],
    take: Callable[[int], None],
) -> list[PolygonSeries]:
    """Read a layer's rasters one after the other, of each what the polygons cover."""
    from portal.results.picture_reading import read_windows

    values: list[list[PolygonValues]] = [[] for _ in zones]
    grid, units = None, ""
    for day in dates:

        def windows(said: Description) -> list[tuple[int, int, int, int] | None]:
            on = [zone.on(said.grid.grid()) for zone in zones]
            found = [one.window if isinstance(one, Shares) else None for one in on]
            take(sum(one[2] * one[3] for one in found if one is not None))
            return found

        said, parts = read_windows(reader, reader.current(layer.rasters[day]), windows)
        grid, units = said.grid.grid(), said.units
        for listed, zone, part in zip(values, zones, parts, strict=True):
            on = zone.on(grid)
            if part is not None and isinstance(on, Shares):
                listed.append(_values(day, part, on, is_point=zone.is_point))
    return [
        _series(zone, layer, units, zone.on(grid), listed)
        for zone, listed in zip(zones, values, strict=True)
        if grid is not None
    ]


def _series(
    zone: _Zone, layer: ResultLayer, units: str, on: Shares | str, values: list[PolygonValues]
) -> PolygonSeries:
    shares = on if isinstance(on, Shares) else None
    beyond = _BEYOND if shares is not None and shares.reaches_beyond else ""
    return PolygonSeries(
        polygon=zone.name,
        kind="point" if zone.is_point else "polygon",
        layer=layer.id,
        units=units,
        pixels=0.0 if shares is None else float(shares.shares.sum()),
        area_km2=0.0 if shares is None else float(shares.weights.sum()) / 1e6,
        note=on if isinstance(on, str) else beyond,
        values=tuple(values),
    )


def _values(day: str, part: Raster, on: Shares, *, is_point: bool) -> PolygonValues:
    """Compute the numbers of a date from the pixels of a polygon's window."""
    top, left, _, _ = on.window
    plane: npt.NDArray[np.float64] = part.values(0)[on.rows - top, on.columns - left]
    known = np.isfinite(plane)
    weights, values = on.weights[known], plane[known]
    total = float(weights.sum())
    mean = spread = None
    if total and part.kind == "continuous" and part.bands[0].role == "data":
        mean = float((weights * values).sum()) / total
        spread = float(np.sqrt((weights * (values - mean) ** 2).sum() / total))
    is_classes = total > 0.0 and part.kind == "class" and part.bands[0].role == "data"
    return PolygonValues(
        date=day,
        classes=_classes(values, weights / total, part.codes) if is_classes else (),
        mean=mean,
        std=None if is_point else spread,
        valid_share=total / float(on.weights.sum()),
        count=float(on.shares[known].sum()),
    )


def _classes(
    values: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], names: Mapping[int, str]
) -> tuple[ClassShare, ...]:
    """Add up the shares of each class, the greatest first."""
    found, where = np.unique(values, return_inverse=True)
    if found.size > MOST_CLASSES:
        return ()
    sums = np.bincount(where, shares, found.size)
    return tuple(
        ClassShare(value=int(found[at]), name=names.get(int(found[at]), ""), share=float(sums[at]))
        for at in np.argsort(-sums, kind="stable")
    )
