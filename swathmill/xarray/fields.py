"""Decode bit fields of QA variables into variables of their own."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from reprojection.catalogue import BitField
from reprojection.read.cf import flags, identifier


def decoded_fields(held: xr.DataArray, bits: Mapping[str, BitField]) -> xr.Dataset:
    """Return a variable for each bit field of a QA variable.

    Of a layer of several QA bytes, each field is taken from the byte that has it.
    """
    found: dict[str, xr.DataArray] = {}
    for name, field in bits.items():
        found[identifier(name)] = _field(held, name, field)
    return xr.Dataset(found, attrs={"qa_layer": held.attrs.get("layer", held.name)})


def _field(held: xr.DataArray, name: str, field: BitField) -> xr.DataArray:
    start, width = field.start, 8 * held.dtype.itemsize
    of_bytes = [dim for dim in held.dims if dim not in _PLACES]
    if start + field.length > width and len(of_bytes) == 1:
        held = held.isel({of_bytes[0]: start // width}, drop=True)
        start %= width
    unsigned = held.astype(f"u{held.dtype.itemsize}")
    dtype = np.dtype(np.uint8 if field.length <= 8 else np.uint16 if field.length <= 16 else "u4")
    values = ((unsigned >> start) & ((1 << field.length) - 1)).astype(dtype)
    said = flags({}, dict(field.values), dtype)
    values.attrs = {"long_name": name.replace("_", " ")} | {
        key: value if isinstance(value, str) else np.array(value, dtype)
        for key, value in said.items()
    }
    return values


_PLACES = ("time", "y", "x", "along_track", "cross_track")
