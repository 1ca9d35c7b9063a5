"""Statistics of a band whose rows come stripe by stripe, as `band_statistics` has them.

Integers of one or two bytes are counted by value. The quartiles of other values are found digit by
digit: each turn over all rows counts 16 more bits of the values that begin as a quartile does.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from reprojection.read.raster import Pixels, Raster
from reprojection.write.band_statistics import (
    CLASSES,
    COUNTED,
    BandStatistics,
    between,
    counted_in,
    of_counts,
)

_DIGIT = 16  # bits
_AT_ONCE = 1 << 20  # pixels
_QUARTERS = (1, 2, 3)


class StripeStatistics:
    """The statistics of one band of a raster; `turns` says how often all rows are to be added."""

    def __init__(self, about: Raster, band: int) -> None:
        role = about.bands[band].role
        dtype = about.data.dtype
        self._about, self._band = about, band
        self._values = about.kind == "continuous" and role == "data"
        self._small = dtype.kind in "iu" and dtype.itemsize <= COUNTED
        none = about.bands[band].is_index or (role == "data" and about.kind == "bitfield")
        none = none or (not self._values and dtype.kind not in "iu")
        self._bits = 8 * dtype.itemsize
        self.turns = 1
        if none:
            self.turns = 0
        elif self._values and not self._small:
            self.turns = max(2, self._bits // _DIGIT)
        self._counts: Counter[int] = Counter()
        self._many = False
        self._valid, self._total, self._squares = 0, 0.0, 0.0
        self._least, self._greatest = np.inf, -np.inf
        self._digits: dict[int, npt.NDArray[np.int64]] = {}
        self._ranks: dict[int, tuple[int, int]] = {}  # place: what it begins with, rank in that

    def begin(self, turn: int) -> None:
        """Begin a turn over all rows."""
        if turn == 0:
            prefixes = {0}
        else:
            if turn == 1:
                self._ranks = {place: (0, place) for place in self._places()}
            self._resolve()
            prefixes = {prefix for prefix, _ in self._ranks.values()}
        self._digits = {prefix: np.zeros(1 << _DIGIT, np.int64) for prefix in prefixes}

    def add(self, turn: int, plane: Pixels) -> None:
        """Take in the next rows."""
        flat = plane.reshape(-1)
        for start in range(0, flat.size, _AT_ONCE):
            self._add(turn, flat[start : start + _AT_ONCE])

    def _add(self, turn: int, plane: Pixels) -> None:
        nodata = self._about.nodata
        if self._small:
            numbers, counts = counted_in(plane[np.newaxis])
            self._counts.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
            return
        if not self._values:
            one = np.ones(plane.shape, bool) if nodata is None else plane != nodata
            self._valid += int(np.count_nonzero(one))
            if not self._many:
                numbers, counts = np.unique(plane[one], return_counts=True)
                self._counts.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
                self._many = len(self._counts) > CLASSES
            return
        known = np.isfinite(plane)
        if nodata is not None and not np.isnan(nodata):
            known &= plane != nodata
        values = plane[known]
        if turn == 0 and values.size:
            self._valid += values.size
            self._total += float(values.sum(dtype=np.float64))
            self._least = min(self._least, float(values.min()))
            self._greatest = max(self._greatest, float(values.max()))
        elif turn == 1 and values.size:
            around = np.subtract(values, self._total / self._valid, dtype=np.float64)
            self._squares += float(np.multiply(around, around, out=around).sum())
        if turn < self._bits // _DIGIT:
            self._count(turn, _ordered(values))

    def found(self) -> BandStatistics | None:
        """Return the statistics, once all rows were added in each turn."""
        pixels = self._about.grid.pixels
        if not self.turns:
            return None
        if self._small:
            nodata = self._about.nodata
            kept = sorted((n, c) for n, c in self._counts.items() if nodata is None or n != nodata)
            numbers, counts = np.array(kept, np.int64).reshape(-1, 2).T
            return of_counts(numbers, counts, pixels, values=self._values)
        if not self._values:
            few = () if self._many else tuple(sorted(self._counts.items()))
            return BandStatistics(pixels=pixels, valid=self._valid, counts=few)
        if not self._valid:
            return BandStatistics(pixels=pixels, valid=0)
        self._resolve()
        worth = {place: _worth(prefix, self._about) for place, (prefix, _) in self._ranks.items()}
        return BandStatistics(
            pixels=pixels,
            valid=self._valid,
            least=self._least,
            greatest=self._greatest,
            mean=self._total / self._valid,
            deviation=(self._squares / self._valid) ** 0.5,
            quartiles=tuple(
                between(worth.__getitem__, (self._valid - 1) * part / 4, self._valid)
                for part in _QUARTERS
            ),
        )

    def _places(self) -> set[int]:
        """Return the places in the order of all values between which the quartiles lie."""
        lows = [int((self._valid - 1) * part / 4) for part in _QUARTERS] if self._valid else []
        return {place for low in lows for place in (low, min(low + 1, self._valid - 1))}

    def _count(self, turn: int, keys: npt.NDArray[np.uint64]) -> None:
        shift = self._bits - _DIGIT * (turn + 1)
        for prefix, counts in self._digits.items():
            some = keys if turn == 0 else keys[keys >> np.uint64(shift + _DIGIT) == prefix]
            digits = (some >> np.uint64(shift)) & np.uint64((1 << _DIGIT) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << _DIGIT)

    def _resolve(self) -> None:
        """Add to each place the digit that was counted in the last turn."""
        for place, (prefix, rank) in self._ranks.items():
            until = np.cumsum(self._digits[prefix])
            digit = int(np.searchsorted(until, rank, side="right"))
            before = int(until[digit - 1]) if digit else 0
            self._ranks[place] = (prefix << _DIGIT) | digit, rank - before


def _ordered(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """Return numbers without a sign that are in the same order as values."""
    bits = 8 * values.dtype.itemsize
    raw = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
    if values.dtype.kind == "u":
        return raw
    top = np.uint64(1 << (bits - 1))
    if values.dtype.kind == "i":
        return raw ^ top
    negative = (raw & top) != 0
    return raw ^ np.where(negative, np.uint64((1 << bits) - 1), top)


def _worth(key: int, about: Raster) -> float:
    """Return the value of which `_ordered` makes a number."""
    dtype = about.data.dtype
    bits = 8 * dtype.itemsize
    top = 1 << (bits - 1)
    if dtype.kind == "i":
        key ^= top
    elif dtype.kind == "f":
        key ^= top if key & top else (1 << bits) - 1
    return float(np.array([key], f"u{dtype.itemsize}").view(dtype)[0])
