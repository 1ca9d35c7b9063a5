"""Results by layer and date: the matrix, selections, windows and overpasses."""

from dataclasses import replace

import pytest

from portal.results.layers import Arranged, Cell, matrix, minute_of, result_layers, selected
from reprojection.read.completeness import Completeness, Missing
from tasks.bag.categories import Category
from tasks.bag.model import Phase, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.requests.plan import Gap
from tests.portal.deliveries import LAYER, result


def test_a_matrix_says_what_is_complete_partial_or_missing_and_why() -> None:
    lacks = Completeness(share=0.5, missing=(Missing(what="h17v03", why="unreadable"),))
    files = [
        result(f"{LAYER}.2012-01-01.tif"),
        result(f"{LAYER}.2012-01-09.tif", lacks),
        result("mean/Lai/mean.2012-01.tif"),
    ]
    gap = Gap(what="MCD15A2.005 2012-01-17", reason="the archive has no granule of this date")
    found = matrix(list(result_layers(files).values()), [gap], (), 1, 50)
    lai, mean = ({cell.date: cell for cell in row.cells} for row in found.rows)
    assert [row.layer.title for row in found.rows] == ["MCD15A2.005 Lai_1km", "mean Lai mean"]
    assert {day: one.state for day, one in lai.items()} == {
        "2012-01-01": "complete",
        "2012-01-09": "partial",
        "2012-01-17": "missing",
    }
    assert [*mean] == ["2012-01"]
    assert lai["2012-01-09"].text == (
        "2012-01-09: partial, 50% of the inputs; 50% of pixels have a value; reason 1"
    )
    assert found.notes == ("h17v03: unreadable", gap.reason)
    assert found.counts == {"complete": 2, "partial": 1, "failed": 0, "empty": 0}


def test_a_layer_that_failed_on_every_date_has_a_row_too() -> None:
    """A step of a reduction, whose runs all failed: the layers before it are complete."""
    (lai,) = result_layers([result(f"{LAYER}.2012-01-01.tif")]).values()
    failed = Interest(
        request="r",
        key="k",
        phase=Phase.AGGREGATION,
        name="anomaly.Lai.2012-01",
        output="unusual/Lai",
        outcome=TaskOutcome.GAP,
        category=Category.USER_CODE_FAILED,
        message="exit code 1",
    )
    other = replace(failed, key="l", name="anomaly.Lai.2012-02")
    cell = replace(failed, key="m", output="", name="a cell of 2012-01")
    found = matrix([lai], [], [failed, other, cell], 1, 50)
    assert [row.layer.title for row in found.rows] == [
        "MCD15A2.005 Lai_1km",
        "unusual Lai anomaly.Lai",
    ]
    assert [(one.date, one.state) for one in found.rows[1].cells] == [
        ("2012-01", "failed"),
        ("2012-02", "failed"),
    ]
    assert found.rows[1].best is None
    assert found.counts["failed"] == 2
    assert found.notes == ("user code failed: exit code 1",)


@pytest.mark.parametrize(
    ("share", "shade", "said"),
    [(0.0, 0, "0%"), (0.001, 1, "below 1%"), (0.2, 2, "20%"), (0.79, 4, "79%"), (1.0, 5, "100%")],
)
def test_a_cell_is_as_dark_as_its_share_of_pixels(share: float, shade: int, said: str) -> None:
    made = Cell(date="2012-01-09", state="complete", valid=share, path="a.tif")
    assert made.shade == shade
    assert f"{said} of pixels have a value" in made.text


def test_the_map_opens_on_the_date_with_most_values() -> None:
    files = {
        day: result(f"{LAYER}.{day}.tif") for day in ("2012-01-01", "2012-01-09", "2012-01-17")
    }
    shares = {"2012-01-01": 0.0, "2012-01-09": 0.9, "2012-01-17": 0.2}
    made = [
        replace(one, file=replace(one.file, valid_share=shares[day])) for day, one in files.items()
    ]
    (layer,) = result_layers(made).values()
    assert layer.best == "2012-01-09"


def test_stac_items_of_rasters_are_left_out_and_other_files_are_not() -> None:
    paths = ("L/a.tif", "L/a.json", "L/table.json", "L/a.nc")
    listed = Arranged.of({path: result(path) for path in paths}).listed
    assert list(listed) == ["L/a.tif", "L/table.json", "L/a.nc"]


def test_results_are_selected_by_layer_and_date() -> None:
    paths = [f"{LAYER}.2012-01-{day}.tif" for day in ("01", "09", "17")]
    paths += ["other/X/other.2012-01-09.tif", f"{LAYER}.nc"]
    files = {path: result(path) for path in paths}
    assert list(selected(files, [LAYER], "2012-01-02", "2012-01-09")) == [paths[1], paths[4]]
    assert list(selected(files, [], "", "")) == paths


def test_overpasses_are_dates_of_a_layer_and_belong_to_their_day() -> None:
    whens = ("2012-01-08", "2012-01-09T0430", "2012-01-09T1310", "2012-01-10T0005")
    files = {path: result(path) for path in (f"{LAYER}.{when}.tif" for when in whens)}
    (layer,) = result_layers(files.values()).values()
    assert layer.dates == whens
    assert layer.nearest("2012-01-09T0500") == "2012-01-09T0430"
    assert [*selected(files, [], "2012-01-09", "2012-01-09")] == [*files][1:3]
    assert [*selected(files, [], "2012-01", "2012-01")] == [*files]
    failed = Interest(
        request="r",
        key="k",
        phase=Phase.AGGREGATION,
        name=f"{LAYER.rpartition('/')[2]}.2012-01-10T0140",
        output=LAYER.rpartition("/")[0],
        outcome=TaskOutcome.FAILED,
    )
    (row,) = matrix([layer], [], [failed], 1, 50).rows
    assert [cell.date for cell in row.cells] == [*whens, "2012-01-10T0140"]
    assert row.cells[-1].state == "failed"
    assert row.cells[1].short == "09 04:30"


@pytest.mark.parametrize(
    ("category", "said"),
    [
        (Category.UNKNOWN, "unknown: a.hdf: cut off"),
        (Category.UPSTREAM_FAILED, "a.hdf: cut off"),  # the message says what failed upstream
    ],
)
def test_a_failed_cell_says_its_cause_once(category: Category, said: str) -> None:
    (layer,) = result_layers([result(f"{LAYER}.2012-01-08.tif")]).values()
    failed = Interest(
        request="r",
        key="k",
        phase=Phase.AGGREGATION,
        name=f"{LAYER.rpartition('/')[2]}.2012-01-09",
        output=LAYER.rpartition("/")[0],
        outcome=TaskOutcome.FAILED,
        category=category,
        message="a.hdf: cut off",
    )
    assert matrix([layer], [], [failed], 1, 50).notes == (said,)


@pytest.mark.parametrize(
    ("whens", "taken"),
    [
        (("2012-001", "2012-097", "2012-105"), 1),  # 8 days, from 6 April
        (("2012-DJF", "2012-MAM", "2012-JJA", "2012-SON"), 1),  # from March
        (("DJF", "MAM", "JJA", "SON"), 4),  # of all years
        (("day-001", "day-097", "day-361"), 3),
        (("month-01", "month-10"), 2),
        (("2012-01-01_2012-04-30",), 0),
        (("2012-03", "2012-04"), 2),
    ],
)
def test_windows_are_dates_of_a_layer_in_the_order_of_time(
    whens: tuple[str, ...], taken: int
) -> None:
    files = {path: result(path) for path in (f"{LAYER}.{when}.tif" for when in reversed(whens))}
    (layer,) = result_layers(files.values()).values()
    assert layer.dates == whens
    assert matrix([layer], [], [], 1, 50).shown == whens
    assert layer.nearest(whens[-1]) == whens[-1]
    assert len(selected(files, [], "2012-03-01", "2012-04-10")) == taken
    places = [minute_of(when) for when in whens]
    assert places == sorted(places)
