"""The worked example: its values equal a plain computation, and each thing is there once.

Three days of it, one without temperature, by the real planner and the real phases in this process,
with the packages shut in.
"""

import csv
import datetime as dt
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import rasterio
from pyhdf.SD import SD

from archives.kinds.folder import FolderArchive
from reprojection.read.outline import read_outlines
from reprojection.sample.evapotranspiration import evapotranspiration_granules
from reprojection.sample.hdfeos_write import write_granule
from reprojection.sample.towers import TOWERS, tower_files
from swathmill.commands.remake.making import remake
from tasks.bag.categories import Category
from tasks.bag.site_specs import TableSpec
from tasks.bag.spec import GroupSpec, MosaicSpec, ReduceSpec
from tasks.packages.packages import Packages
from tasks.request.document import Time
from tasks.request.request_file import load_request
from tasks.request.sites import parse_sites
from tasks.requests.plan import Plan
from tests.service_manager.shelf import plan, specs
from tests.worker.mill import Mill
from worker.sandbox.messages import Failed, Succeeded

pytestmark = pytest.mark.proof

EXAMPLE = Path(__file__).parents[2] / "examples" / "evapotranspiration"
DAYS = [dt.date(2012, 4, day) for day in (20, 21, 22)]  # an 8-day window begins on 22 April
WITHOUT = DAYS[1]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """The example carried out: its plan, and the files of each task by name."""

    plan: Plan
    files: dict[str, dict[str, Path]]
    mill: Mill

    def file(self, name: str, ending: str = "tif") -> Path:
        (key,) = [s.key for s in specs(self.plan, MosaicSpec) if s.name == name]
        return self.files[key][f"{name}.{ending}"]


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Carried:
    folder = tmp_path_factory.mktemp("evapotranspiration")
    granules = folder / "granules"
    granules.mkdir()
    days = [dt.datetime(day.year, day.month, day.day) for day in DAYS if day != WITHOUT]
    for granule in evapotranspiration_granules([day.replace(tzinfo=dt.UTC) for day in days]):
        write_granule(granules / granule.local_name, granule)
    archive = FolderArchive(granules, folder / "index.sqlite", read_outlines)
    archive.refresh()
    for name, text in tower_files():
        (folder / name).write_text(text)
    request = load_request(EXAMPLE / "request.yaml", measurements=[folder]).model_copy(
        update={"time": Time(start=DAYS[0], end=DAYS[-1])}
    )
    mill = Mill(folder, granules)
    found = plan(request, archive, Packages([EXAMPLE / "packages"]), mill.settings)
    for package in found.archives:
        mill.world.put_package(package)
    files = {
        task.key: {file.name: mill.fetch(file) for file in mill.make(task.spec)} for task in found
    }
    return Carried(plan=found, files=files, mill=mill)


def test_each_task_is_there_once_and_gaps_are_those_of_a_person(carried: Carried) -> None:
    """2 of 3 days, two windows of 8 days, a month; two rasters of each sum; no other raster."""
    kinds = Counter(task.spec.kind for task in carried.plan)
    assert kinds["reduce"] == kinds["group"] == 2 + 2 + 1
    assert kinds["mosaic"] == 2 * (2 + 1)
    assert (kinds["sample"], kinds["sites"], kinds["table"]) == (2, 1, 1)  # a sample of each day
    # Two days, leaf area of 14 and 22 April, the albedo nearest to both days, and one map.
    assert Counter(
        task.spec.granule.split(".")[0] for task in carried.plan if task.spec.kind == "collect"
    ) == {"MOD11A1": 2, "MCD15A2H": 2, "MCD43A3": 1, "MCD12Q1": 1}
    assert [gap.what for gap in carried.plan.gaps] == [
        "MOD11A1.061 2012-04-21",
        "daily-et 2012-04-21",
    ]


def test_each_raster_is_made_again_from_the_granules_on(carried: Carried) -> None:
    """By two steps of packages of one's own, shut in, with layers that join in four ways."""
    rasters = [
        path
        for spec in specs(carried.plan, MosaicSpec)
        for path in [carried.files[spec.key][f"{spec.name}.tif"]]
    ]
    assert len(rasters) == 6
    for path in rasters[:: len(rasters) - 1]:
        again = remake(path, [carried.mill.archive], [EXAMPLE / "packages"])
        assert again.equal, again.differences
        assert again.runs > 1


@pytest.mark.parametrize(
    ("name", "days"),
    [
        ("monthly/2012-04", DAYS),
        ("eight-days/2012-105", DAYS[:2]),
        ("eight-days/2012-113", DAYS[2:]),
    ],
)
def test_values_are_those_of_a_plain_computation(
    carried: Carried, name: str, days: list[dt.date]
) -> None:
    window = name.partition("/")[2]
    with rasterio.open(carried.file(f"et_sum.{window}")) as made:
        found, where = made.read(1), made.transform
        assert made.units == ("mm",)
    with rasterio.open(carried.file(f"et_dates.{window}")) as made:
        dates = made.read(1)
    daily = [plain(carried.mill.archive, day) for day in days if day != WITHOUT]
    side = 10 * 111194.92664455873 / 1200  # of a pixel, in metres of the sphere
    column, row = round(where.c / side), round((10 * 6 * 111194.92664455873 - where.f) / side)
    part = (slice(row, row + found.shape[0]), slice(column, column + found.shape[1]))
    stack = np.stack([values[part] for values in daily])
    there = np.isfinite(stack).sum(axis=0)
    assert np.array_equal(dates, there)
    assert 0.3 < (there > 0).mean() < 1.0
    expected = np.where(there > 0, np.nansum(stack, axis=0), np.nan)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert 0.2 < np.nanmean(expected) / len(daily) < 4.0  # mm a day


def test_the_sites_of_the_request_are_those_of_the_towers() -> None:
    sites = parse_sites((EXAMPLE / "towers.csv").read_text("utf-8"))
    assert [(s.name, s.lat, s.lon, dict(s.columns)["cover"]) for s in sites] == [
        (t.name, t.lat, t.lon, t.cover) for t in TOWERS
    ]


def test_towers_are_compared_as_a_plain_computation_compares_them(carried: Carried) -> None:
    """Values of the pixels below the towers, and means of the towers' own half hours."""
    (table,) = specs(carried.plan, TableSpec)
    files = carried.files[table.key]
    pairs = [*csv.DictReader(files["comparison.csv"].read_text("utf-8").splitlines())]
    expected = []
    for (name, text), tower in zip(tower_files(), TOWERS, strict=True):
        assert tower.name in name
        for day in DAYS:
            if day == WITHOUT:
                continue
            rows = [
                line.split(",") for line in text.splitlines() if line.startswith(f"{day:%Y%m%d}")
            ]
            heat = [float(row[2]) for row in rows if row[2] != "-9999"]
            row = int((60.0 - tower.lat) * 120)
            column = int(tower.lon * np.cos(np.radians(tower.lat)) * 120)
            value = plain(carried.mill.archive, day)[row, column]
            if np.isfinite(value) and len(heat) >= 36:
                expected.append((tower.name, str(day), value, 0.035265 * np.mean(heat)))
    assert len(expected) > 3
    assert [(one["site"], one["first_day"]) for one in pairs] == [one[:2] for one in expected]
    made = np.array([(float(one["value"]), float(one["measured"])) for one in pairs])
    assert made == pytest.approx(np.array([one[2:] for one in expected]), rel=1e-5)
    assert {(one["utc_offset"], one["utc_offset_by"]) for one in pairs} == {("+01:00", "longitude")}
    assert {one["joined_by"] for one in pairs} == {"day"}
    (whole, *rest) = csv.DictReader(files["comparison-statistics.csv"].read_text().splitlines())
    assert [whole["site"], *(one["site"] for one in rest)] == [
        "all",
        *dict.fromkeys(one[0] for one in expected),
    ]
    value, measured = np.array([one[2:] for one in expected]).T
    slope, intercept = np.polyfit(measured, value, 1)
    assert int(whole["n"]) == len(expected)
    for name, known in (
        ("bias", np.mean(value - measured)),
        ("rmse", np.sqrt(np.mean((value - measured) ** 2))),
        ("r", np.corrcoef(value, measured)[0, 1]),
        ("slope", slope),
        ("intercept", intercept),
    ):
        assert float(whole[name]) == pytest.approx(known, rel=1e-4), name
    assert "comparison.parquet" in files


def stored(archive: Path, pattern: str, layer: str) -> npt.NDArray[np.int64]:
    (path,) = archive.glob(pattern)
    return np.asarray(SD(str(path)).select(layer)[:], np.int64)


def plain(archive: Path, day: dt.date) -> Floats:
    """Evapotranspiration of a day over the whole tile, in mm, from the granules' own numbers."""
    number = day.timetuple().tm_yday
    leaf_day = (number - 1) // 8 * 8 + 1
    albedo_day = min(range(89, 122, 8), key=lambda other: (abs(other - number), other))
    high = stored(archive, f"MOD11A1.A2012{number:03d}.*", "LST_Day_1km")
    low = stored(archive, f"MOD11A1.A2012{number:03d}.*", "LST_Night_1km")
    lai = stored(archive, f"MCD15A2H.A2012{leaf_day:03d}.*", "Lai_500m")[::2, ::2]
    white = stored(archive, f"MCD43A3.A2012{albedo_day:03d}.*", "Albedo_WSA_shortwave")[::2, ::2]
    cover = stored(archive, "MCD12Q1.*", "LC_Type1")[::2, ::2]
    valid = (high > 0) & (low > 0) & (lai <= 100) & (white < 32767)
    valid &= np.isin(cover, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14])

    t_max, t_min = 0.02 * high - 273.16, 0.02 * low - 273.16
    phi = np.radians(60.0 - (np.arange(1200) + 0.5) / 120.0)[:, None]
    delta = 0.409 * np.sin(2 * np.pi * number / 365 - 1.39)
    w = np.arccos(-np.tan(phi) * np.tan(delta))
    r_a = 24 * 60 / np.pi * 0.0820 * (1 + 0.033 * np.cos(2 * np.pi * number / 365))
    r_a = r_a * (w * np.sin(phi) * np.sin(delta) + np.cos(phi) * np.cos(delta) * np.sin(w))
    ratio = np.minimum(0.16 * np.sqrt(t_max - t_min) / 0.75, 1.0)
    e_a = 0.6108 * np.exp(17.27 * t_min / (t_min + 237.3))
    sigma = 4.903e-9 * ((0.02 * high) ** 4 + (0.02 * low) ** 4) / 2
    r_nl = sigma * (0.34 - 0.14 * np.sqrt(e_a)) * (1.35 * ratio - 0.35)
    r_n = np.maximum((1 - 0.001 * white) * ratio * 0.75 * r_a - r_nl, 0.0)
    t = (t_max + t_min) / 2
    slope = 4098 * 0.6108 * np.exp(17.27 * t / (t + 237.3)) / (t + 237.3) ** 2
    bare = np.exp(-0.05 * lai)
    et = 1.26 * slope / (slope + 0.0673645) * r_n / 2.45 * (1 - bare + 0.3 * bare)
    return np.where(valid, et, np.nan)


def test_the_manifest_of_a_later_step_tells_step_output_and_window(carried: Carried) -> None:
    (month,) = [s for s in specs(carried.plan, GroupSpec) if s.window == "2012-04"]
    manifest = json.loads(carried.files[month.key]["manifest.json"].read_text("utf-8"))
    bands = manifest["bands"]
    assert [(b["step"], b["layer"], b["window"], b["date"]) for b in bands] == [
        ("daily-et", "et", day.isoformat(), day.isoformat()) for day in DAYS if day != WITHOUT
    ]
    assert {(b["file"], b["units"], b["kind"]) for b in bands} == {("et.tif", "mm", "continuous")}
    assert any("MCD43A3" in granule["name"] for granule in bands[0]["granules"])
    assert manifest["completeness"] == pytest.approx(2 / 3)
    assert [one["what"] for one in manifest["missing"]] == ["MOD11A1.061 2012-04-21"]
    # A day's run has land cover of another year and leaf area of eight days, and is of its day.
    assert [(b["start"], b["end"]) for b in bands] == [
        (f"{day}T00:00:00Z", f"{day}T23:59:59Z") for day in DAYS if day != WITHOUT
    ]
    item = json.loads(carried.file("et_sum.2012-04", "json").read_text("utf-8"))
    assert item["properties"]["start_datetime"] == "2012-04-01T00:00:00Z"
    assert item["properties"]["end_datetime"] == "2012-04-30T23:59:59Z"
    assert item["properties"]["swathmill:completeness"] == pytest.approx(2 / 3, abs=1e-3)


@pytest.mark.provokes(Category.TOO_FEW_VALUES)
@pytest.mark.parametrize(("least", "runs"), [(0.3, True), (0.95, False)])
def test_a_run_needs_its_share_of_pixels(carried: Carried, least: float, runs: bool) -> None:
    run = next(s for s in specs(carried.plan, ReduceSpec) if s.package == "total")
    said = carried.mill.attempt(run.model_copy(update={"least_valid": least}))
    assert isinstance(said, Succeeded if runs else Failed)
    if isinstance(said, Failed):
        assert said.category is Category.TOO_FEW_VALUES
        assert said.message.startswith("not run: total needs values in 95% of the pixels, and ")
