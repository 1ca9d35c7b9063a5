"""Layers of tiles that hold several orbits of a day, each in a band: choose one for each pixel."""

import numpy as np
import numpy.typing as npt

from reprojection.catalogue import Axis
from reprojection.catalogue.layers import Layer, LayerKind, is_fill
from reprojection.read.granule import Granule, Part
from reprojection.read.granule_layer import MaskedLayer, Rule, read_masked, read_masked_part
from reprojection.read.kept import Memory
from reprojection.read.qa import Reason
from reprojection.warp.merge import Merger


def orbits_of(granule: Granule, layer: Layer) -> Axis | None:
    """Return a layer's axis of orbits, None if it has none or its name names one orbit."""
    if granule.entry is None or layer.index or not layer.bands:
        return None
    return granule.entry.facts(layer.name).orbits


def read_tile(
    granule: Granule,
    layer: Layer,
    rule: Rule,
    merge: str,
    part: Part | None = None,
    *,
    mask: bool,
    memory: Memory,
) -> MaskedLayer:
    """Read a layer and find which pixels are data; where it holds several orbits, merge them.

    With a `part`, only that is read, and all pixels beyond it are fill. Orbits are read whole.

    Orbits are merged before resampling, in their order of time, as granules of swaths are: `merge`
    is a rule of `warp.merge`. For classes and bit fields "mean" means "nadir".
    """
    axis = orbits_of(granule, layer)
    if axis is None and part is not None:
        return _within(granule, layer, rule, part, mask=mask)
    if axis is None:
        return read_masked(granule, layer, rule, mask=mask, memory=memory)
    chosen = merge if layer.kind is LayerKind.CONTINUOUS or merge != "mean" else "nadir"
    nodata = 0 if layer.fill is None else layer.fill
    merger = Merger(shape=layer.shape, dtype=layer.dtype, nodata=nodata, merge=chosen)
    everywhere = np.arange(layer.shape[0] * layer.shape[1])
    for number in range(layer.bands[0][1]):
        orbit = granule.layer(f"{layer.name}[{number}]")
        read = read_masked(granule, orbit, rule, mask=mask, memory=memory)
        zenith = _zenith(granule, axis, layer, number)
        values = read.values.ravel()
        merger.add(everywhere, values, read.why.ravel(), zenith)
    merged = merger.result()
    coded = merged.reasons == Reason.CODE
    return MaskedLayer(values=np.where(coded, merged.codes, merged.values), why=merged.reasons)


def _within(granule: Granule, layer: Layer, rule: Rule, part: Part, *, mask: bool) -> MaskedLayer:
    values = np.zeros(layer.shape, layer.dtype)
    why = np.full(layer.shape, Reason.FILL, np.uint8)
    if part.rows and part.columns:
        read = read_masked_part(granule, layer, rule, part, mask=mask)
        at = np.s_[part.row : part.row + part.rows, part.column : part.column + part.columns]
        values[at], why[at] = read.values, read.why
    return MaskedLayer(values=values, why=why)


def _zenith(granule: Granule, axis: Axis, layer: Layer, number: int) -> npt.NDArray[np.float32]:
    """Return a number for each pixel, flat, that grows with the orbit's view zenith angle."""
    size = layer.shape[0] * layer.shape[1]
    if not axis.cosines or axis.cosines not in granule.layers:
        return np.zeros(size, np.float32)
    cosines = granule.layer(f"{axis.cosines}[{number}]")
    held = granule.read(cosines)
    stored = held.astype(np.float32)
    stored[is_fill(held, cosines)] = np.nan
    rows, columns = (
        np.arange(fine) * coarse // fine
        for fine, coarse in zip(layer.shape, cosines.shape, strict=True)
    )
    return np.ascontiguousarray(-stored[rows][:, columns]).ravel()
