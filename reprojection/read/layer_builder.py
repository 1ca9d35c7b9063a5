"""Build layers from stored data sets: axes, type, scale and meaning."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from modis.axes import Shape
from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.attributes import read_form, unpacked_range
from reprojection.catalogue.layers import (
    Layer,
    Scale,
    guess_kind,
    named_units,
    read_scale,
)
from reprojection.formats.container import AttributeValue, DataSet, coordinate
from reprojection.formats.structmetadata import GridInfo, SwathInfo


@dataclass(frozen=True, kw_only=True)
class Place:
    """A data set that is a raster: its structure, and which of its axes are rows and columns."""

    dataset: DataSet
    grid: GridInfo | None
    swath: SwathInfo | None
    rows: int
    columns: int


@dataclass(frozen=True, kw_only=True)
class LayerBuilder:
    """Builds layers from data sets; the catalogue takes precedence over the file."""

    grids: Mapping[str, GridInfo]
    swaths: Mapping[str, SwathInfo]
    entry: Product | None
    atmosphere_note: bool
    is_cf: bool = False

    def place(self, dataset: DataSet) -> Place | None:
        """Find how a data set lies on its structure; return None if it is not a raster."""
        if len(dataset.shape) < 2 or prod(dataset.shape) == 0 or dataset.dtype.kind not in "iuf":
            return None
        grid, swath = self._structure(dataset)
        axes = self._axes(dataset, grid, swath)
        if axes is None:
            return None
        return Place(dataset=dataset, grid=grid, swath=swath, rows=axes[0], columns=axes[1])

    def build(self, name: str, place: Place) -> Layer:
        """Build the layer of a data set; this reads the data set's attributes."""
        dataset, grid, swath = place.dataset, place.grid, place.swath
        rows, columns = place.rows, place.columns
        known = self.entry.layer(dataset.name) if self.entry else None
        attributes = dataset.attributes
        form = read_form(attributes, dataset.dtype)
        dtype = form.dtype
        units = _text(attributes.get("units"))
        scale = self._scale(name, units, attributes, known)
        stated = unpacked_range(form.valid_range, dtype, scale.scale, scale.offset)
        codes = known.codes if known else {}
        fills = [*form.fills, *(one for one in form.missing if one not in codes)]
        if known is not None and known.fill is not None:
            fills = [known.fill]
        return Layer(
            name=name,
            dtype=dtype,
            shape=Shape(dataset.shape[rows], dataset.shape[columns]),
            kind=known.kind
            if known
            else guess_kind(dataset.name, dtype, units, scaled=bool(scale.convention)),
            fill=fills[0] if fills else None,
            more_fills=tuple(fills[1:]),
            valid_range=(known.valid_range if known and known.valid_range else stated),
            range_stated=not (known and known.valid_range) and stated is not None,
            notes=form.notes,
            scale=scale.scale,
            offset=scale.offset,
            units=_units(units, known, scale),
            convention=scale.convention,
            scale_problem=scale.problem,
            band_scales=scale.bands,
            codes=codes,
            classes=known.classes if known else {},
            description=_text(attributes.get("long_name")) or (known.title if known else ""),
            qa=known.qa if known else None,
            grid=grid.name if grid else None,
            swath=swath.name if swath else None,
            dims=(dataset.dims[rows], dataset.dims[columns]),
            bands=tuple(
                (dim, size)
                for axis, (dim, size) in enumerate(zip(dataset.dims, dataset.shape, strict=True))
                if axis not in (rows, columns)
            ),
        )

    def _structure(self, dataset: DataSet) -> tuple[GridInfo | None, SwathInfo | None]:
        if dataset.structure is not None:
            return self.grids.get(dataset.structure), self.swaths.get(dataset.structure)
        for grid in self.grids.values():
            if any(item.name == dataset.name for item in grid.fields):
                return grid, None
        for swath in self.swaths.values():
            if any(item.name == dataset.name for item in swath.geo_fields + swath.data_fields):
                return None, swath
        return None, None

    def _axes(
        self, dataset: DataSet, grid: GridInfo | None, swath: SwathInfo | None
    ) -> tuple[int, int] | None:
        """Find (row axis, column axis) by dimension name, or by size if no structure names them."""
        dims = dataset.dims
        if grid is not None:
            if "YDim" in dims and "XDim" in dims:
                axes = dims.index("YDim"), dims.index("XDim")
                sizes = tuple(dataset.shape[axis] for axis in axes)
                return axes if sizes == (grid.height, grid.width) else None
            # A grid may name its dimensions as it likes: MCD43GF's are NumLatPoints, NumLongPoints.
            own = not {"YDim", "XDim"} & {*dims} and dataset.shape == (grid.height, grid.width)
            return (0, 1) if own else None
        if swath is not None:
            for rows, columns in _swath_axes(swath):
                if rows in dims and columns in dims:
                    return dims.index(rows), dims.index(columns)
        if len(dims) == 2:
            return 0, 1
        return None

    def _scale(
        self,
        name: str,
        units: str,
        attributes: Mapping[str, AttributeValue],
        known: LayerEntry | None,
    ) -> Scale:
        found = read_scale(
            attributes,
            name,
            units,
            catalogued=(known and known.scaling) or (self.entry.scaling if self.entry else None),
            scaled_by=known.scaled_by if known else None,
            file_has_atmosphere_note=self.atmosphere_note,
            file_is_cf=self.is_cf,
        )
        if known is None or (known.scale is None and known.offset is None):
            return found
        return Scale(
            scale=found.scale if known.scale is None else known.scale,
            offset=found.offset if known.offset is None else known.offset,
            convention="stored * scale + offset, both by the catalogue",
        )


class Layers(Mapping[str, Layer]):
    """The layers of a granule by name, in file order; each is built when it is first needed."""

    def __init__(self, builder: LayerBuilder, places: Mapping[str, Place]) -> None:
        self._builder = builder
        self._places = places
        self._built: dict[str, Layer] = {}

    def __getitem__(self, name: str) -> Layer:
        found = self._built.get(name)
        if found is None:
            found = self._built[name] = self._builder.build(name, self._places[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _swath_axes(swath: SwathInfo) -> list[tuple[str, str]]:
    """List the (along, across) dimensions that a swath's layers may have; geolocation's first."""
    fields = [item for item in swath.geo_fields if coordinate(item.name) == "latitude"]
    if not fields or len(fields[0].dims) != 2:
        return []
    along, across = fields[0].dims
    pairs = [(along, across)]
    alongs = [found.data for found in swath.maps if found.geo == along]
    acrosses = [found.data for found in swath.maps if found.geo == across]
    pairs += [(rows, columns) for rows in alongs for columns in acrosses]
    pairs += [(along, columns) for columns in acrosses] + [(rows, across) for rows in alongs]
    return pairs


def _units(stated: str, known: LayerEntry | None, scale: Scale) -> str:
    if scale.problem:  # stored values are not in these units
        return ""
    return known.units if known and known.units is not None else named_units(stated)


def _text(value: AttributeValue | None) -> str:
    return value.strip() if isinstance(value, str) else ""
