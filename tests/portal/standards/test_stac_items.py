"""Items of a reduction's windows: named after the window, and of its own days."""

import copy
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter
from pystac.validation import validate_dict

from portal.results.result_files import ResultIndex
from portal.standards import stac_api
from portal.standards.stac_items import StacIndex, collection, feature
from reprojection.write.stac import stac_item
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tests.portal.scripted import live_runtime, put_result, raster_bytes
from tests.portal.submissions import DOCUMENT

SPAN = {"start": "2011-01-10", "end": "2012-03-20"}
WINDOWS = {
    "2011-01": ("2011-01-01", "2011-01-31"),
    "2012-DJF": ("2011-12-01", "2012-02-29"),
    "2012-041": ("2012-02-10", "2012-02-17"),
    "month-02": ("2011-02-01", "2012-02-29"),
    "DJF": ("2010-12-01", "2012-02-29"),
    "day-041": ("2011-02-10", "2012-02-10"),
    "2011-01-10_2012-03-20": ("2011-01-10", "2012-03-20"),
}


def times(about: dict[str, Any]) -> tuple[str, str]:
    return about["start_datetime"], about["end_datetime"]


def test_items_are_named_after_their_window_and_have_its_time(tmp_path: Path) -> None:
    runtime = live_runtime()
    reduction = {"package": "mean", "group_by": ["cell", "season"]}
    document = {**DOCUMENT, "time": SPAN, "reduction": reduction}
    request = request_operations.submit(runtime, "ada@example.org", parse_request(document))
    for name, (first, last) in WINDOWS.items():
        image = tmp_path / f"Lai_1km_mean.{name}.tif"
        image.write_bytes(raster_bytes(tmp_path, 1))
        item: Any = stac_item(image)
        start, end = f"{first}T00:00:00Z", f"{last}T23:59:59Z"
        item["properties"] |= {"datetime": None, "start_datetime": start, "end_datetime": end}
        put_result(runtime, request, "mean/Lai_1km_mean", image.name, image.read_bytes())
        text = json.dumps(item).encode()
        put_result(runtime, request, "mean/Lai_1km_mean", f"{image.stem}.json", text)
    row = request_operations.load(runtime, request)
    items = StacIndex(ResultIndex()).items(runtime, row)
    found = {item.id: feature(item, row, "https://portal.example") for item in items}
    assert {*found} == {*WINDOWS}
    for name, (first, last) in WINDOWS.items():
        made: Any = found[name]
        assert times(made["properties"]) == (f"{first}T00:00:00Z", f"{last}T23:59:59Z")
        plain = copy.deepcopy(made)
        plain["stac_extensions"] = []  # their schemas are on the network
        assert validate_dict(plain)
    # The collection's time encloses its windows, which begin before the request's days.
    said: Any = collection(row, "https://portal.example")
    assert said["extent"]["temporal"]["interval"] == [
        ["2010-12-01T00:00:00Z", "2012-05-31T23:59:59Z"]
    ]


@pytest.mark.parametrize("kind", ["date", "8-day", "month", "year", "all", "month-of-year"])
def test_a_collections_time_is_at_least_that_of_the_request(kind: str) -> None:
    runtime = live_runtime()
    reduction = {"package": "mean", "group_by": ["cell", kind]}
    document = {**DOCUMENT, "time": SPAN, "reduction": reduction}
    request = request_operations.submit(runtime, "ada@example.org", parse_request(document))
    said: Any = collection(request_operations.load(runtime, request), "https://portal.example")
    ((first, last),) = said["extent"]["temporal"]["interval"]
    assert first <= "2011-01-10T00:00:00Z"
    assert last >= "2012-03-20T23:59:59Z"


def test_a_page_has_so_many_items_at_most() -> None:
    limit = TypeAdapter(Annotated[int, stac_api._Capped])
    asked = (1, stac_api.MOST, stac_api.MOST + 1, 10**9)
    assert [limit.validate_python(one) for one in asked] == [1, 1000, 1000, 1000]
