"""Without the compiled kernels it is said so, and no granule is blamed."""

import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprojection.errors import KernelsAbsentError
from reprojection.grid.grids import Lattice
from reprojection.inspect.inspect import inspect
from reprojection.kernels import kernels
from reprojection.reproject import Options, reproject

ROOT = Path(__file__).parents[3]


@pytest.fixture
def _absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SWATHMILL_KERNELS", "none")
    kernels.library.cache_clear()
    yield
    kernels.library.cache_clear()


@pytest.mark.usefixtures("_absent")
def test_what_needs_the_kernels_says_what_to_install(sample_archive: Path) -> None:
    granule = min(sample_archive.rglob("MCD15A2*.hdf"))
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap((-8.0, 51.0, -7.0, 52.0))
    with pytest.raises(KernelsAbsentError, match="run `make kernels`"):
        reproject([granule], "Lai_1km", grid, Options())
    with pytest.raises(KernelsAbsentError):
        inspect(granule)


def test_kernels_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_VERSION", -1)
    kernels.library.cache_clear()
    with pytest.raises(KernelsAbsentError, match="of another version"):
        kernels.library()
    kernels.library.cache_clear()


_INTERFACE = {9: "c41f2e2a4e47eab6"}
"""The exported functions and structures of a version, by their digest."""


def test_a_change_of_the_interface_raises_its_version() -> None:
    """Else Python would call kernels of before with the arguments of after."""
    sources = ROOT / "reprojection" / "kernels" / "csrc"
    plain = [
        re.sub(r"/\*.*?\*/", " ", path.read_text("utf-8"), flags=re.DOTALL)
        for path in (*sorted(sources.glob("*.c")), sources / "job.h")
    ]
    exported = [found for text in plain for found in re.findall(r"\bEXPORT\b[^{]*", text)]
    shared = re.findall(r"typedef struct \{[^}]*\} (?:Tile|Job);", plain[-1])
    assert len(exported) > 15
    assert len(shared) == 2
    said = "\n".join(" ".join(one.split()) for one in sorted(exported) + shared)
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    assert {kernels._VERSION: digest} == _INTERFACE, (
        "raise the version in kernels.py and csrc/version.c, and note the digest here"
    )


def test_kernels_for_another_cpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would end the process at their first instruction that the CPU does not know."""
    loaded = kernels.library()
    monkeypatch.setattr(loaded, "swathmill_kernels_version", lambda: 0)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: loaded)
    kernels.library.cache_clear()
    with pytest.raises(KernelsAbsentError, match=r"another CPU.*run `make kernels`"):
        kernels.library()
    kernels.library.cache_clear()


@pytest.mark.parametrize(
    ("asked", "said"), [("here", "unset SWATHMILL_KERNELS_FOR"), ("her", "set it to any or here")]
)
def test_a_wheel_never_has_kernels_for_one_cpu(tmp_path: Path, asked: str, said: str) -> None:
    made = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "SWATHMILL_KERNELS_FOR": asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, [*tmp_path.iterdir()]) == (1, [])
    assert said in made.stderr


def test_kernels_of_a_compiler_without_wider_vectors_are_for_the_cpu_at_hand(
    tmp_path: Path,
) -> None:
    """As clang compiles them, whatever instruction set is asked for: they run anywhere."""
    library = tmp_path / "version.so"
    version = ROOT / "reprojection" / "kernels" / "csrc" / "version.c"
    asked = ["-D__clang__", "-DSWATHMILL_FOR=2"]
    subprocess.run(["cc", "-shared", "-fPIC", *asked, version, "-o", library], check=True)
    assert ctypes.CDLL(str(library)).swathmill_kernels_version() == kernels._VERSION


@pytest.mark.proof
def test_all_instruction_sets_give_the_same_pixels(tmp_path: Path) -> None:
    """A library for any CPU, as a wheel has it, by each set that this CPU has, and the own one."""
    built = [sys.executable, "setup.py", "--quiet", "build_ext", "--force"]
    folders = ["--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp")]
    any_cpu = {**os.environ, "SWATHMILL_KERNELS_FOR": "any"}
    subprocess.run([*built, *folders], cwd=ROOT, env=any_cpu, check=True)
    (library,) = (tmp_path / "lib").rglob("libkernels.so")
    found: set[str] = set()
    for path in (library, ROOT / "reprojection" / "kernels" / "libkernels.so"):
        tried = subprocess.run(
            [sys.executable, "-m", "tests.reprojection.kernels.instruction_sets"],
            cwd=ROOT,
            env={**os.environ, "SWATHMILL_KERNELS": str(path)},
            check=True,
            capture_output=True,
        )
        found.update(json.loads(tried.stdout).values())
    assert len(found) == 1
