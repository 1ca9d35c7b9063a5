"""Find which of many areas thousands of granules touch: `boundary.touches` in batches.

Areas and granules are drawn in gnomonic planes, where great circles are straight lines, and
compared there by the thousand. The map enlarges distances, at most by its scale. Pairs closer than
the margin touch; pairs farther apart than the margin can appear do not. Only the few pairs in
between are tested exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import shapely

from archives.formats.boundary import Area, Cap, area_caps, caps_meet, granule_caps, margin_km
from archives.model import GranuleRecord, Ring
from modis.sphere import SPHERE_RADIUS_KM

_WIDEST = math.radians(50.0)  # angular radius of a plane: a gnomonic map stretches by 1 / cos^2
_LARGEST = math.radians(40.0)  # largest angular radius of a granule that is compared in a plane
_FARTHEST = 2.5  # radians; the largest angle at which `boundary.caps_meet` takes its plane's scale
_HORIZON = math.cos(math.radians(78.0))

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Shapes = npt.NDArray[np.object_]


@dataclass(frozen=True, kw_only=True)
class _Plane:
    """A gnomonic map around `axes[2]`, and the parts drawn in it.

    Of each part it holds the number, the polygon, and the map's scale along the radius at the
    part's far end.
    """

    axes: Floats
    parts: npt.NDArray[np.intp]
    drawn: Shapes
    scale: Floats


@dataclass(frozen=True, kw_only=True)
class _Rings:
    """Granules of one ring each: unit vectors of all corners, the start of each ring, caps."""

    corners: Floats
    starts: npt.NDArray[np.intp]
    centres: Floats
    radii: Floats
    margins: Floats
    stretches: Floats
    """The largest factor by which `boundary.touches` enlarges each margin: its plane's scale at the
    rim."""


class Lookup:
    """Areas in which granules are looked up; a granule must touch all areas of an item."""

    def __init__(self, items: Sequence[Sequence[Area]]) -> None:
        self._caps: list[Cap] = []
        known: dict[object, list[int]] = {}
        self._items: list[list[list[int]]] = []
        for item in items:
            areas = []
            for area in item:
                name = tuple(area) if isinstance(area, Sequence) else area
                if name not in known:
                    caps = area_caps(area)
                    known[name] = [*range(len(self._caps), len(self._caps) + len(caps))]
                    self._caps.extend(caps)
                areas.append(known[name])
            self._items.append(areas)
        self._plain = self._items == [[[number]] for number in range(len(self._caps))]
        self._centres = np.array([cap.centre for cap in self._caps]).reshape(-1, 3)
        self._radii = np.array([cap.radius for cap in self._caps])
        self._planes = self._draw()

    def touching(self, records: Sequence[GranuleRecord]) -> Booleans:
        """Tell whether each granule (first axis) may hold pixels in each item (second axis)."""
        parts = np.zeros((len(records), len(self._caps)), bool)
        plain = [i for i, r in enumerate(records) if r.tile is None and _one_ring(r)]
        if plain:
            parts[plain] = self._compare([records[i] for i in plain])
        for i in set(range(len(records))).difference(plain):
            parts[i] = self._one_by_one(records[i])
        if self._plain:
            return parts
        found = np.ones((len(records), len(self._items)), bool)
        for number, areas in enumerate(self._items):
            for area in areas:
                found[:, number] &= parts[:, area].any(axis=1)
        return found

    def _one_by_one(self, record: GranuleRecord) -> Booleans:
        shapes = granule_caps(record)
        if shapes is None:
            return np.ones(len(self._caps), bool)
        margin = margin_km(record) / SPHERE_RADIUS_KM
        return np.array(
            [any(caps_meet(shape, part, margin) for shape in shapes) for part in self._caps], bool
        )

    def _compare(self, records: Sequence[GranuleRecord]) -> Booleans:
        rings = _rings(records)
        far = rings.radii[:, None] + self._radii + (rings.stretches * rings.margins)[:, None]
        near: Booleans = rings.centres @ self._centres.T >= np.cos(np.minimum(far + 1e-9, math.pi))
        near |= (rings.radii > _LARGEST)[:, None]
        touch = np.zeros_like(near)
        unsure = near.copy()
        for plane in self._planes:
            rows = np.flatnonzero(near[:, plane.parts].any(axis=1) & (rings.radii <= _LARGEST))
            if len(rows):
                self._in_plane(plane, rings, rows, near, touch, unsure)
        for i, j in np.argwhere(unsure):
            margin = float(rings.margins[i])
            shapes = granule_caps(records[i]) or ()
            touch[i, j] = any(caps_meet(shape, self._caps[j], margin) for shape in shapes)
        return touch

    def _in_plane(
        self,
        plane: _Plane,
        rings: _Rings,
        rows: npt.NDArray[np.intp],
        near: Booleans,
        touch: Booleans,
        unsure: Booleans,
    ) -> None:
        """Decide the pairs that one plane shows; pairs that it cannot show stay unsure."""
        counts = rings.starts[rows + 1] - rings.starts[rows]
        first = np.repeat(
            rings.starts[rows] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts
        )
        corners = rings.corners[np.arange(len(first)) + first] @ plane.axes.T
        owner = np.repeat(np.arange(len(rows)), counts)
        shown = np.ones(len(rows), bool)
        np.logical_and.at(shown, owner, corners[:, 2] > _HORIZON)
        kept = shown[owner]
        flat = corners[kept, :2] / corners[kept, 2:]
        rows, place = rows[shown], np.cumsum(shown) - 1
        if not len(rows):
            return
        polygons = shapely.polygons(shapely.linearrings(flat, indices=place[owner[kept]]))
        broken = ~shapely.is_valid(polygons)
        polygons[broken] = shapely.make_valid(polygons[broken])
        i, j = np.nonzero(near[np.ix_(rows, plane.parts)])
        one, other = polygons[i], plane.drawn[j]
        margins = rings.margins[rows[i]]
        reach = rings.stretches[rows[i]] * margins * plane.scale[j]
        meet = shapely.intersects(other, one)
        apart = ~meet
        apart[apart] = ~_within(other[apart], one[apart], reach[apart])
        between = np.flatnonzero(~meet & ~apart)
        meet[between] = _within(other[between], one[between], margins[between])
        touch[rows[i[meet]], plane.parts[j[meet]]] = True
        settled = meet | apart
        unsure[rows[i[settled]], plane.parts[j[settled]]] = False

    def _draw(self) -> list[_Plane]:
        """Make planes that show all parts except those too wide for any plane."""
        left = np.flatnonzero(self._radii < _WIDEST / 2)
        planes = []
        middle = self._centres[left].sum(axis=0)
        while len(left):
            length = float(np.linalg.norm(middle))
            centre = middle / length if length > 1e-6 else self._centres[left[0]]
            angles = np.arccos(np.clip(self._centres[left] @ centre, -1.0, 1.0))
            ends = angles + self._radii[left]
            inside = ends <= _WIDEST
            if inside.any():
                planes.append(self._plane(centre, left[inside], ends[inside]))
                left = left[~inside]
            if len(left):
                middle = self._centres[left[0]]
        return planes

    def _plane(self, centre: Floats, parts: npt.NDArray[np.intp], ends: Floats) -> _Plane:
        helper = np.array([0.0, 0.0, 1.0]) if abs(centre[2]) < 0.9 else np.array([1.0, 0.0, 0.0])
        east = np.cross(helper, centre)
        east /= np.linalg.norm(east)
        axes = np.stack([east, np.cross(centre, east), centre])
        drawn, kept = [], []
        for number, part in enumerate(parts):
            corners = self._caps[part].ring @ axes.T
            polygon = shapely.Polygon(corners[:, :2] / corners[:, 2:])
            if polygon.is_valid and polygon.area > 0:
                drawn.append(polygon)
                kept.append(number)
        shapely.prepare(drawn)
        shown = np.empty(len(drawn), object)
        shown[:] = drawn
        scale = 1.0 / np.cos(np.minimum(ends[kept] + math.radians(1.0), _WIDEST + 0.02)) ** 2
        return _Plane(axes=axes, parts=parts[kept], drawn=shown, scale=scale)


def _within(parts: Shapes, granules: Shapes, reach: Floats) -> Booleans:
    near: Booleans = shapely.dwithin(parts, granules, reach)  # type: ignore[call-overload]
    return near


def _one_ring(record: GranuleRecord) -> bool:
    return record.boundary is not None and len(record.boundary) == 1 and len(record.boundary[0]) > 2


def _rings(records: Sequence[GranuleRecord]) -> _Rings:
    rings: list[Ring] = [record.boundary[0] for record in records if record.boundary]
    degrees = np.fromiter(chain.from_iterable(chain.from_iterable(rings)), np.float64)
    lon, lat = np.radians(degrees.reshape(-1, 2)).T
    corners = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    counts = np.fromiter(map(len, rings), np.intp)
    starts = np.concatenate([np.zeros(1, np.intp), np.cumsum(counts)])
    totals = np.add.reduceat(corners, starts[:-1])
    lengths = np.linalg.norm(totals, axis=1, keepdims=True)
    centres = np.where(lengths > 1e-9, totals / np.maximum(lengths, 1e-9), corners[starts[:-1]])
    cosines = np.einsum("ij,ij->i", corners, np.repeat(centres, counts, axis=0))
    radii = np.arccos(np.clip(np.minimum.reduceat(cosines, starts[:-1]), -1.0, 1.0))
    margins = np.array([margin_km(record) for record in records]) / SPHERE_RADIUS_KM
    return _Rings(
        corners=corners,
        starts=starts,
        centres=centres,
        radii=radii,
        margins=margins,
        # The cap in `boundary` has another centre, inside this cap, so its radius is at most twice
        # as large.
        stretches=2.0 / (1.0 + np.cos(np.minimum(2.0 * radii + margins, _FARTHEST))),
    )
