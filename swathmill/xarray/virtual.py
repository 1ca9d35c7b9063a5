"""`swathmill.virtualize`: granules as Zarr by references to their own bytes (Kerchunk)."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from reprojection.catalogue.layers import Layer, LayerKind
from reprojection.files import AnyPath
from reprojection.formats.pieces import NotInPiecesError, Pieces
from reprojection.read.cf import cf_units, identifier
from reprojection.read.granule import Granule
from reprojection.read.kept import opened
from swathmill.xarray.granule_dataset import Choices, datasets_of
from swathmill.xarray.granule_files import paths_of
from swathmill.xarray.groups import Group, groups_of
from swathmill.xarray.virtual_formats import write_icechunk, write_parquet

_PARQUET = (".parq", ".parquet")
_INLINE = ("x", "y", "time", "spatial_ref", "scan_time")
_OWN = ("ancillary_variables", "grid_mapping", "_FillValue", "scale_factor", "add_offset")


@dataclass(frozen=True, kw_only=True)
class VirtualStore:
    """References to the chunks of granules, as Kerchunk has them.

    Attributes:
        references: The document, version 1: Zarr's metadata, and file, offset and length of each
            chunk.
        refused: What others cannot read, by granule and layer, with the reason.
    """

    references: dict[str, Any]
    refused: dict[str, str] = field(default_factory=dict)

    def write(self, path: AnyPath) -> None:
        """Write the references as JSON, or as Kerchunk's Parquet files.

        Args:
            path: The file; replaced if it is there. A name that ends in .parq or .parquet is that
                of a folder of Parquet files, which needs pyarrow.
        """
        place = Path(path)
        if place.suffix in _PARQUET:
            write_parquet(self.references["refs"], place)
        else:
            place.write_text(json.dumps(self.references), "utf-8")

    def to_icechunk(self, store: Any) -> None:
        """Write the references into an Icechunk repository; needs icechunk.

        Coordinates are stored in it, layers stay in their files. The repository has to know the
        files' folder or bucket as a container of virtual chunks.

        Args:
            store: The store of a session that can be written. You commit the session.
        """
        write_icechunk(self.references["refs"], store)


def virtualize(granules: object, path: AnyPath | None = None, *, base: str = "") -> VirtualStore:
    """Make references by which Zarr reads granules as they are: stored values, without Swathmill.

    Each granule is a group, by its name, and has the groups of `xarray.open_datatree`. Layers have
    their dimensions, attributes and packing, tiles `x`, `y` and `spatial_ref`. Nothing is masked
    but fill.

    Args:
        granules: Granules, as `load` takes them.
        path: Where to write the references, as `VirtualStore.write`; None writes none.
        base: Where the granules' files will be found: a folder's URL. By default where they are.

    Raises:
        ReprojectionError: a granule cannot be read, or there is none.
    """
    refs: dict[str, object] = {".zgroup": _GROUP}
    refused: dict[str, str] = {}
    for one in paths_of(granules):
        where = f"{base.rstrip('/')}/{one.name}" if base else one.resolve().as_uri()
        with opened(one) as (granule, _):
            for key, value in _granule(granule, where, refused):
                refs[f"{one.stem}/{key}"] = value
    refs |= _consolidated(refs)
    made = VirtualStore(references={"version": 1, "refs": refs}, refused=refused)
    if path is not None:
        made.write(path)
    return made


_GROUP = json.dumps({"zarr_format": 2})


def _consolidated(refs: Mapping[str, object]) -> dict[str, object]:
    """Return what lists the store and each group: references cannot be listed by all readers."""
    texts = {
        key: json.loads(str(text))
        for key, text in refs.items()
        if key.rsplit("/", 1)[-1] in (".zgroup", ".zarray", ".zattrs")
    }
    found: dict[str, object] = {}
    for group in [key.removesuffix(".zgroup") for key in texts if key.endswith(".zgroup")]:
        inside = {
            key.removeprefix(group): one for key, one in texts.items() if key.startswith(group)
        }
        about = {"zarr_consolidated_format": 1, "metadata": inside}
        found[f"{group}.zmetadata"] = json.dumps(about)
    return found


def _granule(granule: Granule, where: str, refused: dict[str, str]) -> Iterator[tuple[str, object]]:
    """Yield the references of a granule's groups."""
    yield ".zgroup", _GROUP
    described = datasets_of(granule, Choices(units="stored", mask=False))
    for name, group in groups_of(granule).items():
        dataset = described[name]
        yield f"{name}/.zgroup", _GROUP
        yield f"{name}/.zattrs", json.dumps(_plain(dataset.attrs))
        for at in _INLINE:
            if at in dataset.coords:
                for key, value in _inline(dataset[at]):
                    yield f"{name}/{at}/{key}", value
        for layer in group.layers:
            variable = identifier(layer.name)
            try:
                for key, value in _layer(granule, group, layer, dataset, where):
                    yield f"{name}/{variable}/{key}", value
            except NotInPiecesError as problem:
                refused[f"{granule.name}: {layer.name}"] = str(problem)


def _layer(
    granule: Granule, group: Group, layer: Layer, dataset: xr.Dataset, where: str
) -> list[tuple[str, object]]:
    pieces, dims, shape = granule.pieces(layer)
    along = ("y", "x") if group.grid is not None else ("along_track", "cross_track")
    names = dict(zip(layer.dims, along, strict=True))
    axes = [
        names.get(dim) or f"{identifier(dim) or 'band'}_{size}"
        for dim, size in zip(dims, shape, strict=True)
    ]
    # Of classes and bits fill is a value like others, unless chunks are left out.
    fills = layer.kind is LayerKind.CONTINUOUS or len(pieces.places) < prod(pieces.across(shape))
    meta = _metadata(pieces, shape, layer.dtype, layer.fill if fills else None)
    about = {"_ARRAY_DIMENSIONS": axes, **_attributes(layer, dataset)}
    chunks = [
        (".".join(map(str, at)), [where, *place]) for at, place in sorted(pieces.places.items())
    ]
    return [(".zarray", json.dumps(meta)), (".zattrs", json.dumps(about)), *chunks]


def _metadata(
    pieces: Pieces, shape: tuple[int, ...], dtype: np.dtype[np.generic], fill: float | None
) -> dict[str, object]:
    filters = [dict(codec) for codec in pieces.codecs]
    last = filters.pop() if filters and filters[-1]["id"] == "zlib" else None
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(pieces.chunk),
        "dtype": dtype.newbyteorder(pieces.byte_order).str,
        "compressor": last,
        "filters": filters or None,
        "fill_value": None if fill is None else float(fill) if dtype.kind == "f" else int(fill),
        "order": "C",
    }


def _attributes(layer: Layer, dataset: xr.Dataset) -> dict[str, object]:
    known = next(
        (one.attrs for one in dataset.data_vars.values() if one.attrs.get("layer") == layer.name),
        {},
    )
    about: dict[str, object] = {"long_name": layer.description or layer.name, "layer": layer.name}
    about |= {key: value for key, value in _plain(known).items() if key not in _OWN}
    if units := cf_units(layer.units):
        about["units"] = units
    if (layer.scale, layer.offset) != (1.0, 0.0) and not layer.scale_problem:
        about["scale_factor"] = layer.scale
        about |= {"add_offset": layer.offset} if layer.offset else {}
    if "spatial_ref" in dataset.coords:
        about["grid_mapping"] = "spatial_ref"
    return about


def _inline(held: xr.DataArray) -> list[tuple[str, object]]:
    """Return a coordinate with its values in it."""
    encoded = xr.conventions.encode_cf_variable(held.variable)
    values = np.asarray(encoded.values)
    values = values.astype(values.dtype.newbyteorder("<"), order="C")
    meta = {
        "zarr_format": 2,
        "shape": list(values.shape),
        "chunks": list(values.shape),
        "dtype": values.dtype.str,
        "compressor": None,
        "filters": None,
        "fill_value": None,
        "order": "C",
    }
    about = {"_ARRAY_DIMENSIONS": list(map(str, held.dims)), **_plain(encoded.attrs)}
    key = ".".join("0" for _ in values.shape) or "0"
    text = "base64:" + base64.b64encode(values.tobytes()).decode("ascii")
    return [(".zarray", json.dumps(meta)), (".zattrs", json.dumps(about)), (key, text)]


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them."""
    return {
        str(key): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in attributes.items()
    }
