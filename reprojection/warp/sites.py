"""Read layers at sites: the pixel of a granule in which a site lies, and the pixels around it.

Nothing is resampled: pixels are those of the granule's own grid, or the footprints of a swath. A
point takes the 3 x 3 pixels around its own; a polygon takes those whose centres lie in it. In a
grid the own pixel is the one that holds the point. In a swath it is the footprint that
`reprojection.warp.swath` finds, whose centre is nearest. A grid's 3 x 3 pixels go on in the
neighbouring tile. Those of a swath are neighbours by line and column of its own granule.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import shapely
from shapely import MultiPolygon, Polygon

from modis.axes import Shape
from modis.sphere import SPHERE_RADIUS
from reprojection.catalogue.layers import Layer, LayerKind
from reprojection.errors import ChoiceRefusedError
from reprojection.grid.coordinates import SourceSpace
from reprojection.grid.crs import Floats, to_lonlat
from reprojection.grid.grids import Grid
from reprojection.grid.sphere import unit_vectors
from reprojection.grid.targets import Targets
from reprojection.read import qa
from reprojection.read.geolocation import Geolocation
from reprojection.read.granule import Granule
from reprojection.read.granule_layer import UNDATED, GranuleHeader, Rule, find_places, located
from reprojection.read.kept import Memory, nbytes, one_call, opened
from reprojection.read.qa import Reason
from reprojection.warp.from_swaths import newest_of_each_swath
from reprojection.warp.from_tiles import newest_of_each_place
from reprojection.warp.swath import Swath, nearest

Whole = npt.NDArray[np.int64]
Stored = npt.NDArray[np.generic]

_AROUND = np.array([(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1)])
_OWN = 4  # of the nine: the pixel itself
_SAME_PASS = timedelta(minutes=1)  # within it, two granules saw a site in one overpass
_EDGE_STEPS = 64  # along a polygon's longer side, where its pixels are looked for

REASONS: Mapping[int, str] = {
    Reason.VALID: "",
    Reason.FILL: "fill",
    Reason.CODE: "code or outside the valid range",
    Reason.QA: "quality",
    Reason.NO_GRANULE: "no granule",
}


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place to read layers at: a point in degrees, WGS84, and the polygon around it, if any."""

    name: str
    lon: float
    lat: float
    area: Polygon | MultiPolygon | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A layer to read, and the rule that says which of its pixels are data."""

    layer: str
    rule: Rule = None


class Reading(NamedTuple):
    """What one layer holds at one site, in one granule date or overpass.

    `value` is in `units`; None where the pixel is empty, for the `reason` told. `mean` and `std`
    (of the population) are of the `valid` pixels with a value among the `pixels` of the site; None
    for classes and bit fields. `time` is when a swath's line was recorded, in UTC. `distance` in
    metres goes from the site to the pixel's centre. `quality` is the stored value of the layer's
    QA layer, `decoded` its bit fields in words.
    """

    site: int
    layer: str
    granule: str
    time: datetime | None
    day_night: str
    row: int
    column: int
    distance: float
    value: float | None
    units: str
    mean: float | None
    std: float | None
    valid: int
    pixels: int
    reason: str
    quality: int | None
    decoded: str


def read_sites(
    paths: Sequence[Path], layers: Sequence[Wanted], sites: Sequence[Site], *, mask: bool = True
) -> list[Reading]:
    """Read layers of granules of one date at sites.

    Granules are read only in the rows that hold pixels of a site.

    Args:
        paths: Files of granules of one product and date, in any order; of several editions of one
            granule the newest counts.
        layers: Layers to read; of a layer with several bands one, as `Name[2]`.
        sites: Where to read. Longitudes lie between -180 and 180.
        mask: Whether codes and values outside the valid range are empty; without, only fill is.

    Returns:
        One reading for each layer and site that a grid covers. In swaths one for each overpass:
        of two granules that saw a site within a minute, the one whose footprint is nearer.
        They are sorted by layer as given, site and time.

    Raises:
        UnreadableGranuleError: a granule is damaged.
        UnknownLayerError: a granule does not hold a layer.
        NoGeolocationError: a swath does not say where its pixels lie.
        ChoiceRefusedError: a rule cannot be applied, or a layer's physical units are not known.
    """
    found: list[Reading] = []
    with one_call():
        for wanted in layers:
            places = find_places(paths, wanted.layer)
            if places[0].layer.scale_problem:
                raise ChoiceRefusedError(
                    f"physical units of layer {wanted.layer!r} are unknown: "
                    f"{places[0].layer.scale_problem}; leave the layer out"
                )
            if places[0].grid is None:
                swaths = newest_of_each_swath(places)
                passes = [one for at in swaths for one in _in_swath(at, wanted, sites, mask=mask)]
                found += _one_of_each_pass(passes)
            else:
                found += _in_grids(newest_of_each_place(places), wanted, sites, mask=mask)
    return found


@dataclass(frozen=True, kw_only=True)
class _Pixels:
    """Pixels of a layer in a granule: stored values, reasons, rows and columns, of one shape."""

    stored: Stored
    why: npt.NDArray[np.uint8]


class _Window:
    """Reads layers of one granule in the rows that are needed."""

    def __init__(self, granule: Granule, memory: Memory) -> None:
        self._granule = granule
        self._memory = memory

    def at(self, layer: Layer, rows: Whole, columns: Whole) -> Stored:
        first, last = int(rows.min()), int(rows.max()) + 1
        cut = replace(layer, first_row=first, shape=Shape(last - first, layer.shape.cols))
        whole = self._memory.recall(
            ("rows", layer.name, layer.index, first, last),
            lambda: self._granule.read(cut),
            nbytes,
        )
        return whole[rows - first, columns]

    def pixels(
        self, layer: Layer, rule: Rule, rows: Whole, columns: Whole, *, mask: bool
    ) -> _Pixels:
        stored = self.at(layer, rows, columns)
        why = qa.reasons_at(
            self._granule, layer, rule if mask else None, stored, (rows, columns), self.at
        )
        if not mask:
            why[why != Reason.FILL] = Reason.VALID
        return _Pixels(stored=stored, why=why)


def _in_grids(
    places: Sequence[GranuleHeader], wanted: Wanted, sites: Sequence[Site], *, mask: bool
) -> list[Reading]:
    grids = [place.grid for place in places if place.grid is not None]
    space = SourceSpace.of(grids[0])
    lon, lat = _points(sites)
    x, y = space.pixels(lon, lat)
    known = np.isfinite(x) & np.isfinite(y)
    own_row = np.floor(np.where(known, y, -1e9)).astype(np.int64)
    own_col = np.floor(np.where(known, x, -1e9)).astype(np.int64)
    rows, cols = own_row[:, None] + _AROUND[:, 0], own_col[:, None] + _AROUND[:, 1]
    shape = rows.shape
    stored = np.zeros(shape, places[0].layer.dtype)
    why = np.full(shape, Reason.NO_GRANULE, np.uint8)
    quality: dict[int, tuple[int, str] | None] = {}
    about: dict[int, tuple[GranuleHeader, int, int]] = {}
    areas: dict[int, list[_Pixels]] = {n: [] for n, one in enumerate(sites) if one.area is not None}
    for place, grid in zip(places, grids, strict=True):
        left, top = space.offset(grid)
        r, c = rows - top, cols - left
        inside = (r >= 0) & (r < grid.height) & (c >= 0) & (c < grid.width)
        members = {n: _in_area(sites[n], grid) for n in areas}
        if not inside.any() and not any(part[0].size for part in members.values()):
            continue
        with opened(place.path) as (granule, memory):
            layer = granule.layer(place.layer.name)
            window = _Window(granule, memory)
            if inside.any():
                seen = window.pixels(layer, wanted.rule, r[inside], c[inside], mask=mask)
                stored[inside], why[inside] = seen.stored, seen.why
            here = np.flatnonzero(inside[:, _OWN])
            for n in here.tolist():
                about[n] = place, int(r[n, _OWN]), int(c[n, _OWN])
            told = _qualities(granule, layer, window, r[here, _OWN], c[here, _OWN])
            quality.update(zip(here.tolist(), told, strict=False))
            for n, (down, across) in members.items():
                if down.size:
                    areas[n].append(window.pixels(layer, wanted.rule, down, across, mask=mask))
    away = _distances(space, own_row, own_col, lon, lat).tolist()
    nine = _Pixels(stored=stored, why=why)
    own, summaries = _own(nine, places[0].layer), _summaries(nine, places[0].layer)
    return [
        _reading(
            n,
            place,
            own[n],
            _of_area(areas.get(n, ()), place.layer) or summaries[n],
            at=(row, col),
            distance=away[n],
            time=None,
            day_night="",
            quality=quality.get(n),
        )
        for n, (place, row, col) in sorted(about.items())
    ]


def _in_swath(
    place: GranuleHeader, wanted: Wanted, sites: Sequence[Site], *, mask: bool
) -> Iterator[Reading]:
    with opened(place.path) as (granule, memory):
        geolocation = memory.recall(
            ("located for sites", place.layer.swath, place.layer.shape),
            lambda: located(granule, place),
            lambda made: made.lat.nbytes + made.lon.nbytes,
        )
        swath = Swath.of(geolocation)
        lon, lat = _points(sites)
        index = nearest(swath, Targets(lat=lat[:, None], lon=lon[:, None]))[:, 0]
        seen = np.flatnonzero(index >= 0)
        if not seen.size:
            return
        lines, samples = swath.lat.shape
        own = np.stack(np.divmod(index[seen].astype(np.int64), samples))
        rows, cols = own[0][:, None] + _AROUND[:, 0], own[1][:, None] + _AROUND[:, 1]
        inside = (rows >= 0) & (rows < lines) & (cols >= 0) & (cols < samples)
        layer = granule.layer(place.layer.name)
        window = _Window(granule, memory)
        stored = np.zeros(rows.shape, layer.dtype)
        why = np.full(rows.shape, Reason.NO_GRANULE, np.uint8)
        found = window.pixels(layer, wanted.rule, rows[inside], cols[inside], mask=mask)
        stored[inside], why[inside] = found.stored, found.why
        away = _chords(lon[seen], lat[seen], swath.lon[own[0], own[1]], swath.lat[own[0], own[1]])
        told = _qualities(granule, layer, window, own[0], own[1]) or [None] * len(seen)
        nine = _Pixels(stored=stored, why=why)
        values, summaries = _own(nine, layer), _summaries(nine, layer)
        for number, site in enumerate(seen.tolist()):
            area = []
            if sites[site].area is not None:
                down, across = _footprints_in(sites[site], geolocation)
                if down.size:
                    area = [window.pixels(layer, wanted.rule, down, across, mask=mask)]
            yield _reading(
                site,
                place,
                values[number],
                _of_area(area, layer) or summaries[number],
                at=(int(own[0][number]), int(own[1][number])),
                distance=float(away[number]),
                time=_moment(place, int(own[0][number]), lines),
                day_night=granule.day_night,
                quality=told[number],
            )


class _Summary(NamedTuple):
    """What is told of the pixels of one site: mean and deviation of those with a value."""

    mean: float | None
    std: float | None
    valid: int
    pixels: int


def _summaries(pixels: _Pixels, layer: Layer) -> list[_Summary]:
    """Summarise pixels, a row of them for each site."""
    good = pixels.why == Reason.VALID
    count = good.sum(axis=1)
    across = pixels.why.shape[1]
    if layer.kind is not LayerKind.CONTINUOUS:
        return [_Summary(None, None, valid, across) for valid in count.tolist()]
    values = np.where(good, _physical(pixels.stored, layer), 0.0)
    with np.errstate(invalid="ignore"):
        mean = values.sum(axis=1) / count
        off = np.where(good, values - mean[:, None], 0.0)
        std = np.sqrt((off**2).sum(axis=1) / count)
    return [
        _Summary(one, deviation, valid, across) if valid else _Summary(None, None, 0, across)
        for one, deviation, valid in zip(mean.tolist(), std.tolist(), count.tolist(), strict=True)
    ]


def _of_area(parts: Sequence[_Pixels], layer: Layer) -> _Summary | None:
    """Summarise the pixels of a polygon; return None if it holds none."""
    if not parts:
        return None
    joined = _Pixels(
        stored=np.concatenate([one.stored for one in parts])[None],
        why=np.concatenate([one.why for one in parts])[None],
    )
    return _summaries(joined, layer)[0]


def _reading(
    site: int,
    place: GranuleHeader,
    own: tuple[float, int],
    summary: _Summary,
    *,
    at: tuple[int, int],
    distance: float,
    time: datetime | None,
    day_night: str,
    quality: tuple[int, str] | None,
) -> Reading:
    value, reason = own
    return Reading(
        site=site,
        layer=place.layer.name,
        granule=place.name,
        time=time,
        day_night=day_night,
        row=at[0],
        column=at[1],
        distance=round(distance, 1),
        value=value if reason == Reason.VALID else None,
        units=place.layer.units,
        mean=summary.mean,
        std=summary.std,
        valid=summary.valid,
        pixels=summary.pixels,
        reason=REASONS[reason],
        quality=None if quality is None else quality[0],
        decoded="" if quality is None else quality[1],
    )


def _own(pixels: _Pixels, layer: Layer) -> list[tuple[float, int]]:
    """Return value and reason of each site's own pixel, the middle one of nine."""
    values = _physical(pixels.stored[:, _OWN], layer).tolist()
    return list(zip(values, pixels.why[:, _OWN].tolist(), strict=True))


def _physical(stored: Stored, layer: Layer) -> Floats:
    return np.asarray(stored.astype(np.float64) * layer.scale + layer.offset)


def _one_of_each_pass(readings: Sequence[Reading]) -> list[Reading]:
    """Keep, of readings of one site within a minute, the one with the nearer footprint."""
    kept: list[Reading] = []
    for one in sorted(readings, key=lambda r: (r.site, r.time is None, r.time or UNDATED)):
        last = kept[-1] if kept else None
        if (
            last is not None
            and last.site == one.site
            and last.time is not None
            and one.time is not None
            and one.time - last.time < _SAME_PASS
        ):
            kept[-1] = min(last, one, key=lambda r: (r.distance, r.granule))
        else:
            kept.append(one)
    return kept


def _moment(place: GranuleHeader, row: int, lines: int) -> datetime | None:
    """Return when a line was recorded: between the granule's start and end, to the second."""
    if place.start == UNDATED:
        return None
    if place.end is None or place.end <= place.start:
        return place.start
    return (place.start + (place.end - place.start) * ((row + 0.5) / lines)).replace(microsecond=0)


def _points(sites: Sequence[Site]) -> tuple[Floats, Floats]:
    return np.array([one.lon for one in sites]), np.array([one.lat for one in sites])


def _distances(space: SourceSpace, rows: Whole, cols: Whole, lon: Floats, lat: Floats) -> Floats:
    x = np.asarray((cols + 0.5) * space.pixel_width + space.x0, np.float64)
    y = np.asarray((rows + 0.5) * space.pixel_height + space.y0, np.float64)
    return _chords(lon, lat, *to_lonlat(space.crs, x, y))


def _chords(lon: Floats, lat: Floats, other_lon: Floats, other_lat: Floats) -> Floats:
    """Return distances in metres; of points this near, chords and arcs are the same."""
    here, there = unit_vectors(lat, lon), unit_vectors(other_lat, other_lon)
    return np.asarray(np.linalg.norm(np.stack(here) - np.stack(there), axis=0) * SPHERE_RADIUS)


def _in_area(site: Site, grid: Grid) -> tuple[Whole, Whole]:
    """Return rows and columns of the pixels of a grid whose centres lie in a site's polygon."""
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    if site.area is None:
        return nothing
    west, south, east, north = site.area.bounds
    lon, lat = np.meshgrid(
        np.linspace(west, east, _EDGE_STEPS), np.linspace(south, north, _EDGE_STEPS)
    )
    space = SourceSpace.of(grid)
    left, top = space.offset(grid)
    x, y = space.pixels(lon.ravel(), lat.ravel())
    if not np.isfinite(x).any():
        return nothing
    first_col = max(0, math.floor(np.nanmin(x)) - left - 1)
    last_col = min(grid.width, math.floor(np.nanmax(x)) - left + 2)
    first_row = max(0, math.floor(np.nanmin(y)) - top - 1)
    last_row = min(grid.height, math.floor(np.nanmax(y)) - top + 2)
    if first_col >= last_col or first_row >= last_row:
        return nothing
    cols, rows = np.meshgrid(np.arange(first_col, last_col), np.arange(first_row, last_row))
    a, _, c, _, e, f = grid.transform
    x, y = np.asarray((cols + 0.5) * a + c, np.float64), np.asarray((rows + 0.5) * e + f)
    at_lon, at_lat = to_lonlat(grid.crs, x, y.astype(np.float64))
    there = shapely.contains_xy(site.area, at_lon, at_lat)
    return rows[there].astype(np.int64), cols[there].astype(np.int64)


def _footprints_in(site: Site, geolocation: Geolocation) -> tuple[Whole, Whole]:
    if site.area is None:
        raise AssertionError(f"site {site.name} has no polygon")
    west, south, east, north = site.area.bounds
    lon, lat = geolocation.lon, geolocation.lat
    with np.errstate(invalid="ignore"):
        near = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
    rows, cols = np.nonzero(near)
    there = shapely.contains_xy(site.area, lon[rows, cols], lat[rows, cols])
    return rows[there].astype(np.int64), cols[there].astype(np.int64)


def _qualities(
    granule: Granule, layer: Layer, window: _Window, rows: Whole, columns: Whole
) -> list[tuple[int, str] | None]:
    """Return the QA value of each pixel and its bit fields in words; empty if none is known."""
    name = layer.qa if layer.qa is not None and layer.qa in granule.layers else layer.base_name
    about = granule.layers[name]
    if not rows.size or not qa.decode(granule, name, 0) or about.dtype.kind not in "iu":
        return []
    try:
        down, across = qa.placement(granule, layer, about)
    except ChoiceRefusedError:
        return []
    rows, columns = (
        rows if down is None else down[rows],
        columns if across is None else across[columns],
    )
    bands = list(np.ndindex(*(size for _, size in about.bands)))
    held = [window.at(replace(about, index=index), rows, columns) for index in bands]
    words: dict[int, str] = {}
    told: list[tuple[int, str] | None] = []
    for pixel in range(rows.size):
        numbers = [int(band[pixel]) for band in held]
        number = numbers[0]
        if len(numbers) > 1:
            number = sum((one & 0xFF) << (8 * place) for place, one in enumerate(numbers))
        if number not in words:
            words[number] = _in_words(granule, name, numbers)
        told.append((number, words[number]))
    return told


def _in_words(granule: Granule, name: str, numbers: Sequence[int]) -> str:
    fields = qa.decode(granule, name, numbers[0] if len(numbers) == 1 else numbers)
    return "; ".join(
        f"{one.name}={one.value}" + (f" ({one.meaning})" if one.meaning else "") for one in fields
    )
