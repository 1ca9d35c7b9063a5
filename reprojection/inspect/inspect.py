"""Report what a granule contains: layers, grids and swaths, value ranges and valid shares."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np

from modis.axes import Shape
from modis.tile import Tile
from reprojection.catalogue.layers import Layer, LayerKind, Number
from reprojection.errors import BadFormatError, ReprojectionError
from reprojection.formats.container import coordinate
from reprojection.read.granule import Granule, open_granule
from reprojection.read.outline import Ring, outline
from reprojection.read.qa import Reason, reasons

_COLDEST = 150.0  # kelvin: colder than any cloud or ground
_DIFFERENCES = (
    "err",
    "std",
    "dev",
    "diff",
    "uncert",
    "bias",
    "delta",
    "dt_",
)  # in names: no temperatures


@dataclass(frozen=True, kw_only=True)
class GridReport:
    """A grid: size in pixels, outer edges and pixel size in `units`, and its tile if it is one."""

    name: str
    width: int
    height: int
    left: float
    top: float
    right: float
    bottom: float
    pixel_size: float
    units: Literal["m", "degrees"]
    projection: str
    tile: Tile | None


@dataclass(frozen=True, kw_only=True)
class SwathReport:
    """A swath: its dimensions, and how geolocation maps onto the finer ones."""

    name: str
    dimensions: tuple[tuple[str, int], ...]
    maps: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    """A layer and its values.

    `lowest` and `highest` are physical values of the valid pixels over all bands, None if no pixel
    is valid. `valid_share`, `fill_share` and `code_share` sum to 1. `problem` says why the values
    could not be read. `placeable` says whether the layer can be put on a map. `convention` and
    `scale_problem` are those of `Scale`: with a problem, values are as stored.
    """

    name: str
    dtype: str
    shape: Shape
    bands: tuple[tuple[str, int], ...]
    kind: LayerKind
    units: str
    description: str
    scale: float
    offset: float
    convention: str
    scale_problem: str
    notes: tuple[str, ...]
    fill: Number | None
    valid_range: tuple[Number, Number] | None
    codes: tuple[tuple[int, str], ...]
    qa: str | None
    lies_on: str
    placeable: bool
    catalogued: bool
    lowest: float | None = None
    highest: float | None = None
    valid_share: float = 0.0
    fill_share: float = 0.0
    code_share: float = 0.0
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class GranuleReport:
    """A granule as `swathmill inspect` shows it."""

    path: Path
    name: str
    product: str
    collection: str
    catalogue_title: str | None
    start: datetime | None
    end: datetime | None
    day_night: str
    boundary: tuple[Ring, ...] | None
    grids: tuple[GridReport, ...]
    swaths: tuple[SwathReport, ...]
    layers: tuple[LayerReport, ...]
    others: tuple[str, ...] = field(default=())


def inspect(path: Path) -> GranuleReport:
    """Read a whole granule and report on it.

    Raises BadFormatError and UnreadableGranuleError as `open_granule` does, and BadFormatError for
    a file that holds nothing in HDF-EOS form. A single layer that cannot be read is reported with
    its problem instead.
    """
    with open_granule(path) as granule:
        if not (granule.grids or granule.swaths or granule.layers or granule.others):
            raise BadFormatError(
                f"{path.name} has no HDF-EOS grid or swath, so it holds no layers to show; MODIS "
                "files (HDF4-EOS) and VIIRS land files (HDF5-EOS) are read"
            )
        return report(granule)


def report(granule: Granule) -> GranuleReport:
    """Report on an open granule."""
    place = outline(granule)
    return GranuleReport(
        path=granule.path,
        name=granule.name,
        product=granule.product,
        collection=granule.collection,
        catalogue_title=granule.entry.title if granule.entry else None,
        start=granule.start,
        end=granule.end,
        day_night=granule.day_night,
        boundary=place.boundary,
        grids=tuple(
            GridReport(
                name=grid.name,
                width=grid.width,
                height=grid.height,
                left=grid.left,
                top=grid.top,
                right=grid.right,
                bottom=grid.bottom,
                pixel_size=grid.pixel_width,
                units="degrees" if grid.is_geographic else "m",
                projection=grid.projection,
                tile=grid.tile,
            )
            for grid in granule.grids.values()
        ),
        swaths=tuple(
            SwathReport(
                name=swath.name,
                dimensions=tuple(swath.dimensions.items()),
                maps=tuple(
                    f"{found.geo} -> {found.data}: offset {found.offset}, "
                    f"increment {found.increment}"
                    for found in swath.maps
                ),
            )
            for swath in granule.swaths.values()
        ),
        layers=tuple(_layer_report(granule, layer) for layer in granule.layers.values()),
        others=granule.others,
    )


def _layer_report(granule: Granule, layer: Layer) -> LayerReport:
    values = _Values()
    problem = ""
    try:
        for index in np.ndindex(*(size for _, size in layer.bands)):
            suffix = f"[{','.join(map(str, index))}]" if index else ""
            values.add(granule, granule.layer(layer.name + suffix))
    except ReprojectionError as found:
        problem = str(found)
    total = max(sum(values.counts), 1)
    return LayerReport(
        name=layer.name,
        dtype=str(layer.dtype),
        shape=layer.shape,
        bands=layer.bands,
        kind=layer.kind,
        units=layer.units,
        description=layer.description,
        scale=layer.scale,
        offset=layer.offset,
        convention=layer.convention,
        scale_problem=layer.scale_problem,
        notes=(*layer.notes, *_doubts(layer, values.highest)),
        fill=layer.fill,
        valid_range=layer.valid_range,
        codes=tuple(sorted(layer.codes.items())),
        qa=layer.qa,
        lies_on=layer.grid or layer.swath or "",
        placeable=is_placeable(granule, layer),
        catalogued=granule.entry is not None and granule.entry.layer(layer.name) is not None,
        lowest=values.lowest,
        highest=values.highest,
        valid_share=values.counts[Reason.VALID] / total,
        fill_share=values.counts[Reason.FILL] / total,
        code_share=values.counts[Reason.CODE] / total,
        problem=problem,
    )


def _doubts(layer: Layer, highest: float | None) -> tuple[str, ...]:
    """Say what cannot be right of values, though the file says so."""
    if any(word in layer.name.lower() for word in _DIFFERENCES):
        return ()
    kelvin = layer.units.strip().lower() in ("k", "kelvin", "kelvins", "degrees kelvin")
    if kelvin and highest is not None and highest < _COLDEST:
        return (f"its values, {highest:g} K at most, are too cold for the Earth",)
    return ()


class _Values:
    """Counts by reason, and physical extremes, accumulated band by band."""

    def __init__(self) -> None:
        self.counts = [0] * len(Reason)
        self.lowest: float | None = None
        self.highest: float | None = None

    def add(self, granule: Granule, band: Layer) -> None:
        stored = granule.read(band)
        why = reasons(granule, band, values=stored)
        for reason, count in enumerate(np.bincount(why.ravel(), minlength=len(Reason))):
            self.counts[reason] += int(count)
        data = stored[why == Reason.VALID]
        if not data.size:
            return
        ends = sorted(float(end) * band.scale + band.offset for end in (data.min(), data.max()))
        self.lowest = ends[0] if self.lowest is None else min(self.lowest, ends[0])
        self.highest = ends[1] if self.highest is None else max(self.highest, ends[1])


def is_placeable(granule: Granule, layer: Layer) -> bool:
    """Tell whether the granule says where a layer's pixels lie."""
    if layer.grid is not None:
        return True
    swath = granule.swaths.get(layer.swath or "")
    if swath is None:
        return False
    geo = [item for item in swath.geo_fields if coordinate(item.name) == "latitude"]
    return bool(geo) and all(
        dim in geo[0].dims or swath.map_onto(dim) is not None for dim in layer.dims
    )
