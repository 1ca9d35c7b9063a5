"""A table that says how sensors of a record differ where both have a value."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import rasterio

from reprojection.records import sensor_of
from reprojection.write.record_layer import check_units
from reprojection.write.write import open_raster

COLUMNS = (
    *("record", "layer", "units", "reference", "sensor", "reference_product", "product"),
    *("dates", "first", "last", "cells", "n", "bias", "rmse", "r"),
)
Floats = npt.NDArray[np.float64]


@dataclass
class Moments:
    """The sums over pairs of values, from which the statistics of all follow."""

    n: int = 0
    mean: Floats = field(default_factory=lambda: np.zeros(2))
    spread: Floats = field(default_factory=lambda: np.zeros((2, 2)))
    """Sums of the products of what both differ from their means."""
    squares: float = 0.0
    """The sum of squared differences."""

    def add(self, values: Floats) -> None:
        """Take in pairs, of shape (2, count)."""
        count = values.shape[1]
        if not count:
            return
        mean = values.mean(axis=1)
        away = values - mean[:, np.newaxis]
        step = mean - self.mean
        total = self.n + count
        self.spread += away @ away.T + np.outer(step, step) * (self.n * count / total)
        self.mean += step * (count / total)
        self.squares += float(((values[1] - values[0]) ** 2).sum())
        self.n = total

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Bias (the second less the first), root mean square of the differences, correlation."""
        if not self.n:
            return math.nan, math.nan, math.nan
        both = math.sqrt(self.spread[0, 0] * self.spread[1, 1])
        r = float(self.spread[0, 1]) / both if both > 0 else math.nan
        return float(self.mean[1] - self.mean[0]), math.sqrt(self.squares / self.n), r


class SeenCell(NamedTuple):
    """A cell of a product on a day."""

    product: str
    day: date
    cell: str


def write_overlap(
    paths: Mapping[SeenCell, Path],
    pairs: Iterable[tuple[str, str]],
    named: tuple[str, str, str],
    to: Path,
) -> None:
    """Write a table with a row for each pair of products: how the second differs from the first.

    Values are paired where both have one, in the cells of the days that both have. `named` are the
    record, its layer and the layer's units.

    Raises:
        ChoiceRefusedError: granules state another unit than the record's.
    """
    with to.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for pair in pairs:
            rows.writerow(_row(paths, pair, named))


def _row(
    paths: Mapping[SeenCell, Path], pair: tuple[str, str], named: tuple[str, str, str]
) -> list[object]:
    found, days, cells = Moments(), set[date](), set[str]()
    for one in paths:
        other = one._replace(product=pair[1])
        if one.product != pair[0] or other not in paths:
            continue
        found.add(_pairs([_values(paths[each], named) for each in (one, other)]))
        days.add(one.day)
        cells.add(one.cell)
    sensors = [sensor.text if (sensor := sensor_of(name)) else name for name in pair]
    numbers = ["" if math.isnan(value) else f"{value:.6g}" for value in found.numbers]
    span = [min(days, default=""), max(days, default="")]
    return [*named, *sensors, *pair, len(days), *span, len(cells), found.n, *numbers]


def _pairs(both: Sequence[Floats]) -> Floats:
    """Return the values of pixels at which both have one, of shape (2, count)."""
    values = np.stack([one.ravel() for one in both])
    return values[:, np.isfinite(values).all(axis=0)]


def _values(path: Path, named: tuple[str, str, str]) -> Floats:
    """Return the values of a cell in physical units, NaN where there is none."""
    opened = open_raster(path)
    record, _, units = named
    check_units(opened.said.provenance, opened.said.units, record, units)
    with rasterio.open(path, driver="GTiff") as dataset:
        stored = dataset.read(1)
    values: Floats = stored.astype(np.float64) * opened.said.scale + opened.said.offset
    if opened.nodata is not None:
        values[stored == opened.nodata] = np.nan
    return values
