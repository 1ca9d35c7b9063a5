"""Arrays of a granule that are read and decoded when they are asked for, part by part.

Such an array holds the path of the granule and no open file, so that any process can read it.
"""

from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
import numpy.typing as npt
from xarray.backends import BackendArray
from xarray.core import indexing

from reprojection.catalogue.layers import Layer
from reprojection.errors import NoGeolocationError
from reprojection.read.encoding import Number
from reprojection.read.geolocation import Geolocation
from reprojection.read.granule import Granule, Part
from reprojection.read.granule_layer import Rule, find_places, located, read_masked_part
from reprojection.read.kept import one_call, opened
from reprojection.read.masks import filled
from reprojection.read.qa import Reason
from reprojection.read.temperatures import temperatures

Array = npt.NDArray[np.generic]
Form = Literal["raw", "stored", "classes", "codes", "physical", "brightness"]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How stored values become those of a variable.

    `form` is "raw" for all values as stored, "stored" for those that are data, "classes" for these
    and codes, "codes" for codes alone, "physical" for data in units, "brightness" for temperatures
    of radiances. `nodata` is what all other pixels hold, in `dtype`.
    """

    form: Form
    dtype: np.dtype[np.generic]
    nodata: Number = 0
    mask: bool = True
    rule: Rule = None


class LazyArray(BackendArray):
    """An array whose last two axes are rows and columns, read part by part."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self.shape = shape
        self.dtype = dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Array:
        """Read what xarray asks for."""
        found: Array = indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._at
        )
        return found

    def _at(self, key: tuple[int | slice, ...]) -> Array:
        wanted = [
            range(size)[one] if isinstance(one, slice) else (range(size)[one],)
            for one, size in zip(key, self.shape, strict=True)
        ]
        out = np.empty(tuple(map(len, wanted)), self.dtype)
        if out.size:
            *above, rows, columns = wanted
            (first, down), (left, across) = _span(rows), _span(columns)
            # A part is read as it lies in the file, then thinned out or turned round.
            thinned = np.ix_(np.array(rows) - first, np.array(columns) - left)
            with one_call():
                for into in np.ndindex(*map(len, above)):
                    place = tuple(axis[n] for axis, n in zip(above, into, strict=True))
                    out[into] = self._read(place, Part(first, left, down, across))[thinned]
        return out[tuple(slice(None) if isinstance(one, slice) else 0 for one in key)]

    def _read(self, place: tuple[int, ...], part: Part) -> Array:
        """Read a part of the plane at a place of the axes above rows and columns."""
        raise NotImplementedError


def _span(along: range | tuple[int, ...]) -> tuple[int, int]:
    """Return where some indexes begin, and how far they reach."""
    return min(along), max(along) + 1 - min(along)


class LazyLayer(LazyArray):
    """A layer of a granule, of shape (1 if it has a time, its bands, rows, columns)."""

    def __init__(self, path: Path, layer: Layer, decoding: Decoding, *, timed: bool) -> None:
        self._path = path
        self._name = layer.name
        self._timed = timed
        self._decoding = decoding
        bands = () if layer.index else tuple(size for _, size in layer.bands)
        super().__init__(((1,) if timed else ()) + bands + tuple(layer.shape), decoding.dtype)

    def _read(self, place: tuple[int, ...], part: Part) -> Array:
        index = place[1:] if self._timed else place
        name = f"{self._name}[{','.join(map(str, index))}]" if index else self._name
        with opened(self._path) as (granule, _):
            return decoded(granule, granule.layer(name), self._decoding, part)


def decoded(granule: Granule, layer: Layer, decoding: Decoding, part: Part) -> Array:
    """Read a part of a layer and decode it.

    Raises:
        UnreadableGranuleError: the values cannot be decoded.
        ChoiceRefusedError: the file's own valid range leaves nothing of the layer over.
    """
    form = decoding.form
    if form == "raw":
        return granule.read_part(layer, part)
    read = read_masked_part(granule, layer, decoding.rule, part, mask=decoding.mask)
    if form in ("stored", "classes", "codes"):
        why = read.why
        if form == "classes":
            why[why == Reason.CODE] = Reason.VALID
        wanted = Reason.CODE if form == "codes" else Reason.VALID
        return filled(read.values.astype(decoding.dtype, copy=False), why, wanted, decoding.nodata)
    valid = read.why == Reason.VALID
    table = temperatures(granule, layer) if form == "brightness" else None
    if table is None:
        values = read.values.astype(np.float64) * layer.scale + layer.offset
    else:
        values = np.interp(read.values.astype(np.float64), np.arange(len(table)), table)
    out = values.astype(decoding.dtype)
    out[~valid] = np.nan
    return out


class Places:
    """Where the pixels of a swath's layer lie, computed once for latitude and longitude.

    `companion` is the granule that says it, where another one does.
    """

    def __init__(self, path: Path, layer: str, companion: Path | None) -> None:
        self._of = path, layer, companion
        self._lock = Lock()
        self._found: Geolocation | None = None

    def __getstate__(self) -> tuple[Path, str, Path | None]:
        """Pickle what it takes to compute them again."""
        return self._of

    def __setstate__(self, of: tuple[Path, str, Path | None]) -> None:
        """Begin with nothing computed."""
        self.__init__(*of)  # type: ignore[misc]

    def located(self) -> Geolocation:
        """Compute the places, or return those that were computed before.

        Raises NoGeolocationError if neither granule says.
        """
        with self._lock:
            if self._found is None:
                path, layer, companion = self._of
                paths = [path] if companion is None else [path, companion]
                place = next((one for one in find_places(paths, layer).places), None)
                if place is None:
                    raise NoGeolocationError(f"{path.name} does not say where {layer!r} lies")
                with one_call(), opened(path) as (granule, _):
                    self._found = located(granule, place)
            return self._found


class LazyPlaces(LazyArray):
    """Latitudes or longitudes of a swath's pixels."""

    def __init__(
        self, places: Places, which: Literal["lat", "lon"], shape: tuple[int, int]
    ) -> None:
        self._places = places
        self._which = which
        super().__init__(shape, np.dtype(np.float64))

    def _read(self, _place: tuple[int, ...], part: Part) -> Array:
        found = self._places.located()
        values: Array = found.lat if self._which == "lat" else found.lon
        return values[part.row : part.row + part.rows, part.column : part.column + part.columns]
