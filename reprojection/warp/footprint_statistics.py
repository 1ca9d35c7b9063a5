"""Statistics of a swath's footprints in each pixel: average, count, std, min, max and mode.

Every footprint counts by its share of the pixel's ground, the part that is nearest to it
(`reprojection/warp/footprint_shares.py`), however large the pixel is. A mean is that of the shares
which hold a value, however small they are together: it lies between the least and the greatest
value, that of one footprint is its value, and nothing outside the pixel has a part in it.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from reprojection.kernels import kernels
from reprojection.kernels.kernels import address
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels
from reprojection.warp.footprint_shares import Shares

Statistic = Literal["average", "count", "std", "min", "max", "mode"]

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(kw_only=True)
class FootprintStatistics:
    """Takes in shares of footprints, some at a time, for some pixels; then gives a statistic.

    `values`, `why` and `zenith` are those of the granule's footprints, flat.
    """

    pixels: int
    values: Pixels
    why: npt.NDArray[np.uint8]
    zenith: npt.NDArray[np.float32]
    method: Statistic
    _shares: list[Shares] = field(default_factory=list, init=False)
    _reasons: npt.NDArray[np.uint8] = field(init=False)
    _seen: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._reasons = np.zeros(self.pixels, np.uint8)
        self._seen = np.zeros(self.pixels, np.bool_)

    def add(self, found: Shares) -> None:
        """Add shares of footprints in pixels, by number."""
        self._seen[found.pixel] = True
        np.maximum.at(self._reasons, found.pixel, self.why[found.footprint])
        self._shares.append(found)

    def result(self) -> tuple[Index, Pixels, npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
        """Return the pixels that see anything: their numbers, statistic, reason and mean zenith."""
        whole = Shares.joined(self._shares)
        pixels, footprints, shares = whole.pixel, whole.footprint, whole.share
        good = self.why[footprints] == Reason.VALID
        valued = np.zeros(self.pixels, np.bool_)
        valued[pixels[good]] = True
        value = self._statistic(pixels[good], footprints[good], shares[good])
        coded = (self.why[footprints] == Reason.CODE) & ~valued[pixels]
        if coded.any():  # the code of the largest share
            codes = self._mode(pixels[coded], self.values[footprints[coded]], shares[coded])
            value[pixels[coded]] = codes[pixels[coded]]
        # The zenith is that of what has the value; in a pixel without one, of all that it sees.
        zenith = self.zenith[footprints]
        count = (good | ~valued[pixels]) & ~np.isnan(zenith)
        angle = self._mean(pixels[count], zenith[count].astype(np.float64), shares[count])
        at = np.flatnonzero(self._seen)
        reason = np.where(valued, np.uint8(Reason.VALID), self._reasons)
        return at, value[at], reason[at].astype(np.uint8), angle[at].astype(np.float32)

    def _statistic(self, pixels: Index, footprints: Index, shares: Floats) -> Pixels:
        stored = self.values[footprints]
        if self.method == "count":
            # A pixel's shares may have been added in parts: a footprint counts once all the same.
            both = np.unique(pixels * self.values.size + footprints)
            return np.bincount(both // self.values.size, minlength=self.pixels).astype(np.float64)
        if self.method in ("min", "max"):
            order = np.lexsort((stored, pixels))
            at = np.searchsorted(pixels[order], np.arange(self.pixels), "right") - 1
            if self.method == "min":
                at = np.searchsorted(pixels[order], np.arange(self.pixels), "left")
            return self._taken(stored[order], at)
        if self.method == "mode":
            return self._mode(pixels, stored, shares)
        numbers = stored.astype(np.float64)
        found = self._mean(pixels, numbers, shares)
        if self.method == "std":
            found = np.sqrt(self._mean(pixels, (numbers - found[pixels]) ** 2, shares))
        return np.where(np.isnan(found), 0.0, found)

    def _mean(self, pixels: Index, numbers: Floats, shares: Floats) -> Floats:
        """Return each pixel's mean of numbers by their shares; NaN where it has none.

        Counted from the least number of the pixel, so that a mean of equal numbers is exact.
        """
        compute = kernels.by_letters("sw_means", "pppiip")
        at, what, weight = map(np.ascontiguousarray, (pixels, numbers, shares))
        found = np.empty((self.pixels, 4))
        compute(address(at), address(what), address(weight), at.size, self.pixels, address(found))
        return found[:, 0]

    def _mode(self, pixels: Index, stored: Pixels, shares: Floats) -> Pixels:
        """Return the value with the largest share; of equal ones the smallest."""
        order = np.lexsort((stored, pixels))
        pixels, stored, shares = pixels[order], stored[order], shares[order]
        new = np.ones(len(pixels), np.bool_)
        new[1:] = (pixels[1:] != pixels[:-1]) | (stored[1:] != stored[:-1])
        at = np.flatnonzero(new)
        share = np.add.reduceat(shares, at) if at.size else shares
        best = np.lexsort((-np.arange(len(at)), share, pixels[at]))
        last = np.searchsorted(pixels[at][best], np.arange(self.pixels), "right") - 1
        return self._taken(stored[at][best], last)

    def _taken(self, values: Pixels, at: Index) -> Pixels:
        if not values.size:
            return np.zeros(self.pixels, values.dtype)
        return np.asarray(values[np.clip(at, 0, values.size - 1)])
