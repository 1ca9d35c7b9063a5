"""Read and mask one granule's layer: the common first step for swaths and tiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reprojection.catalogue.layers import Layer
from reprojection.errors import NoGeolocationError, UnknownLayerError
from reprojection.grid.grids import Grid
from reprojection.read import qa
from reprojection.read.geolocation import Geolocation
from reprojection.read.granule import Granule
from reprojection.read.kept import Memory, opened
from reprojection.read.qa import Reason
from reprojection.read.raster import SourceGranule

Rule = str | Mapping[str, Mapping[str, Sequence[int]]] | None


UNDATED = datetime(1, 1, 1, tzinfo=UTC)
"""The start assumed for a granule whose start is unknown."""


@dataclass(frozen=True, kw_only=True)
class GranuleHeader:
    """The header of a granule: its identity and the position of a layer, without any pixels."""

    path: Path
    name: str
    product: str
    collection: str
    produced: str
    start: datetime
    end: datetime | None
    layer: Layer
    grid: Grid | None  # None for a swath
    companion: Path | None = None  # the granule that says where this one's pixels lie

    @property
    def source(self) -> SourceGranule:
        """The granule as provenance names it."""
        return SourceGranule(name=self.name, produced=self.produced)


@dataclass(frozen=True, kw_only=True)
class MaskedLayer:
    """Stored values of a layer, and the Reason of each pixel."""

    values: npt.NDArray[np.generic]
    why: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """The bytes of both arrays."""
        return self.values.nbytes + self.why.nbytes


def find_places(paths: Sequence[Path], layer: str) -> list[GranuleHeader]:
    """Read the headers of granules, sorted by start, then name.

    A granule of a product that others name as their geolocation is the companion of the one that
    starts with it. Raises what `open_granule` and `Granule.layer` raise.
    """
    places = []
    needed: set[str] = set()
    others: list[tuple[str, datetime | None, Path, UnknownLayerError]] = []
    for path in paths:
        with opened(path) as (granule, _):
            try:
                found = granule.layer(layer)
            except UnknownLayerError as error:
                others.append((granule.product, granule.start, path, error))
                continue
            places.append(_place(path, granule, found))
            needed.add(granule.entry.geolocation if granule.entry else "")
    companions = {start: path for product, start, path, _ in others if product in needed}
    for product, _, _, absent in others:
        if product not in needed:
            raise absent
    if companions:
        places = [replace(place, companion=companions.get(place.start)) for place in places]
    return sorted(places, key=lambda place: (place.start, place.name))


def located(granule: Granule, place: GranuleHeader) -> Geolocation:
    """Compute where a swath layer's pixels lie, by its granule or by the granule's companion.

    Raises NoGeolocationError if neither says.
    """
    if place.companion is None:
        return granule.geolocation(place.layer)
    with opened(place.companion) as (companion, _):
        name = next((name for name in companion.layers if name.lower() == "latitude"), None)
        if name is None or companion.layers[name].shape != place.layer.shape:
            raise NoGeolocationError(
                f"layer {place.layer.name!r} of {place.name} is not of the resolution of "
                f"{companion.name}, which was to say where its pixels lie"
            )
        return companion.geolocation(name)


def place_in(path: Path, layer: str) -> GranuleHeader | None:
    """Read the header of one granule; return None if the granule does not hold the layer."""
    with opened(path) as (granule, _):
        try:
            return _place(path, granule, granule.layer(layer))
        except UnknownLayerError:
            return None


def read_masked(
    granule: Granule, layer: Layer, rule: Rule, *, mask: bool, memory: Memory
) -> MaskedLayer:
    """Read a layer, and find for every pixel whether it is data.

    Without `mask`, only the fill counts as empty, and the rule is not applied.
    """
    values = granule.read(layer)
    why = qa.reasons(granule, layer, rule if mask else None, values, memory)
    if not mask:
        why[why != Reason.FILL] = Reason.VALID
    return MaskedLayer(values=values, why=why)


def _place(path: Path, granule: Granule, layer: Layer) -> GranuleHeader:
    start, end = _times(granule, layer)
    return GranuleHeader(
        path=path,
        name=granule.name,
        product=granule.product,
        collection=granule.collection,
        produced=granule.production_time,
        start=start,
        end=end,
        layer=layer,
        grid=_grid(granule, layer),
    )


def _times(granule: Granule, layer: Layer) -> tuple[datetime, datetime | None]:
    """Return a granule's start and end; of a band of an axis of days, those of its day."""
    if granule.days and layer.index:
        day = granule.days[layer.index[0]]
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return start, start + timedelta(days=1, seconds=-1)
    start, end = granule.start or UNDATED, granule.end
    axes = granule.entry.axes_of(layer.name) if granule.entry and granule.start else ()
    for axis, number in zip(axes, layer.index, strict=False):
        if axis.of == "day":
            start += timedelta(days=number)
            end = start + timedelta(days=1, seconds=-1)
    return start, end


def _grid(granule: Granule, layer: Layer) -> Grid | None:
    if layer.grid is None:
        return None
    info = granule.grids[layer.grid]
    return Grid(
        crs=info.crs,
        transform=(info.pixel_width, 0.0, info.left, 0.0, -info.pixel_height, info.top),
        width=info.width,
        height=info.height,
    )
