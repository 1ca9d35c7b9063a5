"""Quality rules as choices: the fields of a product's quality layers and their values in words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reprojection import catalogue
from reprojection.catalogue import BitField, LayerEntry, Product

_FEW_BITS = 2  # of a field without meanings: its few values are offered as numbers


@dataclass(frozen=True, kw_only=True)
class QualityValue:
    """One value of a field. `key` names layer, field and value on the form."""

    key: str
    number: int
    meaning: str


@dataclass(frozen=True, kw_only=True)
class QualityField:
    """A bit field of a quality layer, or its whole value. `bits` says which bits: "bits 5 to 7"."""

    name: str
    bits: str
    values: tuple[QualityValue, ...]


@dataclass(frozen=True, kw_only=True)
class QualityLayer:
    """A quality layer of a product; `judges` are the chosen layers whose quality it holds."""

    layer: str
    product: str
    title: str
    judges: tuple[str, ...]
    fields: tuple[QualityField, ...]


def quality_layers(
    chosen: Iterable[tuple[str, str, Sequence[str]]],
) -> tuple[QualityLayer, ...]:
    """List the quality layers of products (name, collection, layers chosen).

    Those of the chosen layers come first, then the product's other layers of bit fields.
    """
    found: dict[str, QualityLayer] = {}
    for name, collection, layers in chosen:
        product = catalogue.product(name, collection)
        if product is not None:
            for each in _of_product(product, layers):
                found.setdefault(each.layer, each)
    return tuple(sorted(found.values(), key=lambda each: not each.judges))


def _of_product(product: Product, layers: Sequence[str]) -> Iterator[QualityLayer]:
    judged: dict[str, list[str]] = {}
    for layer in layers:
        entry = product.layer(layer)
        if entry is not None and entry.qa:
            judged.setdefault(entry.qa, []).append(layer)
    others = (name for name in product.layer_names if _bits_of(product, name))
    for name in dict.fromkeys([*judged, *others]):
        entry = product.layer(name)
        fields = tuple(_fields(name, entry)) if entry is not None else ()
        if entry is not None and fields:
            yield QualityLayer(
                layer=name,
                product=product.name,
                title=entry.title,
                judges=tuple(judged.get(name, ())),
                fields=fields,
            )


def _bits_of(product: Product, name: str) -> Mapping[str, BitField]:
    entry = product.layer(name)
    return entry.bits if entry is not None else {}


def _fields(layer: str, entry: LayerEntry) -> Iterator[QualityField]:
    for name, field in entry.bits.items():
        last = field.start + field.length - 1
        bits = f"bit {last}" if field.length == 1 else f"bits {field.start} to {last}"
        numbers = range(1 << field.length) if field.length <= _FEW_BITS else ()
        meanings = field.values or dict.fromkeys(numbers, "")
        if meanings:
            yield QualityField(name=name, bits=bits, values=_values(layer, name, meanings))
    if not entry.bits and entry.classes:
        yield QualityField(
            name="value", bits="the whole value", values=_values(layer, "value", entry.classes)
        )


def _values(layer: str, field: str, meanings: Mapping[int, str]) -> tuple[QualityValue, ...]:
    return tuple(
        QualityValue(key=f"{layer}|{field}|{number}", number=number, meaning=meaning)
        for number, meaning in sorted(meanings.items())
    )
