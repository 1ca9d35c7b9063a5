"""What can be said of a request before any archive is asked: used by the portal and the planner."""

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping

from modis.collection import versioned
from reprojection.catalogue import LayerEntry, Product, products
from reprojection.catalogue.layers import LayerKind, split_index
from reprojection.errors import ChoiceRefusedError
from reprojection.read.qa import check_values, named_bits, values_of
from reprojection.resampling import CLASS_METHODS, STATISTICS, SWATH_METHODS, TRAITS
from tasks.errors import RequestRefusedError, refusal_of
from tasks.packages.packages import Package
from tasks.refusal_wording import listed, nearest_names
from tasks.request.compared import check_measurements
from tasks.request.document import ProductChoice
from tasks.request.memory import check_memory
from tasks.request.resolved import (
    ResolvedLayer,
    ResolvedProduct,
    ResolvedRequest,
)
from tasks.request.target import finer_than_modis, pixel_text
from tasks.settings import Settings

FIRST_LIGHT = dt.date(2000, 2, 18)
"""The day of the oldest granule in the archives (Terra's composites; its swaths begin later)."""


def check_request(resolved: ResolvedRequest, limits: Settings) -> None:
    """Refuse a request that cannot mean anything, by what the document alone says.

    A product that the catalogue does not know is let through, and so is a layer that its entry does
    not list and that no other collection of the product has: what the archive's granules have is
    held against them by `tasks.holdings.held`, and when granules are read.

    Raises:
        RequestRefusedError: naming the first offending field, what is wrong and what to do.
    """
    request = resolved.request
    if request.time.end < FIRST_LIGHT:
        raise RequestRefusedError(
            "time.end",
            f"{request.time.end} is before the first MODIS data.",
            f"Ask for days from {FIRST_LIGHT} on.",
        )
    for product in resolved.products:
        _check_product(product)
    _check_repeats(resolved)
    _check_resampling(resolved)
    _check_qa(resolved)
    _check_size(resolved, limits)
    check_measurements(resolved)


def parameter_problems(
    package: Package, given: Mapping[str, str], *, leave_out: str
) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the problem and the remedy of each parameter that a package does not take.

    `leave_out` says what to do where the package has no parameters at all. What is required and
    not given comes last.
    """
    if (known := package.parameters) is None:
        return
    for name, value in given.items():
        if name not in known:
            remedy = nearest_names(name, known) if known else f"It has none: {leave_out}."
            yield name, f"the package {package.name} has no parameter {name!r}.", remedy
        elif not known[name].fits(value):
            yield (
                name,
                f"the parameter {name!r} of {package.name} is {value!r}.",
                f"Write {known[name].expected()}.",
            )
    for name, one in known.items():
        if one.required and name not in given:
            problem = f"the package {package.name} needs the parameter {name!r}."
            yield name, problem, f"Give it: {one.about}."


def _check_product(product: ResolvedProduct) -> None:
    choice, known = product.choice, product.entry
    if len(set(choice.layers)) != len(choice.layers):
        raise RequestRefusedError(
            f"{product.field}.layers", "names a layer twice.", "Name each layer once."
        )
    if known is None:
        return
    check_overpasses(product)
    for place, layer in enumerate(product.layers):
        field, facts = f"{product.field}.layers.{place}", layer.facts
        if not facts.is_listed:
            _check_unlisted(field, choice, known, layer.name)
        elif facts.days > 1:
            _check_days(field, product)
        elif lengths := facts.bands:
            what = " by ".join(axis.of for axis in facts.axes)
            check_bands(field, choice.name, facts.name, facts.index, lengths, what)


def check_overpasses(product: ResolvedProduct) -> None:
    """Refuse single overpasses of a product that is not of swaths."""
    choice = product.choice
    if choice.overpasses == "merged" or product.geometry == "swath":
        return
    orbits = any(layer.facts.orbits is not None for layer in product.layers)
    raise RequestRefusedError(
        f"{product.field}.overpasses",
        f"{choice.name} lies on a grid, where a granule is not of one overpass.",
        "Leave overpasses out"
        + (f", and name single orbits as bands: {choice.layers[0]}[0]." if orbits else "."),
    )


def _check_days(field: str, product: ResolvedProduct) -> None:
    """Refuse a layer of several days beside layers of one: they have other dates."""
    if product.stack == 1:
        raise RequestRefusedError(
            field,
            "stands for the days that a granule holds, and other layers asked for are of one date.",
            "Name the others under the same product in an entry of their own.",
        )


def _check_unlisted(field: str, choice: ProductChoice, known: Product, layer: str) -> None:
    """Refuse a layer that is another one misspelt, or of another collection alone."""
    problem = f"{versioned(choice.name, choice.collection)} has no layer {layer!r}."
    meant = _misspelt(layer, known.layer_names)
    if meant is not None:
        raise RequestRefusedError(field, problem, f"Did you mean {meant}?")
    elsewhere = [
        collection
        for other in products()
        if other.name == choice.name and other.facts(layer).is_listed
        for collection in other.collections
    ]
    if elsewhere:
        remedy = f"Collection {listed(elsewhere, 'and')} has it. "
        raise RequestRefusedError(field, problem, remedy + nearest_names(layer, known.layer_names))


def check_bands(
    field: str,
    name: str,
    layer: str,
    index: tuple[int, ...],
    bands: tuple[int, ...],
    what: str = "",
) -> None:
    """Refuse a layer of several bands without a band number, and a number that it does not have.

    `bands` are the lengths of the layer's axes besides rows and columns; `what` they run over, if
    the catalogue says so.
    """
    count = math.prod(bands)
    first = ",".join("0" for _ in bands)
    last = ",".join(str(length - 1) for length in bands)
    if not index and count > 1:
        raise RequestRefusedError(
            field,
            f"{name} {layer} has {count} bands{f' ({what})' if what else ''}, and one has to be "
            "named.",
            f"Write its number behind the name, from {layer}[{first}] to {layer}[{last}]. Name "
            f"several as several layers{f', or all as {layer}[*]' if what else ''}.",
        )
    if not index or (
        len(index) == len(bands) and all(i < n for i, n in zip(index, bands, strict=True))
    ):
        return
    if not bands:
        raise RequestRefusedError(
            field, f"{name} {layer} has a single band.", f"Write {layer} without a number."
        )
    asked = ",".join(map(str, index))
    raise RequestRefusedError(
        field,
        f"{name} {layer} has no band [{asked}].",
        f"Its bands go from {layer}[{first}] to {layer}[{last}].",
    )


def _misspelt(layer: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt layer stands for.

    That name differs from the layer's in case, spaces and punctuation alone, or begins with the
    layer's.
    """

    def bare(name: str) -> str:
        return "".join(filter(str.isalnum, split_index(name)[0])).lower()

    named = [(bare(name), name) for name in known]
    same = [name for text, name in named if text == bare(layer)]
    return next(iter(same + [name for text, name in named if text.startswith(bare(layer))]), None)


def _check_repeats(resolved: ResolvedRequest) -> None:
    seen: dict[tuple[str, str, str, str], str] = {}
    for product in resolved.products:
        choice = product.choice
        for layer in choice.layers:
            wanted = (choice.name, choice.collection, layer, choice.day_night)
            if wanted in seen:
                records = {seen[wanted], choice.asked} - {choice.name}
                within = f" (as a product of {listed(sorted(records), 'and')})" if records else ""
                raise RequestRefusedError(
                    f"{product.field}.layers",
                    f"{choice.name} {layer} is asked for twice{within}.",
                    "Name each product and layer once.",
                )
            seen[wanted] = choice.asked


def _check_resampling(resolved: ResolvedRequest) -> None:
    methods = resolved.request.resampling
    if not isinstance(methods, dict):
        return
    layers = [layer for choice in resolved.request.products for layer in choice.layers]
    for layer, method in methods.items():
        field = f"resampling.{layer}"
        if layer not in layers:
            raise RequestRefusedError(
                field, f"no layer {layer!r} is asked for.", nearest_names(layer, layers)
            )
        for product in resolved.products:
            for one in product.layers:
                if one.name == layer:
                    _check_method(field, product, one, method)


def _check_method(field: str, product: ResolvedProduct, layer: ResolvedLayer, method: str) -> None:
    known, entry = product.entry, layer.entry
    if known is not None and known.geometry != "swath" and method in STATISTICS:
        raise RequestRefusedError(
            field,
            f"{method} is a statistic of footprints, and {product.choice.name} lies on a grid.",
            "Choose another method, or leave the layer out of resampling.",
        )
    if entry is not None and entry.kind is not LayerKind.CONTINUOUS and TRAITS[method].blends:
        what = "classes" if entry.kind is LayerKind.CLASS else "bit fields"
        raise RequestRefusedError(
            field,
            f"{method} would blend the {what} of {product.named(layer)} into values that mean "
            "something else.",
            f"Choose {' or '.join(CLASS_METHODS)}, or leave the layer out of resampling.",
        )
    if known is not None and known.geometry == "swath" and method not in SWATH_METHODS:
        raise RequestRefusedError(
            field,
            f"{product.choice.name} is a swath product, whose pixels lie on no lattice: "
            f"no {method}.",
            f"Choose {' or '.join(SWATH_METHODS)}.",
        )


def _check_qa(resolved: ResolvedRequest) -> None:
    rule = resolved.request.qa
    if rule is None:
        return
    if not rule:
        raise RequestRefusedError("qa", "is empty.", "Leave it out, or name best, good or a rule.")
    if not resolved.request.mask:
        raise RequestRefusedError(
            "qa",
            "removes pixels, and mask: false keeps all but fill values.",
            "Leave out one of the two.",
        )
    if isinstance(rule, str):
        for product in resolved.products:
            _check_known(product, rule)
        without = layers_without_rule(resolved)
        if without and not any(layer.qa for one in resolved.products for layer in one.layers):
            raise RequestRefusedError(
                "qa",
                f"no layer asked for has a QA rule {rule!r}: {', '.join(without)}.",
                "Write the rule out by QA layer, or leave qa out.",
            )
    else:
        known = [product.entry for product in resolved.products]
        for layer, fields in rule.items():
            _check_rule(layer, fields, known)


def layers_without_rule(resolved: ResolvedRequest) -> list[str]:
    """List the layers to which the request's preset says nothing, apart from quality layers."""
    if not isinstance(resolved.request.qa, str):
        return []
    return [
        product.named(layer)
        for product in resolved.products
        for layer in product.layers
        if not layer.qa and not layer.facts.is_quality
    ]


def _check_known(product: ResolvedProduct, preset: str) -> None:
    choice = product.choice
    if product.entry is None:
        raise RequestRefusedError(
            "qa",
            f"the catalogue does not know {versioned(choice.name, choice.collection)}, so "
            f"{preset!r} says nothing about it.",
            "Write the rule out: qa: {QA_LAYER: {value: [0]}}.",
        )


def _check_rule(
    layer: str, fields: Mapping[str, tuple[int, ...]], known: list[Product | None]
) -> None:
    field = f"qa.{layer}"
    entries = [entry for p in known if p is not None and (entry := p.layer(layer)) is not None]
    if not entries and None not in known:
        names = {name for p in known if p is not None for name in p.layers if p.layers[name].bits}
        raise RequestRefusedError(
            field, f"no product asked for has a layer {layer!r}.", nearest_names(layer, names)
        )
    if not fields:
        raise RequestRefusedError(
            field, "names no field.", "Name one with the values to keep: {MODLAND: [0]}."
        )
    for name, values in fields.items():
        _check_values(f"{field}.{name}", name, values, None)
        for entry in entries:
            _check_bits(f"{field}.{name}", name, values, entry)


def _check_bits(field: str, name: str, values: tuple[int, ...], entry: LayerEntry) -> None:
    if name == "value":
        known = {**entry.classes, **entry.codes}
        if entry.classes and not known.keys() & {*values}:
            has = ", ".join(f"{value} ({text})" for value, text in sorted(known.items()))
            raise RequestRefusedError(
                field, f"no pixel has {listed([*map(str, values)])}.", f"There are: {has}."
            )
        return
    bits = named_bits(entry.bits, name)
    if bits is None:
        raise RequestRefusedError(
            field, f"there is no QA field {name!r}.", nearest_names(name, [*entry.bits, "value"])
        )
    _check_values(field, name, values, values_of(bits))


def _check_values(field: str, name: str, values: tuple[int, ...], held: range | None) -> None:
    try:
        check_values(name, values, held)
    except ChoiceRefusedError as error:
        raise refusal_of(field, str(error)) from None


def _check_size(resolved: ResolvedRequest, limits: Settings) -> None:
    request = resolved.request
    if request.region.in_place:
        return
    grid = max((part.grid for part in resolved.target.parts), key=lambda grid: grid.pixels)
    pixels = grid.pixels
    if pixels > limits.max_pixels:
        raise RequestRefusedError(
            "grid.resolution" if request.grid.modis is None else "grid.modis",
            f"with a pixel of {pixel_text(request, grid.system)} one raster would have "
            f"{grid.width:,} x {grid.height:,} = {pixels:,} pixels; {limits.max_pixels:,} are "
            "allowed (SWATHMILL_MAX_PIXELS).",
            f"{finer_than_modis(request, grid.system)}Ask for a coarser grid or a smaller region, "
            "or have the limit raised.",
        )
    check_memory(resolved, limits)
