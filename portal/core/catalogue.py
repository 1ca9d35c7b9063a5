"""The product catalogue as people search it and as the API lists it."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from modis.collection import Collection
from reprojection import catalogue
from reprojection.catalogue import Product
from reprojection.catalogue.layers import LayerKind
from tasks.holdings.holdings import Holdings

_MOST_BANDS = 32  # bands of a layer that are offered one by one
_PLATFORMS = {
    "MOD": "Terra MODIS",
    "MYD": "Aqua MODIS",
    "MCD": "Terra and Aqua MODIS, combined",
    "VNP": "Suomi NPP VIIRS",
    "VJ1": "NOAA-20 VIIRS",
    "VJ2": "NOAA-21 VIIRS",
}
_FAR = 999  # a place in a title, of a word that is not in it


@dataclass(frozen=True, kw_only=True)
class LayerItem:
    """A layer to tick: its name, whether it may be blended, and of a band, which one it is."""

    name: str
    kind: str
    band: str = ""


@dataclass(frozen=True, kw_only=True)
class ProductItem:
    """A product in one collection, as the product list shows it."""

    name: str
    collection: Collection
    title: str
    platform: str
    keywords: str
    geometry: str
    resolution: float
    layers: tuple[LayerItem, ...]
    has_patterns: bool

    @property
    def layer_count(self) -> int:
        """Number of layers that can be ticked."""
        return len(self.layers)


@cache
def items() -> tuple[ProductItem, ...]:
    """List every product and collection, sorted by name, newest collection first."""
    found = [
        ProductItem(
            name=product.name,
            collection=collection,
            title=product.title,
            platform=_PLATFORMS.get(product.name[:3], ""),
            keywords=product.keywords,
            geometry=product.geometry,
            resolution=product.resolution,
            layers=tuple(_layers(product)),
            has_patterns=any(set(name) & set("*?[") for name in product.layers),
        )
        for product in catalogue.products()
        for collection in map(Collection, product.collections)
    ]
    return tuple(sorted(found, key=lambda item: (item.name, [-n for n in item.collection.age])))


def product_count() -> int:
    """Count the products, whatever their collections."""
    return len({item.name for item in items()})


def _layers(product: Product) -> Iterator[LayerItem]:
    """List the layers of a product; of a layer with several bands each, but for bands of days."""
    for name in product.layer_names:
        entry = product.layer(name)
        kind = entry.kind if entry is not None else LayerKind.CONTINUOUS
        bands = product.bands_of(name)
        if product.days_in(name) > 1:
            yield LayerItem(name=name, kind=kind.value, band="each day")
            continue
        if product.orbits_of(name):
            yield LayerItem(name=name, kind=kind.value, band="all orbits of a day")
            continue
        if math.prod(bands) == 1 or math.prod(bands) > _MOST_BANDS:
            yield LayerItem(name=name, kind=kind.value)
            continue
        for one in product.band_names(name):
            yield LayerItem(name=one, kind=kind.value, band=product.band_named(one))


def search(text: str, held: Holdings | None = None) -> list[tuple[ProductItem, ...]]:
    """Find products that have every word of the text in name, title, keywords or layers.

    A word may be the beginning of one, or the number of a collection. Each product comes once, with
    the collections found, those the archive holds first, then the newest.
    Products found by their name come first, then those the archive holds, then those with the words
    in their title; of equal ones, global products of coarse pixels come last.
    """
    words = _words(text)
    matches = [
        (rank, item) for item, place in _places() if (rank := place.rank(words, item)) is not None
    ]

    def is_absent(item: ProductItem) -> bool:
        return held is None or held.of(item.name, item.collection) is None

    matches.sort(key=lambda match: (match[1].name, match[0], is_absent(match[1])))
    grouped = [list(group) for _, group in groupby(matches, key=lambda match: match[1].name)]
    grouped.sort(
        key=lambda group: (
            group[0][0][0],
            is_absent(group[0][1]),
            *group[0][0][1:],
            group[0][1].geometry == "globe",
        )
    )
    return [tuple(item for _, item in group) for group in grouped]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where the words of a product are."""

    title: tuple[str, ...]
    keywords: tuple[str, ...]
    others: tuple[str, ...]

    def rank(self, words: Sequence[str], item: ProductItem) -> tuple[bool, int, int] | None:
        """Return how well words match, the best is the smallest; None when one does not."""
        named, title, keywords = True, 0, 0
        for word in words:
            if word in item.name.lower() or word == item.collection:
                continue
            named = False
            in_title = _place(word, self.title)
            in_keywords = _place(word, self.keywords)
            if min(in_title, in_keywords) == _FAR and _place(word, self.others) == _FAR:
                return None
            title += min(in_title, _FAR - 1 if in_keywords < _FAR else _FAR)
            keywords += in_keywords
        return not named, title, keywords


def _place(word: str, words: Sequence[str]) -> int:
    return next((i for i, known in enumerate(words) if known.startswith(word)), _FAR)


@cache
def _places() -> tuple[tuple[ProductItem, _Place], ...]:
    return tuple(
        (
            item,
            _Place(
                title=_words(item.title),
                keywords=_words(item.keywords),
                others=_words(
                    f"{item.platform} {item.geometry} {item.collection.dotted} "
                    + " ".join(layer.name for layer in item.layers)
                ),
            ),
        )
        for item in items()
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z0-9]+", text.lower()))


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
