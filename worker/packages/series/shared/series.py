"""Read a group's layers as series of days, and write rasters on its grid.

The packages of this family share it; it is part of each one's archive. Values are float64 in
physical units, NaN where there is none, read in blocks of rows, so that memory does not grow with
the raster.
"""

import datetime as dt
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import rasterio
from rasterio.windows import Window

Write = Callable[[np.ndarray, Window], None]
BLOCK_BYTES = 48e6  # of values that are looked at together


def refuse(problem: str) -> NoReturn:
    """End the program; the problem is its last line, by which the request tells it."""
    print(problem)
    sys.exit(1)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of a group: its stack, and its bands in order of time.

    `days` are the first days of the bands, `weights` what a mean counts each by.
    """

    label: str
    path: Path
    numbers: tuple[int, ...]
    days: tuple[dt.date, ...]
    weights: np.ndarray
    units: str

    def one(self, number: int, rows: Window) -> np.ndarray:
        """Return the values of a band of the stack in a block of rows."""
        with rasterio.open(self.path) as stack:
            return _physical(stack, number, rows)

    def values(self, rows: Window) -> np.ndarray:
        """Return the values of all days in a block of rows: days, rows, columns."""
        with rasterio.open(self.path) as stack:
            return np.stack([_physical(stack, number, rows) for number in self.numbers])


@dataclass(frozen=True, kw_only=True)
class Group:
    """A run's inputs, and the folder of its outputs.

    `window` is the window's name; it lasts from `first_day` to `last_day`.
    """

    layers: tuple[Layer, ...]
    parameters: dict[str, str]
    window: str
    first_day: dt.date
    last_day: dt.date
    target: Path
    shape: tuple[int, int]

    def blocks(self, depth: int) -> Iterator[Window]:
        """Yield the blocks of rows in which `depth` values of each pixel are looked at."""
        rows, columns = self.shape
        many = max(1, int(BLOCK_BYTES / (8 * columns * max(1, depth))))
        for row in range(0, rows, many):
            yield Window(0, row, columns, min(many, rows - row))

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """Return a parameter that is a number; end the program for one that cannot be used."""
        text = self.parameters.get(name, "")
        try:
            value = float(text) if text else default
        except ValueError:
            value = np.nan
        if not least <= value <= most:
            refuse(f"{name} is {text!r}; it should be from {least:g} to {most:g}")
        return value


def read_group(source: Path, target: Path) -> Group:
    """Read manifest and parameters of a run."""
    manifest = json.loads((source / "manifest.json").read_text("utf-8"))
    files = dict.fromkeys(band["file"] for band in manifest["bands"])
    layers = []
    shape = (0, 0)
    for file in files:
        bands = sorted(
            (band for band in manifest["bands"] if band["file"] == file),
            key=lambda band: band["date"],
        )
        with rasterio.open(source / file) as stack:
            units, shape = stack.units[bands[0]["band"] - 1] or "", stack.shape
        layers.append(
            Layer(
                label=Path(file).stem,
                path=source / file,
                numbers=tuple(band["band"] for band in bands),
                days=tuple(dt.date.fromisoformat(band["date"]) for band in bands),
                weights=np.array([band["weight"] for band in bands], np.float64),
                units=units,
            )
        )
    if "time" not in manifest:
        refuse("the manifest does not say the days of the window: get the inputs anew")
    days = manifest["time"]["days"]
    return Group(
        layers=tuple(layers),
        parameters=json.loads((source / "parameters.json").read_text("utf-8")),
        window=manifest["window"],
        first_day=dt.date.fromisoformat(days[0][0]),
        last_day=dt.date.fromisoformat(days[-1][1]),
        target=target,
        shape=shape,
    )


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean over the days of those with a value, each by its weight; else NaN."""
    if (weights == weights[:1]).all():
        return np.nanmean(values, axis=0)
    there = np.isfinite(values)
    own = weights[:, np.newaxis, np.newaxis]
    with np.errstate(invalid="ignore"):
        return np.where(there, values * own, 0.0).sum(axis=0) / (there * own).sum(axis=0)


@contextmanager
def raster(group: Group, name: str, bands: list[str], units: str = "") -> Iterator[Write]:
    """Yield a function that writes a block of rows (bands, rows, columns) of an output."""
    with rasterio.open(group.layers[0].path) as like:
        profile = {
            "driver": "GTiff",
            "dtype": "float32",
            "count": len(bands),
            "nodata": float("nan"),
            "width": like.width,
            "height": like.height,
            "crs": like.crs,
            "transform": like.transform,
            "interleave": "band",
            "tiled": True,
            "blockxsize": 256,
            "blockysize": 256,
            "compress": "deflate",
            "predictor": 3,
            "photometric": "minisblack",
            "BIGTIFF": "IF_SAFER",
        }
    with rasterio.open(group.target / name, "w", **profile) as out:
        for number, text in enumerate(bands, 1):
            out.set_band_description(number, text)
        if units:
            out.units = [units] * len(bands)

        def write(values: np.ndarray, rows: Window) -> None:
            out.write(values.astype(np.float32), window=rows)

        yield write
    with rasterio.open(group.target / name) as made:
        print(f"{name}: {made.count} bands, {bands[0]} to {bands[-1]}")


@contextmanager
def empty_pixels() -> Iterator[None]:
    """Let pixels without any value pass: numpy warns of each block that has one."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "All-NaN|Mean of empty|Degrees of freedom", RuntimeWarning
        )
        yield


def _physical(stack: rasterio.DatasetReader, number: int, rows: Window) -> np.ndarray:
    stored = stack.read(number, window=rows)
    value = stored * float(stack.scales[number - 1]) + float(stack.offsets[number - 1])
    if stack.nodata is not None:
        value[stored == stack.nodata] = np.nan
    value[~np.isfinite(value)] = np.nan
    return value
