"""Hostile packages: each ends in its category, harms nobody, and leaves nothing behind."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprojection.write.write import read_raster
from tests.worker.hostile.harness import Neighbours, Way, run_package
from tests.worker.hostile.packages import ALL, FILES, PROCESSES, Hostile
from worker.sandbox import sandbox
from worker.sandbox.sandbox import SandboxLimits

pytestmark = pytest.mark.slow

_OWN = sandbox.own_user("limits") is not None
WAYS = {
    "bubblewrap": Way(tier="bubblewrap"),
    "limits": Way(tier="limits", shared=not _OWN),
    "limits, shared user id": Way(tier="limits", shared=True),
}
# Of the rest nothing depends on the user id.
CASES = [
    (name, package)
    for name in WAYS
    for package in ALL
    if name != "limits, shared user id" or (_OWN and package in (*PROCESSES, *FILES))
]
BOUNDS: dict[str, float] = {"memory": 10**9, "seconds": 60.0, "processes": 16, "output": 10**8}


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    found = Neighbours(tmp_path_factory.mktemp("neighbours"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("compiled")
    programs = {}
    for number, package in enumerate(p for p in ALL if p.compiled and shutil.which("cc")):
        source, program = folder / f"{number}.c", folder / str(number)
        source.write_text(package.program, "utf-8")
        subprocess.run(["cc", "-O1", "-w", "-o", program, source], check=True)
        programs[package.name] = program
    return programs


def absent(package: Hostile, way: Way, compiled: dict[str, Path]) -> str:
    """Why a package cannot be tried in a tier of this machine."""
    if platform.machine() != "x86_64":
        return "the packages name system calls by their numbers on x86_64"
    if package.compiled and package.name not in compiled:
        return "there is no C compiler"
    if package.needs == "own user" and way.shared and os.geteuid() == 0:
        return "the kernel counts no processes of root's own user id"
    if package.needs == "another user than root" and os.geteuid() == 0:
        return "nothing is hidden from root"
    return way.absent


MOST_PROCESSES = 16_000
"""Also of a package that forks for ever: a machine has 32,768 process ids by default."""


@pytest.mark.parametrize(
    ("name", "package"),
    [
        pytest.param(
            *one,
            id=f"{one[1].name}, {one[0]}",
            # Each is tried in one tier by `make test`, and in all tiers by `make proofs`.
            marks=[pytest.mark.proof] if one[0] != "limits" and number % 4 else [],
        )
        for number, one in enumerate(CASES)
    ],
)
def test_a_hostile_package_is_held(
    tmp_path: Path,
    neighbours: Neighbours,
    compiled: dict[str, Path],
    name: str,
    package: Hostile,
) -> None:
    way = WAYS[name]
    if reason := absent(package, way, compiled):
        pytest.skip(reason)
    bounds = SandboxLimits(**{**BOUNDS, **package.bounds})  # type: ignore[arg-type]
    program = compiled[package.name] if package.compiled else package.program
    about = {**neighbours.about(), "search": way.tier == "limits" and not way.shared}
    found = run_package(way, tmp_path, program, about, bounds, package.outputs)
    neighbours.unharmed()
    ended_by_kernel = package.may_end and not found.category
    if not ended_by_kernel:
        assert (found.category, package.message in found.message) == (package.category, True), found
    assert found.processes < MOST_PROCESSES
    if not package.category and not package.outputs:
        assert found.said == "not refused: "
    if not package.category and package.outputs:
        assert found.taken.keys() == set(package.outputs)
    if not package.category and "out.tif" in package.outputs:
        raster = read_raster(found.taken["out.tif"])
        assert raster.scale == 1
        assert all(text.isprintable() for text in (raster.bands[0].name, raster.units))


OF_THE_TIER = """
import os, sys
own = os.path.isdir("/swathmill/input")
said = "mounts of its own" if own else "mounts of the machine"
open(sys.argv[2] + "/out.txt", "w").write(f"{said}, user {os.getuid()}")
"""


@pytest.mark.parametrize("name", WAYS)
def test_packages_are_tried_in_the_tier_that_is_named(
    tmp_path: Path, neighbours: Neighbours, name: str
) -> None:
    """By what a program sees: mounts of its own are those of bubblewrap."""
    way = WAYS[name]
    if way.absent:
        pytest.skip(way.absent)
    bounds = SandboxLimits(**BOUNDS)  # type: ignore[arg-type]
    found = run_package(way, tmp_path, OF_THE_TIER, neighbours.about(), bounds)
    assert not found.category, found
    mounts, user = found.said.split(", user ")
    assert mounts == f"mounts of {'its own' if way.tier == 'bubblewrap' else 'the machine'}"
    if way.tier == "limits":
        assert (int(user) == os.geteuid()) == way.shared


def test_there_are_packages_enough() -> None:
    assert len({package.name for package in ALL}) == len(ALL) >= 44
