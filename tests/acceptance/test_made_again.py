"""Each result of the shipped requests is made again from itself, with equal bytes.

By the real planner and the real phases, in this process. The worked example in three steps is made
again in test_evapotranspiration.py, all options of a request in tests/options.
"""

from pathlib import Path

import pytest

from archives.kinds.folder import FolderArchive
from reprojection.read.outline import read_outlines
from swathmill.commands.remake.making import remake
from tasks.bag.spec import MosaicSpec, RasterSpec
from tasks.packages.packages import SERIES, SHIPPED, Packages
from tasks.request.request_file import load_request
from tests.service_manager.shelf import plan
from tests.worker.mill import Mill

EXAMPLES = Path(__file__).parents[2] / "examples"


def results(name: str, granules: Path, folder: Path) -> list[Path]:
    """Carry out an example; return its rasters and STAC items, by their own names."""
    archive = FolderArchive(granules, folder / "index.sqlite", read_outlines)
    archive.refresh()
    mill = Mill(folder, granules)
    found = plan(load_request(EXAMPLES / name), archive, Packages((SHIPPED, SERIES)), mill.settings)
    for package in found.archives:
        mill.world.put_package(package)
    files = []
    (folder / "results").mkdir()
    for task in found.tasks:
        for file in mill.make(task.spec):
            if isinstance(task.spec, MosaicSpec | RasterSpec):
                files.append(mill.fetch(file).rename(folder / "results" / file.name))
    return files


@pytest.mark.proof
@pytest.mark.slow
def test_the_sample_request(sample_archive: Path, tmp_path: Path) -> None:
    files = results("sample.yaml", sample_archive, tmp_path)
    assert len(files) == 2 * 6
    rasters = [file for file in files if file.suffix == ".tif"]
    for file in (*rasters, rasters[0].with_suffix(".json")):
        again = remake(file, [sample_archive], [])
        assert again.equal, (file.name, again.differences)


@pytest.mark.proof
@pytest.mark.real_data
def test_the_leaf_area_request(granules: Path, tmp_path: Path) -> None:
    files = results("leaf-area.yaml", granules, tmp_path)
    assert len(files) == 2 * 40
    for file in files:
        again = remake(file, [granules / "l3-tiles"], [])
        assert again.equal, (file.name, again.differences)
