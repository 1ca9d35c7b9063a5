"""Shipped packages run in a fork, known by their content; all others are confined."""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio

import worker.phases.reduce
from processes import proctree
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GroupSpec, Input, ReduceSpec
from tasks.packages.packages import SHIPPED, load_package, pack
from tasks.service.classify import AttemptError
from tests.worker.disks import disk_of
from tests.worker.mill import Mill, grid_spec
from worker.phases.group import MANIFEST
from worker.phases.package_files import shipped_packages
from worker.sandbox.accounts import Accounts
from worker.sandbox.confined import run_confined, run_shipped
from worker.sandbox.messages import Failed
from worker.sandbox.sandbox import Places, SandboxLimits

pytestmark = pytest.mark.slow

LIMITS = SandboxLimits(memory=2**28, seconds=30.0, processes=4, output=2**20)
LAYER = {"product": "P", "collection": "1", "layer": "L", "date": "2012-01-01", "weight": 1.0}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("package", "input", "output", "temporary"):
        (tmp_path / name).mkdir()
    return Places(
        package=tmp_path / "package",
        inputs=tmp_path / "input",
        outputs=tmp_path / "output",
        temporary=tmp_path / "temporary",
    )


def run_script(places: Places, text: str, bounds: SandboxLimits = LIMITS) -> None:
    (places.package / "run.py").write_text(text, "utf-8")
    run_shipped(("python", "run.py", "more"), places, bounds)


def test_all_shipped_packages_are_scripts_that_python_runs() -> None:
    folders = [path.parent for path in SHIPPED.glob("**/package.yaml")]
    assert len(folders) == 22
    assert shipped_packages().keys() == {pack(folder).digest for folder in folders}
    for folder in folders:
        python, script, *_ = load_package(folder).command
        assert python == "python"
        with tarfile.open(fileobj=io.BytesIO(pack(folder).data)) as archive:
            assert script in archive.getnames()


def test_a_script_gets_its_folders_and_leaves_this_process_as_it_was(places: Places) -> None:
    before = os.getcwd(), dict(os.environ)  # noqa: PTH109 - as the process has it
    script = """
import os, sys, tempfile
assert __name__ == "__main__"
assert sys.argv[1] == "more", sys.argv
open(sys.argv[3] + "/out", "w").write(f"{os.listdir()} {tempfile.gettempdir()} {os.getpid()}")
os.environ["LEAKED"] = "yes"
"""
    run_script(places, script)
    names, temporary, pid = (places.outputs / "out").read_text("utf-8").split()
    assert names == "['run.py']"
    assert temporary == str(places.temporary)
    assert int(pid) != os.getpid()
    assert (os.getcwd(), dict(os.environ)) == before  # noqa: PTH109


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("raise ValueError('no days')", "exit code 1: ValueError: no days"),
        ("import sys; sys.exit('no days')", "exit code 1: no days"),
        ("print('so far'); raise SystemExit(3)", "exit code 3: so far"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_failure_is_told_as_that_of_any_package(places: Places, script: str, words: str) -> None:
    with pytest.raises(AttemptError, match=words) as caught:
        run_script(places, script)
    assert caught.value.category is Category.USER_CODE_FAILED


FILL = """
import sys, time
file = open(sys.argv[3] + "/out", "wb", buffering=0)
try:
    while True:
        file.write(bytes(4096))
except OSError as error:
    told = error
"""
MAPPED = """
import mmap, sys
file = open(sys.argv[3] + "/out", "w+b")
file.truncate(2**23)
mapped = mmap.mmap(file.fileno(), 2**23)
for place in range(0, 2**23, 4096):
    mapped[place] = 1
"""
CUT_OFF = """
import sys, numpy, rasterio
other = open(sys.argv[3] + "/other", "wb", buffering=0)
other.write(bytes(1_500_000))
pixels = numpy.random.default_rng(1).integers(0, 3000, (1, 600, 600), dtype="int16")
about = {"width": 600, "height": 600, "count": 1, "dtype": "int16", "tiled": True}
try:
    with rasterio.open(sys.argv[3] + "/x.tif", "w", driver="GTiff", **about) as made:
        made.write(pixels)
except rasterio.RasterioIOError:
    pass  # rasterio raises nothing where GDAL writes at closing
other.truncate(0)
print("a line, and room again")
"""


@pytest.mark.parametrize(
    ("script", "category"),
    [
        (f"{FILL}\nsys.exit('no picture')", Category.OUT_OF_DISK),
        (f"{FILL}\nfile.truncate(0)\nraise told", Category.OUT_OF_DISK),
        (FILL, Category.OUT_OF_DISK),
        (CUT_OFF, Category.OUT_OF_DISK),
        (MAPPED, Category.OUT_OF_DISK),
    ],
)
def test_a_program_that_ends_because_the_disk_is_full_has_not_failed_itself(
    tmp_path: Path, script: str, category: Category
) -> None:
    """The disk is full still, or the program that failed or GDAL says that it was."""
    with disk_of(tmp_path / "disk", "2m") as disk:
        folders = [disk / name for name in ("package", "input", "output", "temporary")]
        for folder in folders:
            folder.mkdir()
        package, inputs, outputs, temporary = folders
        small = Places(package=package, inputs=inputs, outputs=outputs, temporary=temporary)
        with pytest.raises(AttemptError) as caught:
            run_script(small, script, replace(LIMITS, output=2**30))
        assert caught.value.category is category
        assert ("the disk is full" in str(caught.value)) == (category is Category.OUT_OF_DISK)


SAID = "checked: 0 files with 'No space left on device', enospc, the disk is full"
GDAL_SAID = "_tiffWriteProc: No space left on device."


@pytest.mark.parametrize("words", [SAID, GDAL_SAID])
def test_a_program_that_ends_well_may_print_what_it_likes(places: Places, words: str) -> None:
    run_script(places, f"print({words!r})")
    with pytest.raises(AttemptError) as caught:
        run_script(places, f"import sys; sys.exit({words!r})")
    assert caught.value.category is Category.USER_CODE_FAILED, "the disk had room for all of it"


def test_words_of_a_program_that_ends_well_do_not_count_on_a_small_disk_either(
    places: Places,
) -> None:
    room = os.statvfs(places.outputs)
    bounds = replace(LIMITS, output=room.f_bavail * room.f_frsize * 2)
    run_script(places, f"print({SAID!r})", bounds)
    with pytest.raises(AttemptError) as caught:
        run_script(places, f"import sys; sys.exit({SAID!r})", bounds)
    assert caught.value.category is Category.OUT_OF_DISK, "it could have filled the disk"


def test_a_disk_that_was_seen_full_counts_without_a_word(tmp_path: Path) -> None:
    """The program frees the room again, and ends well: what it wrote meanwhile may be cut off."""
    script = f"""{FILL}
import os, time
open(sys.argv[3] + "/full", "w")
while not os.path.exists(sys.argv[3] + "/seen"): time.sleep(0.01)
"""
    with disk_of(tmp_path / "disk", "2m") as disk:
        folders = [disk / name for name in ("package", "input", "output", "temporary")]
        for folder in folders:
            folder.mkdir()
        package, inputs, outputs, temporary = folders
        small = Places(package=package, inputs=inputs, outputs=outputs, temporary=temporary)
        real = Accounts.check

        def check(self: Accounts, tree: list[int]) -> None:
            if (outputs / "full").exists() and (outputs / "out").exists():
                (outputs / "out").unlink()
                (outputs / "seen").touch()
            real(self, tree)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Accounts, "check", check)
            with pytest.raises(AttemptError) as caught:
                run_script(small, script, replace(LIMITS, output=2**30))
        assert caught.value.category is Category.OUT_OF_DISK


@pytest.mark.parametrize(
    ("script", "bounds", "category"),
    [
        ("import time; time.sleep(600)", {"seconds": 0.3}, Category.USER_CODE_TIMED_OUT),
        (
            "import os, time; held = b'x' * 2**29; time.sleep(600)",
            {"memory": 2**24},
            Category.OUT_OF_MEMORY,
        ),
        (
            "import sys, time; open(sys.argv[3] + '/o', 'wb').write(bytes(2**21)); time.sleep(600)",
            {},
            Category.USER_CODE_FAILED,
        ),
    ],
)
def test_bounds_hold_as_for_any_package(
    places: Places, script: str, bounds: dict[str, int], category: Category
) -> None:
    limits = {**vars(LIMITS), **bounds}
    with pytest.raises(AttemptError) as caught:
        run_script(places, script, SandboxLimits(**limits))
    assert caught.value.category is category


def test_what_it_leaves_running_ends_with_it(places: Places) -> None:
    script = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    with open(sys.argv[3] + "/pid", "w") as file: file.write(str(os.getpid()))
    os.rename(file.name, sys.argv[3] + "/there")
    time.sleep(600)
while not os.path.exists(sys.argv[3] + "/there"): time.sleep(0.01)
"""
    # Each fork counts the memory of this process once more.
    run_script(places, script, SandboxLimits(**{**vars(LIMITS), "memory": 2**32}))
    assert not proctree.alive(int((places.outputs / "there").read_text("ascii")))


def group(mill: Mill) -> Input:
    """A group of two days of one layer."""
    grid = grid_spec()
    path = mill.folder / "L.tif"
    profile = {"width": grid.width, "height": grid.height, "count": 2, "dtype": "int16"}
    place = {"crs": grid.crs, "transform": rasterio.Affine(*grid.transform), "nodata": -1}
    with rasterio.open(path, "w", driver="GTiff", **profile, **place) as out:
        out.write(np.arange(grid.width * grid.height).reshape(grid.height, grid.width) % 1000, 1)
        out.write(np.full((grid.height, grid.width), 7), 2)
    bands = [{**LAYER, "file": "L.tif", "band": n} for n in (1, 2)]
    text = json.dumps(
        {
            "group": "g",
            "cell": "c",
            "window": "all",
            "grid": grid.model_dump(mode="json"),
            "bands": bands,
        }
    )
    (mill.folder / MANIFEST).write_text(text, "utf-8")
    files = []
    for name in (MANIFEST, "L.tif"):
        stored = mill.world.runtime.blobs.put_file("artifacts", name, mill.folder / name)
        file = ArtifactFile(
            name=name, blob=f"artifacts/{name}", size=stored.size, sha256=stored.sha256
        )
        files.append(file)
    return mill.world.done(GroupSpec(group="g", cell="c", window="all", grid=grid, bands=()), files)


def reduction(given: Input, digest: str) -> ReduceSpec:
    return ReduceSpec(inputs=(given,), package="mean", digest=digest, outputs=("L_mean.tif",))


def test_a_package_counts_as_shipped_by_its_content_not_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def spy(real: Callable[..., None]) -> None:
        def run(*given: object) -> None:
            ran.append(real.__name__)
            real(*given)

        monkeypatch.setattr(worker.phases.reduce, real.__name__, run)

    spy(run_confined)
    spy(run_shipped)
    mill = Mill(tmp_path, tmp_path)
    given = group(mill)
    changed = tmp_path / "mean"
    shutil.copytree(SHIPPED / "mean", changed, ignore=shutil.ignore_patterns("__pycache__"))
    script = changed / "mean.py"
    script.write_text(script.read_text("utf-8") + "\n# changed\n", "utf-8")
    foreign = pack(changed)
    mill.world.put_package(foreign)

    (ours,) = mill.make(reduction(given, pack(SHIPPED / "mean").digest))
    assert ran == ["run_shipped"]
    (theirs,) = mill.make(reduction(given, foreign.digest))
    assert ran == ["run_shipped", "run_confined"]
    pixels = []
    for file in (ours, theirs):
        with rasterio.open(mill.fetch(file)) as raster:
            pixels.append(raster.read(1))
    np.testing.assert_array_equal(*pixels)
    assert pixels[0][0, 2] == 4.5


def test_what_a_shipped_package_writes_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nonsense(command: object, places: Places, bounds: object) -> None:
        del command, bounds
        (places.outputs / "L_mean.tif").write_text("no raster", "utf-8")

    monkeypatch.setattr(worker.phases.reduce, "run_shipped", write_nonsense)
    mill = Mill(tmp_path, tmp_path)
    said = mill.attempt(reduction(group(mill), pack(SHIPPED / "mean").digest))
    assert isinstance(said, Failed)
    assert said.category is Category.USER_CODE_FAILED
    assert "is not a raster that opens" in said.message
