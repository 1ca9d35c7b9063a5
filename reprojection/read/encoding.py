"""How a raster stores a layer's values: type, nodata, scale, offset and units."""

import math
from dataclasses import dataclass

import numpy as np

from reprojection.catalogue.layers import Layer, LayerKind

Number = int | float


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """`value = stored * scale + offset` in `units`; `nodata` lies outside the valid values."""

    dtype: np.dtype[np.generic]
    nodata: Number
    scale: float
    offset: float
    units: str


def floating_encoding(layer: Layer) -> Encoding:
    """Choose a float type that holds every stored value; empty pixels are NaN."""
    narrow = layer.dtype.itemsize <= 2 or layer.dtype == np.float32
    return Encoding(
        dtype=np.dtype(np.float32 if narrow else np.float64),
        nodata=math.nan,
        scale=layer.scale,
        offset=layer.offset,
        units=layer.units,
    )


def stored_encoding(layer: Layer, *, every_value: bool, indices: int) -> Encoding:
    """Choose the layer's own type if it has room for a nodata value, else the next larger type.

    Nodata is the fill if the fill lies outside the valid range, else one end of the type.
    `every_value` says that masking is off or codes are kept, so that only the fill surely does not
    occur. `indices` is the largest number that extra bands hold beside the values (-1 without extra
    bands).
    """
    dtype = layer.dtype
    larger = [np.dtype(name) for name in _LARGER.get(dtype.name, ())]
    for candidate in (dtype, *larger):
        for nodata in _nodata_choices(layer, candidate):
            fits = indices < 0 or indices <= _largest(candidate)
            clash = 0 <= nodata <= indices or _occurs(layer, nodata, every_value)
            if fits and not clash:
                return Encoding(
                    dtype=candidate,
                    nodata=nodata,
                    scale=layer.scale,
                    offset=layer.offset,
                    units=layer.units,
                )
    raise AssertionError(f"no type larger than {dtype} for layer {layer.name!r}")


_LARGER: dict[str, tuple[str, ...]] = {
    "int8": ("int16",),
    "uint8": ("int16",),
    "int16": ("int32",),
    "uint16": ("int32",),
    "int32": ("float64",),
    "uint32": ("float64",),
    "int64": ("float64",),
    "uint64": ("float64",),
}


def _nodata_choices(layer: Layer, dtype: np.dtype[np.generic]) -> list[Number]:
    choices: list[Number] = []
    choices += [fill for fill in layer.fills if _fits(fill, dtype)]
    if dtype.kind == "f":
        return [*choices, math.nan]
    info = np.iinfo(dtype.name)
    ends = (info.max, info.min) if dtype.kind == "u" else (info.min, info.max, -1)
    return [*choices, *(int(end) for end in ends)]


def _fits(value: Number, dtype: np.dtype[np.generic]) -> bool:
    if dtype.kind == "f":
        return bool(float(dtype.type(value)) == float(value)) or math.isnan(value)
    info = np.iinfo(dtype.name)
    return bool(math.isfinite(value) and value == int(value) and info.min <= value <= info.max)


def _largest(dtype: np.dtype[np.generic]) -> int:
    # Beyond 2**24 a float32 cannot hold every whole number.
    return 2**24 if dtype.kind == "f" else int(np.iinfo(dtype.name).max)


def _occurs(layer: Layer, value: Number, every_value: bool) -> bool:
    """Tell whether a pixel of the raster could have this stored value."""
    if math.isnan(value):
        return False
    if every_value or layer.valid_range is None:
        # A mask removes the fill, but blending continuous values could produce the same number.
        is_fill = value in layer.fills
        blended = layer.kind is LayerKind.CONTINUOUS and layer.valid_range is not None
        inside = blended and layer.valid_range is not None and _inside(layer.valid_range, value)
        return _storable(layer, value) and not (is_fill and not inside)
    return _inside(layer.valid_range, value)


def _inside(valid_range: tuple[Number, Number], value: Number) -> bool:
    return valid_range[0] <= value <= valid_range[1]


def _storable(layer: Layer, value: Number) -> bool:
    return _fits(value, layer.dtype)
