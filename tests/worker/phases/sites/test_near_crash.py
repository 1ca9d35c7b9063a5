"""A granule on which HDF4 crashes, read at sites where it lies: a real child, a real crash."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from archives.kinds.folder import FolderArchive
from tasks.bag.site_specs import ExtractNearSpec, NearDate, SitesSpec
from tasks.bag.spec import Input
from tasks.request.sites import parse_sites, sites_text
from tests.worker.slots.test_crash import BAD, GOOD, apart, attempts, supervised
from tests.worker.world import collect_spec

pytestmark = pytest.mark.slow

DAY = dt.date(2012, 3, 5)
SITES = SitesSpec(sites=sites_text(parse_sites("id,latitude,longitude\nA,55,-3\nB,55,3\n")))


def extraction(archive: Path) -> ExtractNearSpec:
    """The extraction of both granules."""
    folder = FolderArchive(archive, archive.parent / "index.sqlite")
    stamps = {one.name: one.stamp for one in folder.search("MCD15A2", "5", DAY, DAY)}
    paths = sorted(archive / one.local_name for one in (BAD, GOOD))
    given = tuple(collect_spec(path, archive, "MCD15A2", "5") for path in paths)
    return ExtractNearSpec(
        inputs=(Input(key=SITES.key, file="sites.json"),),
        product="MCD15A2",
        collection="5",
        layers=("Lai_1km",),
        qa=("",),
        mask=True,
        dates=(NearDate(DAY, None, tuple(one.granule for one in given)),),
        granules=given,
        wholes=tuple(one.key for one in given),
        stamps=tuple(stamps[one.granule] for one in given),
    )


def run(folder: Path) -> dict[str, Any]:
    """Read both granules at sites, in warm children."""
    spec = extraction(folder / "archive")
    with supervised(folder) as (world, supervisor):
        for one in (SITES, spec):
            supervisor.execute([world.plan(one)])
        found = [
            (one.what, one.why)
            for file in world.task(spec.key).files
            for one in file.completeness.missing
        ]
        return {"attempts": attempts(world, spec.key), "lacks": found}


def test_a_crash_costs_the_granule_alone(tmp_path: Path) -> None:
    said = apart(tmp_path, __name__)
    ((category, _, _),) = said["attempts"]
    assert category is None
    assert said["lacks"] == [[BAD.local_name, "unreadable input file"]]
