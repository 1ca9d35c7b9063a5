"""A request against what the archive holds: refused at once where it can find nothing.

Only what is certain is refused. Days and places are looked at as coarsely as `holdings` has them;
the planner, which lists the granules themselves, has the last word.
"""

import json
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from archives.kinds.coverage import Square
from modis.collection import Collection
from modis.tile import Tile, tiles_around
from reprojection.catalogue import products
from reprojection.catalogue.layers import split_index
from reprojection.grid.covering import lonlat_points
from reprojection.grid.crs import lonlat_to_sinusoidal
from tasks.errors import RequestRefusedError
from tasks.holdings.holdings import Held, Holdings
from tasks.refusal_wording import listed, nearest, nearest_names
from tasks.request.checks import check_bands
from tasks.request.document import ProductChoice, Request
from tasks.request.resolved import ResolvedLayer, ResolvedProduct, ResolvedRequest
from tasks.request.target import Target

_COARSEST = 10_000.0  # metres: no layer of MODIS has larger pixels
_REACH = 2.0  # source pixels, or target pixels where they are larger: half of the widest kernel
_ALONG = 4000  # samples along a side of the results
_AROUND = 3.0  # degrees: half of the distance between two samples, at most
_CELL = 10.0
_SHOWN = 12  # tiles or products that a message names

Floats = NDArray[np.float64]


def check_held(resolved: ResolvedRequest, held: Holdings) -> None:
    """Refuse a request that the archive cannot serve; see `_check`.

    Where folders of the archive are not there, that is the reason.
    """
    try:
        _check(resolved, held)
    except RequestRefusedError as error:
        if not held.absent:
            raise
        raise RequestRefusedError(
            error.field,
            f"the archive's folder {' and '.join(held.absent)} is not there.",
            "Operators: mount it or put it back, or correct SWATHMILL_ARCHIVE; then submit again.",
        ) from error


def _check(resolved: ResolvedRequest, held: Holdings) -> None:
    """Refuse a request that the archive cannot serve.

    A product that the archive does not have at all, or a layer that its granules do not have, is
    refused wherever it stands; days and a region only when no product has anything there (what
    one of several lacks is a gap).

    Raises:
        RequestRefusedError: naming the field, and what the archive has instead.
    """
    request = resolved.request
    archived = _archived(resolved, held)
    if not archived:
        return  # rasters of users are in no archive
    for product in archived:
        _check_product(product, held)
        _check_layers(product, held)
        _check_quality(product, held)
    found = {
        product.number: item
        for product in archived
        if (item := _of(product.choice, held)) is not None
    }
    there = [each for number, each in found.items() if _has_days(resolved.products[number], each)]
    if not there:
        raise _no_day(request, [*found.values()])
    if not _touch(resolved, there):
        raise _no_place(request, there)


def lacking(resolved: ResolvedRequest, held: Holdings) -> Iterator[RequestRefusedError]:
    """Yield what the archive lacks of each product: itself, a layer, the days, or the region.

    The refusals are not raised: a request of several products may lack one.
    """
    for product in _archived(resolved, held):
        if product.choice.near_real_time:
            continue  # what is not listed under its own name may be there in near real time
        try:
            _check_product(product, held)
            _check_layers(product, held)
            _check_quality(product, held)
        except RequestRefusedError as error:
            yield error
        found = [each for one in _alike(resolved, product) if (each := _of(one.choice, held))]
        if not found or (product.choice.part is not None and product.number != product.head):
            continue
        timely = [each for each in found if _has_days(product, each)]
        if not timely:
            yield _no_day(resolved.request, found)
        elif not _touch(resolved, timely):
            yield _no_place(resolved.request, timely)


def _archived(resolved: ResolvedRequest, held: Holdings) -> list[ResolvedProduct]:
    """List the products that the archive should have.

    Of a record those that it has in the time, or has at all, as one of them is enough; where it has
    none, all.
    """
    found = []
    for product in resolved.products:
        if product.choice.exact is not None:
            continue
        if product.choice.part is not None:
            alike = _alike(resolved, product)
            there = [one for one in alike if _of(one.choice, held) is not None]
            timely = [one for one in there if (of := _of(one.choice, held)) and _has_days(one, of)]
            if product not in (timely or there or alike):
                continue
        found.append(product)
    return found


def _alike(resolved: ResolvedRequest, product: ResolvedProduct) -> list[ResolvedProduct]:
    """List the products of a product's record, or itself."""
    place = product.choice.part_place
    if place is None:
        return [product]
    return [one for one in resolved.products if one.choice.part_place == place]


def doubts(resolved: ResolvedRequest, held: Holdings) -> tuple[str, ...]:
    """Say of the layers asked for what the archive's granules state and was not understood."""
    found = []
    for product in resolved.products:
        known = _of(product.choice, held)
        if known is None or product.choice.exact is not None:
            continue
        for layer in product.layers:
            notes = known.notes.get(split_index(layer.name)[0], ())
            found += [f"{product.choice.name} {layer.name}: {note}." for note in notes]
    return tuple(found)


def _has_days(product: ResolvedProduct, found: Held) -> bool:
    return found.has_days(product.first_start, product.join.last)


def _touch(resolved: ResolvedRequest, there: Sequence[Held]) -> bool:
    if any(each.anywhere for each in there):
        return True
    tiles, cells = _touched(resolved.target)
    return any(each.tiles & tiles or each.cells & cells for each in there)


def named(held: Held) -> str:
    """Write a product as data centres do: MCD15A2 005."""
    return f"{held.name} {Collection(held.collection).padded}"


def held_text(held: Held) -> str:
    """Say in a few words what the archive has of a product."""
    granules = f"{held.granules:,} granule{'s' if held.granules != 1 else ''}"
    days = f"{held.first}" if held.first == held.last else f"{held.first} to {held.last}"
    return f"{granules}, {days}"


def _of(choice: ProductChoice, held: Holdings) -> Held | None:
    return held.of(choice.name, choice.collection)


def _check_product(product: ResolvedProduct, held: Holdings) -> None:
    choice = product.choice
    if _of(choice, held) is not None:
        return
    if choice.part is not None:
        raise RequestRefusedError(
            f"{product.field}.name",
            f"the archive has no granule of any product of the record {choice.asked}.",
            _served(held),
        )
    collections = held.collections(choice.name)
    if collections:
        served = listed([Collection(each).padded for each in collections], "and")
        raise RequestRefusedError(
            f"{product.field}.collection",
            f"the archive does not have collection {Collection(choice.collection).padded} "
            f"of {choice.name}.",
            f"Of {choice.name} it has collection {served}.",
        )
    every = sorted({each.name for each in held.products})
    known = {each.name for each in products()}
    if choice.name in known:
        problem = f"the archive has no granule of {choice.name}."
    else:
        problem = f"there is no product {choice.name!r}, neither in the archive nor known."
    like = nearest(choice.name, every)
    if not like and choice.name not in known:
        like = nearest(choice.name, known)
    asked = f"Did you mean {like[0]}? " if like else ""
    raise RequestRefusedError(f"{product.field}.name", problem, f"{asked}{_served(held)}")


def _served(held: Holdings) -> str:
    """Say what the archive has."""
    shown = [named(each) for each in held.products[:_SHOWN]]
    more = ", and more" if len(held.products) > _SHOWN else ""
    if not shown:
        return "It is empty: fill it, or name another."
    return f"The archive has: {', '.join(shown)}{more}."


def _check_layers(product: ResolvedProduct, held: Holdings) -> None:
    """Hold layers to those of a few granules; what the catalogue lists may be in others."""
    choice = product.choice
    found = _of(choice, held)
    if found is None or not found.layers:
        return
    for place, one in enumerate(product.layers):
        field, layer = f"{product.field}.layers.{place}", one.name
        base, index = split_index(layer)
        if layer in found.layers:
            base, index = layer, ()
        if one.facts.days > 1 or one.facts.orbits:
            continue
        if base in found.layers:
            check_bands(field, choice.name, base, index, found.layers[base])
        elif not one.facts.is_listed:
            raise RequestRefusedError(
                field,
                f"{named(found)} has no layer {layer!r}.",
                nearest_names(base, found.layers),
            )


def _check_quality(product: ResolvedProduct, held: Holdings) -> None:
    """Refuse a rule over a quality layer that granules with the layer do not have."""
    found = _of(product.choice, held)
    if found is None or not found.layers:
        return
    for layer in product.layers:
        if not layer.qa or split_index(layer.name)[0] not in found.layers:
            continue
        for name in _quality_layers(layer):
            if name not in found.layers and split_index(name)[0] not in found.layers:
                raise RequestRefusedError(
                    "qa",
                    f"{named(found)} has no quality layer {name!r}, which the rule for "
                    f"{layer.name} needs.",
                    "Leave qa out, or write a rule over one of its layers: "
                    + nearest_names(name, found.layers),
                )


def _quality_layers(layer: ResolvedLayer) -> list[str]:
    if layer.qa.startswith("{"):
        return [*json.loads(layer.qa)]
    return [layer.entry.qa] if layer.entry is not None and layer.entry.qa else []


def _no_day(request: Request, found: Sequence[Held]) -> RequestRefusedError:
    span = request.time
    days = f"on {span.start}" if span.start == span.end else f"from {span.start} to {span.end}"
    names = listed([named(each) for each in found])
    said = []
    for each in found:
        before, after = each.nearest(span.start, span.end)
        said.append(_days(each))
        if before is not None and after is not None:
            said.append(f"The nearest are {before} and {after}.")
    field = "time"
    if all(each.last < span.start for each in found):
        field = "time.start"
    elif all(each.first > span.end for each in found):
        field = "time.end"
    return RequestRefusedError(
        field, f"the archive has no granule of {names} {days}.", " ".join(said)
    )


def _days(held: Held) -> str:
    if held.first == held.last:
        return f"Of {named(held)} it has one day, {held.first}."
    return f"Of {named(held)} it has days from {held.first} to {held.last}."


def _no_place(request: Request, there: Sequence[Held]) -> RequestRefusedError:
    names = listed([named(each) for each in there])
    said = [_places(each) for each in there]
    return RequestRefusedError(
        request.region.field,
        f"the archive has granules of {names} on these days, but none touches the region.",
        " ".join(["Choose another region.", *filter(None, said)]),
    )


def _places(held: Held) -> str:
    if held.tiles and not held.cells:
        names = [tile.name for tile in sorted(held.tiles)]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"Of {named(held)} it has tiles {', '.join(names[:_SHOWN])}{more}."
    return ""


def _touched(made: Target) -> tuple[frozenset[Tile], frozenset[Square]]:
    """Return the tiles and the squares of 10 degrees that the results may be made of.

    It may name some too many, never too few.
    """
    lon, lat = lonlat_points(made.grid, _ALONG)
    x, y = lonlat_to_sinusoidal(lon, lat)
    around = _REACH * max(_COARSEST, made.pixel_metres)
    return tiles_around(x, y, around), _cells(lon, lat)


def _cells(lon: Floats, lat: Floats) -> frozenset[Square]:
    across, down = int(360 / _CELL), int(180 / _CELL)
    found = np.zeros((across, down), bool)
    # Nearer to a pole than a cell, all meridians come together.
    polar = np.abs(lat) > 90.0 - _CELL
    for right in (-_AROUND, _AROUND):
        for up in (-_AROUND, _AROUND):
            col = np.floor((lon + right + 180.0) / _CELL).astype(int) % across
            row = np.clip(np.floor((lat + up + 90.0) / _CELL), 0, down - 1).astype(int)
            found[col, row] = True
            found[:, row[polar]] = True
    return frozenset(Square(int(col), int(row)) for col, row in np.argwhere(found))
