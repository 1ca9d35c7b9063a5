"""The records of a request whose sensors are compared on dates that both have."""

from collections.abc import Iterator

from reprojection.catalogue.layers import LayerKind
from tasks.request.resolved import ResolvedProduct, ResolvedRequest

MOST_CELLS = 16
"""Cells in which two sensors are compared, spread over the region."""


def compared(resolved: ResolvedRequest) -> Iterator[list[int]]:
    """Yield the products of each record whose sensors are compared, in order of preference.

    They are compared in cells of rasters, and only continuous values have a difference.
    """
    request = resolved.request
    if request.region.in_place or request.deliver in ("inputs", "cells"):
        return
    members: dict[int, list[ResolvedProduct]] = {}
    for one in resolved.products:
        if one.choice.part is not None and one.stack == 1:
            members.setdefault(one.choice.part.place, []).append(one)
    for alike in members.values():
        if any(is_continuous(alike[0], number) for number in range(len(alike[0].layers))):
            yield [one.number for one in alike]


def is_continuous(product: ResolvedProduct, layer: int) -> bool:
    """Tell whether the values of a layer, by its number there, have differences."""
    entry = product.layers[layer].entry
    return entry is None or entry.kind is LayerKind.CONTINUOUS


def overlap_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Say what is read to compare sensors, beside what stands for dates."""
    for first, *_ in compared(resolved):
        part = resolved.products[first].choice.part
        if part is not None and part.overlap == "prefer":
            yield (
                f"Where {part.record} goes on with another sensor, both are read on dates that "
                f"both have (one of each month of the year, in {MOST_CELLS} cells at most), to "
                "show how they differ."
            )
