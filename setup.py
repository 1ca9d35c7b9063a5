"""Build the C kernels and tag the wheel that carries them.

The kernels are one library without Python.h, loaded with ctypes: it has a plain name, and one wheel
serves every Python. They are optional: without a compiler the wheel is `py3-none-any`, and numpy
gives the same values, slowly.
"""

import os
import platform
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

KERNELS = "reprojection.kernels.libkernels"  # loaded by reprojection/kernels/kernels.py
CSRC = Path("reprojection/kernels/csrc")
FROM_NPM = (Path("portal/static/vendor/countries-50m.json"), Path("tasks/request/places.zip"))
OLDEST_GLIBC = (2, 17)  # of manylinux2014; the wheels of numpy and rasterio ask for no less


def for_this_cpu() -> list[tuple[str, str | None]]:
    """Return the macro that has all compiled once, for this CPU, where SWATHMILL_KERNELS_FOR asks.

    Kernels of a checkout run where they are compiled, and take half the time so; those of a wheel
    and of an image run anywhere. On a CPU that they do not suit the library is refused.
    """
    asked = os.environ.get("SWATHMILL_KERNELS_FOR", "any")
    if asked == "here":
        facts = Path("/proc/cpuinfo")
        flags = set(facts.read_text(errors="replace").split()) if facts.is_file() else set()
        least = ("", "avx2", "avx512bw avx512dq avx512vl")
        asked = str(max(n for n, names in enumerate(least) if flags.issuperset(names.split())))
    if asked not in ("any", "0", "1", "2"):
        raise SetupError(f"SWATHMILL_KERNELS_FOR is {asked!r}: set it to any or here, or not")
    return [] if asked == "any" else [("SWATHMILL_FOR", asked)]


def refuse_without_maps() -> None:
    """Refuse to pack a portal without the files that browsers need, or places without outlines."""
    for path in FROM_NPM:
        if not path.is_file():
            raise SetupError(f"{path} is missing: run `make setup` first, which takes it from npm")


def needed_glibc(library: Path) -> tuple[int, int]:
    """Return the newest glibc of which the library uses a symbol, as `auditwheel show` does.

    Versions of symbols (`GLIBC_2.14`) stand by name in the table of strings of an ELF file.
    """
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max((int(major), int(minor)) for major, minor in versions)


class BuildKernels(build_ext):
    """Build the kernels, their files side by side, under a name without the version of a Python."""

    def build_extension(self, ext: Extension) -> None:
        """Compile and link one extension."""
        compile_in_turn = self.compiler.compile

        def compile_at_once(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor() as pool:
                made = pool.map(lambda source: compile_in_turn([source], **options), sources)
                return [name for names in made for name in names]

        self.compiler.compile = compile_at_once
        super().build_extension(ext)

    def get_ext_filename(self, fullname: str) -> str:
        """Return the library's path for the name of an extension."""
        return f"{Path(*fullname.split('.'))}.so"


class Wheel(bdist_wheel):
    """Tag the wheel for any Python and, with kernels, for the platform that they need."""

    def run(self) -> None:
        """Pack the wheel."""
        if for_this_cpu():
            raise SetupError("A wheel's kernels run on any CPU: unset SWATHMILL_KERNELS_FOR")
        refuse_without_maps()
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, ABI and platform."""
        _, _, system = super().get_tag()
        build = self.get_finalized_command("build_ext")
        library = Path(build.build_lib, build.get_ext_filename(KERNELS))
        if not library.is_file():
            return "py3", "none", "any"
        if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
            major, minor = max(needed_glibc(library), OLDEST_GLIBC)
            system = f"manylinux_{major}_{minor}_{platform.machine()}"
        return "py3", "none", system


class SourceDistribution(sdist):
    """Pack the browser's files too, so that the wheel can be built without npm."""

    def run(self) -> None:
        """Pack the source distribution."""
        refuse_without_maps()
        super().run()


setup(
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel, "sdist": SourceDistribution},
    ext_modules=[
        Extension(
            KERNELS,
            sources=sorted(map(str, CSRC.glob("*.c"))),
            depends=sorted(map(str, CSRC.glob("*.h"))),
            define_macros=for_this_cpu(),
            # No fused multiply-add and no fast-math: the same pixels on every CPU. No -march:
            # the faster instruction sets are chosen when the library runs, or named above.
            extra_compile_args=[
                "-std=gnu11",
                "-O3",
                "-g0",
                "-fPIC",
                "-ffp-contract=off",
                "-fno-fast-math",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                # Vectors wider than the baseline never cross a call: all such functions inline.
                "-Wno-psabi",
            ],
            libraries=["m"],
            optional=True,
        )
    ],
)
