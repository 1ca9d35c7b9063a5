"""The product catalogue as people search it and as the API lists it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from modis.collection import Collection
from reprojection import catalogue
from reprojection.catalogue.layers import LayerKind

_WILD = frozenset("*?[")


@dataclass(frozen=True, kw_only=True)
class LayerItem:
    """A layer to tick: its name and whether it may be blended."""

    name: str
    kind: str
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class ProductItem:
    """A product in one collection, as the product list shows it."""

    name: str
    collection: Collection
    title: str
    geometry: str
    resolution: float
    layers: tuple[LayerItem, ...]
    has_patterns: bool

    @property
    def layer_count(self) -> int:
        """Number of layers that can be ticked."""
        return len(self.layers)

    @property
    def haystack(self) -> str:
        """The text that a search looks in."""
        layers = " ".join(f"{layer.name} {layer.title}" for layer in self.layers)
        return f"{self.name} {self.collection.dotted} {self.title} {self.geometry} {layers}".lower()


@cache
def items() -> tuple[ProductItem, ...]:
    """List every product and collection, sorted by name, newest collection first."""
    return tuple(_items())


def _items() -> Iterator[ProductItem]:
    for product in catalogue.products():
        for collection in sorted(
            map(Collection, product.collections), key=lambda c: c.age, reverse=True
        ):
            yield ProductItem(
                name=product.name,
                collection=collection,
                title=product.title,
                geometry=product.geometry,
                resolution=product.resolution,
                layers=tuple(
                    LayerItem(name=name, kind=entry.kind.value, title=entry.title)
                    for name, entry in product.layers.items()
                    if not _WILD.intersection(name)
                ),
                has_patterns=any(_WILD.intersection(name) for name in product.layers),
            )


def search(text: str) -> list[ProductItem]:
    """Find the items in which every word of the text occurs; items matched by name come first."""
    words = text.lower().split()
    found = [item for item, hay in _haystacks() if all(word in hay for word in words)]
    return sorted(found, key=lambda item: not all(word in item.name.lower() for word in words))


@cache
def _haystacks() -> tuple[tuple[ProductItem, str], ...]:
    return tuple((item, item.haystack) for item in items())


def find(name: str, collection: str) -> ProductItem | None:
    """Find the item of a product in a collection; return None if the catalogue lacks it."""
    if not collection.strip():
        return None
    wanted = Collection(collection)
    return next((i for i in items() if i.name == name and i.collection == wanted), None)


def layers(item: ProductItem, chosen: Sequence[str]) -> list[LayerItem]:
    """List the layers to tick: those of the catalogue, then others that were chosen before."""
    known = {layer.name for layer in item.layers}
    more = [
        LayerItem(name=name, kind=LayerKind.CONTINUOUS.value)
        for name in chosen
        if name not in known
    ]
    return [*item.layers, *more]
