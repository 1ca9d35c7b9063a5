"""Shipped packages on real granules, through a whole stack, against plain numpy.

The rasters of the layers, which other tests hold to independent answers, are what each package is
computed of here: of whole stacks of days, without blocks of rows.
"""

import csv
import datetime as dt
import itertools
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import scipy  # its parts are loaded where they are used
import shapely
from numpy.typing import NDArray

from tasks.request.document import parse_request
from tests.acceptance.containers import stack_over
from tests.acceptance.running import Running

pytestmark = [pytest.mark.proof, pytest.mark.real_data, pytest.mark.integration]

Values = NDArray[np.float64]
LAYERS = ("Lai_1km", "Fpar_1km")
LEAVES: dict[str, Any] = {
    "title": "Leaf area, coast of the North Sea",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": [*LAYERS]}],
    "region": {"bbox": [-1.5, 51.0, 1.5, 52.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.02},
    "resampling": "nearest",
}
BANDS = tuple(f"sur_refl_b0{n}" for n in (1, 2, 3))
COLOURS: dict[str, Any] = {
    **LEAVES,
    "title": "Reflectances",
    "products": [{"name": "MOD09A1", "collection": "6", "layers": [*BANDS]}],
    "region": {"tiles": ["h18v04"]},
    "time": {"start": "2017-07-12", "end": "2017-07-12"},
    "grid": {"modis": 1000},
}
FIRST = dt.date(2012, 1, 1)
STEPS = np.arange(0, 121, 8)
SAMPLE = 40  # pixels at which what is computed one by one is compared
# No product at hand has two years: the days of 2012, by number, that stand for earlier Aprils.
OTHER_APRILS = {2010: (4, 5, 6), 2011: (0, 1, 2)}
ZONE = [[-1.0, 51.3], [0.7, 51.4], [0.9, 52.2], [-0.6, 52.3], [-1.0, 51.3]]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer's values by day: days, rows, columns; NaN where there is none."""

    days: tuple[dt.date, ...]
    values: Values

    def at(self, row: int, column: int) -> Values:
        return self.values[:, row, column]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, granules: Path) -> Iterator[Running]:
    """A stack over the real tiles, some of them again as those of earlier years."""
    archive = tmp_path_factory.mktemp("tiles")
    shutil.copytree(granules / "l3-tiles", archive, dirs_exist_ok=True)
    for year, numbers in OTHER_APRILS.items():
        for number, april in zip(numbers, (97, 105, 113), strict=True):
            moved(archive / "MCD15A2", number * 8 + 1, dt.date(year, 1, 1), april)
    with stack_over(archive, tmp_path_factory.mktemp("shipped")) as running:
        yield running


def moved(folder: Path, of_2012: int, year: dt.date, to: int) -> None:
    """Copy the granules of a day to another year, in their names and their metadata."""
    old, new = f"MCD15A2.A2012{of_2012:03d}", f"MCD15A2.A{year:%Y}{to:03d}"
    was = (FIRST + dt.timedelta(days=of_2012 - 1)).isoformat().encode()
    begins = (year + dt.timedelta(days=to - 1)).isoformat().encode()
    for path in folder.glob(f"{old}.*"):
        content = path.read_bytes().replace(old.encode(), new.encode()).replace(was, begins)
        path.with_name(path.name.replace(old, new)).write_bytes(content)


@pytest.fixture(autouse=True)
def _empty_pixels() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def made(stack: Running, to: Path, document: dict[str, Any]) -> dict[str, Path]:
    """Run a request and fetch its rasters and tables, by name."""
    request = stack.client.submit(parse_request(document)).id
    status = stack.until_ended(request)
    assert status.state.value == "complete", status.message
    found = {}
    for result in stack.client.results(request):
        if result.name.endswith((".tif", ".csv", ".parquet")):
            found[result.name] = stack.client.download(result, to)
    return found


def physical(path: Path) -> Values:
    with rasterio.open(path) as raster:
        stored = raster.read()
        scale, offset = np.array(raster.scales), np.array(raster.offsets)
        value: Values = stored * scale[:, None, None] + offset[:, None, None]
        if raster.nodata is not None:
            value[stored == raster.nodata] = np.nan
        return value


def layers_of(files: dict[str, Path]) -> dict[str, Layer]:
    found: dict[str, dict[dt.date, Values]] = {}
    for name, path in files.items():
        _, label, day, _ = Path(name).name.rsplit(".", 3)
        found.setdefault(label, {})[dt.date.fromisoformat(day)] = physical(path)[0]
    return {
        label: Layer(days=tuple(sorted(days)), values=np.stack([days[d] for d in sorted(days)]))
        for label, days in found.items()
    }


@pytest.fixture(scope="module")
def leaves(stack: Running, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Layer]:
    found = layers_of(made(stack, tmp_path_factory.mktemp("leaves"), LEAVES))
    assert sorted(found) == sorted(LAYERS)
    assert len(found["Lai_1km"].days) == 16
    assert 0.2 < np.isfinite(found["Lai_1km"].values).mean() < 1.0
    return found


def reduced(
    stack: Running, to: Path, base: dict[str, Any], package: str, window: str = "all", **more: str
) -> dict[str, Values]:
    """Run a package; return its rasters by the name of the output."""
    reduction = {"package": package, "group_by": ["cell", window], "parameters": more}
    files = made(stack, to, {**base, "reduction": reduction, "deliver": "results"})
    return {Path(name).stem: physical(path) for name, path in files.items()}


def close(found: Values, expected: object, least: float = 1e-4) -> None:
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-4, atol=least)


OVER_TIME: dict[str, Callable[[Values], object]] = {
    "mean": lambda v: np.nanmean(v, axis=0),
    "median": lambda v: np.nanmedian(v, axis=0),
    "minimum": lambda v: np.nanmin(v, axis=0),
    "maximum": lambda v: np.nanmax(v, axis=0),
    "count": lambda v: np.isfinite(v).sum(axis=0),
    "percentile": lambda v: np.nanpercentile(v, 90, axis=0),
    "standard-deviation": lambda v: np.nanstd(v, axis=0, ddof=1),
}


@pytest.mark.parametrize(
    "package", ["mean", *(pytest.param(one, marks=pytest.mark.proof) for one in [*OVER_TIME][1:])]
)
def test_over_time(stack: Running, leaves: dict[str, Layer], tmp_path: Path, package: str) -> None:
    found = reduced(stack, tmp_path, LEAVES, package)
    assert len(found) == len(LAYERS)
    for label, layer in leaves.items():
        (values,) = [one for name, one in found.items() if name.startswith(f"{label}_")]
        close(values[0], OVER_TIME[package](layer.values))


def of_window(found: dict[str, Values], start: str) -> Values:
    (values,) = [one for name, one in found.items() if name.startswith(start)]
    return values


def test_monthly_mean(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    found = reduced(stack, tmp_path, LEAVES, "monthly-mean", "month")
    layer = leaves["Lai_1km"]
    for month in (1, 2, 3, 4):
        of = [n for n, day in enumerate(layer.days) if day.month == month]
        values = of_window(found, f"Lai_1km_mean.2012-{month:02d}")
        close(values[0], np.nanmean(layer.values[of], axis=0))


def test_composites(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    layer = leaves["Lai_1km"]
    eight = of_window(
        reduced(stack, tmp_path / "8", LEAVES, "eight-day-composite"), "Lai_1km_composite"
    )
    assert len(eight) == 16
    close(eight, layer.values)  # the granules have these very periods
    seasons = of_window(
        reduced(stack, tmp_path / "s", LEAVES, "seasonal-composite", statistic="maximum"),
        "Lai_1km_composite",
    )
    winter = np.array([day.month < 3 for day in layer.days])
    close(seasons[0], np.nanmax(layer.values[winter], axis=0))
    close(seasons[1], np.nanmax(layer.values[~winter], axis=0))


def test_maximum_value_composite(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    found = reduced(stack, tmp_path, LEAVES, "maximum-value-composite", by="Fpar_1km")
    by, other = leaves["Fpar_1km"], leaves["Lai_1km"]
    there = np.isfinite(by.values).any(axis=0)
    best = np.where(np.isfinite(by.values), by.values, -1).argmax(axis=0)
    days = np.array([day.timetuple().tm_yday for day in by.days], float)
    close(of_window(found, "day_of_maximum")[0], np.where(there, days[best], np.nan))
    picked = np.take_along_axis(other.values, best[np.newaxis], axis=0)[0]
    close(of_window(found, "Lai_1km_mvc")[0], np.where(there, picked, np.nan))
    close(of_window(found, "Fpar_1km_mvc")[0], np.nanmax(by.values, axis=0))


def sample(layer: Layer) -> list[tuple[int, int]]:
    """Some pixels with several values."""
    rows, columns = np.nonzero(np.isfinite(layer.values).sum(axis=0) >= 8)
    chosen = np.random.default_rng(5).choice(len(rows), SAMPLE, replace=False)
    return [(int(rows[n]), int(columns[n])) for n in chosen]


def test_linear_trend(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    found = of_window(reduced(stack, tmp_path, LEAVES, "linear-trend"), "Lai_1km_trend")
    layer = leaves["Lai_1km"]
    years = np.array([(day - layer.days[0]).days / 365.25 for day in layer.days])
    close(found[3], np.isfinite(layer.values).sum(axis=0))
    for row, column in sample(layer):
        series = layer.at(row, column)
        known = np.isfinite(series)
        if np.ptp(series[known]) == 0:
            continue
        fit = scipy.stats.linregress(years[known], series[known])
        close(found[:3, row, column], [fit.slope, fit.pvalue, fit.stderr])


def test_climatology(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    found = of_window(reduced(stack, tmp_path, LEAVES, "climatology"), "Lai_1km_climatology")
    layer = leaves["Lai_1km"]
    for month in range(1, 13):
        of = [n for n, day in enumerate(layer.days) if day.month == month]
        empty = np.full(layer.values.shape[1:], np.nan)
        close(found[month - 1], np.nanmean(layer.values[of], axis=0) if of else empty)


def test_anomaly(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    season = {"from": "04-06", "to": "04-30"}
    years = {**LEAVES, "time": {"start": "2010-04-01", "end": "2012-04-30", "every": season}}
    found = of_window(
        reduced(stack, tmp_path, years, "anomaly", month="2012-04"), "Lai_1km_anomaly"
    )
    values = leaves["Lai_1km"].values
    others = np.stack([np.nanmean(values[[*days]], axis=0) for days in OTHER_APRILS.values()])
    april = [n for n, day in enumerate(leaves["Lai_1km"].days) if day.month == 4]
    away = np.nanmean(values[april], axis=0) - np.nanmean(others, axis=0)
    spread = np.nanstd(others, axis=0, ddof=1)
    assert (spread > 0).mean() > 0.2
    close(found[0], away)
    close(found[1], np.where(spread > 0, away / spread, np.nan), 1e-3)


def smooth(series: Values) -> Values:
    """Whittaker's smoother, as a system of equations; NaN outside the series' values."""
    second = np.diff(np.eye(len(STEPS)), 2, axis=0)
    weights = np.diag(np.isfinite(series).astype(float))
    found = np.linalg.solve(weights + 10 * second.T @ second, weights @ np.nan_to_num(series))
    known = np.flatnonzero(np.isfinite(series))
    inside = (np.arange(len(STEPS)) >= known[0]) & (np.arange(len(STEPS)) <= known[-1])
    return np.where(inside, found, np.nan)


def half_way(curve: Values, peak: int, side: range) -> tuple[float, float]:
    """The least value on a side of the peak, and the day on which half of the way is passed."""
    base = float(np.nanmin(curve[[peak, *side]]))
    level = (base + curve[peak]) / 2
    for inner, outer in itertools.pairwise([peak, *side]):
        if curve[inner] >= level > curve[outer]:
            share = (curve[inner] - level) / (curve[inner] - curve[outer])
            return base, float(STEPS[inner] + share * (STEPS[outer] - STEPS[inner]) + 1)
    return base, np.nan


def test_phenology(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    found = of_window(reduced(stack, tmp_path, LEAVES, "phenology"), "Lai_1km_phenology")
    layer = leaves["Lai_1km"]
    seasons = 0
    for row, column in sample(layer):
        curve = smooth(layer.at(row, column))
        peak = int(np.nanargmax(curve))
        left, start = half_way(curve, peak, range(peak - 1, -1, -1))
        right, end = half_way(curve, peak, range(peak + 1, len(STEPS)))
        amplitude = curve[peak] - (left + right) / 2
        expected = [start, STEPS[peak] + 1, end, end - start, amplitude]
        there = bool(np.isfinite(expected).all())
        seasons += there
        close(found[:, row, column], expected if there else np.full(5, np.nan), 1e-3)
    assert seasons > 5


def test_smoothing(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    layer = leaves["Lai_1km"]
    golay = of_window(reduced(stack, tmp_path / "g", LEAVES, "savitzky-golay"), "Lai_1km_smooth")
    whittaker = of_window(reduced(stack, tmp_path / "w", LEAVES, "whittaker"), "Lai_1km_smooth")
    at = np.array([(day - FIRST).days for day in layer.days])
    for row, column in sample(layer):
        series = layer.at(row, column)
        known = np.flatnonzero(np.isfinite(series))
        inside = slice(known[0], known[-1] + 1)
        expected = np.full(len(STEPS), np.nan)
        filled = np.interp(STEPS[inside], at[known], series[known])
        expected[inside] = scipy.signal.savgol_filter(filled, 5, 2)
        close(golay[:, row, column], expected)
        close(whittaker[:, row, column], smooth(series))


def test_zonal_statistics(stack: Running, leaves: dict[str, Layer], tmp_path: Path) -> None:
    zones = json.dumps({"type": "Polygon", "coordinates": [ZONE]})
    reduction = {
        "package": "zonal-statistics",
        "group_by": ["cell", "all"],
        "parameters": {"zones": zones},
    }
    files = made(stack, tmp_path, {**LEAVES, "reduction": reduction, "deliver": "results"})
    (table,) = [path for name, path in files.items() if name.endswith(".csv")]
    with table.open() as file:
        rows = [row for row in csv.DictReader(file) if row["layer"] == "Lai_1km"]
    layer = leaves["Lai_1km"]
    assert [row["date"] for row in rows] == [day.isoformat() for day in layer.days]
    # Shares of pixels, from 20 x 20 points in each.
    lines, columns = layer.values.shape[1:]
    fine = 20
    lon = -1.5 + (np.arange(columns * fine) + 0.5) * 0.02 / fine
    lat = 52.5 - (np.arange(lines * fine) + 0.5) * 0.02 / fine
    inside = shapely.contains_xy(shapely.Polygon(ZONE), *np.meshgrid(lon, lat))
    shares = inside.reshape(lines, fine, columns, fine).mean(axis=(1, 3))
    for row, values in zip(rows, layer.values, strict=True):
        known = np.isfinite(values) & (shares > 0)
        assert float(row["pixels"]) == pytest.approx(shares[known].sum(), rel=1e-3)
        mean = np.average(values[known], weights=shares[known])
        assert float(row["mean"]) == pytest.approx(mean, rel=1e-3)


def test_vegetation_indices(stack: Running, tmp_path: Path) -> None:
    colours = {
        label: layer.values[0]
        for label, layer in layers_of(made(stack, tmp_path / "colours", COLOURS)).items()
    }
    red, nir, blue = (
        np.where((v < -0.01) | (v > 1.6), np.nan, v) for v in (colours[band] for band in BANDS)
    )
    ndvi = (nir - red) / (nir + red)
    evi = 2.5 * (nir - red) / (nir + 6 * red - 7.5 * blue + 1)
    for name, index in (("ndvi", ndvi), ("evi", evi)):
        found = of_window(reduced(stack, tmp_path / name, COLOURS, name, "date"), name)
        expected = np.where(np.abs(index) <= 1, index, np.nan)
        assert np.isfinite(expected).sum() > 500  # the granule is a part of its tile
        close(found[0], expected)
