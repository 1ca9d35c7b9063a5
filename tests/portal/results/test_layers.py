"""Results by layer and date: the matrix, selections, windows and overpasses."""

from dataclasses import replace

import pytest

from portal.requests.squares import matrix
from portal.results.layers import Arranged, minute_of, result_layers, selected
from tasks.bag.model import Phase, TaskOutcome
from tasks.bag.task_rows import Interest
from tests.portal.deliveries import LAYER, result


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
