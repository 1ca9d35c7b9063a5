"""Merge several granules onto one grid: choose which granule's value a pixel gets.

Granules are added in the order of their start. Among those with a value at a pixel

- `nadir` takes the smallest sensor zenith, and of equal ones the newest,
- `latest` takes the newest, `first` the oldest,
- `mean` takes the mean of all, rounded half to even in stored integers.

A pixel without a value has the reason of the granule that came closest to giving one: QA before
code before fill before "no granule". Where there is no value, the same rule chooses the code to
keep.

A layer that *follows* a driving layer takes each pixel from the granule from which the driving
layer's pixel is taken, whether it has a value there or not. So layers of one product never combine
values of different granules. Where the driving layer has no value, the rule chooses among granules
in which it has a code, then among all that see the pixel.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from modis.axes import Shape
from modis.sphere import SPHERE_RADIUS_KM
from reprojection.kernels import kernels
from reprojection.kernels.kernels import address
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels

At = npt.NDArray[np.intp]

_RULES = {"first": 0, "nadir": 1, "latest": 2}  # as in kernels/csrc/merge.c

ORBIT_KM = 705.0
HALF_SCAN_DEGREES = 55.0


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The result of merging, each array in the grid's shape; empty pixels hold nodata.

    `sources` numbers granules from 1 in the order added; it is 0 if no granule gave the value (or,
    in a mean, if several did).
    """

    values: Pixels
    codes: Pixels
    counts: npt.NDArray[np.uint16]
    sources: npt.NDArray[np.uint16]
    reasons: npt.NDArray[np.uint8]

    @classmethod
    def empty(
        cls,
        shape: Shape,
        dtype: np.dtype[np.generic],
        nodata: int | float,
        *,
        codes: bool,
        extra: bool,
    ) -> Self:
        """Make pixels that are all empty, shape (rows, columns), to be filled later.

        Without `codes` the codes stay empty and take no memory; without `extra` so do counts,
        sources and reasons.
        """
        nothing: Pixels = np.asarray(nodata, dtype)
        none, zero = np.uint16(0), np.uint8(0)
        return cls(
            values=np.full(shape, nodata, dtype),
            codes=np.full(shape, nodata, dtype) if codes else np.broadcast_to(nothing, shape),
            counts=np.zeros(shape, np.uint16) if extra else np.broadcast_to(none, shape),
            sources=np.zeros(shape, np.uint16) if extra else np.broadcast_to(none, shape),
            reasons=np.zeros(shape, np.uint8) if extra else np.broadcast_to(zero, shape),
        )

    def put(self, first: int, part: "Merged") -> None:
        """Put the kept parts of some rows, which begin at row `first`."""
        for whole, rows in (
            (self.values, part.values),
            (self.codes, part.codes),
            (self.counts, part.counts),
            (self.sources, part.sources),
            (self.reasons, part.reasons),
        ):
            if whole.flags.writeable:
                whole[first : first + len(rows)] = rows


@dataclass(kw_only=True)
class Merger:
    """Merges granules; `dtype` and `nodata` are those of the result, `merge` the rule's name."""

    shape: Shape
    dtype: np.dtype[np.generic]
    nodata: int | float
    merge: str
    _added: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        size = self.shape[0] * self.shape[1]
        self._values = np.full(
            size, self.nodata, np.float64 if self.merge == "mean" else self.dtype
        )
        self._codes = np.full(size, self.nodata, self.dtype)
        self._zenith = np.full(size, np.inf, np.float32)
        self._code_zenith = np.full(size, np.inf, np.float32)
        self._counts = np.zeros(size, np.uint16)
        self._coded = np.zeros(size, np.bool_)
        self._sources = np.zeros(size, np.uint16)
        self._reasons = np.zeros(size, np.uint8)

    def add(
        self,
        at: At,
        values: Pixels,
        why: npt.NDArray[np.uint8],
        zenith: npt.NDArray[np.float32],
    ) -> None:
        """Add the pixels `at` (flat) that one granule sees: value, `Reason` and sensor zenith.

        A granule that sees nothing is added too, so that the numbers of granules stay in order.
        """
        self._added += 1
        zenith = np.where(np.isnan(zenith), np.float32(np.inf), zenith)
        good = why == Reason.VALID
        self._reasons[at] = np.maximum(self._reasons[at], why)
        coded = why == Reason.CODE
        self._take_codes(at[coded], values[coded], zenith[coded])
        self._take_values(at[good], values[good], zenith[good])

    def add_seen(
        self,
        seen: npt.NDArray[np.int32],
        values: Pixels,
        why: npt.NDArray[np.uint8],
        zenith: npt.NDArray[np.float32],
    ) -> None:
        """Add one granule by the footprint that each pixel sees, or -1: as `add`, in one pass.

        `values`, `why` and `zenith` are those of all footprints, flat.
        """
        if self.merge not in _RULES:
            at = np.flatnonzero(seen >= 0)
            seen = seen[at]
            self.add(at, values[seen], why[seen], zenith[seen])
            return
        self._added += 1
        arrays = (
            self._values,
            self._codes,
            self._zenith,
            self._code_zenith,
            self._counts,
            self._coded,
            self._sources,
            self._reasons,
        )
        seen = np.ascontiguousarray(seen, np.int32)
        values = np.ascontiguousarray(values, self.dtype)
        why = np.ascontiguousarray(why, np.uint8)
        zenith = np.ascontiguousarray(zenith, np.float32)
        kernels.by_letters("sw_merge", "pipppiiiiipppppppp")(
            address(seen),
            seen.size,
            address(values),
            address(why),
            address(zenith),
            self.dtype.itemsize,
            int(Reason.VALID),
            int(Reason.CODE),
            _RULES[self.merge],
            self._added,
            *(address(array) for array in arrays),
        )

    def _take_values(self, at: At, values: Pixels, zenith: npt.NDArray[np.float32]) -> None:
        if self.merge != "mean":
            values = _rounded(values, self.dtype)
        earlier = self._counts[at] > 0
        self._counts[at] += 1
        if self.merge == "mean":
            self._values[at] = np.where(earlier, self._values[at], 0.0) + values
            self._sources[at] = np.where(earlier, 0, self._added)
            return
        wins = self._wins(earlier, zenith, self._zenith[at])
        at = at[wins]
        self._values[at] = values[wins]
        self._zenith[at] = zenith[wins]
        self._sources[at] = self._added

    def _take_codes(self, at: At, codes: Pixels, zenith: npt.NDArray[np.float32]) -> None:
        wins = self._wins(self._coded[at], zenith, self._code_zenith[at])
        self._coded[at] = True
        self._codes[at[wins]] = codes[wins]
        self._code_zenith[at[wins]] = zenith[wins]

    def _wins(
        self,
        earlier: npt.NDArray[np.bool_],
        zenith: npt.NDArray[np.float32],
        best: npt.NDArray[np.float32],
    ) -> npt.NDArray[np.bool_]:
        if self.merge == "first":
            return ~earlier
        if self.merge == "nadir":
            return np.asarray(zenith <= best)
        return np.ones(len(earlier), np.bool_)

    def result(self) -> Merged:
        """Return the merged pixels."""
        some = self._counts > 0
        values = self._values
        if self.merge == "mean":
            values = np.full(len(some), self.nodata, self.dtype)
            mean = self._values[some] / self._counts[some]
            values[some] = mean if self.dtype.kind == "f" else np.rint(mean)
        reasons = np.where(self._reasons == 0, np.uint8(Reason.NO_GRANULE), self._reasons)
        reasons[some] = Reason.VALID
        codes = np.where(some, np.asarray(self.nodata, self.dtype), self._codes)
        return Merged(
            values=values.reshape(self.shape),
            codes=codes.reshape(self.shape),
            counts=self._counts.reshape(self.shape),
            sources=self._sources.reshape(self.shape),
            reasons=reasons.reshape(self.shape),
        )


@dataclass(kw_only=True)
class Choice:
    """The granule that each pixel is taken from, chosen by the driving layer's values.

    `merge` is a rule that chooses: nadir, latest or first. Where the driving layer has a value or a
    code, the choice is the one `Merger` makes for it.
    """

    shape: Shape
    merge: str
    _added: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        size = self.shape[0] * self.shape[1]
        self._rank = np.full(size, -1, np.int8)
        self._zenith = np.full(size, np.inf, np.float32)
        self.numbers = np.zeros(size, np.uint16)

    def add(
        self, at: At, why: npt.NDArray[np.uint8], zenith: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.intp]:
        """Add the pixels `at` (flat) that one granule sees; return those now taken from it."""
        self._added += 1
        zenith = np.where(np.isnan(zenith), np.float32(np.inf), zenith)
        rank = _RANKS[why]
        wins = rank > self._rank[at]
        wins |= (rank == self._rank[at]) & self._is_better(zenith, self._zenith[at])
        at = at[wins]
        self._rank[at] = rank[wins]
        self._zenith[at] = zenith[wins]
        self.numbers[at] = self._added
        return at

    def _is_better(
        self, zenith: npt.NDArray[np.float32], best: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.bool_]:
        if self.merge == "nadir":
            return np.asarray(zenith <= best)
        return np.full(len(zenith), self.merge == "latest")


_RANKS = np.zeros(max(Reason) + 1, np.int8)
_RANKS[Reason.CODE], _RANKS[Reason.VALID] = 1, 2


@dataclass(kw_only=True)
class Follower:
    """Merges granules of a layer that follows a driving layer; fields as in `Merger`."""

    shape: Shape
    dtype: np.dtype[np.generic]
    nodata: int | float
    merge: str
    _added: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        size = self.shape[0] * self.shape[1]
        self._choice = Choice(shape=self.shape, merge=self.merge)
        self._values = np.full(size, self.nodata, self.dtype)
        self._codes = np.full(size, self.nodata, self.dtype)
        self._counts = np.zeros(size, np.uint16)
        self._sources = np.zeros(size, np.uint16)
        self._reasons = np.full(size, Reason.NO_GRANULE, np.uint8)

    def add(
        self,
        driving: tuple[At, npt.NDArray[np.uint8], npt.NDArray[np.float32]],
        at: At,
        values: Pixels,
        why: npt.NDArray[np.uint8],
    ) -> None:
        """Add the pixels that one granule sees.

        `driving` holds position, reason and zenith of the driving layer; `at`, `values` and `why`
        hold position, value and reason of the layer itself.
        """
        self._added += 1
        taken = self._choice.add(*driving)
        self._values[taken] = self._codes[taken] = self.nodata
        self._sources[taken] = 0
        self._reasons[taken] = Reason.NO_GRANULE
        self._counts[at[why == Reason.VALID]] += 1
        mine = self._choice.numbers[at] == self._added
        at, values, why = at[mine], values[mine], why[mine]
        self._reasons[at] = why
        good, coded = why == Reason.VALID, why == Reason.CODE
        self._values[at[good]] = _rounded(values[good], self.dtype)
        self._sources[at[good]] = self._added
        self._codes[at[coded]] = values[coded]

    def result(self) -> Merged:
        """Return the merged pixels."""
        return Merged(
            values=self._values.reshape(self.shape),
            codes=self._codes.reshape(self.shape),
            counts=self._counts.reshape(self.shape),
            sources=self._sources.reshape(self.shape),
            reasons=self._reasons.reshape(self.shape),
        )


def _rounded(values: Pixels, dtype: np.dtype[np.generic]) -> Pixels:
    """Round a statistic half to even where it is to become a whole number."""
    if values.dtype.kind == "f" and dtype.kind in "iu":
        return np.asarray(np.rint(values))
    return values


def nominal_zenith(columns: int) -> npt.NDArray[np.float32]:
    """Compute sensor zenith in degrees across a MODIS scan, for granules that do not hold it.

    A scan turns 55 degrees to either side from 705 km above a sphere (MODIS Level 1A Earth Location
    ATBD, section 2): sin(zenith) = (R + h) / R * sin(scan angle).
    """
    angle = (np.arange(columns) + 0.5) / columns * 2.0 - 1.0
    sine = np.sin(np.radians(np.abs(angle) * HALF_SCAN_DEGREES))
    ratio = (SPHERE_RADIUS_KM + ORBIT_KM) / SPHERE_RADIUS_KM
    return np.degrees(np.arcsin(np.minimum(1.0, ratio * sine))).astype(np.float32)
