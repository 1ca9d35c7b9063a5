"""Hold a granule against the catalogue's entry of its product, and against itself."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from modis.collection import versioned
from modis.composites import composite_end
from reprojection.catalogue import Product
from reprojection.catalogue.layers import LayerKind
from reprojection.errors import GridError, ReprojectionError
from reprojection.inspect.inspect import GranuleReport, inspect
from reprojection.inspect.soundness import other_than_named
from reprojection.read.granule import Granule, open_granule
from reprojection.read.outline import grid_rings

_SIDES = ("West", "South", "East", "North")
_ASTRAY = 0.5  # degrees; bounding coordinates are those of corners, or of pixels
_HALF = 180.0
_COMPARE = "compare its values with the product's user guide"


def hold_strictly(path: Path) -> tuple[str, ...]:
    """Read a whole granule and name all that is wrong with it, a line each.

    Raises BadFormatError and UnreadableGranuleError as `inspect` does.
    """
    found = inspect(path)
    with open_granule(path) as granule:
        return (*disagreements(granule), *doubtful_values(granule, found))


def disagreements(granule: Granule) -> Iterator[str]:
    """Yield what a granule's header says otherwise than the catalogue, or cannot mean.

    Names of layers and of their quality, ranges, lengths, dates, units and attributes: one line
    each, with what to do. Pixels are not read; `doubtful_values` is about them.
    """
    other = other_than_named(granule.path, granule)
    if other:
        yield f"the file is named {granule.path.name} and holds {other}; give it its own name"
    yield from _misplaced(granule)
    entry = granule.entry
    if entry is None:
        known = granule.product or "a product without a name"
        yield (
            f"the catalogue has no entry for {versioned(known, granule.collection)}; "
            f"its layers are read by their attributes alone: {_COMPARE}"
        )
    else:
        yield from _of_entry(granule, entry)
    for name, layer in granule.layers.items():
        yield from (f"{name}: {note}; {_COMPARE}" for note in layer.notes)
        if layer.qa is not None and layer.qa not in granule.layers:
            yield (
                f"{name}: its quality layer {layer.qa} is not in the file; ask for it without a "
                "quality rule, or fetch the whole file"
            )
        if layer.scale_problem and layer.kind is LayerKind.CONTINUOUS:
            yield (
                f"{name}: values are as stored: {layer.scale_problem}; convert them by the user "
                "guide"
            )


def _misplaced(granule: Granule) -> Iterator[str]:
    """Yield where grids lie elsewhere than the file's bounding coordinates say."""
    stated = [granule.attributes.get(f"{side}BoundingCoord") for side in _SIDES]
    said = [float(edge) for edge in stated if isinstance(edge, int | float)]
    if len(said) < len(_SIDES):
        return
    for grid in granule.grids.values():
        try:
            points = np.array([point for ring in grid_rings(grid) for point in ring])
        except GridError:
            continue  # a projection that is not read is told by its layers
        if not points.size:
            continue
        found = [*points.min(axis=0).tolist(), *points.max(axis=0).tolist()]
        # Longitudes of a grid across 180 degrees have no least and no largest one.
        across = said[0] > said[2] or found[2] - found[0] > _HALF
        away = np.abs(np.subtract(found, said))
        away = away[1::2] if across else away
        if away.max() > _ASTRAY:
            mine, theirs = (" ".join(f"{edge:.2f}" for edge in edges) for edges in (found, said))
            yield (
                f"grid {grid.name}: it lies within {mine} (west, south, east, north); the file's "
                f"bounding coordinates say {theirs}: do not use it before you know which is right"
            )


def _of_entry(granule: Granule, entry: Product) -> Iterator[str]:
    if entry.covers > 1 and granule.start is not None and granule.end is not None:
        first, last = granule.start.date(), granule.end.date()
        expected = composite_end(first, entry.covers)
        if last != expected:
            yield (
                f"it covers {first} to {last}; the catalogue says until {expected}: the file's own "
                "days count; correct `covers` in the catalogue if all files are so"
            )
    whole = entry.geometry != "tile" or all(one.tile is not None for one in granule.grids.values())
    for name in entry.layer_names if whole else ():  # a part that was cut out may lack some
        if name not in granule.layers and name not in granule.others:
            yield (
                f"{name}: the catalogue names it, and the file does not have it; ask this file for "
                "other layers, or fetch the whole file"
            )
    for name, layer in granule.layers.items():
        lengths = entry.facts(name).bands
        mine = tuple(size for _, size in layer.bands)
        if lengths and mine and lengths != mine:
            yield (
                f"{name}: it has {mine} bands; the catalogue says {lengths}: the file's own count; "
                "correct the catalogue if all files are so"
            )


def doubtful_values(granule: Granule, report: GranuleReport) -> Iterator[str]:
    """Yield what a granule's pixels cannot mean: one line each.

    `report` is that of `inspect`, which has read them: chunk indices and every value.
    """
    for one in report.layers:
        if one.problem:
            yield f"{one.name}: {one.problem}"
        headers = granule.layers[one.name].notes
        more = (note for note in one.notes if note not in headers)
        yield from (f"{one.name}: {note}; {_COMPARE}" for note in more)
        yield from _unnamed(granule, one.name)


def _unnamed(granule: Granule, name: str) -> Iterator[str]:
    """Yield the values of a class layer with a legend that the legend does not name."""
    layer = granule.layers[name]
    if layer.kind is not LayerKind.CLASS or not layer.classes or layer.bands:
        return
    try:
        found = set(granule.read(layer).ravel().tolist())
    except ReprojectionError:
        return  # told as the layer's problem
    odd = sorted(found - layer.classes.keys() - layer.codes.keys() - {*layer.fills})
    if odd:
        shown = ", ".join(str(value) for value in odd[:5])
        more = " and others" if len(odd) > 5 else ""
        yield (
            f"{name}: its legend does not name {shown}{more}; look them up in the user guide "
            "before you count classes"
        )
