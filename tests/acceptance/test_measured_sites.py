"""Requests with measurements, against what a person counts beforehand.

By the real planner and the real phases in this process, on the sample archive.
"""

import csv
import datetime as dt
import runpy
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from archives.kinds.folder import FolderArchive
from reprojection.read.outline import read_outlines
from reprojection.sample.evapotranspiration import evapotranspiration_granules
from reprojection.sample.hdfeos_write import write_granule
from reprojection.user_rasters.conversion import convert
from reprojection.user_rasters.source import RasterChoices, RasterFile
from tasks.bag.site_specs import TableSpec
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.request.request_file import load_request
from tasks.uploads import raster_operations
from tests.service_manager.shelf import plan, specs
from tests.worker.mill import Mill

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "measured-sites.yaml"


def test_tasks_files_gaps_and_pairs_are_those_of_a_person(
    sample_archive: Path, tmp_path: Path
) -> None:
    """Counted by hand from the sample's calendar, the sites and the tables.

    Leaf area: one date (14 April) in two tiles. Optical depth: three days with two swaths each.
    They lie in a folder of this machine, where dates are read together by 16 days of the calendar:
    leaf area in one task, optical depth in two, as 15 April begins a span (day 734,608 is 16 times
    45,913). Moor sees both swaths of each day (6 overpasses)
    and is measured each day. Beech sees both, but the third day is empty there: 4. Bank sees one a
    day, and is not measured on the third: 2. Dunes is not measured. Leaf area is measured at Moor
    on 7 of the composite's 8 days, which is enough, and at Beech on 3, which is not.
    """
    archive = FolderArchive(sample_archive, tmp_path / "index.sqlite", read_outlines)
    archive.refresh()
    mill = Mill(tmp_path, sample_archive)
    found = plan(load_request(EXAMPLE), archive, Packages.of(mill.settings), mill.settings)
    assert Counter(task.spec.kind for task in found) == {
        **{"near": 3, "sites": 1, "table": 1},
    }
    assert found.gaps == ()
    made = {task.key: mill.make(task.spec) for task in found}
    (table,) = specs(found, TableSpec)
    files = {file.name: mill.fetch(file) for file in made[table.key]}
    assert len(files) == 5  # two tables twice, and statistics
    pairs = [*csv.DictReader(files["comparison.csv"].read_text("utf-8").splitlines())]
    assert Counter((one["layer"], one["site"], one["joined_by"]) for one in pairs) == {
        ("Lai_1km", "Moor", "day"): 1,
        ("Optical_Depth_Land_And_Ocean", "Moor", "overpass"): 6,
        ("Optical_Depth_Land_And_Ocean", "Beech", "overpass"): 4,
        ("Optical_Depth_Land_And_Ocean", "Bank", "overpass"): 2,
    }
    (leaves,) = [one for one in pairs if one["layer"] == "Lai_1km"]
    assert (leaves["first_day"], leaves["last_day"]) == ("2012-04-14", "2012-04-21")
    assert abs(float(leaves["measured"]) - sum(2.8 + 0.1 * n for n in range(7)) / 7) < 1e-9
    assert leaves["measured_n"] == "7"


@pytest.mark.proof
def test_a_static_raster_is_there_once_and_compared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temperature of two days of three, and one elevation of no date, in one cell each.

    So 3 files to fetch, 3 cells, 3 rasters, 3 samples; the day without temperature is the gap. The
    tower's height is measured: one pair. Temperature is measured on each day: two pairs.
    """
    granules = tmp_path / "granules"
    granules.mkdir()
    days = [dt.datetime(2012, 4, day, tzinfo=dt.UTC) for day in (20, 22)]
    for granule in islice(evapotranspiration_granules(days), len(days)):  # temperature comes first
        write_granule(granules / granule.local_name, granule)
    archive = FolderArchive(granules, tmp_path / "index.sqlite", read_outlines)
    archive.refresh()
    elevation, kept = tmp_path / "elevation.tif", tmp_path / "kept.h5"
    monkeypatch.setattr(sys, "argv", ["make_elevation.py", str(elevation)])
    make = EXAMPLE.parent / "elevation" / "make_elevation.py"
    runpy.run_path(str(make), run_name="__main__")
    raster = convert(
        [RasterFile(path=elevation, name=elevation.name)], RasterChoices(name="elevation"), kept
    )
    mill = Mill(tmp_path, granules, files=True)
    raster_operations.push(mill.world.runtime, "ada", raster, "", kept, elevation.name)
    asked = parse_request(
        {
            "products": [
                {"name": "MOD11A1", "collection": "61", "layers": ["LST_Day_1km"]},
                {"name": "raster:elevation", "layers": ["elevation"]},
            ],
            "region": {"bbox": [3.2, 50.0, 4.4, 50.8]},
            "time": {"start": "2012-04-20", "end": "2012-04-22"},
            "grid": {"modis": 1000},
            "measurements": {
                "table": "site,date,h,t\nA,2012-04-20,430,290\nA,2012-04-21,430,291\n"
                "A,2012-04-22,430,292\n",
                "sites": "id,latitude,longitude\nA,50.403,3.803\n",
                "compare": {"raster:elevation/elevation": "h", "LST_Day_1km": "t"},
            },
        }
    )
    request = raster_operations.described(mill.world.runtime, "ada", asked)
    found = plan(request, archive, Packages.of(mill.settings), mill.settings)
    assert Counter(task.spec.kind for task in found) == {
        **{"collect": 3, "reproject": 3, "mosaic": 3},
        **{"sample": 3, "sites": 1, "table": 1},
    }
    assert [gap.what for gap in found.gaps] == ["MOD11A1.061 2012-04-21"]
    made = {task.key: mill.make(task.spec) for task in found}
    (table,) = specs(found, TableSpec)
    (file,) = [one for one in made[table.key] if one.name == "comparison.csv"]
    pairs = [*csv.DictReader(mill.fetch(file).read_text("utf-8").splitlines())]
    assert [(one["layer"], one["first_day"], one["measured"]) for one in pairs] == [
        ("elevation", "2012-04-20", "430"),
        ("LST_Day_1km", "2012-04-20", "290"),
        ("LST_Day_1km", "2012-04-22", "292"),
    ]
