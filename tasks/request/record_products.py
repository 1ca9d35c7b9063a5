"""The products that a record in a request stands for."""

from collections.abc import Iterator, Mapping

from reprojection.catalogue.layers import LayerKind
from reprojection.records import Member, Record, record, records
from reprojection.resampling import Method, Statistic
from tasks.errors import RequestRefusedError
from tasks.refusal_wording import listed
from tasks.request.document import ProductChoice, Request
from tasks.request.records.part import RecordPart, is_record
from tasks.storage.schema import PARTS_AND_RECORDS, written


def with_products(request: Request) -> Request:
    """Put the products of records in place of them, in order of preference.

    Raises:
        RequestRefusedError: the record has no such layer, sensor or rule, or the request asks for
            what has no meaning over several sensors.
    """
    if not any(is_record(choice.name) for choice in request.products):
        return request
    made: list[ProductChoice] = []
    methods = request.resampling
    for place, choice in enumerate(request.products):
        if not is_record(choice.name):
            made.append(choice.at(place))
            continue
        if written() < PARTS_AND_RECORDS:
            raise RequestRefusedError(
                f"products.{place}.record",
                "records cannot be made while this service is upgraded: processes of the version "
                "before it would not read them.",
                "Name the products by themselves, or ask an operator to end the upgrade.",
            )
        known = _known(choice, place)
        _check(request, place, choice, known)
        for member in _in_order(known, choice, place):
            part = _part(known, member, choice, place)
            made.append(choice.part_of(part, member.product, member.collection))
            if isinstance(methods, Mapping):
                methods = {**methods, **_named(methods, part, member, request)}
    if isinstance(methods, Mapping):
        there = {layer for choice in made for layer in choice.layers}
        asked = {layer for choice in made for layer in choice.asked_layers}
        methods = {name: how for name, how in methods.items() if name in there or name not in asked}
    return request.model_copy(update={"products": tuple(made), "resampling": methods})


def _named(
    methods: Mapping[str, Method | Statistic], part: RecordPart, member: Member, request: Request
) -> Mapping[str, Method | Statistic]:
    """Return the methods of a product's layers, which the document gives by the record's names."""
    plain = {
        layer for one in request.products if not is_record(one.name) for layer in one.layers
    } | {*(request.resampling if isinstance(request.resampling, Mapping) else ())}
    found = {own: methods[asked] for own, asked in part.names.items() if asked in methods}
    for own in found:
        if own in plain and own not in part.names.values():
            raise RequestRefusedError(
                f"resampling.{own}",
                f"is the layer of {member.product} in the record {part.record}, whose method is "
                f"that of {part.names[own]}.",
                "Give one of the two, or make two requests.",
            )
    return found


def _known(choice: ProductChoice, place: int) -> Record:
    found = record(choice.name)
    if found is None:
        raise RequestRefusedError(
            f"products.{place}.name",
            f"there is no record {choice.asked!r}.",
            f"There are {listed(sorted(records()), 'and')}.",
        )
    return found


def _part(known: Record, member: Member, choice: ProductChoice, place: int) -> RecordPart:
    return RecordPart(
        place=place,
        record=known.name,
        overlap=choice.overlap,
        names={known.layer_of(member, layer): layer for layer in choice.layers},
        units={layer: known.layers[layer].units for layer in choice.layers},
        every=known.every,
    )


def _in_order(known: Record, choice: ProductChoice, place: int) -> list[Member]:
    """Return the record's products: those preferred first, in the order given."""
    ahead: list[Member] = []
    for number, name in enumerate(choice.prefer):
        found = [one for one in known.members if name.casefold() in _called(one)]
        if not found:
            raise RequestRefusedError(
                f"products.{place}.prefer.{number}",
                f"the record {known.name} has no sensor or product {name!r}.",
                f"Its products are {listed([one.product for one in known.members], 'and')}; "
                f"its sensors {listed(known.sensors, 'and')}.",
            )
        ahead += [one for one in found if one not in ahead]
    return [*ahead, *(one for one in known.members if one not in ahead)]


def _called(member: Member) -> Iterator[str]:
    """Yield the words by which a product of a record is preferred."""
    yield member.product.casefold()
    sensor = member.sensor
    if sensor is not None:
        yield from (word.casefold() for word in (sensor.platform, sensor.instrument, sensor.text))


def _check(request: Request, place: int, choice: ProductChoice, known: Record) -> None:
    field = f"products.{place}"
    for number, layer in enumerate(choice.layers):
        if layer not in known.layers:
            raise RequestRefusedError(
                f"{field}.layers.{number}",
                f"the record {known.name} has no layer {layer!r}.",
                f"Its layers are {listed([*known.layers], 'and')}.",
            )
    if choice.use not in ("same-day", "covering"):
        raise RequestRefusedError(
            f"{field}.use",
            f"`use: {choice.use}` takes one date of a product, and a record has several products.",
            "Write use: same-day or covering, or ask for one of its products by itself.",
        )
    if choice.overpasses != "merged":
        raise RequestRefusedError(
            f"{field}.overpasses",
            "a record has one raster for each date, not for each overpass.",
            "Leave overpasses out, or ask for one of its products by itself.",
        )
    if choice.overlap == "mean":
        _check_mean(request, field, choice, known)
    if request.units == "brightness":
        raise RequestRefusedError("units", "records are in physical units.", "Leave units out.")
    if isinstance(request.qa, str):
        for layer in choice.layers:
            _check_words(request.qa, layer, known)
    elif request.qa:
        _check_rule(request.qa, known)


def _check_mean(request: Request, field: str, choice: ProductChoice, known: Record) -> None:
    """Refuse a mean over sensors of what has none, and where each sensor is wanted by itself."""
    classes = [name for name in choice.layers if known.kind_of(name) is not LayerKind.CONTINUOUS]
    given = {
        f"the classes of {', '.join(classes)}": bool(classes),
        request.region.kind: request.region.in_place,
        "a reduction": bool(request.steps),
        "cells": request.cells or request.deliver == "cells",
        "extra bands": bool(request.extra_bands),
    }
    for what in (name for name, is_there in given.items() if is_there):
        raise RequestRefusedError(
            f"{field}.overlap",
            f"a mean over sensors is made of rasters of continuous values, not of {what}.",
            "Write overlap: all, which takes each sensor by itself, or leave overlap out.",
        )


def _check_words(rule: str, layer: str, known: Record) -> None:
    """Refuse a rule that only some of a record's sensors have."""
    if rule in known.rules(layer):
        return
    words = known.rules(layer)
    can = listed(words) if words else ""
    raise RequestRefusedError(
        "qa",
        f"of {known.name} {layer}, not every sensor has a rule {rule!r}, or one leaves clouds "
        "out and another does not, so the record would change with the sensor.",
        f"Write qa: {can}." if can else "Leave qa out, or ask for single products of it.",
    )


def _check_rule(rule: Mapping[str, object], known: Record) -> None:
    """Refuse a rule over bits of a sensor: those of the others are not the same."""
    for name in rule:
        for member in known.members:
            if member.entry is not None and member.entry.layer(name) is not None:
                raise RequestRefusedError(
                    f"qa.{name}",
                    f"is a layer of {member.product}, whose bits are not those of the other "
                    f"sensors of the record {known.name}.",
                    "Write the rule in words, which mean each sensor's own bits: qa: good.",
                )
