"""Try each instruction set that a library of kernels has code for, and that this CPU has.

    SWATHMILL_KERNELS=LIBRARY python -m tests.reprojection.kernels.instruction_sets

Prints the digest of all pixels by each, as JSON, and fails where two differ: every method, every
pixel type, rows of degrees and blocks of metres, coarser and finer than the source.
"""

import ctypes
import hashlib
import json
import sys
from functools import cache

import numpy as np

from reprojection.kernels.kernels import by_letters
from reprojection.resampling import METHODS
from reprojection.warp.warp import SourceTile, warp
from tests.reprojection.warp_samples import target, tile

TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
TARGETS = (
    target("EPSG:4326", 0.02, (-1, 52, 1, 53)),
    target("EPSG:32631", 2500.0, (-1, 52, 1, 53)),
    target("EPSG:32631", 300.0, (-0.2, 52, 0.2, 52.2)),
    target("EPSG:4326", 0.004, (0.1, 52, 0.5, 52.2)),
)
NAMES = ("base", "avx2", "avx512")
FILL = 111


@cache
def sources(dtype: str) -> list[SourceTile]:
    rng = np.random.default_rng(7)
    made = []
    for grid in (tile(17, 3), tile(18, 3)):
        values = np.cumsum(rng.integers(-3, 4, grid.shape), axis=1) % 100
        values[rng.random(grid.shape) < 0.1] = FILL
        bands = [values.astype(dtype), values[::-1].astype(dtype)]
        made.append(SourceTile(bands=bands, grid=grid))
    return made


def digest() -> str:
    """The digest of all pixels by the instruction set that is gone by."""
    total = hashlib.sha256()
    for dtype in TYPES:
        for method in METHODS:
            for grid in TARGETS:
                made = warp(sources(dtype), grid, method, fill=FILL)  # type: ignore[arg-type]
                total.update(made.tobytes())
    return total.hexdigest()


def digests() -> dict[str, str]:
    """The digest by each instruction set, the widest last; a library for one has but that."""
    limit = by_letters("swathmill_kernels_limit", "i", ctypes.c_int32)
    return {NAMES[limit(n)]: digest() for n in range(len(NAMES))}


if __name__ == "__main__":
    found = digests()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    if len(set(found.values())) > 1:
        sys.exit("The instruction sets give different pixels.")
