"""Requests that planning refuses, with the field and what there is instead."""

from typing import Any

import pytest

from tasks.bag.spec import GroupSpec, ReduceSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.settings import Settings
from tests.service_manager.shelf import REQUEST, Shelf, composites, made, plan, specs


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        (
            {"time": {"start": "2013-01-01", "end": "2013-02-01"}},
            "time",
            "days from 2012-01-01 to 2012-04-30",
        ),
        ({"region": {"bbox": [100, 0, 110, 10]}}, "region", "none touches"),
        (
            {"products": [{"name": "MCD15A9", "collection": "5", "layers": ["a"]}]},
            "products.0",
            "MCD15A2",
        ),
        (
            {"products": [{"name": "MCD15A2", "collection": "7", "layers": ["Lai_1km"]}]},
            "products.0",
            "it serves collection 005",
        ),
        ({"reduction": {"package": "nothing"}}, "reduction.package", "monthly-mean"),
        ({"grid": {"crs": "EPSG:4326", "resolution": 1e-4}}, "grid.resolution", "MAX_PIXELS"),
    ],
)
def test_refusals_say_what_there_is(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        made(composites(), **changes)
    assert refused.value.field == field
    assert said in str(refused.value)


def test_a_plan_beyond_the_limit_is_refused_by_the_settings_name() -> None:
    small = Settings(max_tasks=60)
    with pytest.raises(RequestRefusedError, match="SWATHMILL_MAX_TASKS"):
        plan(parse_request(REQUEST), Shelf(records=composites()), Packages.of(small), small)


def test_a_long_thin_grid_is_refused_before_its_cells_are_looked_at() -> None:
    with pytest.raises(RequestRefusedError, match="20,000 are the most"):
        made(
            composites(),
            region={"bbox": [-8.0, 50.5, 6.0, 50.5000001]},
            grid={"crs": "EPSG:4326", "resolution": 1.4e-7},
        )


MEAN = {"package": "mean", "group_by": ["cell", "month"]}
QUALITY = {"name": "MCD15A2", "collection": "5", "layers": ["FparLai_QC"]}


def test_a_mean_of_bit_fields_alone_is_refused() -> None:
    with pytest.raises(RequestRefusedError) as caught:
        made(composites(), products=[QUALITY], reduction=MEAN)
    assert caught.value.field == "reduction.package"
    assert "continuous values" in str(caught.value)
    assert "MCD15A2 FparLai_QC (bit fields)" in str(caught.value)


def test_a_mean_leaves_bit_fields_out_and_says_so() -> None:
    both = {**QUALITY, "layers": ["Lai_1km", "FparLai_QC"]}
    found = made(composites(), products=[both], reduction=MEAN)
    assert {band.layer for group in specs(found, GroupSpec) for band in group.bands} == {"Lai_1km"}
    assert {run.outputs for run in specs(found, ReduceSpec)} == {("Lai_1km_mean.tif",)}
    assert any("left out of the reduction: MCD15A2 FparLai_QC" in note for note in found.notes)
