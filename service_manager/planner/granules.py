"""The granules a request may need, from the archive's metadata."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from archives.model import Archive, GranuleRecord, Misnamed, NameChecking
from archives.sources import Listing, Overlooking
from modis.box import LonLatBox
from modis.collection import Collection
from modis.granule_name import parse_granule_name
from modis.tile import Tile
from reprojection.catalogue import products
from service_manager.planner.counts import CountedClass
from service_manager.planner.draft import Line
from service_manager.planner.gaps import misnaming
from service_manager.planner.patterns import Pattern, quoted
from tasks.bag.classes import sized
from tasks.bag.model import Phase
from tasks.bag.spec import CollectSpec
from tasks.errors import RequestRefusedError
from tasks.refusal_wording import nearest_names
from tasks.request.document import ProductChoice, Request, Time

_OF_GRANULE = ("granule", "production", "source", "url", "size", "checksum", "checksum_type")


def collected(record: GranuleRecord) -> tuple[str, Line]:
    """Return the task that fetches a granule into the store: its key, and its line of a draft."""
    pattern, work = _collection(record.product, record.collection)
    values = (
        quoted(record.name),
        quoted(record.production_time),
        quoted(record.source),
        quoted(record.url),
        str(record.size),
        quoted(record.checksum or ""),
        quoted(record.checksum_type or ""),
    )
    kind = CountedClass(Phase.COLLECTION, sized(work, record.size), record.size)
    return pattern.key(*values), Line("", pattern.text(*values), kind)


@lru_cache(maxsize=256)
def _collection(product: str, collection: str) -> tuple[Pattern, str]:
    spec = CollectSpec(product=product, collection=collection, granule="", production="")
    return Pattern(spec, *_OF_GRANULE), spec.work


def misnamed(choice: ProductChoice, span: Time, archive: Archive) -> list[Misnamed]:
    """List the files that only have the name of a requested granule, if the archive can say so."""
    if not isinstance(archive, NameChecking):
        return []
    return archive.misnamed(choice.name, choice.collection, span.start, span.end)


def nothing_found(
    request: Request,
    archive: Archive,
    unseen: Sequence[ProductChoice] = (),
    box: LonLatBox | None = None,
) -> RequestRefusedError:
    """Return why a request matches no granule, and what the archive has.

    `box` is where granules were searched, everywhere by default.
    `unseen` are the rasters of users of which nothing was found.
    """
    span = f"{request.time.start} to {request.time.end}"
    if unseen:
        return RequestRefusedError(
            unseen[0].field_at(request.products.index(unseen[0])),
            f"{unseen[0].name} has no date from {span}, or does not touch the region.",
            "Choose another region or other days; `swathmill raster show` says what it covers.",
        )
    archived = tuple(choice for choice in request.products if choice.exact is None)
    request = request.model_copy(update={"products": archived})
    names = ", ".join(f"{c.name} {Collection(c.collection).padded}" for c in request.products)
    for number, choice in enumerate(request.products):
        if count := _of_other_half(request, choice, archive, box):
            here, are = ("", "is") if count == 1 else ("s", "are")
            other = "day" if choice.day_night == "night" else "night"
            return RequestRefusedError(
                f"{choice.field_at(number)}.day_night",
                f"{count:,} granule{here} of {choice.name} {Collection(choice.collection).padded} "
                f"from {span} {are} near the region, and {'' if count == 1 else 'all '}of the "
                f"{other}; none is of the {choice.day_night}.",
                "Leave day_night out, or ask for the other half of the day.",
            )
    if any(_anywhere(request, choice, archive) for choice in request.products):
        return RequestRefusedError(
            "region",
            f"the archive has granules of {names} from {span}, but none touches the region.",
            "Choose another region or other days.",
        )
    for number, choice in enumerate(request.products):
        for wrong in misnamed(choice, request.time, archive):
            return RequestRefusedError(
                choice.field_at(number),
                f"the archive has no granule of {names} from {span}: {misnaming(wrong)}.",
                "Correct the names of the files in the archive.",
            )
        held = archive.holdings(choice.name)
        if held and Collection(choice.collection) not in {h.collection for h in held}:
            served = " and ".join(holding.collection.padded for holding in held)
            return RequestRefusedError(
                choice.field_at(number),
                f"the archive does not serve {choice.name} {Collection(choice.collection).padded}.",
                f"Of {choice.name} it serves collection {served}.",
            )
    has = [text for choice in request.products if (text := _span_of(choice, archive))]
    if has:
        return RequestRefusedError(
            "time", f"the archive has no granule of {names} from {span}.", " ".join(has)
        )
    remedy = "Check the product's name and collection."
    held_all = archive.products() if isinstance(archive, Listing) else None
    if held_all is not None:
        listed = [f"{name} {Collection(collection).padded}" for name, collection in held_all]
        remedy = f"The archive has: {', '.join(listed[:40]) or 'nothing at all'}."
    known = {p.name for p in products()}
    choice = request.products[0]
    if isinstance(archive, Overlooking) and (said := archive.overlooked(choice.name)):
        remedy = " ".join(said)
    elif choice.name not in known:
        remedy = f"{remedy} {nearest_names(choice.name, known)}"
    return RequestRefusedError("products.0", f"the archive has no granule of {names}.", remedy)


def _anywhere(request: Request, choice: ProductChoice, archive: Archive) -> bool:
    """Tell whether there are granules in the time span, wherever they lie."""
    span = request.time
    return any(True for _ in archive.search(choice.name, choice.collection, span.start, span.end))


def _of_other_half(
    request: Request, choice: ProductChoice, archive: Archive, box: LonLatBox | None
) -> int:
    """Count the granules near the region if all of them are of the other half of the day."""
    if choice.day_night == "any":
        return 0
    span = request.time
    found = [*archive.search(choice.name, choice.collection, span.start, span.end, box)]
    return 0 if any(is_lit(record, choice) for record in found) else len(found)


def is_lit(record: GranuleRecord, choice: ProductChoice) -> bool:
    """Tell whether a granule has pixels of the half of the day asked for, as far as is known."""
    said = record.day_night.strip().lower()
    return choice.day_night == "any" or said not in ("day", "night") or said == choice.day_night


def _span_of(choice: ProductChoice, archive: Archive) -> str:
    return " ".join(
        f"Of {h.product} {h.collection.padded} it has days from "
        f"{h.first or 'an unknown day'} to {h.last or 'today'}."
        for h in archive.holdings(choice.name)
        if h.collection == Collection(choice.collection)
    )


def geometry(record: GranuleRecord) -> Literal["swath", "tile", "outlined"]:
    """Of a product the catalogue does not know: its granules' names bear tiles or they do not."""
    parts = parse_granule_name(record.name)
    if parts is not None and parts.other_tile:
        return "outlined"
    return "tile" if tile_of(record) is not None else "swath"


def tile_of(record: GranuleRecord) -> Tile | None:
    """Return the tile of a granule; for a cut-out of a tile only the name tells it."""
    if record.tile is not None:
        return record.tile
    parts = parse_granule_name(record.name)
    return parts.tile if parts else None
