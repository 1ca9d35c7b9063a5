"""The dates that granules state decide how a reduction counts them, whatever the plan expected.

The archive knows granules by their names alone, so that the plan expects the catalogue's days.
"""

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from archives.kinds.folder import FolderArchive
from archives.model import GranuleRecord
from modis.composites import Counted
from reprojection.read.outline import read_outlines
from reprojection.read.window_time import WindowTime
from reprojection.sample.hdfeos_write import write_granule
from swathmill.commands.remake.making import remake
from tasks.bag.spec import GroupSpec, MosaicSpec
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.spec_parts import Band
from tests.reprojection.reading_samples import small_tile
from tests.service_manager.shelf import plan
from tests.small_cells import with_small_cells
from tests.worker.mill import Mill
from worker.phases.own_days import by_own_days, differs, outside
from worker.sandbox.messages import Failed

FIRST, DAY = dt.date(2012, 1, 1), dt.timedelta(days=1)
REQUEST: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"], "use": "covering"}],
    "region": {"bbox": [-2, 52, -1, 53]},
    "time": {"start": "2012-01-01", "end": "2012-01-31"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.25},
    "weight": "days",
    "deliver": "results",
    "reduction": {"package": "mean", "group_by": ["cell", "8-day"]},
}


class ByName(FolderArchive):
    """A folder that tells of the time of its granules what their names do."""

    def search(self, *what: Any, **how: Any) -> Iterator[GranuleRecord]:
        for record in super().search(*what, **how):
            yield replace(record, end=record.start.replace(hour=23, minute=59, second=59))


@dataclass(frozen=True)
class Ran:
    """Manifests, items and rasters of the results by window, and why runs made nothing."""

    granules: Path
    manifests: dict[str, dict[str, Any]]
    items: dict[str, dict[str, Any]]
    rasters: dict[str, Path]
    refused: dict[str, str]


def run(folder: Path, days: int, **changes: Any) -> Ran:
    """Run a request for two composites of `days` days, eight days apart."""
    granules = folder / "granules"
    granules.mkdir()
    for start in (dt.datetime(2012, 1, day, tzinfo=dt.UTC) for day in (1, 9)):
        one = small_tile(date=f"{start:%Y%j}")
        end = start + dt.timedelta(days=days, seconds=-1)
        write_granule(granules / one.local_name, replace(one, start=start, end=end))
    mill = Mill(folder, granules)
    archive = ByName(granules, folder / "index.sqlite", read_outlines)
    archive.refresh()
    ran = Ran(granules, {}, {}, {}, {})
    with pytest.MonkeyPatch.context() as patch:
        with_small_cells(patch, 16)
        request = parse_request({**REQUEST, **changes})
        found = plan(request, archive, Packages.of(mill.settings), mill.settings)
        for package in found.archives:
            mill.world.put_package(package)
        for task in found.tasks:
            if isinstance(task.spec, GroupSpec):
                said = mill.attempt(task.spec)
                if isinstance(said, Failed):
                    ran.refused[task.spec.window] = said.message
                    continue
                (text,) = [one for one in said.files if one.name == "manifest.json"]
                ran.manifests[task.spec.window] = json.loads(mill.fetch(text).read_text())
            elif not ran.refused:
                for file in mill.make(task.spec):
                    window = file.name.rpartition(".")[0].rpartition(".")[2]
                    if isinstance(task.spec, MosaicSpec) and file.name.endswith(".json"):
                        ran.items[window] = json.loads(mill.fetch(file).read_text())
                    elif isinstance(task.spec, MosaicSpec):
                        ran.rasters[window] = mill.fetch(file).rename(folder / file.name)
    return ran


def test_a_longer_composite_counts_by_its_own_days_and_says_so(tmp_path: Path) -> None:
    ran = run(tmp_path, 16)
    counts = {
        window: [
            (one["days"], one["share"], one["weight"], one["expected"]) for one in own["bands"]
        ]
        for window, own in ran.manifests.items()
    }
    assert counts == {
        "2012-001": [(8, 0.5, 8.0, "2012-01-08")],
        "2012-009": [(8, 0.5, 8.0, "2012-01-16")],
    }
    told = ran.items["2012-001"]["properties"]["swathmill:own_dates"]
    assert told == [
        "MCD15A2 of 2012-01-01 ends 2012-01-16T23:59:59Z by its granules; "
        "it was planned until 2012-01-08"
    ]
    for raster in ran.rasters.values():
        assert remake(raster, [ran.granules], []).differences == ()


def test_a_composite_as_long_as_expected_says_nothing(tmp_path: Path) -> None:
    ran = run(tmp_path, 8)
    (first,) = ran.manifests["2012-001"]["bands"]
    assert (first["days"], first["share"], "expected" in first) == (8, 1.0, False)
    assert "swathmill:own_dates" not in ran.items["2012-001"]["properties"]


def test_a_window_that_no_composite_covers_by_its_own_dates_says_why(tmp_path: Path) -> None:
    window = {"start": "2012-01-04", "end": "2012-01-05"}
    step = {"package": "mean", "group_by": ["cell", "date"]}
    ran = run(tmp_path, 4, time=window, reduction=step)
    assert {*ran.manifests} == {"2012-01-04"}
    (why,) = ran.refused.values()
    assert "ends on 2012-01-04 by its granules" in why
    assert "2012-01-08 was expected" in why


@settings(max_examples=60, deadline=None)
@given(
    own=st.integers(2, 40),
    expected=st.integers(1, 40),
    size=st.integers(1, 12),
    weighed=st.booleans(),
)
@example(own=4, expected=1, size=1, weighed=True)  # MCD15A3H of December 31st
def test_windows_share_out_the_own_days_of_a_composite(
    own: int, expected: int, size: int, weighed: bool
) -> None:
    end = f"{FIRST + (own - 1) * DAY}T23:59:59Z"
    counts = []
    for n in range(0, 48, size):
        first = FIRST + n * DAY
        time = WindowTime(days=((first, first + (size - 1) * DAY),))
        planned = time.shared_days(FIRST, FIRST + (expected - 1) * DAY)
        given = Counted.by_days(planned, expected) if weighed else Counted(days=expected)
        band = Band(
            **{"product": "P", "collection": "1", "layer": "L", "cell": "c", "use": "covering"},
            day=FIRST,
            counted=given,
            weighed=weighed,
            last=FIRST + (expected - 1) * DAY,
        )
        spec = GroupSpec(group="g", cell="c", window="w", grid=None, bands=(band,), time=time)
        assert bool(differs(band, end)) == (own != expected)
        inside = time.shared_days(FIRST, FIRST + (own - 1) * DAY)
        assert bool(outside(spec, {0: end})) == (own != expected and not inside)
        if not weighed or planned:
            counts.append((inside, by_own_days(spec, {0: end}).bands[0].counted))
    if not weighed:
        assert {one for _, one in counts} == {Counted(days=own)}
        return
    assert all(one == Counted.by_days(inside, own) for inside, one in counts)
    if own <= expected:  # else windows after those that were planned have the rest
        assert sum(one.days for _, one in counts) == own
        assert sum(one.share for _, one in counts) == pytest.approx(1.0)
