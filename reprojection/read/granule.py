"""Read MODIS and VIIRS granules: grids and swaths in HDF4-EOS and HDF5-EOS files.

The C libraries underneath are not thread-safe and trust their input. So read in a process that may
die, with one granule reader per process at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from math import prod
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from modis.axes import Shape
from modis.collection import Collection
from modis.formats import HDF4_MAGIC, HDF5_MAGIC
from modis.granule_name import GranuleName, is_near_real_time, parse_granule_name
from modis.ocean_name import parse_ocean_name
from reprojection import catalogue
from reprojection.catalogue import Product
from reprojection.catalogue.layers import Layer, LayerKind, split_index
from reprojection.catalogue.user_raster import DESCRIPTION, UserRaster
from reprojection.errors import (
    BadFormatError,
    ChoiceRefusedError,
    UnknownLayerError,
    UnreadableGranuleError,
)
from reprojection.formats import odl
from reprojection.formats.container import AttributeValue, Container, DataSet
from reprojection.formats.netcdf import netcdf_inventory, netcdf_structure
from reprojection.formats.pieces import Pieces
from reprojection.formats.structmetadata import GridInfo, SwathInfo, parse_structure
from reprojection.read.geolocation import Geolocation, locate
from reprojection.read.layer_builder import LayerBuilder, Layers, Place
from reprojection.read.user_structure import structure_of

__all__ = ["Geolocation", "Granule", "Layer", "LayerKind", "Part", "open_granule"]

_VERIFIED_AT_ONCE = 1 << 25  # values


class Part(NamedTuple):
    """A part of a layer: its first row and column, and how many of them."""

    row: int
    column: int
    rows: int
    columns: int


# Files whose global attribute states `value = scale_factor * (stored - add_offset)`.
_ATMOSPHERE_NOTES = ("Slope_and_Offset_Usage", "ScaleFactor_AddOffset_Application")


def open_granule(path: Path, *, check: bool = True) -> "Granule":
    """Open a granule for reading; use it as a context manager.

    With `check`, the metadata of all data sets are read at once, so that damage to any of them is
    found here; without, those of a data set when it is first needed.

    Raises BadFormatError if the file is not HDF (judged by its first bytes, not by its name), and
    UnreadableGranuleError if it is damaged.
    """
    container = _open_container(path)
    try:
        granule = _describe(path, container)
        if check:
            granule.check()
        return granule
    except BaseException:
        container.close()
        raise


@dataclass(kw_only=True)
class Granule:
    """An open granule: its identity, its layers, and their stored values.

    `layers` holds, by name, what can be drawn as a raster; `others` names the data sets that cannot
    (tables, compact lists, zero-length ones). `start` is the nominal start in UTC.
    `production_time` has the form YYYYDDDHHMMSS as in granule names, "" if unknown. `days` are
    those of the bands of each layer of a user's raster that has dates.
    """

    path: Path
    name: str
    product: str
    collection: str
    start: datetime | None
    end: datetime | None
    production_time: str
    day_night: str
    grids: Mapping[str, GridInfo]
    swaths: Mapping[str, SwathInfo]
    layers: Mapping[str, Layer]
    others: tuple[str, ...]
    entry: Product | None
    days: tuple[date, ...]
    attributes: Mapping[str, AttributeValue] = field(repr=False)
    inventory: Mapping[str, tuple[odl.Scalar, ...]] = field(repr=False)
    _container: Container = field(repr=False)
    _datasets: Mapping[str, DataSet] = field(repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        self._container.close()

    def layer(self, name: str) -> Layer:
        """Return the layer of that name, or one band of a layer.

        Bands are counted from 0: `Name[2]`, or `Name[1,2]` for two extra axes. Raises
        UnknownLayerError for an unknown name or an index outside the layer's bands.
        """
        if name in self.layers:
            return self.layers[name]
        base, index = split_index(name)
        if not index or base not in self.layers:
            raise UnknownLayerError(name, self.layers)
        whole = self.layers[base]
        sizes = tuple(size for _, size in whole.bands)
        if len(index) != len(sizes) or any(
            at >= size for at, size in zip(index, sizes, strict=True)
        ):
            bands = ", ".join(f"{dim} of {size}" for dim, size in whole.bands) or "none"
            raise UnknownLayerError(name, [f"{base} (bands, from 0: {bands})"])
        band = dict(zip(np.ndindex(*sizes), whole.band_scales, strict=False)).get(index)
        if band is not None:
            return replace(whole, name=name, index=index, scale=band[0], offset=band[1])
        return replace(whole, name=name, index=index)

    def read(self, layer: Layer | str) -> npt.NDArray[np.generic]:
        """Read the stored values of a layer, shape (rows, columns), unscaled and unmasked.

        Raises ChoiceRefusedError for a layer with several bands of which none is named,
        UnknownLayerError for an unknown layer, and UnreadableGranuleError if the values cannot be
        decoded.
        """
        found = layer if isinstance(layer, Layer) else self.layer(layer)
        return self.read_part(found, Part(0, 0, *found.shape))

    def read_part(self, layer: Layer, part: Part) -> npt.NDArray[np.generic]:
        """Read a part of a layer as `read` does, and raise what it raises.

        Of a layer that is stored in chunks, only those are read that hold something of the part.
        """
        dataset = self._dataset(layer)
        index = self._index(layer)
        at = iter(index)
        start = [0 if dim in layer.dims else next(at) for dim in dataset.dims]
        count = [1] * len(start)
        row, column = (dataset.dims.index(dim) for dim in layer.dims)
        start[row], count[row] = layer.first_row + part.row, part.rows
        start[column], count[column] = part.column, part.columns
        block = self._container.read(dataset, tuple(start), tuple(count))
        shape = (part.rows, part.columns)
        flat = block.reshape(shape if row < column else shape[::-1])
        values = flat if row < column else np.ascontiguousarray(flat.T)
        return values.view(layer.dtype) if values.dtype != layer.dtype else values

    def stored_chunk(self, layer: Layer) -> Shape:
        """Return rows and columns of the chunks that a layer is stored in; the whole without."""
        dataset = self._dataset(layer)
        chunk = self._container.chunk(dataset)
        if chunk is None:
            return layer.shape
        found = [chunk[dataset.dims.index(dim)] for dim in layer.dims]
        return Shape(*(min(part, size) for part, size in zip(found, layer.shape, strict=True)))

    def pieces(self, layer: Layer) -> tuple[Pieces, tuple[str, ...], tuple[int, ...]]:
        """Say where the bytes of all bands of a layer lie, with the dimensions and shape stored.

        Raises NotInPiecesError where they are no pieces that others could read by themselves.
        """
        dataset = self._dataset(layer)
        return self._container.pieces(dataset), dataset.dims, dataset.shape

    def take(
        self, layer: Layer, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.generic]:
        """Read the stored values of some pixels of a layer; raises what `read` raises.

        Of a layer that is stored in chunks, only those are read, and held to their checksums, that
        hold one of the pixels.
        """
        dataset = self._dataset(layer)
        others = iter(self._index(layer))
        along = dict(zip(layer.dims, (rows + layer.first_row, columns), strict=True))
        at = [
            along[dim] if dim in along else np.full(rows.shape, next(others), np.int64)
            for dim in dataset.dims
        ]
        values = self._container.take(dataset, at)
        return values.view(layer.dtype) if values.dtype != layer.dtype else values

    def _index(self, layer: Layer) -> tuple[int, ...]:
        """Return where a layer lies on the axes besides its own."""
        index = layer.index or tuple(0 for _, size in layer.bands if size == 1)
        if len(index) != len(layer.bands):
            bands = " x ".join(f"{size} ({dim})" for dim, size in layer.bands)
            raise ChoiceRefusedError(
                f"layer {layer.name!r} has {bands} bands: name one, like {layer.name}[0]"
            )
        return index

    def read_all_bands(self, layer: Layer | str) -> npt.NDArray[np.generic]:
        """Read every band of a layer, shape (bands, rows, columns); a plain layer has one band."""
        found = layer if isinstance(layer, Layer) else self.layer(layer)
        base = self.layers[found.base_name]
        if not base.bands:
            return self.read(base)[np.newaxis]
        sizes = tuple(size for _, size in base.bands)
        return np.stack(
            [self.read(replace(base, index=index)) for index in np.ndindex(*sizes)], axis=0
        )

    def read_table(self, name: str) -> npt.NDArray[np.float64]:
        """Read a data set that is no raster, whole, as float64.

        Raises UnknownLayerError for an unknown name, and UnreadableGranuleError if the values
        cannot be decoded.
        """
        for dataset in self._container.datasets:
            if dataset.name == name:
                start = (0,) * len(dataset.shape)
                return self._container.read(dataset, start, dataset.shape).astype(np.float64)
        raise UnknownLayerError(name, self.others)

    def check(self) -> None:
        """Read the metadata of all data sets; raise UnreadableGranuleError for damage to any."""
        for dataset in self._container.datasets:
            len(dataset.attributes)  # reads them

    def verify(self) -> None:
        """Read every value of every data set, some rows at a time; keep none.

        Raises UnreadableGranuleError where compressed values do not match their checksum.
        """
        for dataset in self._container.datasets:
            if not dataset.shape or 0 in dataset.shape:
                continue
            first, *others = dataset.shape
            step = max(1, _VERIFIED_AT_ONCE // prod(others))
            for start in range(0, first, step):
                count = (min(step, first - start), *others)
                self._container.read(dataset, (start, *(0 for _ in others)), count)

    def geolocation(self, layer: Layer | str) -> Geolocation:
        """Compute where the pixels of a swath layer lie, at the layer's own resolution.

        Raises NoGeolocationError if the granule does not say.
        """
        found = layer if isinstance(layer, Layer) else self.layer(layer)
        return locate(self, found)

    def _dataset(self, layer: Layer) -> DataSet:
        try:
            return self._datasets[layer.base_name]
        except KeyError:
            raise UnknownLayerError(layer.name, self.layers) from None


def _open_container(path: Path) -> Container:
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as problem:
        raise UnreadableGranuleError(f"{path} cannot be opened: {problem.strerror}") from problem
    if head.startswith(HDF4_MAGIC):
        from reprojection.formats.hdf4 import Hdf4Container

        return Hdf4Container(path)
    if head.startswith(HDF5_MAGIC):
        from reprojection.formats.hdf5 import Hdf5Container

        return Hdf5Container(path)
    if not head:
        what = "is empty"
    elif head.lstrip()[:1] == b"<":
        what = "is a web page or XML (a sign-in or error page saved under a granule's name?)"
    else:
        what = f"begins with {head[:4].hex(' ')}"
    raise BadFormatError(f"{path.name} is not an HDF file: it {what}; fetch the granule again")


def _name(file: str, inside: str) -> str:
    """Return a granule's name: by its metadata, but where its file alone says near real time."""
    if not inside or (is_near_real_time(file) and not is_near_real_time(inside)):
        return file
    return inside


def _describe(path: Path, container: Container) -> Granule:
    attributes = container.attributes
    struct, own = attributes.get("StructMetadata"), attributes.get(DESCRIPTION)
    described = UserRaster.model_validate_json(own) if isinstance(own, str) else None
    if described is not None:
        structure = structure_of(described)
    elif isinstance(struct, str):
        structure = parse_structure(struct)
    else:
        structure = netcdf_structure(container)
    lists = _inventory(attributes)
    inventory = {key: str(items[0]) for key, items in lists.items() if items}
    parts = parse_granule_name(inventory.get("LOCALGRANULEID", "")) or parse_granule_name(path.name)
    product, collection = _identity(inventory, parts)
    entry = catalogue.product(product, collection)
    if described is not None:
        product, entry = described.product_name, described.product()
    grids = {grid.name: grid for grid in structure.grids}
    swaths = {swath.name: swath for swath in structure.swaths}
    builder = LayerBuilder(
        grids=grids,
        swaths=swaths,
        entry=entry,
        atmosphere_note=any(name in attributes for name in _ATMOSPHERE_NOTES),
        is_cf=str(attributes.get("Conventions", "")).startswith("CF-"),
    )
    places: dict[str, Place] = {}
    others: list[str] = []
    for dataset in container.datasets:
        name = dataset.name if dataset.name not in places else _qualified(dataset)
        place = builder.place(dataset)
        if place is None:
            others.append(name)
        else:
            places[name] = place
    return Granule(
        path=path,
        name=_name(path.name, inventory.get("LOCALGRANULEID", "")),
        product=product,
        collection=collection,
        start=parts.start if parts else _start(path.name, inventory),
        end=_moment(inventory, "RANGEENDING"),
        production_time=parts.production_time if parts else _produced(inventory),
        day_night=inventory.get("DAYNIGHTFLAG", "").lower(),
        grids=grids,
        swaths=swaths,
        layers=Layers(builder, places),
        others=tuple(others),
        entry=entry,
        days=described.days if described is not None else (),
        attributes=attributes,
        inventory=lists,
        _container=container,
        _datasets={name: place.dataset for name, place in places.items()},
    )


def _qualified(dataset: DataSet) -> str:
    return f"{dataset.structure or dataset.key}/{dataset.name}"


def _inventory(attributes: Mapping[str, AttributeValue]) -> dict[str, tuple[odl.Scalar, ...]]:
    """Collect the values of the inventory metadata by upper-case name; the first of each counts."""
    text = attributes.get("CoreMetadata") or attributes.get("OldCoreMetadata.0")
    if not isinstance(text, str):
        return netcdf_inventory(attributes)
    found: dict[str, tuple[odl.Scalar, ...]] = {}
    for node in odl.parse(text).walk():
        value = node.values.get("VALUE")
        if value is not None and node.name.upper() not in found:
            found[node.name.upper()] = value if isinstance(value, tuple) else (value,)
    return found


def _identity(inventory: Mapping[str, str], parts: GranuleName | None) -> tuple[str, str]:
    product = inventory.get("SHORTNAME") or (parts.product if parts else "")
    version = inventory.get("VERSIONID")
    collection = Collection(version) if version else parts.collection if parts else ""
    return product, collection


def _start(name: str, inventory: Mapping[str, str]) -> datetime | None:
    """Return the nominal start of a granule whose name is not one of a tile or swath of the land.

    The first pixels of a day of ocean colour are of the evening before.
    """
    named = parse_ocean_name(name)
    return named.start if named and named.period else _moment(inventory, "RANGEBEGINNING")


def _produced(inventory: Mapping[str, str]) -> str:
    try:
        return f"{datetime.fromisoformat(inventory['PRODUCTIONDATETIME']):%Y%j%H%M%S}"
    except (KeyError, ValueError):
        return ""


def _moment(inventory: Mapping[str, str], which: str) -> datetime | None:
    day, time = inventory.get(f"{which}DATE"), inventory.get(f"{which}TIME", "00:00:00")
    if day is None:
        return None
    try:
        return datetime.fromisoformat(f"{day}T{time.rstrip('Z')}").replace(tzinfo=UTC)
    except ValueError:
        return None
