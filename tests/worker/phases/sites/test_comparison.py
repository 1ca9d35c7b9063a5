"""Values at sites against measurements: the pairs, and the numbers of a plain computation."""

import csv
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from tasks.comparison import Comparison, Pair
from tasks.request.sites import SiteChoice
from worker.phases.sites.comparison import ALL, pairs, statistics, summaries, write_comparison
from worker.phases.sites.extract import schema

BERLIN = SiteChoice(name="Berlin", lat=52.5, lon=13.4, columns=(("cover", "town"),))
OUSE = SiteChoice(name="Ouse", lat=53.0, lon=-1.0, columns=(("cover", "grass"),))


def table(*rows: dict[str, Any]) -> pa.Table:
    """A table as the sites' table is before it is written."""
    columns = schema().remove(0)
    usual = {
        "product": "P",
        "collection": "61",
        "layer": "x",
        "units": "K",
        "date": date(2012, 4, 13),
    }
    made = pa.Table.from_pylist([{**usual, **row} for row in rows], columns)
    places = {one.name: one for one in (BERLIN, OUSE)}
    sites = [places[row.get("site", "Berlin")] for row in rows]
    for name, values in (
        ("site", [one.name for one in sites]),
        ("latitude", [one.lat for one in sites]),
        ("longitude", [one.lon for one in sites]),
        ("cover", [dict(one.columns)["cover"] for one in sites]),
    ):
        made = made.append_column(name, pa.array(values))
    return made


def comparison(
    text: str,
    *,
    join: Literal["auto", "overpass", "day"] = "auto",
    period: int = 1,
    statistic: Literal["mean", "sum"] = "mean",
    scale: float = 1.0,
    tolerance: int = 30,
    least_share: float = 0.75,
    time_zone: str = "",
) -> Comparison:
    pair = Pair(
        product="P",
        collection="61",
        layer="x",
        period=period,
        column="v",
        scale=scale,
        offset=0.0,
        statistic=statistic,
    )
    return Comparison(
        table=text,
        pairs=(pair,),
        time_zone=time_zone,
        join=join,
        tolerance=tolerance,
        least_share=least_share,
    )


def half_hours(first: datetime, values: list[float]) -> str:
    lines = ["TIMESTAMP_START,TIMESTAMP_END,v"]
    for n, value in enumerate(values):
        start = first + n * timedelta(minutes=30)
        end = start + timedelta(minutes=30)
        lines.append(f"{start:%Y%m%d%H%M},{end:%Y%m%d%H%M},{value:g}")
    return "# Site: Berlin\n" + "\n".join(lines) + "\n"


def at(hour: int, minute: int) -> datetime:
    return datetime(2012, 4, 13, hour, minute, tzinfo=UTC)


def test_an_overpass_meets_the_half_hour_that_holds_it_in_local_standard_time() -> None:
    """10:20 UTC is 11:20 in the time zone of 13.4 degrees east: the half hour from 11:00."""
    text = half_hours(datetime(2012, 4, 13), [float(n) for n in range(48)])
    (found,) = pairs(
        table({"time": at(10, 20), "value": 5.0}), [BERLIN], comparison(text)
    ).to_pylist()
    assert (found["measured"], found["difference"], found["joined_by"]) == (22.0, -17.0, "overpass")
    assert found["measured_from"] == at(10, 0)
    assert found["measured_to"] == at(10, 30)
    assert (found["utc_offset"], found["utc_offset_by"]) == ("+01:00", "longitude")
    assert (found["minutes_away"], found["measured_n"], found["cover"]) == (0.0, 1, "town")
    (utc,) = pairs(
        table({"time": at(10, 20), "value": 5.0}), [BERLIN], comparison(text, time_zone="UTC")
    ).to_pylist()
    assert (utc["measured"], utc["utc_offset"], utc["utc_offset_by"]) == (20.0, "+00:00", "request")


@pytest.mark.parametrize(
    ("minute", "tolerance", "expected"),
    [(0, 30, [21.0]), (10, 9, []), (10, 10, [21.0]), (14, 30, [21.0]), (16, 30, [23.0])],
)
def test_beside_a_missing_half_hour_the_nearest_within_the_tolerance_counts(
    minute: int, tolerance: int, expected: list[float]
) -> None:
    """The half hour from 10:00 to 10:30 UTC has no value: 21 is before it, 23 after."""
    values = [float(n) for n in range(48)]
    values[22] = -9999
    text = half_hours(datetime(2012, 4, 13), values)
    rows = table({"time": at(10, minute), "value": 5.0})
    made = pairs(rows, [BERLIN], comparison(text, tolerance=tolerance))
    assert made["measured"].to_pylist() == expected


def test_a_day_meets_the_mean_of_its_local_half_hours() -> None:
    values = np.random.default_rng(1).normal(300, 5, 96)
    text = half_hours(datetime(2012, 4, 12), values.tolist())
    (found,) = pairs(table({"value": 280.0}), [BERLIN], comparison(text, scale=0.5)).to_pylist()
    rounded = [float(f"{value:g}") for value in values[48:]]
    assert found["measured"] == pytest.approx(0.5 * np.mean(rounded))
    assert (found["joined_by"], found["measured_n"], found["time"]) == ("day", 48, None)
    assert found["measured_from"] == datetime(2012, 4, 12, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("lost", "least_share", "expected"), [(12, 0.75, 1), (13, 0.75, 0), (13, 0.5, 1)]
)
def test_a_day_needs_its_share_of_half_hours(lost: int, least_share: float, expected: int) -> None:
    values = [-9999.0] * lost + [1.0] * (48 - lost)
    text = half_hours(datetime(2012, 4, 13), values)
    made = pairs(table({"value": 1.0}), [BERLIN], comparison(text, least_share=least_share))
    assert made.num_rows == expected


def test_a_daily_table_joins_overpasses_by_day_and_a_request_may_say_so() -> None:
    daily = "site,time,v\nBerlin,2012-04-13,7\n"
    rows = table({"time": at(10, 20), "value": 5.0}, {"time": at(12, 0), "value": 6.0})
    made = pairs(rows, [BERLIN], comparison(daily))
    assert made["joined_by"].to_pylist() == ["day", "day"]
    assert made["difference"].to_pylist() == [-2.0, -1.0]
    text = half_hours(datetime(2012, 4, 13), [2.0] * 48)
    assert (
        pairs(rows, [BERLIN], comparison(text, join="day"))["joined_by"].to_pylist() == ["day"] * 2
    )
    assert pairs(table({"value": 1.0}), [BERLIN], comparison(text, join="overpass")).num_rows == 0


def test_composites_and_windows_meet_the_days_that_they_stand_for() -> None:
    days = [date(2012, 4, 6) + timedelta(days=n) for n in range(10)]
    text = "site,time,v\n" + "".join(f"Berlin,{day},{n}\n" for n, day in enumerate(days))
    composite = {"date": days[1], "value": 1.0}
    (mean,) = pairs(table(composite), [BERLIN], comparison(text, period=8)).to_pylist()
    assert (mean["measured"], mean["last_day"]) == (np.mean(range(1, 9)), date(2012, 4, 14))
    window = {"date": days[0], "value": 1.0, "last": days[2]}
    (total,) = pairs(table(window), [BERLIN], comparison(text, statistic="sum")).to_pylist()
    assert (total["measured"], total["measured_n"]) == (0 + 1 + 2, 3)
    lacking = text.replace(f"Berlin,{days[1]},1\n", "")
    assert pairs(table(window), [BERLIN], comparison(lacking, statistic="sum")).num_rows == 0
    assert pairs(table(window), [BERLIN], comparison(lacking, least_share=0.6)).num_rows == 1


def test_a_sum_needs_all_of_its_days_and_a_mean_its_share() -> None:
    days = [date(2012, 4, 13) + timedelta(days=n) for n in range(7)]
    text = "site,time,v\n" + "".join(f"Berlin,{day},1\n" for day in days)
    rows = table({"date": days[0], "value": 1.0})
    for statistic, expected in (("mean", [1.0]), ("sum", [])):
        made = pairs(rows, [BERLIN], comparison(text, period=8, statistic=statistic))  # type: ignore[arg-type]
        assert made["measured"].to_pylist() == expected
    text += "Berlin,2012-04-20,1\n"
    made = pairs(rows, [BERLIN], comparison(text, period=8, statistic="sum"))
    assert made["measured"].to_pylist() == [8.0]


def test_what_is_met_by_overpass_has_the_scale_of_the_layer() -> None:
    text = half_hours(datetime(2012, 4, 13), [float(n) for n in range(48)])
    rows = table({"time": at(10, 20), "value": 5.0})
    assert pairs(rows, [BERLIN], comparison(text, scale=0.5))["measured"].to_pylist() == [11.0]


def test_irregular_moments_need_no_share_of_a_day() -> None:
    text = "site,time,v\n" + "".join(
        f"Berlin,2012-04-13T{hour}:{minute:02d}Z,{value}\n"
        for hour, minute, value in (("09", 7, 1), ("10", 31, 2), ("13", 2, 6))
    )
    rows = table({"time": at(10, 40), "value": 1.0}, {"value": 1.0})
    made = pairs(rows, [BERLIN], comparison(text))
    assert made["measured"].to_pylist() == [2.0, 3.0]
    assert made["utc_offset_by"].to_pylist() == ["table", "table"]
    assert made["minutes_away"].to_pylist() == [9.0, None]


def test_what_is_empty_or_not_measured_makes_no_pair() -> None:
    text = half_hours(datetime(2012, 4, 13), [2.0] * 48)
    rows = table({"value": None}, {"value": 1.0, "site": "Ouse"}, {"value": 1.0, "layer": "y"})
    made = pairs(rows, [BERLIN, OUSE], comparison(text))
    assert made.num_rows == 0
    (whole,) = summaries(made, comparison(text))
    assert (whole.site, whole.n) == (ALL, 0)


def test_statistics_are_those_of_numpy() -> None:
    rng = np.random.default_rng(7)
    measured = rng.normal(10, 3, 50)
    value = 0.8 * measured + rng.normal(1, 0.5, 50)
    n, bias, rmse, r, slope, intercept = statistics(value, measured)
    assert n == 50
    assert bias == pytest.approx(np.mean(value - measured))
    assert rmse == pytest.approx(np.sqrt(np.mean((value - measured) ** 2)))
    assert r == pytest.approx(np.corrcoef(value, measured)[0, 1])
    assert [slope, intercept] == pytest.approx(np.polyfit(measured, value, 1))
    one = statistics(np.array([3.0]), np.array([1.0]))
    assert one[:3] == (1, 2.0, 2.0)
    assert np.isnan(one[3:]).all()
    level = statistics(np.array([3.0, 4.0]), np.array([1.0, 1.0]))
    assert np.isnan(level[3:]).all()


def test_files_have_a_row_for_each_pair_site_and_layer(tmp_path: Path) -> None:
    text = "site,time,v\n" + "".join(
        f"{site},2012-04-{day},{value}\n"
        for site, day, value in (
            ("Berlin", 13, 1),
            ("Berlin", 14, 2),
            ("Ouse", 13, 5),
            ("Ouse", 14, 7),
        )
    )
    rows = table(
        *(
            {"site": site, "date": date(2012, 4, day), "value": value}
            for site, day, value in (
                ("Berlin", 13, 1.5),
                ("Berlin", 14, 2.5),
                ("Ouse", 13, 4.0),
                ("Ouse", 14, 8.0),
            )
        )
    )
    write_comparison(rows, [BERLIN, OUSE], comparison(text), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("comparison.csv", "comparison.parquet", "comparison-statistics.csv"),
    }
    found = [*csv.DictReader((tmp_path / "comparison-statistics.csv").read_text().splitlines())]
    assert [(one["site"], one["n"], one["bias"]) for one in found] == [
        ("all", "4", "0.25"),
        ("Berlin", "2", "0.5"),
        ("Ouse", "2", "0"),
    ]
    assert [float(one["slope"]) for one in found[1:]] == [1.0, 2.0]
    assert {one["regression"] for one in found} == {"ordinary least squares, value on measured"}
    again = tmp_path / "again"
    again.mkdir()
    write_comparison(rows, [BERLIN, OUSE], comparison(text), again)
    for path in again.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()
