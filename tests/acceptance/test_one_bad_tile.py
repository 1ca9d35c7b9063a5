"""A tile that cannot be decoded costs its part of a raster, and what is made without it says so."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from reprojection.read.completeness import Completeness, Missing
from reprojection.sample.hdfeos_write import write_granule
from tasks.bag.model import Phase, RequestState
from tasks.requests import request_operations
from tests.acceptance.in_process import Work
from tests.archives.servers import with_damaged_values
from tests.reprojection.reading_samples import small_tile

BAD, GOOD = (small_tile(tile=(h, 3), side=120, date="2012001") for h in (17, 18))
DOCUMENT: dict[str, Any] = {
    "title": "Two tiles of a date",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-4.0, 51.0, 4.0, 57.0]},
    "time": {"start": "2012-01-01", "end": "2012-01-08"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.1},
    "resampling": "nearest",
}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "whole"
    folder.mkdir()
    for tile in (BAD, GOOD):
        write_granule(folder / tile.local_name, tile)
    return folder


@pytest.fixture
def archive(whole: Path, tmp_path: Path) -> Path:
    """The same, of which one tile has bytes that only reading its values tells to be damaged."""
    folder = shutil.copytree(whole, tmp_path / "archive")
    path = folder / BAD.local_name
    path.write_bytes(with_damaged_values(path.read_bytes()))
    return folder


def only(work: Work, request: str) -> bytes:
    (data,) = work.rasters(request).values()
    return data


def pixels(data: bytes) -> Any:
    with rasterio.MemoryFile(data) as file, file.open() as raster:
        return raster.read()


def lacks(work: Work, request: str) -> Completeness:
    (said,) = (
        file.completeness
        for interest in request_operations.results(work.runtime, request)
        for file in interest.files
        if file.name.endswith(".tif")
    )
    return said


def test_its_neighbour_is_delivered_and_it_is_named(
    whole: Path, archive: Path, tmp_path: Path
) -> None:
    works = [Work(folder=tmp_path / name, archive=archive) for name in ("one", "two")]
    requests = [work.run(DOCUMENT) for work in works]
    work, request = works[0], requests[0]
    row = work.row(request)
    assert row.state is RequestState.GAPS
    assert row.message.startswith("1 of 1 results are there; 1 of them lacks an input")
    assert [gap.what for gap in row.gaps] == [BAD.local_name]
    assert lacks(work, request) == Completeness(
        share=0.5, missing=(Missing(what=BAD.local_name, why="unreadable input file"),)
    )
    assert only(work, request) == only(works[1], requests[1])
    (whole / BAD.local_name).unlink()
    never = Work(folder=tmp_path / "never", archive=whole)
    np.testing.assert_array_equal(
        pixels(only(work, request)), pixels(only(never, never.run(DOCUMENT)))
    )


def test_what_was_made_without_it_is_not_taken_for_complete(
    whole: Path, archive: Path, tmp_path: Path
) -> None:
    work = Work(folder=tmp_path / "data", archive=archive)
    without = only(work, work.run(DOCUMENT))
    shutil.copy(whole / BAD.local_name, archive / BAD.local_name)
    request = work.run({**DOCUMENT, "title": "Another request of the same"})
    assert work.row(request).state is RequestState.COMPLETE
    assert lacks(work, request) == Completeness()
    never = Work(folder=tmp_path / "never", archive=whole)
    right = only(never, never.run(DOCUMENT))
    assert only(work, request) == right != without


def test_a_request_that_is_to_fail_fails(archive: Path, tmp_path: Path) -> None:
    work = Work(folder=tmp_path / "data", archive=archive)
    row = work.row(work.run({**DOCUMENT, "on_missing": "fail"}))
    assert row.state is RequestState.FAILED
    assert BAD.local_name in row.message
    assert not [one for one in work.attempts if one.phase is Phase.AGGREGATION]


def test_sites_are_read_in_its_neighbour(archive: Path, tmp_path: Path) -> None:
    work = Work(folder=tmp_path / "data", archive=archive)
    places = "id,latitude,longitude\nbad,54.0,-3.0\ngood,54.0,3.0\n"
    document = {**DOCUMENT, "region": {"sites": places}}
    del document["grid"], document["resampling"]
    row = work.row(work.run(document))
    assert row.state is RequestState.GAPS, row.message
    assert [gap.what for gap in row.gaps] == [BAD.local_name]
