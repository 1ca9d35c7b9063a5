"""Attempts of each class keep `SWATHMILL_ATTEMPT_MEMORY_GB`, and what is told of a request.

The raster has 171 megapixels of floats, 0.68 GB, and is written by stripes. Attempts are measured
by their guards, as in the field: anonymous memory of the whole tree of processes.
"""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.end_to_end import make_granule
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_table import TaskTable
from tasks.request.document import parse_request
from tasks.request.memory import OWN_BYTES, attempt_bytes
from tasks.request.resolved import resolve
from tasks.service.connect import connect_storage

pytestmark = pytest.mark.proof

BOUND_GB = 0.8
MOST_SITES = 1000
TILES = ("h11v08", "h12v08", "h11v09", "h12v09")
RASTERS: dict[str, Any] = {
    "products": [{"name": "MOD09A1", "collection": "6.1", "layers": ["sur_refl_b01"]}],
    "region": {"bbox": [-69.9975, -9.999, -50.805, 9.999]},
    "time": {"start": "2012-01-01", "end": "2012-01-01"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.0015},
    "resampling": "nearest",
    "units": "physical",
    "cube": "netcdf",
    "reduction": {"package": "mean", "group_by": ["cell", "month"]},
}
SITES: dict[str, Any] = {
    **{name: RASTERS[name] for name in ("products", "time")},
    "region": {"sites": "sites.csv"},
}


def run(folder: Path, document: dict[str, Any], out: str) -> None:
    """Run a request on the stack of one data folder."""
    path = folder / f"{out}.yaml"
    path.write_text(yaml.safe_dump(document))
    places = ("--archive", folder / "archive", "--data", folder / "data", "--out", folder / out)
    ran = subprocess.run(
        [sys.executable, "-m", "swathmill.cli", "run", path, *places],
        env=os.environ | {"SWATHMILL_ATTEMPT_MEMORY_GB": f"{BOUND_GB}"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_attempts_of_each_class_keep_the_bound(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for tile in TILES:
        make_granule(archive, datetime(2012, 1, 1, tzinfo=UTC), tile)
    told = attempt_bytes(resolve(parse_request(RASTERS)))
    assert told > OWN_BYTES + 2**28, "the raster is not in memory as a whole"
    assert told < BOUND_GB * 1e9
    run(tmp_path, RASTERS, "rasters")
    lines = (f"s{n},{-9.0 + 0.018 * n},{-69.0 + 0.018 * n}\n" for n in range(MOST_SITES))
    (tmp_path / "sites.csv").write_text("id,latitude,longitude\n" + "".join(lines))
    run(tmp_path, SITES, "sites")
    table = TaskTable(connect_storage(f"file:{tmp_path / 'data' / 'storage'}").store)
    peaks: dict[str, int] = {}
    for shard in SHARDS:
        for task in table.all_tasks(shard):
            for attempt in table.attempts(task.key):
                peaks[attempt.task_class] = max(
                    attempt.peak_memory, peaks.get(attempt.task_class, 0)
                )
    sys.stdout.write("".join(f"{peak / 1e6:6.0f} MB {one}\n" for one, peak in peaks.items()))
    words = " ".join(peaks)
    for kind in ("collection", "reprojection", "mosaic", "group", "cube", "reduction", "table"):
        assert kind in words, f"no attempt of a {kind}: {sorted(peaks)}"
    assert max(peaks.values()) <= told
