"""Whether a request's rasters and the script's hold the same."""

import re
from datetime import date
from pathlib import Path

import numpy as np
import rasterio

from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_SIZE

_DAY = re.compile(r"(?P<layer>[^.]+)\.(?P<day>\d{4}-\d{2}(-\d{2})?)\.tif$")
_RELATIVE = 1e-5  # of means in float32
_EDGE = 1e-3  # of a source pixel


def agreement(ours: Path, theirs: Path, largest: float, side: int) -> tuple[int, float]:
    """Compare all rasters of two folders.

    Of tiles with `side` pixels (0: swaths), pixels whose centre lies on an edge between two source
    pixels are left out: rounding decides between the two.

    Returns:
        How many rasters there are, and the share of pixels that agree, of those that have a value
        in either. Values above `largest` count as none.

    Raises:
        RuntimeError: a raster is missing on one side, or lies on another grid.
    """
    made = {_script_name(path): path for path in ours.rglob("*.tif")}
    named = {path.name: path for path in theirs.glob("*.tif")}
    if made.keys() != named.keys():
        raise RuntimeError(f"rasters of one side only: {sorted(made.keys() ^ named.keys())[:4]}")
    same = valued = 0
    for name, path in made.items():
        with rasterio.open(path) as one, rasterio.open(named[name]) as other:
            if one.shape != other.shape or not one.transform.almost_equals(other.transform, 1e-6):
                raise RuntimeError(f"{name}: {one.shape} {one.transform}, {other.transform}")
            left, right = _values(one, largest), _values(other, largest)
            there = ~(np.isnan(left) & np.isnan(right))
            if side:
                there &= ~_on_edges(one, TILE_SIZE / side)
        valued += int(there.sum())
        same += int(np.isclose(left[there], right[there], rtol=_RELATIVE, atol=0).sum())
    return len(made), same / valued


def _on_edges(dataset: rasterio.DatasetReader, pixel: float) -> np.ndarray:
    """Tell which pixel centres of an EPSG:4326 raster lie between two sinusoidal pixels."""
    a, _, west, _, e, north = tuple(dataset.transform)[:6]
    lon = np.radians(west + a * (np.arange(dataset.width) + 0.5))
    lat = np.radians(north + e * (np.arange(dataset.height) + 0.5))[:, None]
    down, across = SPHERE_RADIUS * lat / pixel, SPHERE_RADIUS * np.cos(lat) * lon / pixel
    near = [np.abs(at - np.round(at)) < _EDGE for at in (down, across)]
    return np.asarray(near[0] | near[1])


def _script_name(path: Path) -> str:
    """Return the name that the script gives a raster of ours: `Lai_1km.A2012001.tif`."""
    match = _DAY.search(path.name)
    if match is None:
        raise RuntimeError(f"{path.name}: no layer and date at its end")
    layer, day = match["layer"], match["day"]
    if len(day) == len("2012-01"):
        return f"{layer}.{day}.tif"
    return f"{layer}.A{date.fromisoformat(day):%Y%j}.tif"


def _values(dataset: rasterio.DatasetReader, largest: float) -> np.ndarray:
    values: np.ndarray = dataset.read(1).astype(np.float64)
    values[(values == dataset.nodata) | (values > largest)] = np.nan
    return values
