"""Read and mask one granule's layer: the common first step for swaths and tiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from modis.granule_name import standard_product
from reprojection.catalogue.layers import Layer, LayerKind, is_fill
from reprojection.errors import NoGeolocationError, RangeExcludesAllError, UnknownLayerError
from reprojection.formats.container import coordinate
from reprojection.grid.grids import Grid
from reprojection.read import qa
from reprojection.read.completeness import Missing, no_layer, no_places
from reprojection.read.description import SourceGranule
from reprojection.read.geolocation import Geolocation
from reprojection.read.granule import Granule, Part
from reprojection.read.kept import Memory, opened
from reprojection.read.qa import Reason

Rule = str | Mapping[str, Mapping[str, Sequence[int]]] | None


_MANY = 1000  # values; a few that all lie outside may be bad retrievals
_BLENDED = LayerKind.CONTINUOUS  # codes of classes that no catalogue lists may fill a granule
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
    night: bool = False
    companion: Path | None = None  # the granule that says where this one's pixels lie

    @property
    def standard(self) -> str:
        """The product of which the granule may be a near real time edition."""
        return standard_product(self.product)

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


class Found(NamedTuple):
    """The headers of the granules that hold a layer, and the granules that are no part of it.

    `guides` are the granules that say where pixels lie, by standard product and start.
    """

    places: list[GranuleHeader]
    without: tuple[Missing, ...]
    guides: Mapping[tuple[str, datetime | None], Path]


@dataclass(frozen=True, kw_only=True)
class _Other:
    """A granule that does not hold the layer."""

    path: Path
    name: str
    product: str
    start: datetime | None
    night: bool
    geolocations: tuple[str, ...]  # the products that say where its pixels lie
    error: UnknownLayerError

    @property
    def standard(self) -> str:
        """The product of which the granule may be a near real time edition."""
        return standard_product(self.product)


def find_places(paths: Sequence[Path], layer: str) -> Found:
    """Read the headers of granules, sorted by start, then name.

    A granule of a product that others name as their geolocation is the companion of the one that
    starts with it, also where it holds a layer of that name. A granule of the same product as one
    that holds the layer may lack it (level 1B has no reflectances by night, a tile not each orbit),
    or lack its companion: it is no part.

    Raises what `open_granule` raises; UnknownLayerError if no granule holds the layer, or one of
    another product does not; NoGeolocationError if all that hold it lack their companion.
    """
    places: list[GranuleHeader] = []
    needs: dict[Path, str] = {}  # the product that says where a granule's pixels lie
    guiding: set[str] = set()  # such products, of this layer and of others
    others: list[_Other] = []
    for path in paths:
        with opened(path) as (granule, _):
            try:
                found = granule.layer(layer)
            except UnknownLayerError as error:
                others.append(_other(path, granule, error))
                continue
            places.append(_place(path, granule, found))
            if granule.entry is not None and not _has_places(granule):
                guiding.update(granule.entry.geolocations)
                needs[path] = granule.entry.facts(layer).geolocation
    # A mask of land and water may be in both, the granule and its companion.
    there: list[_Other | GranuleHeader] = [*others, *places]
    guides = {(one.standard, one.start): one.path for one in there if one.standard in guiding}
    places = [place for place in places if place.standard not in guiding]
    ours = {place.standard for place in places}
    lacking = [one for one in others if one.standard not in guiding]
    if not places and others:
        raise _in_none(layer, others)
    for one in lacking:
        if one.standard not in ours:
            raise one.error
    without = [Missing(what=one.name, why=no_layer(layer, night=one.night)) for one in lacking]
    if guides:
        places = [
            replace(place, companion=guides.get((needs.get(place.path, ""), place.start)))
            for place in places
        ]
        lost = [place for place in places if needs.get(place.path) and place.companion is None]
        if len(lost) < len(places):
            without += [
                Missing(what=place.name, why=no_places(needs[place.path])) for place in lost
            ]
            places = [place for place in places if place not in lost]
    places.sort(key=lambda place: (place.start, place.name))
    return Found(places, tuple(sorted(set(without))), guides)


def _other(path: Path, granule: Granule, error: UnknownLayerError) -> _Other:
    return _Other(
        path=path,
        name=granule.name,
        product=granule.product,
        start=granule.start,
        night=granule.day_night == "night",
        geolocations=granule.entry.geolocations if granule.entry else (),
        error=error,
    )


def _has_places(granule: Granule) -> bool:
    return any(coordinate(name) == "latitude" for name in granule.layers)


def _in_none(layer: str, others: Sequence[_Other]) -> UnknownLayerError:
    """Name the granules of which none holds a layer, but not their companions."""
    companions = {name for one in others for name in one.geolocations}
    others = [one for one in others if one.standard not in companions] or others
    if len(others) == 1 and not others[0].night:
        return others[0].error
    night = ", all of night" if all(one.night for one in others) else ""
    names = ", ".join(one.name for one in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    count = "one granule" if len(others) == 1 else f"any of {len(others)} granules"
    where = f"{count}{night} ({names}{more})"
    return UnknownLayerError(layer, others[0].error.known, where)


def located(granule: Granule, place: GranuleHeader) -> Geolocation:
    """Compute where a swath layer's pixels lie, by its granule or by the granule's companion.

    Raises NoGeolocationError if neither says.
    """
    if place.companion is None:
        return granule.geolocation(place.layer)
    with opened(place.companion) as (companion, _):
        name = next((name for name in companion.layers if coordinate(name) == "latitude"), None)
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
    if mask:
        check_range(granule.name, layer, values)
    why = qa.reasons(granule, layer, rule if mask else None, values, memory)
    if not mask:
        why[why != Reason.FILL] = Reason.VALID
    return MaskedLayer(values=values, why=why)


def read_masked_part(
    granule: Granule, layer: Layer, rule: Rule, part: Part, *, mask: bool
) -> MaskedLayer:
    """Read a part of a layer as `read_masked` reads the whole, and raise what it raises.

    If the file's own valid range leaves nothing of the part's data over, all values of the layer
    are read to tell whether it leaves anything. A part without any data says nothing of the range.
    """
    values = granule.read_part(layer, part)
    if mask and values.shape != layer.shape:
        try:
            check_range(granule.name, layer, values, many=1)
        except RangeExcludesAllError:
            check_range(granule.name, layer, granule.read(layer))
    elif mask:
        check_range(granule.name, layer, values)
    why = qa.reasons_in(granule, layer, rule if mask else None, values, part)
    if not mask:
        why[why != Reason.FILL] = Reason.VALID
    return MaskedLayer(values=values, why=why)


def check_range(
    name: str, layer: Layer, values: npt.NDArray[np.generic], *, many: int = _MANY
) -> None:
    """Refuse a layer of which the file's own valid range leaves nothing over.

    That is a fault of the range, or of how it is read, and no empty layer: fill and codes that the
    catalogue knows do not count, and classes may be codes that it does not know.

    Raises:
        RangeExcludesAllError: there are `many` values or more, and all of them lie outside.
    """
    if not layer.range_stated or layer.valid_range is None or layer.kind is not _BLENDED:
        return
    low, high = layer.valid_range
    for rows in values:
        if (np.greater_equal(rows, low) & np.less_equal(rows, high)).any():
            return
    data = values[~is_fill(values, layer)]
    if layer.codes:
        data = data[~np.isin(data, np.array(sorted(layer.codes), dtype=np.int64))]
    if data.size >= many:
        raise RangeExcludesAllError(
            f"{name}: all {data.size:,} values of layer {layer.name!r} ({data.min()} to "
            f"{data.max()}) lie outside the valid range that the file gives ({low} to {high}): "
            "look at it with `swathmill inspect`; `mask: false` keeps the values"
        )


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
        grid=layer_grid(granule, layer),
        night=granule.day_night == "night",
    )


def _times(granule: Granule, layer: Layer) -> tuple[datetime, datetime | None]:
    """Return a granule's start and end; of a band of an axis of days, those of its day."""
    if granule.days and layer.index:
        day = granule.days[layer.index[0]]
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return start, start + timedelta(days=1, seconds=-1)
    start, end = granule.start or UNDATED, granule.end
    axes = granule.entry.facts(layer.name).axes if granule.entry and granule.start else ()
    for axis, number in zip(axes, layer.index, strict=False):
        if axis.of == "day":
            start += timedelta(days=number)
            end = start + timedelta(days=1, seconds=-1)
    return start, end


def layer_grid(granule: Granule, layer: Layer) -> Grid | None:
    """Return the grid that a layer lies on, None for a swath; raises GridError if it is unknown."""
    if layer.grid is None:
        return None
    info = granule.grids[layer.grid]
    return Grid(
        crs=info.crs,
        transform=(info.pixel_width, 0.0, info.left, 0.0, -info.pixel_height, info.top),
        width=info.width,
        height=info.height,
    )
