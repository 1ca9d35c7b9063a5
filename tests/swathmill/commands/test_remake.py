"""A delivered file is made again from its own lineage, and what differs or is missing is said.

The real planner and the real phases, in this process, on tiny granules: two steps, of which the
first takes a halo and the mask of the region, over several cells, clipped.
"""

import json
import re
import shutil
import struct
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archives.kinds.folder import FolderArchive
from portal.results.explanations import Explainer, granules_of
from portal.results.result_files import ResultFile
from reprojection.explain.explain import explain
from reprojection.read.description import SourceGranule
from reprojection.read.outline import read_outlines
from reprojection.write.write import open_raster, read_raster, write_cog
from swathmill import cli
from swathmill.commands.remake.differences import differences
from swathmill.commands.remake.materials import CannotRemakeError, find_granules
from tasks.bag.model import ArtifactFile, State
from tasks.bag.runtime import Runtime
from tasks.bag.spec import MosaicSpec, ReduceSpec, ReprojectSpec
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.storage.blobs import split_blob
from tests.options.granules import write_granules
from tests.service_manager.shelf import plan
from tests.small_cells import with_small_cells
from tests.worker.mill import Mill

pytestmark = pytest.mark.slow

BLUR = """
import json, sys
from pathlib import Path
import numpy as np, rasterio
source, target = map(Path, sys.argv[1:])
said = json.loads((source / "manifest.json").read_text())
(band,) = said["bands"]
with rasterio.open(source / band["file"]) as stack:
    profile, values = {**stack.profile, "dtype": "float32", "nodata": -1.0}, stack.read(1)
    values = np.where(values == stack.nodata, 0, values).astype("float32")
with rasterio.open(source / said["region"]) as mask:
    values *= mask.read(1)
around = sum(np.roll(values, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1))
with rasterio.open(target / "blurred.tif", "w", **profile) as out:
    more = json.loads((source / "parameters.json").read_text())["more"]
    out.write(around / 9 + float(more), 1)
"""
BLUR_YAML = """
name: blur
version: "7"
command: [python, blur.py]
inputs: {halo: 2, region: true}
outputs: [blurred.tif]
"""
RING = [[-4.7, 52.9], [-0.1, 52.9], [-2, 54.3], [-4.7, 52.9]]  # three cells
REQUEST: dict[str, Any] = {
    "products": [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]},
        {"name": "MYD04_L2", "collection": "61", "layers": ["Optical_Depth_Land_And_Ocean"]},
    ],
    "region": {"geojson": {"type": "Polygon", "coordinates": [RING]}, "clip": True},
    "time": {"start": "2012-03-29", "end": "2012-04-08"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.1},
    "qa": {"FparLai_QC": {"MODLAND": [0]}},
    "extra_bands": ["source"],
    "reduction": [
        {
            "name": "smooth",
            "package": "blur",
            "group_by": ["cell", "date"],
            "takes": ["MCD15A2"],
            "parameters": {"more": "2.5"},
        },
        {"package": "mean", "group_by": ["cell", "month"], "takes": ["smooth"]},
    ],
}


@dataclass(frozen=True)
class Results:
    """Where granules and packages lie, and the results' files by name."""

    granules: Path
    packages: Path
    files: dict[str, Path]
    runtime: Runtime
    keys: dict[str, str]  # of tasks, by the files that they made

    def copy(self, name: str, to: Path) -> Path:
        return Path(shutil.copy(self.files[name], to / name))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("remake")
    granules, packages = folder / "granules", folder / "own"
    (packages / "blur").mkdir(parents=True)
    (packages / "blur" / "package.yaml").write_text(BLUR_YAML)
    (packages / "blur" / "blur.py").write_text(BLUR)
    granules.mkdir()
    write_granules(granules)
    mill = Mill(folder, granules)
    mill.settings = mill.settings.model_copy(update={"packages": str(packages)})
    archive = FolderArchive(granules, folder / "index.sqlite", read_outlines)
    archive.refresh()
    with pytest.MonkeyPatch.context() as patch:
        with_small_cells(patch, 16)
        request = parse_request(REQUEST)
        found = plan(request, archive, Packages.of(mill.settings), mill.settings)
        for one in found.archives:
            mill.world.put_package(one)
        files: dict[str, Path] = {}
        keys: dict[str, str] = {}
        for task in found.tasks:
            for file in mill.make(task.spec):
                name = file.name
                if isinstance(task.spec, ReprojectSpec | ReduceSpec):
                    name = f"{task.spec.kind}-{name}"
                elif not isinstance(task.spec, MosaicSpec):
                    continue
                files[name], keys[name] = mill.fetch(file), task.key
    return Results(granules, packages, files, mill.world.runtime, keys)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed."""
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["swathmill", "remake", *map(str, words)])
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def places(results: Results) -> tuple[object, ...]:
    return "--granules", results.granules, "--packages", results.packages


def test_each_kind_of_result_is_made_again(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted(results.files)
    swath = next(name for name in names if name.startswith("MYD04") and name.endswith(".tif"))
    item = next(name for name in names if name.startswith("MCD15A2") and name.endswith(".json"))
    results.copy(item.replace(".json", ".tif"), tmp_path)
    for name in (swath, item, "reproject-cell.tif", "reduce-blurred.tif"):
        code, said = run(capsys, results.copy(name, tmp_path), *places(results))
        assert (code, ": equal. " in said) == (0, True), said
    path, out = mean(results, tmp_path), tmp_path / "out.tif"
    code, said = run(capsys, path, *places(results), "--out", out, "--json")
    assert code == 0, said
    assert json.loads(said)["equal"] is True
    assert json.loads(said)["runs"] == 6
    assert out.read_bytes() == path.read_bytes()
    assert run(capsys, path, *places(results), "--out", path)[0] == 2


def mean(results: Results, to: Path) -> Path:
    (name,) = [name for name in results.files if name.startswith("blurred_mean.2012-04.tif")]
    return results.copy(name, to)


def test_the_lineage_of_two_steps_goes_down_to_the_granules(
    results: Results, tmp_path: Path
) -> None:
    said = open_raster(mean(results, tmp_path)).said.provenance
    lineage = said.lineage
    assert lineage is not None
    assert [one.package for one in lineage.steps] == ["blur", "mean"]
    assert [one.name for one in lineage.steps] == ["smooth", ""]
    assert (lineage.steps[0].version, lineage.steps[0].halo, lineage.steps[0].masked) == (
        "7",
        2,
        True,
    )
    assert dict(lineage.layers[0].parameters)["qa"] == '{"FparLai_QC": {"MODLAND": [0]}}'
    assert len(lineage.cells) == 3
    assert lineage.clipped
    assert json.loads(lineage.region)["type"] == "Polygon"
    runs = [run for window in lineage.windows for run in window.runs]
    assert any(len(run.bands) > 1 for run in runs), "a halo has neighbours"
    assert {one.use for one in lineage.inputs if one.window is None} == {"same-day"}


def test_a_changed_file_is_said_to_differ(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results.copy("reproject-cell.tif", tmp_path)
    raster = read_raster(path)
    raster.data[0, 3, 4] = 7
    write_cog(raster, path, overviews=False)
    code, said = run(capsys, path, *places(results))
    assert code == 1
    assert ": different. " in said
    assert "band 1: 1 of" in said
    assert "row 3, column 4: 7, made again " in said


def test_differences_are_told_apart(results: Results, tmp_path: Path) -> None:
    path, other = mean(results, tmp_path), tmp_path / "other.tif"
    raster = read_raster(path)
    provenance = replace(raster.provenance, software="swathmill 0.0.1")
    write_cog(replace(raster, provenance=provenance), other)
    (said,) = differences(other, path)
    assert said.startswith("provenance.software: 'swathmill 0.0.1', made again ")
    write_cog(raster, other, compress="none")
    (said,) = differences(other, path)
    assert said.startswith("the pixels and all that is said of them are equal")
    write_cog(replace(raster, nodata=-9999.0), other)
    assert any(said.startswith("nodata: -9999.0, made again ") for said in differences(other, path))


def test_a_granule_that_is_absent_or_another_is_named(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mean(results, tmp_path)
    granules = tmp_path / "granules"
    shutil.copytree(results.granules, granules)
    first, second = open_raster(path).said.provenance.granules[:2]
    (granules / first.name).unlink()
    damaged = bytearray((granules / second.name).read_bytes())
    damaged[-1] ^= 1
    (granules / second.name).write_bytes(damaged)
    code, said = run(capsys, path, "--granules", granules, "--packages", results.packages)
    assert code == 2
    assert "2 of " in said
    assert f"{first.name} is not there" in said
    assert f"{second.name} has SHA-256 " in said
    assert second.sha256 in said


def test_a_package_that_is_absent_or_another_is_named(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mean(results, tmp_path)
    code, said = run(capsys, path, "--granules", results.granules)
    assert code == 2
    assert "the package blur 7 with content hash " in said
    packages = tmp_path / "packages"
    shutil.copytree(results.packages, packages)
    with (packages / "blur" / "blur.py").open("a") as file:
        file.write("# another\n")
    code, said = run(capsys, path, "--granules", results.granules, "--packages", packages)
    assert code == 2
    assert f"There is {packages / 'blur'} (" in said


def test_what_does_not_say_how_it_was_made_is_refused(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mean(results, tmp_path)
    raster = read_raster(path)
    bare = replace(raster.provenance, lineage=None)
    write_cog(replace(raster, provenance=bare), path)
    code, said = run(capsys, path, *places(results))
    assert (code, "does not say how it was made" in said) == (2, True)
    for name, kind in (("a.nc", "a cube"), ("sites.csv", "a table")):
        (tmp_path / name).write_bytes(struct.pack("<I", 7))
        code, said = run(capsys, tmp_path / name)
        assert (code, f"is {kind}" in said) == (2, True)
    (tmp_path / "alone.json").write_text("{}")
    code, said = run(capsys, tmp_path / "alone.json")
    assert (code, "is not beside it" in said) == (2, True)


def test_a_pixel_of_two_steps_is_explained_down_to_the_source_pixels(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each input is at the pixel what the raster of its layer is, by value and by origin."""
    path = mean(results, tmp_path)
    (name,) = [
        name for name in results.files if name.startswith("MCD15A2.005.Lai_1km.2012-04-06.t")
    ]
    layer = results.copy(name, tmp_path)
    values = read_raster(layer).values()
    rows, columns = np.nonzero(np.isfinite(values))
    grid = open_raster(path).said.grid
    for n in range(0, len(rows), len(rows) // 5):
        a, _, c, _, e, f = grid.transform
        lon, lat = c + a * (columns[n] + 0.5), f + e * (rows[n] + 0.5)
        found = explain(path, lon, lat, granules=results.granules)
        assert (found.row, found.column) == (rows[n], columns[n])
        assert found.value == read_raster(path).values()[found.row, found.column]
        assert found.made == "mean 2, window 2012-04"
        (smooth,) = found.inputs
        assert (smooth.product, smooth.layer) == ("smooth", "blurred")
        assert smooth.window == smooth.date == "2012-04-06"
        (leaf,) = smooth.inputs  # the halo's cells do not hold the pixel
        own = explain(layer, lon, lat, granules=results.granules)
        assert (leaf.value, leaf.stored, leaf.origin) == (own.value, own.stored, own.origin)
        assert leaf.value == values[rows[n], columns[n]]
        assert leaf.origin is not None
        assert [one.layer for one in leaf.origin.quality] == ["FparLai_QC"]
    (leaf,) = explain(path, lon, lat).inputs[0].inputs
    assert leaf.origin is None
    assert leaf.note.startswith("to see the source pixel, name where MCD15A2.")
    others = shutil.copytree(results.granules, tmp_path / "others")
    for granule in others.rglob("*.hdf"):
        granule.chmod(0o600)
        granule.write_bytes(granule.read_bytes() + b"\0")
    (leaf,) = explain(path, lon, lat, granules=others).inputs[0].inputs
    own = explain(layer, lon, lat, granules=others)
    assert (leaf.origin, leaf.stored, own.origin) == (None, None, None)
    assert own.note == leaf.note
    assert re.search("MCD15A2.* has SHA-256 .*, and the raster was made of ", own.note)
    with pytest.MonkeyPatch.context() as patch:
        words = [path, lon, lat, "--granules", results.granules]
        patch.setattr("sys.argv", ["swathmill", "explain", *map(str, words)])
        with suppress(SystemExit):
            cli.main()
    said = capsys.readouterr().out
    assert "made by    mean 2, window 2012-04" in said
    assert "input      smooth blurred window 2012-04-06, weight 1\n" in said
    assert "  input      MCD15A2 Lai_1km 2012-04-06, weight 1: " in said
    assert "  from       MCD15A2.A2012097." in said


class Reader:
    """Reads a result from a file; it is all of a `ResultReader` that is used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def whole(self, _: object) -> list[bytes]:
        return [self._path.read_bytes()]


def test_the_portal_explains_a_reduction_and_says_what_is_no_longer_stored(
    results: Results,
) -> None:
    name = "blurred_mean.2012-04.tif"
    path, key = results.files[name], results.keys[name]
    said = open_raster(path).said
    granules = {one.name: one for one in granules_of(results.runtime, key)}
    assert {*granules} == {one.name for one in said.provenance.files}
    size = path.stat().st_size
    file = ArtifactFile(name=name, blob="none/none", size=size, sha256="")
    asked: Any = (
        results.runtime,
        Reader(path),
        ResultFile(path=name, file=file, key=key),
        said.grid.transform[2] + 2.0,
        said.grid.transform[5] - 1.0,
    )
    with closing(Explainer()) as explainer:
        found = explainer.explain(*asked)
        (leaf,) = found.inputs[0].inputs
        assert leaf.stored is not None
        assert (found.note, leaf.note) == ("", "")
        gone = next(iter(leaf.granules))
        there = granules[gone].file
        assert there is not None
        place = split_blob(there.blob)
        whole = results.runtime.blobs.get_bytes(*place)
        results.runtime.blobs.delete(*place)
        found = explainer.explain(*asked)
        # Another granule in its place is as good as none, and is collected again.
        other = next(one.file for one in granules.values() if one.file and one.name != gone)
        data = results.runtime.blobs.get_bytes(*split_blob(other.blob))
        results.runtime.blobs.put_bytes(*place, data)
        damaged = explainer.explain(*asked)
        task = results.runtime.tasks.task(granules[gone].key)
        results.runtime.blobs.delete(*place)
        results.runtime.blobs.put_bytes(*place, whole)
    assert found.note.startswith(f"not stored here whole, or damaged: {gone}; ")
    assert (damaged.note, damaged.inputs[0].inputs[0].origin) == (found.note, None)
    assert task is not None
    assert task.state is State.EXPIRED
    assert found.inputs[0].inputs[0].origin is None


def test_a_granule_without_a_digest_is_found_by_its_name(tmp_path: Path) -> None:
    """Only parts of it were read; whether the file is made again tells if it is the one."""
    path = tmp_path / "a.hdf"
    path.write_bytes(b"a")
    wanted = SourceGranule(name="a.hdf")
    assert find_granules([wanted], [tmp_path]) == {wanted: path}
    with pytest.raises(CannotRemakeError, match="made of 00"):
        find_granules([replace(wanted, sha256="00")], [tmp_path])


@pytest.mark.parametrize(("count", "end"), [(10, "g9 is not there."), (12, "; and 2 more.")])
def test_the_first_granules_that_are_missing_are_named(
    tmp_path: Path, count: int, end: str
) -> None:
    """`materials._MOST_NAMED` of them."""
    wanted = [SourceGranule(name=f"g{number}", sha256="0" * 64) for number in range(count)]
    with pytest.raises(CannotRemakeError) as said:
        find_granules(wanted, [tmp_path])
    assert said.value.problem.startswith(f"{count} of {count} granules are missing: g0 is not")
    assert said.value.problem.count("is not there") == 10
    assert said.value.problem.endswith(end)
