"""A granule that is damaged, told, put right and tried again: from a folder, by HTTP, by FTP."""

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from reprojection.sample.hdfeos_write import write_granule
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import CONTAINERS, GRANULES
from tasks.storage.clock import ManualClock
from tasks.storage.file_blobs import FileBlobs
from tests.acceptance.in_process import Work
from tests.acceptance.mirrors import Mirror, mirror
from tests.archives.servers import with_damaged_values
from tests.reprojection.reading_samples import small_tile

TILE = small_tile(side=240, date="2012001")
OTHER = small_tile(side=240, date="2012009")
NAMES = (TILE.local_name, OTHER.local_name)
DOCUMENT: dict[str, Any] = {
    "title": "Two dates of a tile",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 51.0, -2.0, 57.0]},
    "time": {"start": "2012-01-01", "end": "2012-01-16"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.1},
    "resampling": "nearest",
}


@pytest.fixture(scope="module")
def granules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("granules")
    for tile in (TILE, OTHER):
        write_granule(folder / tile.local_name, tile)
    return folder


def flipped(path: Path) -> None:
    """Invert bytes of the compressed values, which nothing but reading them tells."""
    path.write_bytes(with_damaged_values(path.read_bytes()))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_another(path: Path) -> None:
    """Another granule's content: that of the other date."""
    write_granule(path, OTHER)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped bytes": flipped,
    "truncation": truncated,
    "another file's content": of_another,
}
SOURCES = ("folder", "http", "ftp")


def work_of(source: Mirror, folder: Path) -> Work:
    return Work(folder=folder / "data", archive=Path(source.archive), sources=source.sources)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_damaged_granule_that_is_put_right_completes_the_request(
    kind: str, damage: str, granules: Path, tmp_path: Path
) -> None:
    with mirror(kind, granules, tmp_path) as source:
        work = work_of(source, tmp_path)
        DAMAGES[damage](source.path(NAMES[0]))
        request = work.run(DOCUMENT)
        row = work.row(request)
        assert row.state is RequestState.GAPS, row.message
        assert len(work.attempts) < 20
        shutil.copy(granules / NAMES[0], source.path(NAMES[0]))
        again = work.retry(request)
        assert work.row(again).state is RequestState.COMPLETE, work.row(again).message


def fetches(work: Work) -> list[Category | None]:
    """How the attempts to collect the damaged granule ended."""
    return [one.category for one in work.collections() if one.key == work.keys[NAMES[0]]]


def values(work: Work, request: str) -> dict[str, Any]:
    found = {}
    for name, data in work.rasters(request).items():
        with rasterio.MemoryFile(data) as file, file.open() as raster:
            found[name] = raster.read()
    return found


def test_what_was_put_right_has_the_values_of_what_was_never_damaged(
    granules: Path, tmp_path: Path
) -> None:
    never = Work(folder=tmp_path / "never", archive=granules)
    right = values(never, never.run(DOCUMENT))
    with mirror("folder", granules, tmp_path) as source:
        work = work_of(source, tmp_path)
        flipped(source.path(NAMES[0]))
        request = work.run(DOCUMENT)
        # Read by a cell, struck, and found to come as the same bytes again.
        assert fetches(work) == [None, Category.UNREADABLE_INPUT_FILE]
        assert "gives the same bytes again" in work.collections()[-1].message
        assert values(work, request).keys() < right.keys()
        row = work.row(request)
        said = f"{NAMES[0]} is damaged, and folder gives the same bytes again"
        assert said in row.message
        assert [said in gap.reason for gap in row.gaps] == [True] * len(row.gaps)
        shutil.copy(granules / NAMES[0], source.path(NAMES[0]))
        found = values(work, work.retry(request))
    assert found.keys() == right.keys()
    assert all(np.array_equal(found[name], right[name]) for name in right)


def test_another_request_after_the_repair_needs_no_retry(granules: Path, tmp_path: Path) -> None:
    with mirror("folder", granules, tmp_path) as source:
        work = work_of(source, tmp_path)
        flipped(source.path(NAMES[0]))
        work.run(DOCUMENT)
        shutil.copy(granules / NAMES[0], source.path(NAMES[0]))
        finer = {**DOCUMENT, "grid": {"crs": "EPSG:4326", "resolution": 0.05}}
        request = work.run(finer)
        assert work.row(request).state is RequestState.COMPLETE


@pytest.mark.parametrize("kind", ["http", "ftp"])
@pytest.mark.parametrize("first", ["folder", "mirror"])
def test_another_source_heals_it_within_the_request(
    first: str, kind: str, granules: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    shutil.copytree(granules, folder)
    with mirror(kind, granules, tmp_path) as source:
        names = ["folder", source.sources] if first == "folder" else [source.sources, "folder"]
        work = Work(folder=tmp_path / "data", archive=folder, sources=",".join(names))
        flipped(folder / NAMES[0] if first == "folder" else source.path(NAMES[0]))
        request = work.run(DOCUMENT)
        assert work.row(request).state is RequestState.COMPLETE
    assert set(fetches(work)) == {None}


def test_a_granule_of_many_cells_is_fetched_twice_and_no_more(
    granules: Path, tmp_path: Path
) -> None:
    with mirror("folder", granules, tmp_path) as source:
        work = work_of(source, tmp_path)
        flipped(source.path(NAMES[0]))
        document = {**DOCUMENT, "grid": {"crs": "EPSG:4326", "resolution": 0.0025}}
        document["products"] = [
            {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "FparLai_QC"]}
        ]
        document["time"] = {"start": "2012-01-01", "end": "2012-01-08"}
        request = work.run(document)
        # None tries that has not read it, but for those of one message, claimed together.
        tried = [one for one in work.attempts if one.phase is Phase.REPROJECTION]
        assert len({one.key for one in tried}) == len(tried) <= 2
        assert fetches(work) == [None, Category.UNREADABLE_INPUT_FILE]
        # Nobody has repaired it: one more fetch, and the same answer.
        again = work.retry(request)
        assert work.row(again).state is not RequestState.COMPLETE
        assert len(fetches(work)) <= 4


def test_two_damaged_copies_in_turn_do_not_go_on_for_ever(granules: Path, tmp_path: Path) -> None:
    with mirror("folder", granules, tmp_path) as source:
        work = work_of(source, tmp_path)
        whole = source.path(NAMES[0]).read_bytes()
        copies = [with_damaged_values(whole, seed) for seed in (0, 1)]
        number = 0

        def change(key: str) -> None:
            nonlocal number
            if key == work.keys.get(NAMES[0]):
                source.path(NAMES[0]).write_bytes(copies[number % 2])
                number += 1

        work.before = change
        request = work.run(DOCUMENT)
        assert work.row(request).state is RequestState.GAPS
        assert fetches(work) == [None, None, Category.UNREADABLE_INPUT_FILE]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_that_was_replaced_after_the_plan_is_taken_as_it_is_now(
    kind: str, granules: Path, tmp_path: Path
) -> None:
    larger = small_tile(side=300, date="2012001")
    with mirror(kind, granules, tmp_path) as source:
        work = work_of(source, tmp_path)
        work.before = lambda key: (
            write_granule(source.path(NAMES[0]), larger) if key == work.keys.get(NAMES[0]) else None
        )
        request = work.run(DOCUMENT)
        assert work.row(request).state is RequestState.COMPLETE
    assert set(fetches(work)) == {None}


STORED: dict[str, dict[str, Any]] = {
    "cells": {"grid": {"crs": "EPSG:4326", "resolution": 0.05}},
    # Where nothing may be missing, granules of a folder are collected for sites, too.
    "sites": {"region": {"sites": "id,latitude,longitude\nA,53.3,-6.2\n"}, "on_missing": "fail"},
}


@pytest.mark.parametrize("what", STORED)
def test_a_stored_granule_that_changed_without_a_trace_is_collected_again(
    what: str, granules: Path, tmp_path: Path
) -> None:
    """Its values decode without an error, and its time and size are as they were."""
    first = {**DOCUMENT, "time": {"start": "2012-01-01", "end": "2012-01-08"}}
    document = {**first, **STORED[what]}
    if what == "sites":
        del document["grid"], document["resampling"]
    never = Work(folder=tmp_path / "never", archive=granules)
    right = never.files(never.run(document))
    blobs = FileBlobs(tmp_path / "blobs", trusted=0.0)
    blobs.create(CONTAINERS)
    runtime = replace(memory_runtime(ManualClock()), blobs=blobs)
    work = Work(folder=tmp_path / "data", archive=granules, runtime=runtime)
    work.run(first)
    for path in (tmp_path / "blobs" / GRANULES).rglob("*.hdf"):
        rescaled(path)
    request = work.run(document)
    assert work.row(request).state is RequestState.COMPLETE
    assert Category.CORRUPT_BLOB_READ in {one.category for one in work.attempts}
    assert fetches(work) == [None, None]
    assert work.files(request) == right


def rescaled(path: Path) -> None:
    """Change the factor of a granule's values; the file's time and size stay."""
    stat, data = path.stat(), path.read_bytes()
    changed = data.replace(struct.pack(">d", 0.1), struct.pack(">d", 0.2))
    assert changed != data
    path.chmod(0o600)
    path.write_bytes(changed)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
