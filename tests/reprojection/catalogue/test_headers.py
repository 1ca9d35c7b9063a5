"""The reader and the catalogue on headers of real granules, which this project did not write.

What a layer should be is worked out here from the header alone, by rules that are simpler than the
reader's. Layers whose attributes the catalogue corrects on purpose are held to the catalogue.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.layers import Layer, Scaling
from reprojection.read.granule import Granule, open_granule
from tests.reprojection.headers import NAMES, DataSet, header, write

_OF_TWO = (
    "sses_bias",
    "sses_standard_deviation",
    "quality_level",
    "l2p_flags",
    "dt_analysis",
    "wind_speed",
)
ABSENT: dict[str, tuple[str, ...]] = {
    "MODIS_A-JPL-L2P-v2014.0": _OF_TWO,  # these cut-outs are of two variables
    "MODIS_T-JPL-L2P-v2014.0": _OF_TWO,
}
"""Layers of the catalogue that a real granule lacks, by header, each with its reason."""

UNPLACED = ("Aerosol_Cldmask_Land_Ocean", "Cloud_Pixel_Distance_Land_Ocean")
"""Layers of 500 m of MOD04: its dimension map has none onto them."""


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_what_a_real_header_states(name: str, tmp_path: Path) -> None:
    known = header(name)
    path, values = write(known, tmp_path)
    wrong: list[str] = []
    with open_granule(path) as granule:
        assert granule.product == known.product or not known.product
        assert granule.start is not None
        stated = {one.own_name: one for one in known.datasets if one.own_name in granule.layers}
        assert stated, f"no layer is read: {granule.others}"
        if granule.entry is not None:
            missing = {*granule.entry.layer_names} - {*stated} - {*ABSENT.get(name, ())}
            wrong += [f"the catalogue lists {one}, which is not there" for one in sorted(missing)]
        for layer_name, one in stated.items():
            layer = granule.layers[layer_name]
            wrong += [f"{layer_name}: {fault}" for fault in faults(granule, layer, one)]
            index = (0,) * len(layer.bands)
            read = granule.read(
                granule.layer(f"{layer_name}[{','.join(map(str, index))}]") if index else layer
            )
            at = [0 if dim not in layer.dims else slice(None) for dim in dims_of(granule, one)]
            kept = values[one.name][tuple(at)]
            if kept.shape != read.shape:
                kept = kept.T
            if not np.array_equal(read.view(kept.dtype), kept, equal_nan=kept.dtype.kind == "f"):
                wrong.append(f"{layer_name}: other values than were written")
        wrong += unplaced(granule)
    assert wrong == []


def dims_of(granule: Granule, one: DataSet) -> tuple[str, ...]:
    layer = granule.layers[one.own_name]
    return next(
        found.dims
        for found in granule._container.datasets
        if found.name == layer.name or found.name == one.own_name
    )


def faults(granule: Granule, layer: Layer, one: DataSet) -> list[str]:
    """Say in what a layer is not what its header states."""
    entry = granule.entry
    mine = entry.layer(layer.base_name) if entry is not None else None
    found = [] if one.has_poor_range else [*layer.notes]
    lengths = entry.facts(layer.base_name).bands if entry is not None else ()
    if lengths and lengths != tuple(size for _, size in layer.bands):
        found.append(f"bands {layer.bands}, the catalogue has {lengths}")
    as_unsigned = one.said("_Unsigned") == "true" or one.numbers("valid_range")[-1:] == [-1]
    if layer.dtype.str[1:] != one.type and not as_unsigned:
        found.append(f"type {layer.dtype}, stated {one.type}")
    fills = one.numbers("_FillValue")
    if mine is None or mine.fill is None:
        meant = tuple(_as(layer, value) for value in fills)
        if meant and (layer.fill, *layer.more_fills) != meant:
            found.append(f"fill {layer.fill} {layer.more_fills}, stated {fills}")
    ends = one.numbers("valid_range") or [*one.numbers("valid_min"), *one.numbers("valid_max")]
    there = len(ends) == 2 and ends[0] < ends[1] and (mine is None or mine.valid_range is None)
    if there and not np.allclose(layer.valid_range or (math.nan, math.nan), ends):
        found.append(f"range {layer.valid_range}, stated {ends}")
    right = _scale(entry, mine, one)
    if right is None and one.numbers("scale_factor") == [0] and not layer.scale_problem:
        found.append("its factor of 0 is taken for none")
    if right is not None and not np.allclose((layer.scale, layer.offset), right, rtol=1e-6):
        found.append(f"scale {(layer.scale, layer.offset)}, stated {right}")
    units = one.said("units").strip()
    if layer.units not in (units, "") and (mine is None or mine.units is None):
        found.append(f"units {layer.units!r}, stated {units!r}")
    cut = any(layer.qa in names for names in ABSENT.values())
    if layer.qa is not None and layer.qa not in granule.layers and not cut:
        found.append(f"its quality {layer.qa} is not there")
    return found


def _as(layer: Layer, value: float) -> float:
    """Return a stated number as the layer's type has it: -1 of a byte that is unsigned is 255."""
    if layer.dtype.kind != "u" or value >= 0:
        return value
    return value + float(2 ** (8 * layer.dtype.itemsize))


def _scale(
    entry: Product | None, mine: LayerEntry | None, one: DataSet
) -> tuple[float, float] | None:
    """Return scale and offset as the header states them, in GDAL's meaning; None: it says none."""
    factor, shift = one.numbers("scale_factor"), one.numbers("add_offset", "offset")
    if mine is not None and (mine.scale is not None or mine.offset is not None or mine.scaled_by):
        return None
    if factor == [0] or not (factor or shift):
        return None
    by, add = float((factor or [1.0])[0]), float((shift or [0.0])[0])
    scaling = (mine.scaling if mine else None) or (entry.scaling if entry else None)
    if scaling is Scaling.DIVIDE and by > 1.0:
        return 1.0 / by, add
    return (by, -by * add) if scaling is Scaling.SUBTRACT else (by, add)


def unplaced(granule: Granule) -> list[str]:
    """Name the layers of swaths whose pixels do not lie where the coordinates were written."""
    found: list[str] = []
    seen: dict[tuple[object, ...], bool] = {}
    for name, layer in granule.layers.items():
        guided = granule.entry is not None and granule.entry.facts(name).geolocation
        if layer.grid is not None or layer.base_name in UNPLACED or guided:
            continue
        key = layer.swath, layer.dims, layer.shape
        if key not in seen:
            place = granule.geolocation(layer)
            inside = (np.abs(place.lat - 45.0) < 3.0) & (np.abs(place.lon - 10.0) < 8.0)
            seen[key] = bool(inside.mean() > 0.9)
        if not seen[key]:
            found.append(f"{name}: its pixels lie elsewhere")
    return found
