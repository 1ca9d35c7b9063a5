"""The example of sites with measurements, against what a person counts beforehand.

By the real planner and the real phases in this process, on the sample archive.
"""

import csv
from collections import Counter
from pathlib import Path

from archives.kinds.folder import FolderArchive
from reprojection.read.outline import read_outline
from tasks.model.packages import Packages
from tasks.model.spec import TableSpec
from tasks.request.document import load_request
from tests.service_manager.shelf import plan, specs
from tests.worker.mill import Mill

EXAMPLE = Path(__file__).parents[2] / "examples" / "measured-sites.yaml"


def test_tasks_files_gaps_and_pairs_are_those_of_a_person(
    sample_archive: Path, tmp_path: Path
) -> None:
    """Counted by hand from the sample's calendar, the sites and the tables.

    Leaf area: one date (14 April) in two tiles. Optical depth: three days with two swaths each.
    So 8 granules and 4 extractions (1 + 3 dates). Moor sees both swaths of each day (6 overpasses)
    and is measured each day. Beech sees both, but the third day is empty there: 4. Bank sees one a
    day, and is not measured on the third: 2. Dunes is not measured. Leaf area is measured at Moor
    on 7 of the composite's 8 days, which is enough, and at Beech on 3, which is not.
    """
    archive = FolderArchive(sample_archive, tmp_path / "index.sqlite", read_outline)
    archive.refresh()
    mill = Mill(tmp_path, sample_archive)
    found = plan(load_request(EXAMPLE), archive, Packages.of(mill.settings), mill.settings)
    assert Counter(task.spec.kind for task in found) == {
        **{"collect": 8, "extract": 4},
        **{"sites": 1, "table": 1},
    }
    assert found.gaps == ()
    made = {task.key: mill.make(task.spec) for task in found}
    (table,) = specs(found, TableSpec)
    files = {file.name: mill.fetch(file) for file in made[table.key]}
    assert len(files) == 9  # two tables twice, statistics, two series, two scatter plots
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
