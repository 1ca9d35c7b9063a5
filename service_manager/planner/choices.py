"""What a request's choices come to for one layer: method, QA rule, merge, the kernel's reach."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from modis.sphere import METRES_PER_DEGREE
from reprojection.catalogue import Product, default_resampling, product
from reprojection.grid.crs import parse_crs
from tasks.model.keys import canonical
from tasks.request.checks import merge_of, says_quality, suits
from tasks.request.request import ProductChoice, Request
from tasks.request.target import Target

_REACH = {"bilinear": 1.0, "cubic": 2.0}
"""Half a kernel's width in source pixels; the others stay within the target's pixel."""

_POINT_METHODS = ("nearest", "bilinear", "cubic", "default")


@dataclass(frozen=True, kw_only=True)
class LayerChoice:
    """One layer as it will be reprojected.

    `resampling` is "default" where only the file can tell. `reach` is how far in metres beyond
    a target pixel the kernel looks; `whole_pixel` whether it looks at all of the pixel, not its
    centre only.
    """

    choice: ProductChoice
    layer: str
    geometry: Literal["swath", "tile"]
    resampling: str
    merge: str
    qa: str
    reach: float
    whole_pixel: bool


def pixel_metres(target: Target) -> float:
    """The height of a target pixel in metres, the same everywhere on the lattice: a method must
    not depend on the region."""
    crs = parse_crs(target.lattice.crs)
    if crs.is_geographic:
        return target.lattice.resolution * METRES_PER_DEGREE
    return target.lattice.resolution * (crs.axis_info[0].unit_conversion_factor or 1.0)


def layer_choice(
    request: Request,
    choice: ProductChoice,
    layer: str,
    target: Target,
    geometry: Literal["swath", "tile"],
) -> LayerChoice:
    """Resolve the request's choices for one layer. `geometry` is that of its granules."""
    known = product(choice.name, choice.collection)
    own = _resolution(known, layer)
    coarser = pixel_metres(target) / own if own else 1.0
    method = _method(request, known, layer, coarser, geometry)
    return LayerChoice(
        choice=choice,
        layer=layer,
        geometry=geometry,
        resampling=method,
        merge=merge_of(request, known, layer) if geometry == "swath" else "nadir",
        qa=_qa(request, known, layer),
        reach=_reach(method, own, coarser, target),
        whole_pixel=method not in _POINT_METHODS,
    )


def of_equal_reach(layers: Mapping[str, LayerChoice]) -> dict[str, LayerChoice]:
    """The layers of a swath product with the widest reach among them: they need the same granules,
    since the granule of a pixel is chosen once for all."""
    reach = max(layer.reach for layer in layers.values())
    whole = any(layer.whole_pixel for layer in layers.values())
    return {name: replace(layer, reach=reach, whole_pixel=whole) for name, layer in layers.items()}


def _method(
    request: Request,
    known: Product | None,
    layer: str,
    coarser: float,
    geometry: Literal["swath", "tile"],
) -> str:
    wanted = request.resampling
    if isinstance(wanted, Mapping) and layer in wanted:
        return wanted[layer]
    entry = known.layer(layer) if known else None
    if known is None or entry is None:
        return "nearest" if wanted == "nearest" else "default"
    if isinstance(wanted, str) and suits(known, layer, wanted):
        return wanted
    if geometry == "swath":
        return "nearest"
    return entry.resampling or default_resampling(entry.kind, coarser)


def _qa(request: Request, known: Product | None, layer: str) -> str:
    """The part of the QA rule that concerns the layer's product, as one canonical text."""
    rule = request.qa
    entry = known.layer(layer) if known else None
    if isinstance(rule, str):
        return "" if entry is not None and says_quality(entry) else rule
    if not rule:
        return ""
    mine = {
        quality: {name: sorted(set(values)) for name, values in fields.items()}
        for quality, fields in rule.items()
        if known is None or known.layer(quality) is not None
    }
    return canonical(mine).decode("ascii") if mine else ""


def _resolution(known: Product | None, layer: str) -> float | None:
    """A layer's pixel side in metres, as far as is known."""
    if known is None:
        return None
    entry = known.layer(layer)
    return (entry.resolution if entry else None) or known.resolution


def _reach(method: str, own: float | None, coarser: float, target: Target) -> float:
    """A widened kernel looks as far in target pixels as a plain one does in source pixels."""
    half = _REACH.get(method, 1.0 if method == "default" else 0.0)
    if own is None:
        return half * max(pixel_metres(target), 1000.0)
    if target.modis is not None and own == target.modis:
        return 0.0  # source and target pixels coincide
    return half * own * max(1.0, coarser)
