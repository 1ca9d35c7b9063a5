"""Slow, independent answers: pyhdf, pyproj and a kd-tree in float64, nothing of Swathmill's own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyproj
from numpy.typing import NDArray
from pyhdf.SD import SD, SDC
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SINUSOIDAL = pyproj.Proj("+proj=sinu +lon_0=0 +x_0=0 +y_0=0 +R=6371007.181 +units=m")
TIE = 1e-5  # of a source pixel, a centimetre: so near a cell's edge either neighbour is right


@dataclass(frozen=True, kw_only=True)
class Target:
    """A geographic grid: west and north outer edge, pixel side, columns and rows."""

    west: float
    north: float
    side: float
    columns: int
    rows: int

    def centres(self) -> tuple[Floats, Floats]:
        """Longitude and latitude of the pixel centres, each (rows, columns)."""
        lon = self.west + (np.arange(self.columns) + 0.5) * self.side
        lat = self.north - (np.arange(self.rows) + 0.5) * self.side
        grid_lon, grid_lat = np.meshgrid(lon, lat)
        return grid_lon, grid_lat


@dataclass(frozen=True, kw_only=True)
class Warped:
    """Stored values by nearest neighbour, `valid` where they are data, `tied` where the target's
    centre lies on a source cell's edge."""

    values: NDArray[np.generic]
    valid: Bools
    tied: Bools


def nearest_of_tiles(paths: Sequence[Path], layer: str, target: Target) -> Warped:
    """Each pixel's source pixel by the float64 sinusoidal formula, tile by tile."""
    lon, lat = target.centres()
    x, y = SINUSOIDAL(lon, lat)
    values = np.zeros(lon.shape, np.int64)
    valid = np.zeros(lon.shape, bool)
    tied = np.zeros(lon.shape, bool)
    for path in paths:
        stored, attributes, corner, side = _tile(path, layer)
        col, row = (x - corner[0]) / side[0], (corner[1] - y) / side[1]
        at_col, at_row = np.floor(col).astype(int), np.floor(row).astype(int)
        rows, cols = stored.shape
        near = (np.abs(col - np.rint(col)) < TIE) | (np.abs(row - np.rint(row)) < TIE)
        tied |= near & (col > -1) & (col < cols + 1) & (row > -1) & (row < rows + 1)
        here = (at_col >= 0) & (at_col < cols) & (at_row >= 0) & (at_row < rows)
        found = stored[at_row[here], at_col[here]]
        low, high = cast(tuple[int, int], attributes["valid_range"])
        values[here] = found
        valid[here] = (found >= low) & (found <= high) & (found != attributes["_FillValue"])
    return Warped(values=values, valid=valid, tied=tied)


def _tile(
    path: Path, layer: str
) -> tuple[NDArray[np.generic], dict[str, object], tuple[float, float], tuple[float, float]]:
    """Stored values, attributes, upper left corner and pixel sides in metres."""
    file = SD(str(path), SDC.READ)
    data = file.select(layer)
    stored, attributes = np.asarray(data.get()), data.attributes()
    text = file.attributes()["StructMetadata.0"]
    data.endaccess()
    file.end()
    left, top = _pair(text, "UpperLeftPointMtrs")
    right, bottom = _pair(text, "LowerRightMtrs")
    rows, cols = stored.shape
    return stored, attributes, (left, top), ((right - left) / cols, (top - bottom) / rows)


def _pair(text: str, name: str) -> tuple[float, float]:
    found = re.search(rf"{name}=\(([-\d.]+),([-\d.]+)\)", text)
    assert found, f"no {name} in the structure"
    return float(found[1]), float(found[2])


@dataclass(frozen=True, kw_only=True)
class Merged:
    """Stored values merged over swaths; `valid` where some granule gave one, `seen` where some
    footprint reaches; `unsure` where two answers are right to a metre or to a zenith."""

    values: NDArray[np.int64]
    valid: Bools
    seen: Bools
    unsure: Bools


def nadir_of_swaths(paths: Sequence[Path], layer: str, target: Target, *, mask: bool) -> Merged:
    """Each granule's nearest footprint within its radius; of those with a value the one of
    smallest sensor zenith, then the newest.

    `paths` in order of their start. The radius is half the diagonal of the spacings to the
    neighbours, the larger of both sides.
    """
    lon, lat = target.centres()
    pixels = _vectors(lon.ravel(), lat.ravel())
    shape = lon.shape
    values = np.zeros(pixels.shape[0], np.int64)
    best = np.full(pixels.shape[0], np.inf)
    seen = np.zeros(pixels.shape[0], bool)
    unsure = np.zeros(pixels.shape[0], bool)
    for path in paths:
        stored, good, zenith, centres = _swath(path, layer, mask=mask)
        radius = _radii(centres).ravel()
        flat = centres.reshape(-1, 3)
        metre = 1.0 / 6_371_007.0
        bound = radius.max() + 2 * metre
        distance, index = cKDTree(flat).query(pixels, k=2, distance_upper_bound=bound)
        distance = np.minimum(distance, 2 * bound)  # it is infinite beyond
        near, first = distance[:, 0], np.minimum(index[:, 0], radius.size - 1)
        within = near <= radius[first]
        close = (np.abs(distance[:, 1] - near) < metre) | (np.abs(near - radius[first]) < metre)
        unsure |= close & (near < radius[first] + metre)
        seen |= within
        angle = np.where(within & good.ravel()[first], zenith.ravel()[first], np.inf)
        unsure |= np.isfinite(angle) & np.isclose(angle, best, rtol=0.0, atol=1e-4)
        wins = angle <= best
        wins &= np.isfinite(angle)
        values[wins] = stored.ravel()[first[wins]]
        best[wins] = angle[wins]
    return Merged(
        values=values.reshape(shape),
        valid=np.isfinite(best).reshape(shape),
        seen=seen.reshape(shape),
        unsure=unsure.reshape(shape),
    )


def _swath(
    path: Path, layer: str, *, mask: bool
) -> tuple[NDArray[np.generic], Bools, Floats, Floats]:
    """Stored values, which are data, sensor zenith in degrees, and centres as unit vectors."""
    file = SD(str(path), SDC.READ)
    data = file.select(layer)
    stored, attributes = np.asarray(data.get()), data.attributes()
    lat = np.asarray(file.select("Latitude").get(), np.float64)
    lon = np.asarray(file.select("Longitude").get(), np.float64)
    zenith = np.asarray(file.select("Sensor_Zenith").get(), np.float64) * 0.01
    file.end()
    good = stored != attributes["_FillValue"]
    if mask:
        low, high = cast(tuple[int, int], attributes["valid_range"])
        good &= (stored >= low) & (stored <= high)
    return stored, good, zenith, _vectors(lon, lat)


def _radii(centres: Floats) -> Floats:
    across = np.linalg.norm(np.diff(centres, axis=1), axis=2)
    along = np.linalg.norm(np.diff(centres, axis=0), axis=2)
    width = np.maximum(np.pad(across, ((0, 0), (1, 0))), np.pad(across, ((0, 0), (0, 1))))
    height = np.maximum(np.pad(along, ((1, 0), (0, 0))), np.pad(along, ((0, 1), (0, 0))))
    return np.asarray(np.hypot(width, height) / 2)


def _vectors(lon: Floats, lat: Floats) -> Floats:
    east, north = np.radians(lon), np.radians(lat)
    parts = (np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north))
    return np.stack(parts, axis=-1)
