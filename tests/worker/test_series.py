"""The shipped packages over series of days, against plain numpy on the same group."""

import csv
import datetime as dt
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
import scipy  # its parts are loaded where they are used

from swathmill.errors import ArgumentError
from swathmill.package_kit import try_package
from tasks.packages.packages import SERIES, SHIPPED, Packages, unpack
from tasks.request.document import Time
from tasks.request.windows import windows
from tasks.service.classify import AttemptError
from tasks.settings import Settings

pytestmark = pytest.mark.slow

ROWS, COLUMNS = 7, 9
NODATA = -9999
DAYS = [dt.date(2011, 1, 1) + dt.timedelta(days=23 * n) for n in range(40)]
Group = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def _empty_pixels() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def lasting(window: str) -> tuple[dt.date, dt.date]:
    """The first and the last day of a window of one part."""
    span = Time(start=dt.date(2011, 1, 1), end=dt.date(2013, 6, 30))
    for kind in ("8-day", "month", "season", "year", "all"):
        for one in windows(kind, span):
            if one.name == window:
                return one.first, one.last
    raise AssertionError(window)


def write(
    folder: Path, layers: list[str], days: list[dt.date], window: str, scale: float = 0.01
) -> Group:
    """Write a group, and return the physical values of its layers, NaN where there is none."""
    source = np.random.default_rng(1)
    bands, values = [], {}
    for layer in layers:
        stored = source.integers(-50, 16_000, (len(days), ROWS, COLUMNS)).astype(np.int16) // 2
        stored[source.random(stored.shape) < 0.3] = NODATA
        stored[:, 0, 0] = NODATA  # never a value
        stored[1:, 0, 1] = NODATA  # one value
        profile = {
            "driver": "GTiff",
            "dtype": "int16",
            "nodata": NODATA,
            "count": len(days),
            "height": ROWS,
            "width": COLUMNS,
            "crs": "EPSG:4326",
            "transform": rasterio.Affine(0.1, 0, 10, 0, -0.1, 50),
            "photometric": "minisblack",
        }
        with rasterio.open(folder / f"{layer}.tif", "w", **profile) as out:
            out.write(stored)
            out.scales, out.offsets = [scale] * len(days), [0.0] * len(days)
        values[layer] = np.where(stored == NODATA, np.nan, stored * scale)
        bands += [
            {
                "file": f"{layer}.tif",
                "band": number,
                "product": "P",
                "collection": "6",
                "layer": layer,
                "date": day.isoformat(),
                "weight": 1.0,
            }
            for number, day in enumerate(days, 1)
        ]
    manifest = {
        "group": f"here {window}",
        "cell": "here",
        "window": window,
        "time": {"days": [[str(day) for day in lasting(window)]], "recurs": False},
        "grid": {
            "crs": "EPSG:4326",
            "transform": [0.1, 0, 10, 0, -0.1, 50],
            "width": COLUMNS,
            "height": ROWS,
        },
        "bands": bands,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return values


def run(tmp_path: Path, name: str, file: str, **parameters: str) -> tuple[np.ndarray, list[str]]:
    """Run a package over the group; return an output and the names of its bands."""
    try_package(SERIES / name, tmp_path / "group", parameters, tmp_path / "out")
    with rasterio.open(tmp_path / "out" / file) as out:
        return out.read(), list(out.descriptions)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    (tmp_path / "group").mkdir()
    return tmp_path / "group"


Statistic = Callable[[np.ndarray], object]
STATISTICS: dict[str, Statistic] = {
    "median": lambda series: np.median(series),
    "minimum": lambda series: series.min(),
    "maximum": lambda series: series.max(),
    "count": len,
    "percentile": lambda series: np.percentile(series, 90),
    "standard-deviation": lambda series: series.std(ddof=1) if len(series) > 1 else np.nan,
}


def at_each_pixel(values: np.ndarray, compute: Statistic) -> np.ndarray:
    """Compute of each pixel's valid values, NaN where it has none."""
    found = np.full(values.shape[1:], np.nan)
    for place in np.ndindex(*found.shape):
        series = values[(slice(None), *place)]
        series = series[np.isfinite(series)]
        if len(series) or compute is len:
            found[place] = compute(series)
    return found


@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_over_time(tmp_path: Path, group: Path, name: str) -> None:
    values = write(group, ["A", "B"], DAYS[:12], "2011")
    for layer in values:
        found, _ = run(tmp_path, name, f"{layer}_{name.replace('-', '_')}.tif")
        expected = at_each_pixel(values[layer], STATISTICS[name])
        np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_another_percentile(tmp_path: Path, group: Path) -> None:
    values = write(group, ["A"], DAYS[:12], "2011")
    found, _ = run(tmp_path, "percentile", "A_percentile.tif", percentile="25")
    expected = at_each_pixel(values["A"], lambda series: np.percentile(series, 25))
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    with pytest.raises(ArgumentError, match="Write a number from 0 to 100"):
        run(tmp_path, "percentile", "A_percentile.tif", percentile="120")


@pytest.mark.parametrize("statistic", ["mean", "maximum"])
def test_an_eight_day_composite(tmp_path: Path, group: Path, statistic: str) -> None:
    days = [dt.date(2012, 1, 1) + dt.timedelta(days=5 * n) for n in range(30)]
    values = write(group, ["A"], days, "2012")["A"]
    found, names = run(tmp_path, "eight-day-composite", "A_composite.tif", statistic=statistic)
    assert len(found) == 46
    assert (names[1], names[-1]) == (f"{statistic} 2012-01-09", f"{statistic} 2012-12-26")
    compute: Statistic = np.mean if statistic == "mean" else np.max
    for number in range(46):
        of = [n for n, day in enumerate(days) if (day.timetuple().tm_yday - 1) // 8 == number]
        np.testing.assert_allclose(found[number], at_each_pixel(values[of], compute), rtol=1e-6)


def test_a_composite_over_a_season_that_passes_new_year(tmp_path: Path, group: Path) -> None:
    write(group, ["A"], [dt.date(2012, 2, 10), dt.date(2012, 2, 12)], "2012-DJF")
    found, names = run(tmp_path, "eight-day-composite", "A_composite.tif")
    assert (len(found), names[0], names[-1]) == (13, "mean 2011-11-25", "mean 2012-02-26")


def test_a_composite_that_reaches_into_the_window_counts_at_its_begin(
    tmp_path: Path, group: Path
) -> None:
    """It was put into the last step, a year later."""
    days = [dt.date(2011, 12, 27) + dt.timedelta(days=8 * n) for n in range(9)]
    values = write(group, ["A"], days, "2012")["A"]
    found, _ = run(tmp_path, "whittaker", "A_smooth.tif", smoothness="1e-6")
    assert np.isnan(found[8:]).all(), "no date lies there"
    pair = np.nanmean(values[:2], axis=0)
    known = np.isfinite(pair) & (np.isfinite(values).sum(axis=0) > 1)
    np.testing.assert_allclose(found[0][known], pair[known], rtol=1e-3, atol=1e-3)


def test_inputs_that_do_not_say_the_days_of_the_window_are_refused(
    tmp_path: Path, group: Path
) -> None:
    write(group, ["A"], DAYS[:3], "2011")
    path = group / "manifest.json"
    said = json.loads(path.read_text())
    del said["time"]
    path.write_text(json.dumps(said))
    with pytest.raises(AttemptError, match="get the inputs anew"):
        run(tmp_path, "whittaker", "A_smooth.tif")


def test_a_seasonal_composite(tmp_path: Path, group: Path) -> None:
    values = write(group, ["A"], DAYS, "2011-01-01_2013-06-30")["A"]
    found, names = run(tmp_path, "seasonal-composite", "A_composite.tif", statistic="median")
    assert names[:2] == ["median 2011 DJF", "median 2011 MAM"]
    assert names[-1] == "median 2013 JJA"
    winter = [
        n
        for n, day in enumerate(DAYS)
        if (day.year, day.month) in ((2011, 12), (2012, 1), (2012, 2))
    ]
    expected = at_each_pixel(values[winter], np.median)
    np.testing.assert_allclose(found[names.index("median 2012 DJF")], expected, rtol=1e-6)
    assert len(found) == 11


@pytest.mark.parametrize("name", ["ndvi", "evi"])
def test_a_vegetation_index(tmp_path: Path, group: Path, name: str) -> None:
    labels = ["sur_refl_b01", "sur_refl_b02", "sur_refl_b03"]
    values = write(group, labels, DAYS[:5], "2011", 0.0002)
    red, nir, blue = [np.where((v < -0.01) | (v > 1.6), np.nan, v) for v in values.values()]
    if name == "ndvi":
        days = (nir - red) / (nir + red)
    else:
        days = 2.5 * (nir - red) / (nir + 6 * red - 7.5 * blue + 1)
    days[~(np.abs(days) <= 1)] = np.nan
    found, _ = run(tmp_path, name, f"{name}.tif")
    assert np.isfinite(found).any()
    np.testing.assert_allclose(found[0], np.nanmean(days, axis=0), rtol=1e-5)
    with pytest.raises(AttemptError, match="0 layers can be red"):
        run(tmp_path, name, f"{name}.tif", red="b07")
    swapped, _ = run(tmp_path, "ndvi", "ndvi.tif", red="sur_refl_b02", nir="sur_refl_b01")
    if name == "ndvi":
        np.testing.assert_allclose(swapped, -found, rtol=1e-6)


def test_a_maximum_value_composite(tmp_path: Path, group: Path) -> None:
    values = write(group, ["A", "NDVI"], DAYS[:6], "2011")
    found, _ = run(tmp_path, "maximum-value-composite", "A_mvc.tif")
    day, _ = run(tmp_path, "maximum-value-composite", "day_of_maximum.tif")
    best, _ = run(tmp_path, "maximum-value-composite", "NDVI_mvc.tif")
    for place in np.ndindex(ROWS, COLUMNS):
        series = values["NDVI"][(slice(None), *place)]
        if not np.isfinite(series).any():
            assert np.isnan([found[0][place], day[0][place], best[0][place]]).all()
            continue
        n = int(np.nanargmax(series))
        assert best[0][place] == np.float32(series[n])
        assert day[0][place] == DAYS[n].timetuple().tm_yday
        np.testing.assert_equal(found[0][place], np.float32(values["A"][(n, *place)]))


def test_a_linear_trend_with_its_significance(tmp_path: Path, group: Path) -> None:
    values = write(group, ["A"], DAYS, "2011-01-01_2013-06-30")["A"]
    found, names = run(tmp_path, "linear-trend", "A_trend.tif")
    assert names[:2] == ["change per year", "p"]
    years = np.array([(day - DAYS[0]).days / 365.25 for day in DAYS])
    for place in np.ndindex(ROWS, COLUMNS):
        series = values[(slice(None), *place)]
        known = np.isfinite(series)
        assert found[(3, *place)] == known.sum()
        if known.sum() < 3:
            assert np.isnan(found[(slice(3), *place)]).all()
            continue
        fit = scipy.stats.linregress(years[known], series[known])
        expected = fit.slope, fit.pvalue, fit.stderr
        np.testing.assert_allclose(found[(slice(3), *place)], expected, rtol=1e-4)


def test_a_trend_needs_as_many_values_as_it_is_told(tmp_path: Path, group: Path) -> None:
    write(group, ["A"], DAYS[:10], "2011")
    found, _ = run(tmp_path, "linear-trend", "A_trend.tif", least="8")
    assert (np.isnan(found[0]) == (found[3] < 8)).all()
    assert (found[3] < 8).any()
    assert np.isfinite(found[0]).any()


def of_month(values: np.ndarray, year: int, month: int) -> np.ndarray:
    of = [n for n, day in enumerate(DAYS) if (day.year, day.month) == (year, month)]
    return np.nanmean(values[of], axis=0) if of else np.full(values.shape[1:], np.nan)


def test_a_climatology_counts_each_year_once(tmp_path: Path, group: Path) -> None:
    values = write(group, ["A"], DAYS, "2011-01-01_2013-06-30")["A"]
    found, names = run(tmp_path, "climatology", "A_climatology.tif")
    assert names[6] == "July"
    for month in range(1, 13):
        years = np.stack([of_month(values, year, month) for year in (2011, 2012, 2013)])
        np.testing.assert_allclose(found[month - 1], np.nanmean(years, axis=0), rtol=1e-6)


def test_an_anomaly_is_against_the_other_years(tmp_path: Path, group: Path) -> None:
    values = write(group, ["A"], DAYS, "2011-01-01_2013-06-30")["A"]
    found, names = run(tmp_path, "anomaly", "A_anomaly.tif", month="2012-03")
    assert names == ["anomaly 2012-03", "2012-03 in standard deviations"]
    others = np.stack([of_month(values, 2011, 3), of_month(values, 2013, 3)])
    away = of_month(values, 2012, 3) - np.nanmean(others, axis=0)
    np.testing.assert_allclose(found[0], away, rtol=1e-4, atol=1e-5)
    spread = np.nanstd(others, axis=0, ddof=1)
    np.testing.assert_allclose(found[1], np.where(spread > 0, away / spread, np.nan), rtol=1e-4)
    with pytest.raises(ArgumentError, match="Write a month like 2012-07"):
        run(tmp_path, "anomaly", "A_anomaly.tif", month="July")


def test_a_difference_is_of_two_layers_that_may_be_named(tmp_path: Path, group: Path) -> None:
    values = write(group, ["monthly.A", "usual.A"], DAYS[:3], "2011-01")
    means = {name: np.nanmean(one, axis=0) for name, one in values.items()}
    found, names = run(tmp_path, "difference", "difference.tif")
    assert names == ["monthly.A less usual.A, 2011-01"]
    np.testing.assert_allclose(found[0], means["monthly.A"] - means["usual.A"], rtol=1e-5)
    found, _ = run(tmp_path, "difference", "difference.tif", of="usual", less="monthly")
    np.testing.assert_allclose(found[0], means["usual.A"] - means["monthly.A"], rtol=1e-5)
    with pytest.raises(AttemptError, match="`of` names 2 of the layers"):
        run(tmp_path, "difference", "difference.tif", of="A")
    with pytest.raises(AttemptError, match="both name usual"):
        run(tmp_path, "difference", "difference.tif", of="usual", less="usual")
    write(group, ["A", "B", "C"], DAYS[:3], "2011-01")
    with pytest.raises(AttemptError, match="there are 3 layers: A, B, C"):
        run(tmp_path, "difference", "difference.tif")


def test_a_bridge_is_the_line_of_numpy_over_common_dates(tmp_path: Path, group: Path) -> None:
    values = write(group, ["MOD.A", "VNP.A"], DAYS, "2011-01-01_2013-06-30")
    mine, base = values["VNP.A"], values["MOD.A"]
    found, names = run(tmp_path, "bridge", "VNP.A_bridge.tif", method="linear", least="5")
    assert names[1] == "bias, VNP.A against MOD.A"
    series, days = run(tmp_path, "bridge", "bridged.tif", method="linear", least="5")
    assert days == [day.isoformat() for day in DAYS]
    for place in np.ndindex(ROWS, COLUMNS):
        at = (slice(None), *place)
        both = np.isfinite(mine[at]) & np.isfinite(base[at])
        count, bias, rmse, r, slope, offset = found[at]
        assert count == both.sum()
        if count < 5:
            assert np.isnan([slope, offset]).all()
            continue
        x, y = mine[at][both], base[at][both]
        np.testing.assert_allclose([slope, offset], np.polyfit(x, y, 1), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(bias, (x - y).mean(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(rmse, np.sqrt(((x - y) ** 2).mean()), rtol=1e-4)
        np.testing.assert_allclose(r, np.corrcoef(x, y)[0, 1], rtol=1e-3, atol=1e-4)
        line = slope * mine[at] + offset
        expected = np.where(np.isfinite(base[at]), base[at], line)
        np.testing.assert_allclose(series[at], expected, rtol=1e-3, atol=1e-3)
    write(group, ["MOD.A", "VNP.B"], DAYS[:3], "2011-01")
    with pytest.raises(AttemptError, match="the layers are A, B; a bridge is of one"):
        run(tmp_path, "bridge", "bridged.tif")


def test_savitzky_golay_fills_gaps_and_smooths(tmp_path: Path, group: Path) -> None:
    days = [dt.date(2012, 1, 1) + dt.timedelta(days=16 * n) for n in range(23)]
    values = write(group, ["A"], days, "2012")["A"]
    found, names = run(tmp_path, "savitzky-golay", "A_smooth.tif", length="7", order="3")
    assert (len(found), names[1]) == (46, "2012-01-09")
    at, steps = np.arange(23) * 16, np.arange(46) * 8
    for place in np.ndindex(ROWS, COLUMNS):
        series = values[(slice(None), *place)]
        known = np.isfinite(series)
        expected = np.full(46, np.nan)
        if known.any():
            inside = (steps >= at[known][0]) & (steps <= at[known][-1])
            if inside.sum() >= 7:
                filled = np.interp(steps[inside], at[known], series[known])
                expected[inside] = scipy.signal.savgol_filter(filled, 7, 3)
        np.testing.assert_allclose(found[(slice(None), *place)], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(AttemptError, match="length is odd"):
        run(tmp_path, "savitzky-golay", "A_smooth.tif", length="4")


def test_blocks_of_rows_give_what_the_whole_gives(tmp_path: Path, group: Path) -> None:
    write(group, ["A"], DAYS[:6], "2011")
    whole, _ = run(tmp_path, "median", "A_median.tif")
    packages = {found.package.name: found for found in Packages.of(Settings()).every()}
    archive = packages["median"].archive()
    assert archive is not None
    (tmp_path / "median").mkdir()
    unpack(archive.data, tmp_path / "median")
    script = tmp_path / "median" / "series.py"
    script.write_text(script.read_text().replace("BLOCK_BYTES = 48e6", "BLOCK_BYTES = 100"))
    try_package(tmp_path / "median", group, {}, tmp_path / "blocks")
    with rasterio.open(tmp_path / "blocks" / "A_median.tif") as out:
        np.testing.assert_array_equal(out.read(), whole)


def test_whittaker_is_the_least_penalised_series(tmp_path: Path, group: Path) -> None:
    days = [dt.date(2012, 1, 1) + dt.timedelta(days=16 * n) for n in range(23)]
    values = write(group, ["A"], days, "2012")["A"]
    found, names = run(tmp_path, "whittaker", "A_smooth.tif", smoothness="25")
    assert (len(found), names[1]) == (46, "2012-01-09")
    second = np.diff(np.eye(46), 2, axis=0)
    for place in np.ndindex(ROWS, COLUMNS):
        series = np.full(46, np.nan)
        series[::2] = values[(slice(None), *place)]
        known = np.flatnonzero(np.isfinite(series))
        expected = np.full(46, np.nan)
        if len(known) > 1:
            weights = np.diag(np.isfinite(series).astype(float))
            solved = np.linalg.solve(
                weights + 25 * second.T @ second, weights @ np.nan_to_num(series)
            )
            inside = slice(known[0], known[-1] + 1)
            expected[inside] = solved[inside]
        np.testing.assert_allclose(found[(slice(None), *place)], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(AttemptError, match="three are needed"):
        run(tmp_path, "whittaker", "A_smooth.tif", step="200")


def test_several_values_in_a_step_count_with_their_mean(tmp_path: Path, group: Path) -> None:
    days = [dt.date(2012, 1, 1) + dt.timedelta(days=4 * n) for n in range(91)]
    values = write(group, ["A"], days, "2012")["A"]
    found, _ = run(tmp_path, "whittaker", "A_smooth.tif", smoothness="1e-6")
    pairs = np.stack([np.nanmean(values[n : n + 2], axis=0) for n in range(0, 91, 2)])
    known = np.isfinite(pairs)
    np.testing.assert_allclose(found[known], pairs[known], rtol=1e-3, atol=1e-3)


def test_phenology_finds_start_peak_and_end(tmp_path: Path, group: Path) -> None:
    days = [dt.date(2012, 1, 1) + dt.timedelta(days=8 * n) for n in range(46)]
    values = write(group, ["A"], days, "2012", scale=0.0001)["A"]
    at = np.arange(46) * 8
    stored = np.full(values.shape, NODATA, np.int16)
    peaks = 150 + 10 * np.arange(COLUMNS)
    stored[:, 0] = np.round(
        2000 + 6000 * np.exp(-(((at[:, np.newaxis] - peaks) / 40.0) ** 2))
    ).astype(np.int16)
    with rasterio.open(group / "A.tif", "r+") as stack:
        stack.write(stored)
    found, names = run(tmp_path, "phenology", "A_phenology.tif", smoothness="1e-3")
    assert names == [
        "start of season",
        "peak of season",
        "end of season",
        "length in days",
        "amplitude",
    ]
    half = 40.0 * np.sqrt(np.log(2.0))  # where the curve is half its height
    np.testing.assert_allclose(found[0, 0], peaks - half + 1, atol=1.5)
    np.testing.assert_allclose(found[1, 0], peaks + 1, atol=4.1)
    np.testing.assert_allclose(found[2, 0], peaks + half + 1, atol=1.5)
    np.testing.assert_allclose(found[3], found[2] - found[0], rtol=1e-5)
    np.testing.assert_allclose(found[4, 0], 0.6, atol=0.02)
    assert np.isnan(found[:, 1:]).all()
    found, _ = run(tmp_path, "phenology", "A_phenology.tif", least="0.7")
    assert np.isnan(found).all()


def polygons() -> dict[str, object]:
    """Two whole pixels and the half of a third one, and a polygon elsewhere."""
    ring = [[10.1, 49.9], [10.35, 49.9], [10.35, 49.8], [10.1, 49.8], [10.1, 49.9]]
    far = [[x + 50, y] for x, y in ring]
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"field": name},
                "geometry": {"type": "Polygon", "coordinates": [one]},
            }
            for name, one in (("north", ring), ("far", far))
        ],
    }


def test_zonal_statistics_count_shares_of_pixels(tmp_path: Path, group: Path) -> None:
    pytest.importorskip("exactextract")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = write(group, ["A", "B"], DAYS[:4], "2011")
    given = {"zones": json.dumps(polygons()), "name": "field"}
    try_package(SERIES / "zonal-statistics", group, given, tmp_path / "out")
    with (tmp_path / "out" / "zones.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == 2 * 4
    shares = np.array([1.0, 1.0, 0.5])
    for row in rows:
        assert row["zone"] == "north"
        number = [day.isoformat() for day in DAYS].index(row["date"])
        pixels = values[row["layer"]][number, 1, 1:4]
        known = np.isfinite(pixels)
        assert float(row["pixels"]) == pytest.approx(shares[known].sum())
        if known.any():
            assert float(row["mean"]) == pytest.approx(
                np.average(pixels[known], weights=shares[known])
            )
            assert float(row["sum"]) == pytest.approx((pixels * shares)[known].sum())
            assert float(row["minimum"]) == pytest.approx(pixels[known].min())
    table = parquet.read_table(tmp_path / "out" / "zones.parquet").to_pylist()
    assert [row["pixels"] for row in table] == [float(row["pixels"]) for row in rows]


def test_zones_of_the_packages_own_folder_and_wrong_ones(tmp_path: Path, group: Path) -> None:
    pytest.importorskip("exactextract")
    write(group, ["A"], DAYS[:2], "2011")
    with pytest.raises(AttemptError, match="there are no zones"):
        try_package(SERIES / "zonal-statistics", group, {}, tmp_path / "out")
    point = '{"type": "Point", "coordinates": [10, 50]}'
    with pytest.raises(AttemptError, match="is a Point"):
        try_package(SERIES / "zonal-statistics", group, {"zones": point}, tmp_path / "out")
    archive = Packages((SHIPPED, SERIES)).find("zonal-statistics").archive()
    assert archive is not None
    (tmp_path / "mine").mkdir()
    unpack(archive.data, tmp_path / "mine")
    (tmp_path / "mine" / "zones.geojson").write_text(json.dumps(polygons()))
    try_package(tmp_path / "mine", group, {}, tmp_path / "out")
    lines = (tmp_path / "out" / "zones.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["zone", "1", "1"]
