"""The granules a request may need, from the archive's metadata."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol, runtime_checkable

from archives.model import Archive, GranuleRecord, normal_collection
from archives.names import parse_granule_name
from reprojection.catalogue import product, products
from service_manager.planner.naming import three_digits
from tasks.checks import nearest_names
from tasks.errors import RequestRefusedError
from tasks.request import ProductChoice, Request
from tasks.spec import CollectSpec


@runtime_checkable
class Listing(Protocol):
    """An archive that can say which products it holds."""

    def products(self) -> list[tuple[str, str]]:
        """Every (product, collection)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Found:
    """The granules of one product choice in the time span, by UTC start day, sorted by name."""

    choice: ProductChoice
    geometry: Literal["swath", "tile"]
    period: int  # days between two granules of one place
    by_day: dict[date, tuple[GranuleRecord, ...]]


def find(request: Request, choice: ProductChoice, archive: Archive) -> Found:
    """Search the archive for one product choice; raises ArchiveError as the archive does."""
    records = list(
        archive.search(choice.name, choice.collection, request.time.start, request.time.end)
    )
    by_day: dict[date, list[GranuleRecord]] = defaultdict(list)
    for record in records:
        if request.time.start <= record.start_day <= request.time.end and _lit(record, choice):
            by_day[record.start_day].append(record)
    known = product(choice.name, choice.collection)
    return Found(
        choice=choice,
        geometry=known.geometry if known else _geometry(records),
        period=known.period if known else 1,
        by_day={d: tuple(sorted(by_day[d], key=lambda r: r.name)) for d in sorted(by_day)},
    )


def collect(record: GranuleRecord) -> CollectSpec:
    """The task that fetches a granule into the store."""
    return CollectSpec(
        product=record.product,
        collection=record.collection,
        granule=record.name,
        production=record.production_time,
        source=record.source,
        url=record.url,
        size=record.size,
        checksum=record.checksum or "",
        checksum_type=record.checksum_type or "",
    )


def nothing_found(request: Request, archive: Archive, touched: bool) -> RequestRefusedError:
    """Why a request matches no granule, and what the archive has.

    `touched` says that there were granules in the time span, only none in the region.
    """
    span = f"{request.time.start} to {request.time.end}"
    names = ", ".join(f"{c.name} {three_digits(c.collection)}" for c in request.products)
    if touched:
        return RequestRefusedError(
            "region",
            f"the archive has granules of {names} from {span}, but none touches the region.",
            "Choose another region or other days.",
        )
    for number, choice in enumerate(request.products):
        held = archive.holdings(choice.name)
        if held and normal_collection(choice.collection) not in {h.collection for h in held}:
            served = " and ".join(three_digits(holding.collection) for holding in held)
            return RequestRefusedError(
                f"products.{number}",
                f"the archive does not serve {choice.name} {three_digits(choice.collection)}.",
                f"Of {choice.name} it serves collection {served}.",
            )
    has = [text for choice in request.products if (text := _span_of(choice, archive))]
    if has:
        return RequestRefusedError(
            "time", f"the archive has no granule of {names} from {span}.", " ".join(has)
        )
    remedy = "Check the product's name and collection."
    if isinstance(archive, Listing):
        listed = [f"{name} {three_digits(collection)}" for name, collection in archive.products()]
        remedy = f"The archive has: {', '.join(listed[:40]) or 'nothing at all'}."
    known = {p.name for p in products()}
    choice = request.products[0]
    if choice.name not in known:
        remedy = f"{remedy} {nearest_names(choice.name, known)}"
    return RequestRefusedError("products.0", f"the archive has no granule of {names}.", remedy)


def _span_of(choice: ProductChoice, archive: Archive) -> str:
    return " ".join(
        f"Of {h.product} {three_digits(h.collection)} it has days from "
        f"{h.first or 'an unknown day'} to {h.last or 'today'}."
        for h in archive.holdings(choice.name)
        if h.collection == normal_collection(choice.collection)
    )


def _lit(record: GranuleRecord, choice: ProductChoice) -> bool:
    """Whether a granule has pixels of the half of the day asked for, as far as is known."""
    said = record.day_night.strip().lower()
    return choice.day_night == "any" or said not in ("day", "night") or said == choice.day_night


def _geometry(records: Sequence[GranuleRecord]) -> Literal["swath", "tile"]:
    """Of a product the catalogue does not know: its granules' names bear tiles or they do not."""
    tiled = any(r.tile or ((p := parse_granule_name(r.name)) and p.tile) for r in records)
    return "tile" if tiled else "swath"
