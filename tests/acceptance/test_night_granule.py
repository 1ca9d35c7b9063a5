"""A UTC day of level 1B with a granule of night, which has no reflectances."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.bag.model import RequestState
from tasks.requests import request_operations
from tasks.storage.blobs import split_blob
from tests.acceptance.in_process import Work
from tests.reprojection.test_partial_loss import without_band, write_day, write_night

DOCUMENT: dict[str, Any] = {
    "title": "Reflectance of a day that has a night granule",
    "products": [{"name": "VNP02MOD", "collection": "2", "layers": ["M05", "M15"]}],
    "region": {"bbox": [7, 43, 13, 47]},
    "time": {"start": "2023-01-01", "end": "2023-01-01"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.25},
}
WHY = "holds no layer M05, as granules of night do"


def items(work: Work, request: str) -> dict[str, Any]:
    """The STAC items of a request's results, by layer."""
    return {
        file.name.split(".")[2]: json.loads(work.runtime.blobs.get_bytes(*split_blob(file.blob)))
        for interest in request_operations.results(work.runtime, request)
        for file in interest.files
        if file.name.endswith(".json")
    }


@pytest.mark.parametrize("on_missing", ["skip", "fail"])
def test_the_day_is_delivered_and_the_night_is_named(on_missing: str, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    dark, _ = write_night(write_day(archive), archive, without_band)
    work = Work(folder=tmp_path / "data", archive=archive)
    request = work.run({**DOCUMENT, "on_missing": on_missing})
    row = work.row(request)
    assert row.state is RequestState.GAPS
    assert row.message == "2 of 2 results are there; 1 of them lacks an input"
    assert [(gap.what, gap.reason) for gap in row.gaps] == [(dark.name, WHY)]
    said = {layer: item["properties"] for layer, item in items(work, request).items()}
    assert said["M05"]["swathmill:missing"] == [{"what": dark.name, "why": WHY}]
    assert said["M05"]["swathmill:completeness"] == 0.5
    assert "swathmill:missing" not in said["M15"]


def test_a_night_alone_fails_by_that_cause_and_no_other_layer(tmp_path: Path) -> None:
    archive, aside = tmp_path / "archive", tmp_path / "aside"
    archive.mkdir()
    aside.mkdir()
    write_night(write_day(aside), archive, without_band)
    work = Work(folder=tmp_path / "data", archive=archive)
    row = work.row(work.run(DOCUMENT))
    assert row.state is RequestState.GAPS
    assert "1 of 2 results are there" in row.message
    assert "choice refused: no layer 'M05' in one granule, all of night (VNP02MOD" in row.message
