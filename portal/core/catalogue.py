"""The product catalogue as people search it, and as the API lists it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from reprojection import catalogue
from reprojection.catalogue.layers import Kind
from reprojection.catalogue.names import normal_collection

_WILD = frozenset("*?[")


@dataclass(frozen=True, kw_only=True)
class LayerItem:
    """A layer to tick: its name and whether it may be blended."""

    name: str
    kind: str
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class ProductItem:
    """A product in one collection, as a list shows it."""

    name: str
    collection: str
    title: str
    geometry: str
    resolution: float
    layers: tuple[LayerItem, ...]
    has_patterns: bool

    @property
    def layer_count(self) -> int:
        """How many layers can be ticked."""
        return len(self.layers)

    @property
    def collection_text(self) -> str:
        """The collection as the archives write it."""
        return collection_text(self.collection)

    @property
    def haystack(self) -> str:
        """What a search looks in."""
        layers = " ".join(f"{layer.name} {layer.title}" for layer in self.layers)
        return f"{self.name} {self.collection_text} {self.title} {self.geometry} {layers}".lower()


@cache
def items() -> tuple[ProductItem, ...]:
    """Every product and collection of the catalogue, by name, newest collection first."""
    return tuple(_items())


def _items() -> Iterator[ProductItem]:
    for product in catalogue.products():
        for collection in sorted(product.collections, key=_age, reverse=True):
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
    """The items in which every word of the text occurs; those by name come first."""
    words = text.lower().split()
    found = [item for item, hay in _haystacks() if all(word in hay for word in words)]
    return sorted(found, key=lambda item: not all(word in item.name.lower() for word in words))


@cache
def _haystacks() -> tuple[tuple[ProductItem, str], ...]:
    return tuple((item, item.haystack) for item in items())


def find(name: str, collection: str) -> ProductItem | None:
    """The item of a product in a collection, or None when the catalogue lacks it."""
    if not collection.strip():
        return None
    wanted = normal_collection(collection)
    return next((i for i in items() if i.name == name and i.collection == wanted), None)


def layers(item: ProductItem, chosen: Sequence[str]) -> list[LayerItem]:
    """The layers to tick: those of the catalogue, and others that were chosen before."""
    known = {layer.name for layer in item.layers}
    more = [
        LayerItem(name=name, kind=Kind.CONTINUOUS.value) for name in chosen if name not in known
    ]
    return [*item.layers, *more]


def collection_text(collection: str) -> str:
    """A collection for people: "61" is 6.1, "5" is 5, "105" (of MOD16A2) is 105."""
    return f"{collection[0]}.{collection[1]}" if len(collection) == 2 else collection


def _age(collection: str) -> tuple[int, int]:
    return int(collection[0]), int(collection[1:] or 0)
