"""Records over the end of both MODIS and the start of a VIIRS, through manager and workers.

Dates, sensors, weights and gaps are counted by hand, from the calendars of the products.
"""

import csv
import io
import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from tests.acceptance.in_process import Work
from tests.generated.record_granules import (
    HEAT,
    INDEX,
    MODIS_LEAVES,
    REGION,
    VIIRS_LEAVES,
    every,
    write,
)

TERRA, AQUA, NPP, NOAA20 = 0.50, 0.52, 0.60, 0.64
"""What the granules of each sensor hold everywhere."""

PLAIN: dict[str, Any] = {"region": REGION, "grid": {"crs": "EPSG:4326", "resolution": 0.5}}


def said(work: Work, request: str) -> dict[str, tuple[str, float]]:
    """Return sensor and value of each raster of a record, by its date."""
    found = {}
    for name, data in work.rasters(request).items():
        with rasterio.open(io.BytesIO(data)) as image:
            sensor = image.tags(1).get("SENSOR", "")
            values = np.unique(image.read(1))
        assert len(values) == 1, name
        found[name.split(".")[-2]] = sensor, round(float(values[0]), 4)
    return found


def differences(work: Work, request: str) -> list[tuple[str, ...]]:
    """Return of each pair of sensors their names, the common dates, bias and RMSE."""
    text = work.files(request)["ndvi-16day.NDVI.overlap.csv"].decode()
    names = "reference", "sensor", "dates", "bias", "rmse"
    return [tuple(row[name] for name in names) for row in csv.DictReader(text.splitlines())]


def gaps(work: Work, request: str) -> list[str]:
    return [gap.what for gap in work.row(request).gaps]


@pytest.fixture
def turn(tmp_path: Path) -> Work:
    """The turn of 2025/26: Terra's last composite, Aqua, and Suomi NPP from day 1 of 2026 on."""
    archive = tmp_path / "archive"
    write(archive, "MOD13A2", "61", every(16, 2025, 337, 353), INDEX, TERRA)
    write(archive, "MYD13A2", "61", [date(2025, 12, 27), *every(16, 2026, 9, 25)], INDEX, AQUA)
    write(archive, "VNP13A2", "2", every(8, 2026, 1, 17), INDEX, NPP)
    return Work(folder=tmp_path / "data", archive=archive)


def test_the_turn_of_the_year_by_hand(turn: Work) -> None:
    request = turn.run(
        {
            **PLAIN,
            "products": [{"record": "ndvi-16day", "layers": ["NDVI"]}],
            "time": {"start": "2025-12-01", "end": "2026-01-31"},
            "qa": "good",
        }
    )
    assert said(turn, request) == {
        "2025-12-03": ("Terra MODIS", TERRA),
        "2025-12-19": ("Terra MODIS", TERRA),
        "2025-12-27": ("Aqua MODIS", AQUA),
        "2026-01-01": ("Suomi NPP VIIRS", NPP),
        "2026-01-09": ("Aqua MODIS", AQUA),
        "2026-01-17": ("Suomi NPP VIIRS", NPP),
        "2026-01-25": ("Aqua MODIS", AQUA),
    }
    assert gaps(turn, request) == ["ndvi-16day 2025-12-11"]
    # Both have January 9th, and nothing is adjusted by the difference.
    assert differences(turn, request) == [("Aqua MODIS", "Suomi NPP VIIRS", "1", "0.08", "0.08")]


def test_a_mean_of_the_sensors_that_have_a_date(turn: Work) -> None:
    write(turn.archive, "VNP13A2", "2", [date(2025, 12, 19)], INDEX, NPP)
    request = turn.run(
        {
            **PLAIN,
            "products": [{"record": "ndvi-16day", "layers": ["NDVI"], "overlap": "mean"}],
            "time": {"start": "2025-12-19", "end": "2026-01-10"},
            "qa": "good",
            "cube": "netcdf",
        }
    )
    assert said(turn, request) == {
        "2025-12-19": ("Terra MODIS, Suomi NPP VIIRS", round((TERRA + NPP) / 2, 4)),
        "2025-12-27": ("Aqua MODIS", AQUA),
        "2026-01-01": ("Suomi NPP VIIRS", NPP),
        "2026-01-09": ("Aqua MODIS, Suomi NPP VIIRS", round((AQUA + NPP) / 2, 4)),
    }
    files = turn.files(request)
    item = json.loads(files["ndvi-16day.NDVI.2025-12-19.json"])["properties"]
    assert item["swathmill:sensor"] == "Terra MODIS, Suomi NPP VIIRS"
    assert (item["instruments"], item.get("platform")) == (["modis", "viirs"], None)
    assert "ndvi-16day.NDVI.nc" in files
    assert differences(turn, request) == [
        ("Terra MODIS", "Suomi NPP VIIRS", "1", "0.1", "0.1"),
        ("Aqua MODIS", "Suomi NPP VIIRS", "1", "0.08", "0.08"),
    ]


def test_near_real_time_granules_are_marked_and_replaced(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    days = every(8, 2026, 1, 9)
    write(archive, "VNP13A2", "2", days[:1], INDEX, NPP)
    write(archive, "VNP13A2_NRT", "2", days[1:], INDEX, NPP)
    (near,) = archive.glob("VNP13A2_NRT.*")
    work = Work(folder=tmp_path / "data", archive=archive)
    product = {"name": "VNP13A2", "collection": "2", "layers": ["1 km 16 days NDVI"]}
    span = {"start": "2026-01-01", "end": "2026-01-16"}
    document = {**PLAIN, "products": [{**product, "near_real_time": True}], "time": span}

    def marks(request: str) -> list[tuple[str | None, list[str]]]:
        files, found = work.files(request), []
        for name in sorted(one for one in files if one.endswith(".tif")):
            with rasterio.open(io.BytesIO(files[name])) as image:
                tag = image.tags().get("NEAR_REAL_TIME")
            item = json.loads(files[f"{name[:-4]}.json"])["properties"]
            found.append((tag, item.get("swathmill:near_real_time", [])))
        return found

    assert marks(work.run(document)) == [(None, []), ("1 of 1 granules", [near.name])]
    write(archive, "VNP13A2", "2", days[1:], INDEX, NPP)
    assert marks(work.run(document)) == [(None, []), (None, [])]


def test_weights_by_days_of_composites_of_several_sensors(turn: Work) -> None:
    request = turn.run(
        {
            **PLAIN,
            "products": [{"record": "ndvi-16day", "layers": ["NDVI"]}],
            "time": {"start": "2026-01-01", "end": "2026-01-31"},
            "weight": "days",
            "reduction": {"package": "monthly-mean", "group_by": ["cell", "month"]},
            "deliver": "results",
        }
    )
    ((_, value),) = said(turn, request).values()
    # Days in January: from 19 and 27 December, 1, 9, 17 and 25 January, 16 days each.
    by_hand = (3 * TERRA + 11 * AQUA + 16 * NPP + 16 * AQUA + 15 * NPP + 7 * AQUA) / (
        3 + 11 + 16 + 16 + 15 + 7
    )
    assert value == pytest.approx(by_hand, abs=1e-4)


# --- The whole of 2024 to 2027 ---


def counted(found: dict[str, tuple[str, float]]) -> Counter[str]:
    return Counter(sensor for sensor, _ in found.values())


@pytest.mark.proof
def test_the_vegetation_index_of_four_years(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for year in (2024, 2025):
        write(archive, "MOD13A2", "61", every(16, year, 1, 353), INDEX, TERRA)
        write(archive, "MYD13A2", "61", every(16, year, 9, 361), INDEX, AQUA)
    write(archive, "MYD13A2", "61", every(16, 2026, 9, 233), INDEX, AQUA)
    write(archive, "VNP13A2", "2", every(8, 2025, 153, 361), INDEX, NPP)
    write(archive, "VNP13A2", "2", every(8, 2026, 1, 361), INDEX, NPP)
    write(archive, "VJ113A2", "2", every(8, 2026, 185, 361), INDEX, NOAA20)
    late = [day for day in every(8, 2027, 1, 361) if day != date(2027, 3, 6)]
    write(archive, "VJ113A2", "2", late, INDEX, NOAA20)
    work = Work(folder=tmp_path / "data", archive=archive)
    request = work.run(
        {
            **PLAIN,
            "products": [{"record": "ndvi-16day", "layers": ["NDVI"]}],
            "time": {"start": "2024-01-01", "end": "2027-12-31"},
            "qa": "good",
        }
    )
    found = said(work, request)
    # 46 dates a year. 2026: Aqua on days 9, 25, ..., 233, which are 15; Suomi NPP on the 23 of
    # Terra, and on Aqua's 8 from 249 on.
    assert counted(found) == {
        "Terra MODIS": 2 * 23,
        "Aqua MODIS": 2 * 23 + 15,
        "Suomi NPP VIIRS": 23 + 8,
        "NOAA-20 VIIRS": 46 - 1,
    }
    assert max(day for day, (sensor, _) in found.items() if sensor == "Terra MODIS") == "2025-12-19"
    assert max(day for day, (sensor, _) in found.items() if sensor == "Aqua MODIS") == "2026-08-21"
    assert min(day for day, (sensor, _) in found.items() if "NPP" in sensor) == "2026-01-01"
    worth = {"Terra MODIS": TERRA, "Aqua MODIS": AQUA, "Suomi NPP VIIRS": NPP}
    assert all(value == worth.get(sensor, NOAA20) for sensor, value in found.values())
    assert gaps(work, request) == ["ndvi-16day 2027-03-06"]


@pytest.mark.proof
def test_leaf_area_of_four_years_with_viirs_first(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for year in (2024, 2025):
        write(archive, "MCD15A2H", "61", every(8, year, 1, 361), MODIS_LEAVES, 2.0)
    write(archive, "MYD15A2H", "61", every(8, 2026, 1, 233), MODIS_LEAVES, 2.1)
    write(archive, "VNP15A2H", "2", every(8, 2025, 153, 361), VIIRS_LEAVES, 2.4)
    for year in (2026, 2027):
        write(archive, "VNP15A2H", "2", every(8, year, 1, 361), VIIRS_LEAVES, 2.4)
    work = Work(folder=tmp_path / "data", archive=archive)
    leaves = {"record": "leaf-area-8day", "layers": ["Lai"], "prefer": ["VIIRS"]}
    request = work.run(
        {**PLAIN, "products": [leaves], "time": {"start": "2024-01-01", "end": "2027-12-31"}}
    )
    found = said(work, request)
    # 2025: days 1, 9, ..., 145 are 19 dates before the first of Suomi NPP.
    assert counted(found) == {
        "Terra and Aqua MODIS": 46 + 19,
        "Suomi NPP VIIRS": 4 * 46 - 46 - 19,
    }
    assert {value for sensor, value in found.values() if "NPP" in sensor} == {2.4}
    assert gaps(work, request) == []


@pytest.mark.proof
def test_surface_temperature_of_four_winters(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    days = [day for year in range(2024, 2028) for day in every(1, year, 1, 5)]
    ends = [date(year, 12, day) for year in range(2024, 2028) for day in range(25, 32)]
    absent = {date(2025, 1, 2), date(2025, 1, 4)}
    aqua = [day for day in (*days, *ends) if day < date(2026, 9, 1) and day not in absent]
    write(archive, "MYD21A1D", "61", aqua, HEAT, 280.0, units="K")
    terra = [day for day in (*days, *ends) if day.year < 2026 and day != date(2025, 1, 4)]
    write(archive, "MOD21A1D", "61", terra, HEAT, 275.0, units="K")
    npp = [day for day in (*days, *ends) if day > date(2025, 12, 27)]
    write(archive, "VNP21A1D", "2", npp, HEAT, 281.0, units="K")
    work = Work(folder=tmp_path / "data", archive=archive)
    request = work.run(
        {
            **PLAIN,
            "products": [{"record": "surface-temperature-day", "layers": ["LST"]}],
            "time": {
                "start": "2024-01-01",
                "end": "2027-12-31",
                "every": {"from": "12-25", "to": "01-05"},
            },
            "qa": "good",
        }
    )
    found = said(work, request)
    # 12 days a year. Aqua: 12, 12 less 2, and the 5 of January 2026; Terra the one that Aqua lacks.
    assert counted(found) == {
        "Aqua MODIS": 12 + 10 + 5,
        "Terra MODIS": 1,
        "Suomi NPP VIIRS": 7 + 12,
    }
    assert found["2025-01-02"] == ("Terra MODIS", 275.0)
    assert found["2026-12-25"] == ("Suomi NPP VIIRS", 281.0)
    assert gaps(work, request) == ["surface-temperature-day 2025-01-04"]


def test_a_bridge_finds_the_offset_between_two_sensors(tmp_path: Path) -> None:
    """Suomi NPP sees 0.08 more than Aqua, over twelve common dates; then Aqua ends."""
    archive = tmp_path / "archive"
    common = every(16, 2025, 9, 185)
    season = {day: round(0.3 + 0.02 * number, 4) for number, day in enumerate(common)}
    write(archive, "MYD13A2", "61", common, INDEX, season)
    after = every(16, 2025, 201, 249)
    more = {day: round(value + 0.08, 4) for day, value in season.items()}
    write(archive, "VNP13A2", "2", [*common, *after], INDEX, more | dict.fromkeys(after, 0.7))
    work = Work(folder=tmp_path / "data", archive=archive)
    request = work.run(
        {
            **PLAIN,
            "products": [{"record": "ndvi-16day", "layers": ["NDVI"], "overlap": "all"}],
            "time": {"start": "2025-01-01", "end": "2025-12-31"},
            "reduction": {
                "package": "bridge",
                "group_by": ["cell", "all"],
                "parameters": {"method": "offset", "reference": "MYD13A2"},
            },
            "deliver": "results",
        }
    )
    found = {}
    for name, data in work.rasters(request).items():
        with rasterio.open(io.BytesIO(data)) as image:
            found[name.partition("_bridge.")[0].partition(".20")[0]] = image.read()[:, 1, 1]
    fit = found["VNP13A2.002.NDVI"]
    np.testing.assert_allclose(fit, [12, 0.08, 0.08, 1.0, 1.0, -0.08], atol=2e-4)
    np.testing.assert_allclose(found["MYD13A2.061.NDVI"], [12, 0, 0, 1, 1, 0], atol=1e-6)
    series = found["bridged"]
    np.testing.assert_allclose(series[:12], [*season.values()], atol=2e-4)
    np.testing.assert_allclose(series[12:], 0.62, atol=2e-4)  # 0.7 less the offset
