"""Read layers at sites: the pixel of a granule in which a site lies, and the pixels around it.

Nothing is resampled: pixels are those of the granule's own grid, or the footprints of a swath. A
point takes the 3 x 3 pixels around its own; a polygon takes those whose centres lie in it. In a
grid the own pixel is the one that holds the point. In a swath it is the footprint that
`reprojection.warp.swath` finds, whose centre is nearest. A grid's 3 x 3 pixels go on in the
neighbouring tile. Those of a swath are neighbours by line and column of its own granule.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import shapely
from shapely import MultiPolygon, Polygon

from modis.sphere import SPHERE_RADIUS
from reprojection.catalogue.layers import Layer, LayerKind
from reprojection.errors import ChoiceRefusedError, UnknownLayerError
from reprojection.grid.coordinates import SourceSpace
from reprojection.grid.crs import Floats, wrap_longitude
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_at import pixels_in
from reprojection.grid.sphere import unit_vectors
from reprojection.grid.targets import Targets
from reprojection.read import qa
from reprojection.read.completeness import WHOLE, Completeness, Missing, no_layer, of_parts
from reprojection.read.geolocation import Geolocation
from reprojection.read.granule import Granule
from reprojection.read.granule_layer import (
    UNDATED,
    Found,
    GranuleHeader,
    Rule,
    find_places,
    located,
)
from reprojection.read.kept import Memory, one_call, opened
from reprojection.read.qa import Reason
from reprojection.warp.from_swaths import newest_of_each_swath
from reprojection.warp.from_tiles import newest_of_each_place
from reprojection.warp.swath import Swath, nearest

Whole = npt.NDArray[np.int64]
Stored = npt.NDArray[np.generic]
Times = npt.NDArray[np.datetime64]

_AROUND = np.array([(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1)])
_OWN = 4  # of the nine: the pixel itself
_SAME_PASS = np.timedelta64(1, "m")  # within it, two granules saw a site in one overpass
_GRIDS = 16  # in which the places of sites are remembered
_TURN = 360.0  # degrees
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
    """A layer to read, and the rule that says which of its pixels are data.

    Of tiles, `solar_time` is the layer that says when a pixel was seen, in hours of the local solar
    time, if there is one.
    """

    layer: str
    rule: Rule = None
    solar_time: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Quality:
    """The stored values of a QA layer, and its bit fields in words: `words[word]`."""

    stored: Whole
    words: tuple[str, ...]
    word: Whole


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """What one layer of one granule holds at sites: arrays with an element for each site seen.

    `site` is the site's number. `value` is in `units`; NaN where the pixel is empty, for the
    `reason`. `mean` and `std` (of the population) are of the `valid` pixels with a value among the
    `pixels` of the site; NaN for classes and bit fields. `time` is when a swath's line was
    recorded, in UTC; else NaT. `distance` in metres goes from the site to the pixel's centre.
    `quality` is of the layer's QA layer; None where there is none.
    """

    layer: str
    granule: str
    day_night: str
    units: str
    site: Whole
    time: Times
    row: Whole
    column: Whole
    distance: Floats
    value: Floats
    mean: Floats
    std: Floats
    valid: Whole
    pixels: Whole
    reason: npt.NDArray[np.uint8]
    quality: Quality | None

    def take(self, kept: Whole) -> "Readings":
        """Return the readings at these places of the arrays."""
        arrays = {
            one.name: getattr(self, one.name)[kept]
            for one in fields(self)
            if isinstance(getattr(self, one.name), np.ndarray)
        }
        quality = self.quality
        if quality is not None:
            quality = replace(quality, stored=quality.stored[kept], word=quality.word[kept])
        return replace(self, **arrays, quality=quality)


class Places:
    """Sites as granules and rasters are read at them; where they lie in a grid is found once."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = tuple(sites)
        self.lon = np.array([one.lon for one in sites])
        self.lat = np.array([one.lat for one in sites])
        self.polygons = [n for n, one in enumerate(sites) if one.area is not None]
        self.in_grid = lru_cache(_GRIDS)(self._find_in_grid)
        self.pixels = lru_cache(1)(self._find_pixels)

    def _find_pixels(self, space: SourceSpace, wholes: tuple[Grid, ...]) -> tuple[Whole, Whole]:
        return pixels_in(space, wholes, self.lon, self.lat)

    def _find_in_grid(
        self, space: SourceSpace, grid: Grid, wholes: tuple[Grid, ...]
    ) -> "_Spots | None":
        row, column = self.pixels(space, wholes)
        left, top = space.offset(grid)
        row, column = row - top, column - left
        rows, columns = row[:, None] + _AROUND[:, 0], column[:, None] + _AROUND[:, 1]
        inside = (rows >= 0) & (rows < grid.height) & (columns >= 0) & (columns < grid.width)
        areas = {n: _in_area(self.sites[n], grid) for n in self.polygons}
        areas = {n: part for n, part in areas.items() if part[0].size}
        if not inside.any() and not areas:
            return None
        here = np.flatnonzero(inside[:, _OWN])
        away = _distances(
            space, row[here] + top, column[here] + left, self.lon[here], self.lat[here]
        )
        return _Spots(
            sites=here,
            row=row[here],
            column=column[here],
            distance=away,
            rows=rows,
            columns=columns,
            inside=inside,
            areas=areas,
        )


def read_sites(
    paths: Sequence[Path], layers: Sequence[Wanted], places: Places, *, mask: bool = True
) -> tuple[list[Readings], Completeness]:
    """Read layers of granules of one date at sites.

    Of granules only the chunks are read that hold pixels of a site.

    Args:
        paths: Files of granules of one product and date, in any order; of several editions of one
            granule the newest counts.
        layers: Layers to read; of a layer with several bands one, as `Name[2]`.
        places: Where to read. Longitudes lie between -180 and 180.
        mask: Whether codes and values outside the valid range are empty; without, only fill is.

    Returns:
        The readings of each layer and granule that saw a site, by layer as given and granule. A
        site that a grid covers is in one of them. In swaths it is in one for each overpass: of two
        granules that saw it within a minute, the one whose footprint is nearer. And what they lack:
        a layer that no granule of the date holds, and granules that do not hold a layer.

    Raises:
        UnreadableGranuleError: a granule is damaged.
        UnknownLayerError: no granule holds any of the layers, or one of another product does not.
        NoGeolocationError: a swath does not say where its pixels lie.
        ChoiceRefusedError: a rule cannot be applied, or a layer's physical units are not known.
    """
    found: list[Readings] = []
    lacks: list[Completeness] = []
    reader = _Reader(places, mask=mask)
    with one_call():
        for wanted, (headers, without, _) in _held(paths, layers, lacks):
            lacks.append(of_parts([WHOLE] * len(headers), len(without), without))
            if headers[0].layer.scale_problem:
                raise ChoiceRefusedError(
                    f"physical units of layer {wanted.layer!r} are unknown: "
                    f"{headers[0].layer.scale_problem}; leave the layer out"
                )
            if headers[0].grid is None:
                swaths = newest_of_each_swath(headers)
                passes = [reader.in_swath(header, wanted.rule) for header in swaths]
                found += _one_of_each_pass([one for one in passes if one is not None])
            else:
                found += reader.in_grids(newest_of_each_place(headers), wanted)
    return found, of_parts(lacks)


def touch_sites(
    paths: Sequence[Path], layers: Sequence[Wanted], places: Places, *, mask: bool = True
) -> None:
    """Read one granule, and those that say where its pixels lie, as `read_sites` reads a date.

    All is read that is read of the granule then, whatever granules lie beside it: a site in a
    neighbouring tile may take pixels of this one. Raises what `read_sites` raises.
    """
    reader = _Reader(places, mask=mask, alone=True)
    with one_call():
        for wanted, (headers, _, _) in _held(paths, layers, []):
            if headers[0].layer.scale_problem:
                continue
            if headers[0].grid is None:
                for header in newest_of_each_swath(headers):
                    reader.in_swath(header, wanted.rule)
            else:
                reader.in_grids(newest_of_each_place(headers), wanted)


def _held(
    paths: Sequence[Path], layers: Sequence[Wanted], lacks: list[Completeness]
) -> Iterator[tuple[Wanted, Found]]:
    """Yield the layers that granules hold, with their headers; add to `lacks` for each other.

    Raises UnknownLayerError at the end if no granule holds any layer.
    """
    absent: UnknownLayerError | None = None
    for wanted in layers:
        try:
            found = find_places(paths, wanted.layer)
        except UnknownLayerError as error:
            absent = error
            names = sorted(path.name for path in paths)
            lacks.append(
                of_parts([], 1, [Missing(what=n, why=no_layer(wanted.layer)) for n in names])
            )
            continue
        yield wanted, found
    if absent is not None and all(one.share == 0.0 for one in lacks):
        raise absent


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A raster to read at sites: its file's name, its grid, and what it holds.

    `rows` reads the rows from one to before another, in `units`, NaN where there is no value.
    """

    name: str
    grid: Grid
    units: str
    continuous: bool
    rows: Callable[[int, int], Floats]


def read_cells(
    layer: str, cells: Sequence[Cell], places: Places, wholes: Sequence[Grid] = ()
) -> list[Readings]:
    """Read rasters of one layer and date at sites, as `read_sites` reads granules.

    Args:
        layer: The layer's name.
        cells: Rasters whose grids have one lattice and no pixel in common.
        places: Where to read.
        wholes: The grids of the rasters that the cells are parts of; by default the cells' own. A
            site has the pixel that it has there, by the rule of `pixel_at`.

    Returns:
        The readings of each raster that holds a site.

    Raises:
        GridError: the grids have no common lattice.
    """
    whole = tuple(wholes) or tuple(cell.grid for cell in cells)
    return _Reader(places, mask=True).in_cells(layer, cells, whole)


class _Scaled(Protocol):
    """What says how stored values are meant."""

    @property
    def kind(self) -> LayerKind: ...

    @property
    def scale(self) -> float: ...

    @property
    def offset(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class _Physical:
    """Values in physical units."""

    kind: LayerKind
    scale: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pixels:
    """Stored values of a layer, and their reasons, of one shape."""

    stored: Stored
    why: npt.NDArray[np.uint8]

    def take(self, which: Whole) -> "_Pixels":
        return _Pixels(stored=self.stored[which], why=self.why[which])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Spots:
    """Where the sites lie in a granule.

    Of each of `sites`: its own pixel, and how far away that is. `rows` and `columns` are the nine
    pixels, of which the granule holds those `inside`. `areas` are the pixels of each polygon.
    """

    sites: Whole
    row: Whole
    column: Whole
    distance: Floats
    rows: Whole
    columns: Whole
    inside: npt.NDArray[np.bool_]
    areas: Mapping[int, tuple[Whole, Whole]]

    @cached_property
    def extent(self) -> tuple[int, int]:
        """The first row that holds a pixel, and the row after the last."""
        rows, _ = self.pixels
        return int(rows[0]), int(rows[-1]) + 1

    @cached_property
    def pixels(self) -> tuple[Whole, Whole]:
        """Rows and columns of all pixels that are read, each once, in their order."""
        return self._pixels[0]

    @property
    def of_nine(self) -> Whole:
        """The indices in `pixels` of the nine pixels inside."""
        return self._pixels[1][0]

    @property
    def of_own(self) -> Whole:
        """The indices in `pixels` of the sites' own pixels."""
        return self._pixels[1][1]

    @property
    def of_areas(self) -> Mapping[int, Whole]:
        """The indices of the `pixels` in each polygon."""
        return dict(zip(self.areas, self._pixels[1][2:], strict=True))

    @cached_property
    def _pixels(self) -> tuple[tuple[Whole, Whole], list[Whole]]:
        parts = [
            (self.rows[self.inside], self.columns[self.inside]),
            (self.row, self.column),
            *self.areas.values(),
        ]
        rows = np.concatenate([down for down, _ in parts])
        columns = np.concatenate([across for _, across in parts])
        width = int(columns.max()) + 1
        numbers, which = np.unique(rows * width + columns, return_inverse=True)
        ends = np.cumsum([down.size for down, _ in parts])[:-1]
        return np.divmod(numbers, width), np.split(which, ends)


class _Window:
    """Reads layers of one granule at all pixels that are needed, each layer once.

    `about` is a layer that lies where the `spots` were found. `held` is what the call has read.
    """

    def __init__(
        self, granule: Granule, about: Layer, spots: _Spots, held: dict[Hashable, Stored]
    ) -> None:
        self.granule = granule
        self.spots = spots
        self._of = granule.path, about.grid, about.swath, about.shape
        self._held = held

    def at(self, layer: Layer, rows: Whole, columns: Whole) -> Stored:
        """Read a layer at all pixels, by rows and columns as this layer counts them."""
        key = *self._of, layer.name, layer.index
        if key not in self._held:
            self._held[key] = self.granule.take(layer, rows, columns)
        return self._held[key]

    def pixels(self, layer: Layer, rule: Rule, *, mask: bool) -> _Pixels:
        """Read a layer that lies where the spots were found, with the rule's QA layers."""
        where = self.spots.pixels
        stored = self.at(layer, *where)
        why = qa.reasons_at(self.granule, layer, rule if mask else None, stored, where, self.at)
        if not mask:
            why[why != Reason.FILL] = Reason.VALID
        return _Pixels(stored=stored, why=why)


class _Reader:
    """Reads layers at sites, and remembers within one call where the sites lie in each swath."""

    def __init__(self, places: Places, *, mask: bool, alone: bool = False) -> None:
        self._places = places
        self._alone = alone  # of the date's granules only one is here
        self._sites = places.sites
        self._mask = mask
        self._polygons = places.polygons
        self._spots: dict[Hashable, _Spots | None] = {}
        self._held: dict[Hashable, Stored] = {}
        self._qualities: dict[Hashable, Quality | None] = {}

    def in_grids(self, places: Sequence[GranuleHeader], wanted: Wanted) -> list[Readings]:
        """Read a layer of the tiles of one date, whose pixels go on from tile to tile."""
        grids = [place.grid for place in places if place.grid is not None]
        space = SourceSpace.of(grids[0])
        wholes = tuple(grids) if not self._alone else tuple(map(_with_neighbours, grids))
        count = len(self._sites)
        stored = np.zeros((count, len(_AROUND)), places[0].layer.dtype)
        why = np.full(stored.shape, Reason.NO_GRANULE, np.uint8)
        areas: dict[int, list[_Pixels]] = {n: [] for n in self._polygons}
        about: list[tuple[GranuleHeader, _Spots, Quality | None, Times]] = []
        for place, grid in zip(places, grids, strict=True):
            spots = self._places.in_grid(space, grid, wholes)
            if spots is None:
                continue
            with opened(place.path) as (granule, _):
                layer = granule.layer(place.layer.name)
                window = _Window(granule, layer, spots, self._held)
                pixels = window.pixels(layer, wanted.rule, mask=self._mask)
                stored[spots.inside] = pixels.stored[spots.of_nine]
                why[spots.inside] = pixels.why[spots.of_nine]
                for n, which in spots.of_areas.items():
                    areas[n].append(pixels.take(which))
                quality = self._quality(window, layer)
                about.append((place, spots, quality, self._seen(window, place, wanted)))
        numbers = _numbers(
            _Pixels(stored=stored, why=why),
            [_joined(areas.get(n, ())) for n in self._polygons],
            self._polygons,
            places[0].layer,
        )
        return [
            replace(_of_granule(place, spots, numbers.take(spots.sites), quality), time=time)
            for place, spots, quality, time in about
            if spots.sites.size
        ]

    def _seen(self, window: "_Window", place: GranuleHeader, wanted: Wanted) -> Times:
        """Return when the sites' own pixels of a tile were seen, in UTC, to the minute.

        Local solar time is UTC + longitude / 15 degrees, by a whole day less or more where that
        leaves the day (Wan, MODIS land surface temperature products users' guide, 2013, "SDSs in
        the MOD11A1 product"). A tile is of a UTC day, so the time lies in that.
        """
        spots = window.spots
        unknown = np.full(spots.row.shape, "NaT", "M8[ms]")
        if wanted.solar_time not in window.granule.layers or not spots.row.size:
            return unknown
        layer = window.granule.layer(wanted.solar_time)
        pixels = window.pixels(layer, None, mask=True).take(spots.of_own)
        hours = _physical(pixels.stored, layer) - self._places.lon[spots.sites] / 15.0
        minutes = np.round(60.0 * (hours % 24.0)).astype("m8[m]")
        day = np.datetime64(place.start.date(), "ms")
        return np.where(pixels.why == Reason.VALID, day + minutes, unknown)

    def in_cells(
        self, layer: str, cells: Sequence[Cell], wholes: tuple[Grid, ...]
    ) -> list[Readings]:
        """Read rasters of one lattice, whose pixels go on from one to the other."""
        space = SourceSpace.of(cells[0].grid)
        stored = np.full((len(self._sites), len(_AROUND)), np.nan)
        covered = np.zeros(stored.shape, np.bool_)
        areas: dict[int, list[_Pixels]] = {n: [] for n in self._polygons}
        about: list[tuple[Cell, _Spots]] = []
        for cell in cells:
            spots = self._places.in_grid(space, cell.grid, wholes)
            if spots is None:
                continue
            first, last = spots.extent
            values, inside = cell.rows(first, last), spots.inside
            stored[inside] = values[spots.rows[inside] - first, spots.columns[inside]]
            covered |= inside
            for n, (down, across) in spots.areas.items():
                areas[n].append(_of_values(values[down - first, across]))
            about.append((cell, spots))
        nine = _of_values(stored)
        nine.why[~covered] = Reason.NO_GRANULE
        kind = LayerKind.CONTINUOUS if cells[0].continuous else LayerKind.CLASS
        numbers = _numbers(
            nine,
            [_joined(areas.get(n, ())) for n in self._polygons],
            self._polygons,
            _Physical(kind=kind),
        )
        return [
            _readings(layer, cell.name, cell.units, spots, numbers.take(spots.sites), None)
            for cell, spots in about
            if spots.sites.size
        ]

    def in_swath(self, place: GranuleHeader, rule: Rule) -> Readings | None:
        """Read a layer of a swath; return None if it saw no site."""
        with opened(place.path) as (granule, memory):
            spots = self._in_footprints(granule, memory, place)
            if spots is None:
                return None
            layer = granule.layer(place.layer.name)
            window = _Window(granule, layer, spots, self._held)
            pixels = window.pixels(layer, rule, mask=self._mask)
            nine = _Pixels(
                stored=np.zeros(spots.rows.shape, layer.dtype),
                why=np.full(spots.rows.shape, Reason.NO_GRANULE, np.uint8),
            )
            nine.stored[spots.inside] = pixels.stored[spots.of_nine]
            nine.why[spots.inside] = pixels.why[spots.of_nine]
            areas = [pixels.take(which) for which in spots.of_areas.values()]
            numbers = _numbers(nine, areas, list(spots.areas), layer)
            lines = place.layer.shape.rows
            return replace(
                _of_granule(place, spots, numbers, self._quality(window, layer)),
                time=_moments(place, spots.row, lines),
                day_night=granule.day_night,
            )

    def _in_footprints(
        self, granule: Granule, memory: Memory, place: GranuleHeader
    ) -> _Spots | None:
        key = place.path, place.layer.swath, place.layer.shape
        if key not in self._spots:
            self._spots[key] = self._find_footprints(granule, memory, place)
        return self._spots[key]

    def _find_footprints(
        self, granule: Granule, memory: Memory, place: GranuleHeader
    ) -> _Spots | None:
        geolocation = memory.recall(
            ("located for sites", place.layer.swath, place.layer.shape),
            lambda: located(granule, place),
            lambda made: made.lat.nbytes + made.lon.nbytes,
        )
        swath = Swath.of(geolocation)
        lon, lat = self._places.lon, self._places.lat
        targets = Targets(lat=lat[:, None], lon=lon[:, None])
        index = nearest(swath, targets)[:, 0]
        seen = np.flatnonzero(index >= 0)
        if not seen.size:
            return None
        lines, samples = swath.lat.shape
        row, column = np.divmod(index[seen].astype(np.int64), samples)
        rows, columns = row[:, None] + _AROUND[:, 0], column[:, None] + _AROUND[:, 1]
        areas = {
            number: _footprints_in(self._sites[site], geolocation)
            for number, site in enumerate(seen.tolist())
            if self._sites[site].area is not None
        }
        return _Spots(
            sites=seen,
            row=row,
            column=column,
            distance=_chords(lon[seen], lat[seen], swath.lon[row, column], swath.lat[row, column]),
            rows=rows,
            columns=columns,
            inside=(rows >= 0) & (rows < lines) & (columns >= 0) & (columns < samples),
            areas={number: part for number, part in areas.items() if part[0].size},
        )

    def _quality(self, window: _Window, layer: Layer) -> Quality | None:
        """Return the QA values of the sites' own pixels; None if no QA layer is known."""
        granule = window.granule
        name = layer.qa if layer.qa is not None and layer.qa in granule.layers else layer.base_name
        about = granule.layers[name]
        key = granule.path, name, layer.grid, layer.swath, layer.shape
        if key not in self._qualities:
            self._qualities[key] = _quality(window, layer, about)
        return self._qualities[key]


def _quality(window: _Window, layer: Layer, about: Layer) -> Quality | None:
    own = window.spots.of_own
    rows, columns = window.spots.pixels
    if not own.size or about.dtype.kind not in "iu":
        return None
    if about.name == layer.base_name and not qa.has_fields(window.granule, about.name):
        return None  # it has no QA layer, and holds no quality itself
    try:
        down, across = qa.placement(window.granule, layer, about)
    except ChoiceRefusedError:
        return None
    rows = rows if down is None else down[rows]
    columns = columns if across is None else across[columns]
    bands = list(np.ndindex(*(size for _, size in about.bands)))
    every = [window.at(replace(about, index=one), rows, columns) for one in bands]
    held = [one[own].astype(np.int64) for one in every]
    stored = held[0]
    if len(held) > 1:
        stored = np.sum([(one & 0xFF) << (8 * n) for n, one in enumerate(held)], axis=0)
    numbers, word = np.unique(stored, return_inverse=True)
    words = qa.in_words(window.granule, about.name, numbers.tolist())
    return Quality(stored=stored, words=tuple(words), word=word)


def _with_neighbours(grid: Grid) -> Grid:
    """Return a grid three times as wide and high, with this one in the middle.

    One that goes around the Earth has no neighbours.
    """
    if grid.system.is_plain_lonlat and 3 * grid.width * abs(grid.transform[0]) > _TURN:
        return grid
    a, b, c, d, e, f = grid.transform
    corner = c - a * grid.width, f - e * grid.height
    return Grid(
        crs=grid.crs,
        transform=(a, b, corner[0], d, e, corner[1]),
        width=3 * grid.width,
        height=3 * grid.height,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Numbers:
    """What is told of the pixels of each site."""

    value: Floats
    mean: Floats
    std: Floats
    valid: Whole
    pixels: Whole
    reason: npt.NDArray[np.uint8]

    def take(self, kept: Whole) -> "_Numbers":
        return _Numbers(**{one.name: getattr(self, one.name)[kept] for one in fields(self)})


def _numbers(
    nine: _Pixels, areas: Sequence[_Pixels | None], of: Sequence[int], layer: _Scaled
) -> _Numbers:
    """Summarise the nine pixels of each site, and in their place the pixels of its polygon.

    `areas` are the polygons of the sites `of`; None of one that holds no pixel.
    """
    reason = nine.why[:, _OWN]
    value = np.where(reason == Reason.VALID, _physical(nine.stored[:, _OWN], layer), np.nan)
    mean, std, valid = _summaries(nine, layer)
    pixels = np.full(valid.shape, nine.why.shape[1], np.int64)
    for n, area in zip(of, areas, strict=True):
        if area is None:
            continue
        (mean[n],), (std[n],), (valid[n],) = _summaries(
            _Pixels(stored=area.stored[None], why=area.why[None]), layer
        )
        pixels[n] = area.why.size
    return _Numbers(value=value, mean=mean, std=std, valid=valid, pixels=pixels, reason=reason)


def _summaries(pixels: _Pixels, layer: _Scaled) -> tuple[Floats, Floats, Whole]:
    """Return mean, deviation and number of the valid pixels in each row of pixels."""
    good = pixels.why == Reason.VALID
    count = good.sum(axis=1)
    if layer.kind is not LayerKind.CONTINUOUS:
        return np.full(count.shape, np.nan), np.full(count.shape, np.nan), count
    values = np.where(good, _physical(pixels.stored, layer), 0.0)
    with np.errstate(invalid="ignore"):
        mean = values.sum(axis=1) / count
        off = np.where(good, values - mean[:, None], 0.0)
        std = np.sqrt((off**2).sum(axis=1) / count)
    return mean, std, count


def _joined(parts: Sequence[_Pixels]) -> _Pixels | None:
    """Join the pixels of a polygon in several tiles; return None if it holds none."""
    if not parts:
        return None
    return _Pixels(
        stored=np.concatenate([one.stored for one in parts]),
        why=np.concatenate([one.why for one in parts]),
    )


def _of_values(values: Floats) -> _Pixels:
    why = np.where(np.isnan(values), Reason.FILL, Reason.VALID).astype(np.uint8)
    return _Pixels(stored=values, why=why)


def _of_granule(
    place: GranuleHeader, spots: _Spots, numbers: _Numbers, quality: Quality | None
) -> Readings:
    return _readings(place.layer.name, place.name, place.layer.units, spots, numbers, quality)


def _readings(
    layer: str,
    granule: str,
    units: str,
    spots: _Spots,
    numbers: _Numbers,
    quality: Quality | None,
) -> Readings:
    return Readings(
        layer=layer,
        granule=granule,
        day_night="",
        units=units,
        site=spots.sites,
        time=np.full(spots.sites.shape, "NaT", "M8[ms]"),
        row=spots.row,
        column=spots.column,
        distance=np.round(spots.distance, 1),
        value=numbers.value,
        mean=numbers.mean,
        std=numbers.std,
        valid=numbers.valid,
        pixels=numbers.pixels,
        reason=numbers.reason,
        quality=quality,
    )


def _physical(stored: Stored, layer: _Scaled) -> Floats:
    return np.asarray(stored.astype(np.float64) * layer.scale + layer.offset)


def _one_of_each_pass(passes: Sequence[Readings]) -> list[Readings]:
    """Keep, of readings of one site within a minute, the one with the nearer footprint."""
    if not passes:
        return []
    site = np.concatenate([one.site for one in passes])
    time = np.concatenate([one.time for one in passes])
    away = np.concatenate([one.distance for one in passes])
    names = [one.granule for one in passes for _ in range(one.site.size)]
    kept = np.ones(site.shape, np.bool_)
    last = -1
    for n in np.lexsort((time, site)).tolist():  # NaT comes last
        if last >= 0 and site[last] == site[n] and time[n] - time[last] < _SAME_PASS:
            farther = n if (away[last], names[last]) <= (away[n], names[n]) else last
            kept[farther] = False
            if farther == n:
                continue
        last = n
    ends = np.cumsum([one.site.size for one in passes])[:-1]
    parts = zip(passes, np.split(kept, ends), strict=True)
    return [one.take(np.flatnonzero(good)) for one, good in parts if good.any()]


def _moments(place: GranuleHeader, rows: Whole, lines: int) -> Times:
    """Return when lines were recorded: between the granule's start and end, to the second."""
    if place.start == UNDATED:
        return np.full(rows.shape, "NaT", "M8[ms]")
    start = np.datetime64(place.start.replace(tzinfo=None), "ms")
    if place.end is None or place.end <= place.start:
        return np.full(rows.shape, start)
    length = (place.end - place.start) / timedelta(milliseconds=1)
    after = (length * ((rows + 0.5) / lines)).astype("m8[ms]")
    return (start + after).astype("M8[s]").astype("M8[ms]")


def _distances(space: SourceSpace, rows: Whole, cols: Whole, lon: Floats, lat: Floats) -> Floats:
    x = np.asarray((cols + 0.5) * space.pixel_width + space.x0, np.float64)
    y = np.asarray((rows + 0.5) * space.pixel_height + space.y0, np.float64)
    return _chords(lon, lat, *space.system.to_lonlat(x, y))


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
    x = space.near(grid, x)
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
    at_lon, at_lat = grid.system.to_lonlat(x, y.astype(np.float64))
    there = shapely.contains_xy(site.area, wrap_longitude(at_lon), at_lat)
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
