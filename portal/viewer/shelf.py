"""What the page of a folder offers of one product: its layers, its days, and where a day lies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import product as product_of

from archives.formats.boundary import touches
from archives.model import GranuleRecord
from modis.box import LonLatBox
from modis.collection import versioned
from portal.submit import catalogue
from portal.submit.product_items import LayerItem
from portal.submit.quality import QualityLayer, quality_layers
from portal.views.state import MOST_GRANULES, extent_of
from portal.views.wmts import WHOLE_EARTH
from tasks.holdings.holdings import Held

_MOST_BANDS = 32  # of a layer that the catalogue does not know, that are offered one by one


@dataclass(frozen=True, kw_only=True)
class Group:
    """Layers under a common title."""

    title: str
    layers: tuple[LayerItem, ...]


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """A product of the folder in one collection, as addresses name it: `MCD15A2.005`."""

    product: str
    title: str
    granules: int
    layers: tuple[Group, ...]
    days: tuple[date, ...]
    quality: tuple[QualityLayer, ...]


def shelf_of(held: Held) -> Shelf:
    """List what a product that the folder holds offers."""
    item = catalogue.find(held.name, held.collection)
    every = tuple(_layers(held))
    groups = (
        Group(title="Data", layers=tuple(one for one in every if not one.is_quality)),
        Group(title="Quality and geometry", layers=tuple(one for one in every if one.is_quality)),
    )
    return Shelf(
        product=versioned(held.name, held.collection),
        title=item.title if item is not None else "",
        granules=held.granules,
        layers=tuple(one for one in groups if one.layers),
        days=tuple(held.days(held.first, held.last)),
        quality=quality_layers([(held.name, held.collection, ())]),
    )


def place_of(records: Sequence[GranuleRecord]) -> LonLatBox:
    """Return the box around a day's granules, or around some in their midst where they are many.

    It is the whole Earth where it is not known where they lie, and where all cross 180 degrees.
    """
    boxes = [box for box in map(extent_of, records) if box is not None]
    if not boxes:
        return WHOLE_EARTH
    middle = _joined(boxes)
    boxes.sort(key=lambda box: _apart(box, middle))
    count = len(boxes)
    while True:
        found = _joined(boxes[:count])
        if count == 1 or sum(touches(one, found) for one in records) <= MOST_GRANULES:
            return found
        count = (count + 1) // 2


def _layers(held: Held) -> Iterator[LayerItem]:
    """Yield the catalogue's layers that the granules have, then others of the granules."""
    item = catalogue.find(held.name, held.collection)
    known = set()
    for layer in item.layers if item is not None else ():
        base = layer.name.partition("[")[0]
        known.add(base)
        if base in held.layers or not held.layers:
            yield layer
    for name, lengths in held.layers.items():
        if name not in known:
            for one in _bands(name, lengths):
                yield LayerItem(name=one, kind="")


def _bands(name: str, lengths: Sequence[int]) -> Sequence[str]:
    every = list(product_of(*map(range, lengths)))
    if not 1 < len(every) <= _MOST_BANDS:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in every]


def _joined(boxes: Sequence[LonLatBox]) -> LonLatBox:
    return LonLatBox(
        min(box.west for box in boxes),
        min(box.south for box in boxes),
        max(box.east for box in boxes),
        max(box.north for box in boxes),
    )


def _apart(box: LonLatBox, other: LonLatBox) -> float:
    across = (box.west + box.east) - (other.west + other.east)
    down = (box.south + box.north) - (other.south + other.north)
    return across**2 + down**2
