"""Check a record against the catalogue: what would make one line of what are several."""

from collections.abc import Callable, Iterator, Sequence

from reprojection.catalogue import LayerEntry, Product
from reprojection.records import Member, Record


def faults(record: Record) -> Iterator[str]:
    """Yield what is wrong with a record; nothing if it can be used.

    Each product is in the catalogue in its collection, is of a known sensor, and is named once. All
    lie in tiles, or all in swaths; their composites begin on the record's calendar and cover as
    many days. Each layer is in each product, of one band, one kind, one quantity and unit, and no
    quality layer.
    """
    named = [member.product for member in record.members]
    for name in dict.fromkeys(named):
        if named.count(name) > 1:
            yield f"{name} is named {named.count(name)} times: one collection of a product only"
    known = [(member, member.entry) for member in record.members]
    for member, entry in known:
        if entry is None:
            yield f"the catalogue does not have {member.text}"
        if member.sensor is None:
            yield f"the name of {member.product} tells no sensor"
        for layer in sorted(set(member.names) - set(record.layers)):
            yield f"{member.text} names the layer {layer}, which the record does not have"
    there = [(member, entry) for member, entry in known if entry is not None]
    yield from _calendar(record, there)
    for layer in record.layers:
        yield from _layer(record, layer, there)


def _calendar(record: Record, there: list[tuple[Member, Product]]) -> Iterator[str]:
    for member, entry in there:
        if entry.period % record.every or entry.phase % record.every:
            yield (
                f"{member.text} begins every {entry.period} days from day {entry.phase}, "
                f"which is not on the record's calendar of {record.every}"
            )
    for what, value in _OF_PRODUCTS.items():
        yield from _differ(what, [(member, value(entry)) for member, entry in there])


_OF_PRODUCTS: dict[str, Callable[[Product], object]] = {
    "days covered": lambda entry: entry.covers,
    "geometry": lambda entry: entry.geometry,
}
_OF_LAYERS: dict[str, Callable[[LayerEntry], object]] = {
    "kind": lambda entry: entry.kind.value,
    "classes": lambda entry: tuple(sorted(entry.classes)),
}


def _layer(record: Record, layer: str, there: list[tuple[Member, Product]]) -> Iterator[str]:
    found: list[tuple[Member, LayerEntry]] = []
    names: list[tuple[Member, str]] = []
    for member, entry in there:
        own = record.layer_of(member, layer)
        known = entry.layer(own)
        if known is None or own not in entry.layer_names:
            yield f"{member.text} has no layer {own!r}, which should be {layer}"
            continue
        facts = entry.facts(own)
        if facts.bands or facts.days > 1 or facts.orbits:
            yield f"{member.text} {own} has several bands; a record's layer has one"
        if known.bits or known.presets:
            yield f"{member.text} {own} is a quality layer, whose bits are each sensor's own"
        if known.units is not None and known.units != record.layers[layer].units:
            yield (
                f"{member.text} {own} is in {known.units!r}, the record's {layer} in "
                f"{record.layers[layer].units!r}"
            )
        found.append((member, known))
        names.append((member, entry.standard_name(own)))
    for what, value in _OF_LAYERS.items():
        yield from _differ(f"{what} of {layer}", [(member, value(one)) for member, one in found])
    yield from _differ(f"quantity of {layer}", names)


def _differ(what: str, values: Sequence[tuple[Member, object]]) -> Iterator[str]:
    """Yield the products that differ from the first in something."""
    for member, value in values[1:]:
        first, should = values[0]
        if value != should:
            yield f"{what}: {member.text} has {value!r}, {first.text} {should!r}"
