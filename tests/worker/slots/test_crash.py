"""A granule on which HDF4 crashes is a damaged granule: real children, real crashes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from archives.errors import NotGranuleError
from archives.formats.granule_file import check_granule_file
from reprojection.errors import UnreadableGranuleError
from reprojection.grid.grids import modis_tile_grid
from reprojection.inspect.soundness import read_whole
from reprojection.isolation import ReadingProcess
from reprojection.sample.hdfeos_write import write_granule
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GridSpec, Input
from tasks.service.connect import connect
from tasks.settings import Settings
from tasks.storage.blobs import GRANULES
from tests.reprojection.reading_samples import small_tile
from tests.worker.mill import leaf_area_of_two
from tests.worker.world import World, collect_spec
from worker.files.scratch import Scratch
from worker.phases.context import is_readable
from worker.sandbox.children import Children
from worker.sandbox.messages import ChildSettings
from worker.slots import attempt
from worker.slots.supervisor import Supervisor

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
BAD, GOOD = small_tile(), small_tile(tile=(18, 3))
_PLACES = (2701, 38103, 3075, 2888)
"""Bytes of the sample on which HDF4 was seen to crash when they are 0xFF: its table is whole."""


def crashing(folder: Path) -> bytes:
    """The sample granule with one byte changed, on which HDF4 crashes."""
    path = folder / BAD.local_name
    write_granule(path, BAD)
    data = path.read_bytes()
    other = folder / "other" / path.name
    other.parent.mkdir()
    with ReadingProcess() as reader:
        for place in (*_PLACES, *range(200, 4000)):
            changed = data[:place] + b"\xff" + data[place + 1 :]
            other.write_bytes(changed)
            try:
                check_granule_file(other, other.name, "")
                reader.run(read_whole, other)
            except NotGranuleError:
                continue
            except UnreadableGranuleError as error:
                if "crashed (signal" in str(error):
                    return changed
    raise AssertionError("no byte of the sample was found on which HDF4 crashes")


@contextmanager
def supervised(folder: Path) -> Iterator[tuple[World, Supervisor]]:
    """A worker over `archive` of a folder, whose children are real."""
    settings = Settings(
        storage=f"file:{folder / 'storage'}",
        redis_url="redis://127.0.0.1:1",  # nothing here calls it
        data_dir=folder / "data",
        archive=str(folder / "archive"),
    )
    runtime = connect(settings)
    scratch = Scratch(settings.data_dir, "w")
    given = ChildSettings(settings=settings, cache=folder / "cache", sandbox=None, reading="limits")
    children = Children(partial(attempt.prepare, given), 4 * 10**9, 1, scratch.folder)
    supervisor = Supervisor(
        runtime=runtime, settings=settings, name="w", scratch=scratch, start=children.start
    )
    supervisor.lease.renew(runtime.clock.monotonic())
    try:
        yield World(runtime=runtime), supervisor
    finally:
        children.close()
        scratch.close()


def run(folder: Path) -> dict[str, Any]:
    """Collect the crashing granule, and make a cell of it and a good one, in warm children."""
    archive = folder / "archive"
    bad, good = (
        collect_spec(archive / one.local_name, archive, "MCD15A2", "5") for one in (BAD, GOOD)
    )
    said: dict[str, Any] = {}
    with supervised(folder) as (world, supervisor):
        for spec in (bad, good):
            supervisor.execute([world.plan(spec)])
        said["collected"] = [world.task(one.key).state for one in (bad, good)]
        said["bad"] = attempts(world, bad.key)
        # A copy that came when nobody saw that it is damaged.
        inputs = []
        for spec in (bad, good):
            stored = world.runtime.blobs.put_file(
                GRANULES, f"seen/{spec.granule}", archive / spec.granule
            )
            file = ArtifactFile(
                name=spec.granule,
                blob=f"{GRANULES}/seen/{spec.granule}",
                size=stored.size,
                sha256=stored.sha256,
            )
            other = spec.model_copy(update={"production": "1"})
            inputs.append(Input(key=world.done(other, [file]).key, name=spec.granule))
        cell = leaf_area_of_two(tuple(inputs), BAD.local_name, GRID)
        supervisor.execute([world.plan(cell)])
        said["cell"] = attempts(world, cell.key)
        said["struck"] = [len(world.task(one.key).struck) for one in inputs]
        said["states"] = [world.task(one.key).state for one in inputs]
        said["missing"] = world.task(cell.key).missing
    return said


def attempts(world: World, key: str) -> list[tuple[str | None, str, str]]:
    return [(one.category, one.message, one.log) for one in world.runtime.tasks.attempts(key)]


_TILE = modis_tile_grid(17, 3, 1000)
GRID = GridSpec(crs=_TILE.crs, transform=_TILE.transform, width=24, height=24)

PROGRAM = """
import json, sys
from pathlib import Path
from {module} import run
from worker.sandbox.children import start_forkserver
if __name__ == "__main__":
    start_forkserver()
    print(json.dumps(run(Path(sys.argv[1]))))
"""


def apart(folder: Path, module: str) -> dict[str, Any]:
    """What `run` of a module says in a process of its own, over both granules in `archive`."""
    archive = folder / "archive"
    archive.mkdir()
    write_granule(archive / GOOD.local_name, GOOD)
    (archive / BAD.local_name).write_bytes(crashing(folder))
    program = folder / "program.py"
    program.write_text(PROGRAM.format(module=module))
    done = subprocess.run(
        [sys.executable, str(program), str(folder)],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "granule": str(archive / BAD.local_name)}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return apart(tmp_path_factory.mktemp("crash"), __name__)


def test_a_crash_in_collection_costs_the_granule_alone(said: dict[str, Any]) -> None:
    ((category, message, log),) = said["bad"]
    assert category == "unreadable input file", message
    assert BAD.local_name in message
    assert "crashed (signal" in message
    assert "Fatal Python error" in log, "what the first crash printed is kept"
    assert said["collected"] == ["failed", "done"]


def test_a_crash_in_a_cell_names_its_granule_and_has_it_made_again(said: dict[str, Any]) -> None:
    ((category, message, _),) = said["cell"]
    assert category == "unreadable input file", message
    assert BAD.local_name in message
    assert GOOD.local_name not in message
    assert said["missing"] == 1, "the cell waits for the damaged granule alone"
    assert said["states"] == ["expired", "done"], "which is collected again"
    assert said["struck"] == [1, 0], "of other bytes"


@pytest.mark.parametrize("bad", [True, False])
def test_reading_another_granule_for_damage_survives_a_crash(
    tmp_path: Path, said: dict[str, Any], bad: bool
) -> None:
    """After one granule could not be read, the others are read: one may crash the reader."""
    path = tmp_path / BAD.local_name
    if bad:
        path.write_bytes(Path(said["granule"]).read_bytes())
    else:
        write_granule(path, BAD)
    assert is_readable(path) is not bad
