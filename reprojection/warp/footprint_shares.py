"""The share of each footprint in the ground of pixels: areas of polygons.

**The rule.** A footprint's share of a pixel is the part of the pixel that sees it, by the rule that
heads `reprojection/warp/swath.py`. A pixel is laid out in squares, three along two of the
granule's smallest footprints, and the footprint that each corner of a square sees is searched. The
ground nearest to a footprint is convex, so a square whose corners see one footprint belongs to it.
Where corners see two, the line of equal distance to both divides the square; it is straight between
the square's sides. Where they see three or four, each has the polygon that such lines bound, with a
corner where three footprints are equally far. What reaches into a square without any of its corners
is left out: a share errs by 2% of a footprint (root mean square). At the rim of the granule, where
a corner sees nothing, each corner stands for a quarter.

kernels/csrc/swath_shares.c has the same operations in the same order, so that the shares, and the
order of the footprints, are the same to the last bit.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from reprojection.grid.targets import Targets
from reprojection.kernels import kernels
from reprojection.kernels.kernels import address
from reprojection.kernels.threads import share
from reprojection.warp.swath import Swath

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Seen = npt.NDArray[np.int32]
Number = TypeVar("Number", np.int32, np.float64)

_PIECES = 4  # per thread


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Parts of pixels: the pixel's number, a footprint, and its share in squares."""

    pixel: Index
    footprint: Index
    share: Floats

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put parts behind each other; one part alone is not copied."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            pixel=np.concatenate([np.empty(0, np.int64), *(one.pixel for one in parts)]),
            footprint=np.concatenate([np.empty(0, np.int64), *(one.footprint for one in parts)]),
            share=np.concatenate([np.empty(0), *(one.share for one in parts)]),
        )


def footprint_shares(
    swath: Swath, corners: Targets, seen: Seen, *, per: int, begun: int, threads: int
) -> Shares:
    """Compute the shares of footprints in rows of pixels, each of `per` x `per` squares.

    `corners` are the corners of squares, one more each way than squares; `seen` are the footprints
    that they see. The first line of squares is line `begun` of the rows of pixels. A pixel of
    which only some lines are given gets the shares of these. Raises MemoryError if scratch memory
    cannot be allocated.
    """
    lines, pixels = seen.shape[0] - 1, (seen.shape[1] - 1) // per
    compute = kernels.by_letters("sw_shares", "pppiipiipiiiiiippp", ctypes.c_int64)
    lat, lon = np.ascontiguousarray(corners.lat), np.ascontiguousarray(corners.lon)
    strides = corners.strides
    step = max(1, -(-pixels // (_PIECES * threads))) if threads > 1 else pixels
    found: dict[int, Shares] = {}

    def work(first: int) -> None:
        last = min(first + step, pixels)
        # Each pixel has no more footprints than corners.
        rows = (begun + lines - 1) // per - begun // per + 1
        most = (lines + rows) * (per + 1) * (last - first)
        pixel, footprint = np.empty(most, np.int64), np.empty(most, np.int64)
        part = np.empty(most)
        count = compute(
            address(swath.lat),
            address(swath.lon),
            address(lat),
            *strides[:2],
            address(lon),
            *strides[2:],
            address(seen),
            lines,
            begun,
            pixels,
            per,
            first,
            last,
            address(pixel),
            address(footprint),
            address(part),
        )
        if count < 0:
            raise MemoryError(f"no memory to share {lines * per} squares")
        found[first] = Shares(pixel=pixel[:count], footprint=footprint[:count], share=part[:count])

    share(work, range(0, pixels, step), threads)
    return Shares.joined([found[first] for first in sorted(found)])
