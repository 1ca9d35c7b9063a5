"""What a scientist should know of a request that is not refused."""

import difflib
from collections.abc import Iterator

from tasks.request.checks import layers_without_rule
from tasks.request.compared import measurement_notes
from tasks.request.places import MAIN, is_scattered
from tasks.request.region.kinds import region_area
from tasks.request.resolved import COMPARED_CELLS, ResolvedRequest, suits

_MARGIN = 1.0  # degrees by which a region may leave an area of use


def request_notes(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Say what a scientist should know of a request that is not refused."""
    request = resolved.request
    layers = [(product, layer) for product in resolved.products for layer in product.layers]
    notes = []
    strange = [
        f"{product.named(layer)} (like {' or '.join(like)})" if like else product.named(layer)
        for product, layer in layers
        if product.entry is not None and not layer.facts.is_listed
        for like in [difflib.get_close_matches(layer.name, product.entry.layer_names, 2, 0.6)]
    ]
    if strange:
        notes.append(
            "The catalogue does not list these layers, so their granules alone describe them; a "
            f"name that no granule has fails: {', '.join(strange)}."
        )
    without = layers_without_rule(resolved)
    if without:
        notes.append(
            f"The catalogue has no QA rule {request.qa!r} for these layers, so they keep all their "
            f"data: {', '.join(without)}."
        )
    notes += _region_notes(resolved)
    notes += _overlap_notes(resolved)
    parts = resolved.target.parts
    if len(parts) > 1:
        notes.append(
            f"The tiles lie apart, so each layer and date has {len(parts)} rasters, named by their "
            "first tile."
        )
    method = request.resampling
    own = [
        product.named(layer)
        for product, layer in layers
        if isinstance(method, str) and not suits(product.entry, layer.entry, method)
    ]
    if own:
        notes.append(
            f"{method} does not suit every layer; resampled by their own default instead: "
            f"{', '.join(own)}."
        )
    classes = [
        product.named(layer)
        for product, layer in layers
        if request.merge == "mean" and product.geometry == "swath" and layer.merge != "mean"
    ]
    if classes:
        notes.append(
            f"merge: mean applies to continuous layers; merged by nadir: {', '.join(classes)}."
        )
    notes += measurement_notes(resolved)
    return tuple(notes)


def _region_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield what a person may not expect of the region and the grid together."""
    region = resolved.request.region
    if region.in_place:
        return
    west, south, east, north = region_area(region).bounds
    if region.place is not None and is_scattered(region.place):
        yield (
            f"{region.place} has parts far from one another: it reaches from "
            f"{reach_text((west, south, east, north))}. Without them it is "
            f"'{region.place.strip()}, {MAIN}'."
        )
    grid = resolved.request.grid
    use = resolved.target.lattice.system.parsed.area_of_use if grid.crs else None
    if use is None:
        return
    width = (use.east - use.west) % 360.0 or 360.0
    begin = (west - use.west + _MARGIN) % 360.0
    inside = begin + (east - west) <= width + 2 * _MARGIN or width == 360.0
    if not inside or south < use.south - _MARGIN or north > use.north + _MARGIN:
        yield (
            f"The region leaves the area for which {grid.crs} is made "
            f"({reach_text((use.west, use.south, use.east, use.north))}): there shapes and sizes "
            "are wrong. Choose another coordinate system, or a smaller region."
        )


def _overlap_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Say what is read to compare sensors, beside what stands for dates."""
    for first, *_ in resolved.compared():
        part = resolved.products[first].choice.part
        if part is not None and part.overlap == "prefer":
            yield (
                f"Where {part.record} goes on with another sensor, both are read on dates that "
                f"both have (one of each month of the year, in {COMPARED_CELLS} cells at most), to "
                "show how they differ."
            )


def reach_text(bounds: tuple[float, float, float, float]) -> str:
    """Write west, south, east and north in degrees: "8° W to 6° E, 50.5° N to 58.5° N"."""
    west, south, east, north = bounds
    return f"{_lon(west)} to {_lon(east)}, {_lat(south)} to {_lat(north)}"


def _lon(degrees: float) -> str:
    turned = (degrees + 180.0) % 360.0 - 180.0 if degrees != 180.0 else degrees
    return f"{abs(turned):.3g}° {'E' if turned >= 0 else 'W'}"


def _lat(degrees: float) -> str:
    return f"{abs(degrees):.3g}° {'N' if degrees >= 0 else 'S'}"
