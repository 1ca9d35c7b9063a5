"""The squares of results: made, partial, failed, left out, missing, or still to come."""

from dataclasses import replace

import pytest

from portal.requests.squares import Cell, matrix
from portal.results.layers import result_layers
from reprojection.read.completeness import Completeness, Missing
from tasks.bag.categories import Category
from tasks.bag.model import Phase, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.requests.plan import Gap
from tests.portal.deliveries import LAYER, result

MOSAIC = Interest(
    request="r",
    key="k",
    phase=Phase.AGGREGATION,
    name=f"{LAYER.rpartition('/')[2]}.2012-01-17",
    output=LAYER.rpartition("/")[0],
)


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
    assert {state: count for state, count in found.counts.items() if count} == {
        "complete": 2,
        "partial": 1,
    }
    assert found.states == {"complete", "partial", "missing"}
    assert matrix(list(result_layers(files).values()), [], (), 1, 50).states == {
        "complete",
        "partial",
    }


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
        ("2012-01", "left out"),
        ("2012-02", "left out"),
    ]
    assert found.rows[1].best is None
    assert found.counts["left out"] == 2
    assert found.notes == ("user code failed: exit code 1",)


@pytest.mark.parametrize(
    ("share", "shade", "said"),
    [
        *((0.0, 0, "0%"), (0.001, 1, "below 1%"), (0.2, 2, "20%"), (0.79, 4, "79%")),
        *((0.9951, 5, "over 99%"), (1.0, 5, "100%")),
    ],
)
def test_a_cell_is_as_dark_as_its_share_of_pixels(share: float, shade: int, said: str) -> None:
    made = Cell(date="2012-01-09", state="complete", valid=share, path="a.tif")
    assert made.shade == shade
    assert f"{said} of pixels have a value" in made.text


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


def test_what_is_planned_and_not_made_is_still_to_come() -> None:
    """Also of a layer of which nothing is there yet, and of a raster that is tried again."""
    (lai,) = result_layers([result(f"{LAYER}.2012-01-01.tif")]).values()
    again = replace(MOSAIC, outcome=TaskOutcome.FAILED, category=Category.UNKNOWN)
    other = replace(MOSAIC, output="mean/Lai", name="Lai.2012-01")
    cube = replace(MOSAIC, name=LAYER.rpartition("/")[2])
    found = matrix([lai], [], [again], 1, 50, [MOSAIC, other, cube])
    assert [
        (row.layer.title, [(cell.date, cell.state) for cell in row.cells]) for row in found.rows
    ] == [
        ("MCD15A2.005 Lai_1km", [("2012-01-01", "complete"), ("2012-01-17", "to come")]),
        ("mean Lai", [("2012-01", "to come")]),
    ]
    assert found.rows[0].cells[1].text == "2012-01-17: still to come"
    assert (found.counts["to come"], found.counts["failed"]) == (2, 0)


def test_a_page_has_about_as_many_squares_as_it_is_given_room_for() -> None:
    dates = [f"2012-{1 + n // 28:02d}-{1 + n % 28:02d}" for n in range(100)]

    def pages(layers: int) -> tuple[int, int]:
        awaited = [
            replace(MOSAIC, output=f"p/L{n}", name=f"L{n}.{day}")
            for n in range(layers)
            for day in dates
        ]
        found = matrix([], [], [], 1, 1000, awaited)
        return sum(len(row.cells) for row in found.rows), found.pages

    assert pages(1) == (50, 2)
    assert pages(50) == (1000, 5)
