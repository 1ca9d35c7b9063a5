"""Results by layer and date: the matrix, selections, windows and overpasses."""

import pytest

from portal.results.layers import Arranged, matrix, minute_of, result_layers, selected
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
    rows = dict(found.rows)
    assert [layer.title for layer in found.columns] == ["MCD15A2.005 Lai_1km", "mean Lai mean"]
    assert [cell.state for cell in rows["2012-01-01"]] == ["complete", ""]
    assert [cell.state for cell in rows["2012-01"]] == ["", "complete"]
    assert (rows["2012-01-09"][0].state, rows["2012-01-09"][0].text) == ("partial", "50%")
    assert rows["2012-01-17"][0].state == "missing"
    assert found.notes[rows["2012-01-09"][0].note - 1] == "h17v03: unreadable"
    assert found.notes[rows["2012-01-17"][0].note - 1] == gap.reason


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
    rows = dict(matrix([layer], [], [failed], 1, 50).rows)
    assert [*rows] == [*whens, "2012-01-10T0140"]
    assert rows["2012-01-10T0140"][0].state == "failed"


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
    assert [when for when, _ in matrix([layer], [], [], 1, 50).rows] == [*whens]
    assert layer.nearest(whens[-1]) == whens[-1]
    assert len(selected(files, [], "2012-03-01", "2012-04-10")) == taken
    places = [minute_of(when) for when in whens]
    assert places == sorted(places)
