"""Builds the C kernels: one dependency-free library, loaded with ctypes, that needs no Python.h.

Optional: without a compiler the numpy versions give the same values, slowly.
"""

from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(str(path) for path in Path("reprojection/kernels/csrc").glob("*.c"))
HEADERS = sorted(str(path) for path in Path("reprojection/kernels/csrc").glob("*.h"))

setup(
    ext_modules=[
        Extension(
            "reprojection.kernels._kernels",
            sources=SOURCES,
            depends=HEADERS,
            # No fused multiply-add and no fast-math: the same pixels on every CPU. No -march:
            # the faster instruction sets are chosen when the library runs.
            extra_compile_args=[
                "-std=gnu11",
                "-O3",
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
    ]
)
