"""The product catalogue as people search it and as the API lists it."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby

from modis.collection import Collection
from portal.submit.product_items import LayerItem, ProductItem
from portal.submit.record_items import record_items
from reprojection import catalogue
from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.about_pixels import layers_about_pixels
from reprojection.catalogue.layers import LayerKind
from reprojection.catalogue.user_raster import UserRaster
from reprojection.records import record, sensor_of
from tasks.holdings.holdings import Holdings
from tasks.request.records.part import is_record

_MOST_BANDS = 32  # bands of a layer that are offered one by one
_MOST_GROUPS = 8
# What tells the layers of a group apart: half of the day, colour, number, index of a band.
_VARIES = re.compile(
    r"\[[^\]]*\]|(?<![A-Za-z])(?:day|night|red|green|blue|nir|mir|swir)(?![A-Za-z])|\d+",
    re.IGNORECASE,
)
_SUBJECTS = {
    "refl": "Reflectance",
    "lst": "LST",
    "emis": "Emissivity",
    "bsa": "Black-sky albedo",
    "wsa": "White-sky albedo",
}
_MOST_SOUGHT = 4  # layers that are ticked because they were searched for
_FAR = 999  # a place in a title, of a word that is not in it


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """Layers of a product that are often wanted together, to tick at once."""

    title: str
    names: tuple[str, ...]


@cache
def items() -> tuple[ProductItem, ...]:
    """List every product and collection, sorted by name, newest collection first."""
    found = [
        item_of(product, collection)
        for product in catalogue.products()
        for collection in map(Collection, product.collections)
    ]
    every = [*found, *record_items()]
    return tuple(sorted(every, key=lambda item: (item.name, [-n for n in item.collection.age])))


def item_of(product: Product, collection: Collection) -> ProductItem:
    """Show a product in one of its collections."""
    sensor = sensor_of(product.name)
    return ProductItem(
        name=product.name,
        collection=collection,
        title=product.title,
        platform=sensor.text if sensor else "",
        keywords=product.keywords,
        geometry=product.geometry,
        resolution=product.resolution,
        period=product.period,
        layers=_data_first(_layers(product)),
        has_patterns=any(set(name) & set("*?[") for name in product.layers),
    )


def item_of_raster(raster: UserRaster, collection: Collection) -> ProductItem:
    """Show a user's raster as a product, with its dates and its grid in place of a title."""
    item = item_of(raster.product(), collection)
    return replace(item, title=f"{dates_text(raster)}, {grid_text(raster)}")


def dates_text(raster: UserRaster) -> str:
    """Say in words of which dates a raster is."""
    days = raster.days
    if not days:
        return "of no date"
    return f"{days[0]}" if len(days) == 1 else f"{len(days):,} dates, {days[0]} to {days[-1]}"


def grid_text(raster: UserRaster) -> str:
    """Say in words on which grid a raster lies."""
    crs = raster.crs if len(raster.crs) < 40 else raster.crs.partition('"')[2].partition('"')[0]
    return f"{raster.width:,} x {raster.height:,} pixels of {raster.transform[0]:.6g} in {crs}"


def product_count() -> int:
    """Count the products, whatever their collections."""
    return len({item.name for item in items()})


def _data_first(found: Iterable[LayerItem]) -> tuple[LayerItem, ...]:
    """Put quality and geometry last; where a product has nothing else, they are its data."""
    every = tuple(found)
    if all(layer.is_quality for layer in every):
        return tuple(replace(layer, is_quality=False) for layer in every)
    return tuple(sorted(every, key=lambda layer: layer.is_quality))


def _layers(product: Product) -> Iterator[LayerItem]:
    """List the layers of a product; of a layer with several bands each, but for bands of days."""
    about_pixels = layers_about_pixels(product)
    for name in product.layer_names:
        facts = product.facts(name)
        entry = facts.entry or LayerEntry()
        whole = LayerItem(
            name=name,
            kind=entry.kind.value,
            title=entry.title,
            units=entry.units or "",
            resolution=facts.resolution or product.resolution,
            is_quality=name in about_pixels,
        )
        count = math.prod(facts.bands)
        if facts.days > 1:
            yield replace(whole, band="each day")
        elif facts.orbits:
            yield replace(whole, band="all orbits of a day")
        elif count == 1 or count > _MOST_BANDS:
            yield whole
        else:
            for one in facts.band_names:
                yield replace(whole, name=one, band=product.facts(one).band)


def search(text: str, held: Holdings | None = None) -> list[tuple[ProductItem, ...]]:
    """Find products that have every word of the text in name, title, keywords or layers.

    A word may be the beginning of one, or the number of a collection. Each product comes once, with
    the collections found: those the archive holds first, then those that are published, which is
    known by their DOI, of each the newest first.
    Products found by their name come first, then those the archive holds, records before others,
    then those with the words in their title; of equal ones, global products of coarse pixels come
    last.
    """
    words = _words(text)
    matches = [
        (rank, item) for item, place in _places() if (rank := place.rank(words, item)) is not None
    ]

    def is_absent(item: ProductItem) -> bool:
        known = record(item.name) if is_record(item.name) else None
        names = [(item.name, item.collection)]
        if known is not None:
            names = [(one.product, Collection(one.collection)) for one in known.members]
        return held is None or not any(held.of(*one) for one in names)

    def is_unpublished(item: ProductItem) -> bool:
        known = catalogue.product(item.name, item.collection)
        return known is not None and bool(known.dois) and not known.doi(item.collection)

    matches.sort(
        key=lambda match: (
            match[1].name,
            match[0],
            is_absent(match[1]),
            is_unpublished(match[1]),
        )
    )
    grouped = [list(group) for _, group in groupby(matches, key=lambda match: match[1].name)]
    grouped.sort(
        key=lambda group: (
            group[0][0][0],
            is_absent(group[0][1]),
            not is_record(group[0][1].name),
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
            if _is_named(word, item.name.lower()) or word == item.collection:
                continue
            named = False
            in_title = _place(word, self.title)
            in_keywords = _place(word, self.keywords)
            there = word in item.name.lower() or _place(word, self.others) < _FAR
            if min(in_title, in_keywords) == _FAR and not there:
                return None
            title += min(in_title, _FAR - 1 if in_keywords < _FAR else _FAR)
            keywords += in_keywords
        return not named, title, keywords


def _is_named(word: str, name: str) -> bool:
    """Tell whether a word is of a name.

    A satellite alone (VIIRS_NPP-JPL-L2P) does not count, nor the words that a record is called by.
    """
    return not is_record(name) and word in _SATELLITE.sub("", name)


_SATELLITE = re.compile(r"(?<=viirs_|modis_)[a-z0-9]+")


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
                    + " ".join(f"{layer.name} {layer.title}" for layer in item.layers)
                ),
            ),
        )
        for item in items()
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z0-9]+", text.lower()))


def find(name: str, collection: str) -> ProductItem | None:
    """Find a product in a collection, or a record; return None if the catalogue lacks it."""
    if not collection.strip() and not is_record(name):
        return None
    wanted = Collection(collection)
    return next((i for i in items() if i.name == name and i.collection == wanted), None)


def sought(item: ProductItem, text: str) -> tuple[str, ...]:
    """Return the data layers of a product that a search was for: those with its words, if few."""
    words = [word for word in _words(text) if word not in item.name.lower()]
    found = tuple(
        layer.name
        for layer in item.layers
        if not layer.is_quality
        and all(_place(word, _words(f"{layer.name} {layer.title}")) < _FAR for word in words)
    )
    return found if words and len(found) <= _MOST_SOUGHT else ()


def groups(item: ProductItem) -> list[LayerGroup]:
    """List groups of data layers: those whose names differ in a band or a half of the day; all."""
    data = [layer.name for layer in item.layers if not layer.is_quality]
    found: dict[str, list[str]] = {}
    for name in data:
        found.setdefault(_VARIES.sub("#", name.replace("_", " ")).lower(), []).append(name)
    several = [(stem, names) for stem, names in found.items() if 1 < len(names) < len(data)]
    titles = [_group_title(stem, names) for stem, names in several[:_MOST_GROUPS]]
    made = [
        LayerGroup(
            title=title if titles.count(title) == 1 else _group_title("", names),
            names=tuple(names),
        )
        for title, (_, names) in zip(titles, several, strict=False)
    ]
    if len(data) > 1:
        title = "Both data layers" if len(data) == 2 else f"All {len(data)} data layers"
        made.append(LayerGroup(title=title, names=tuple(data)))
    return made


def _group_title(stem: str, names: Sequence[str]) -> str:
    """Say what a group is: "LST, day and night", "sur_refl_b…_1, all 7"."""
    parts = [_VARIES.findall(name) for name in names]
    differ = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    places = iter(differ)
    shown = _VARIES.sub(lambda part: "…" if next(places) else part[0], names[0])
    subject = next((title for word, title in _SUBJECTS.items() if word in stem), shown)
    halves = {part.lower() for column in parts for part in column} >= {"day", "night"}
    tail = "both" if len(names) == 2 else f"all {len(names)}"
    return f"{subject}, {'day and night' if halves else tail}"


def layers(item: ProductItem, chosen: Sequence[str]) -> list[LayerItem]:
    """List the layers to tick: those of the catalogue, then others that were chosen before."""
    known = {layer.name for layer in item.layers}
    more = [
        LayerItem(name=name, kind=LayerKind.CONTINUOUS.value)
        for name in chosen
        if name not in known
    ]
    return [*item.layers, *more]
