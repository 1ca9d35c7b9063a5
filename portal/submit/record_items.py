"""Records as the product list and the cards of the form show them."""

from modis.collection import Collection
from portal.submit.product_items import LayerItem, ProductItem
from reprojection.records import Record, record, records
from tasks.holdings.held import held_text, named
from tasks.holdings.holdings import Holdings
from tasks.request.records.part import RECORD, is_record


def record_items() -> tuple[ProductItem, ...]:
    """Show every record as a product without a collection."""
    return tuple(record_item(one) for one in records().values())


def record_item(one: Record) -> ProductItem:
    """Show a record."""
    first = one.members[0].entry
    return ProductItem(
        name=f"{RECORD}{one.name}",
        collection=Collection(""),
        title=one.title,
        platform=", ".join(one.sensors),
        keywords=f"record {one.keywords}",
        geometry=first.geometry if first else "tile",
        resolution=first.resolution if first else 1000.0,
        period=one.every,
        layers=tuple(
            LayerItem(
                name=name,
                kind=one.kind_of(name).value,
                title=layer.title,
                units="" if layer.units == "1" else layer.units,
            )
            for name, layer in one.layers.items()
        ),
        has_patterns=False,
    )


def about_record(name: str) -> str:
    """Say what a record is: its sensors from its first year on; "" for a product."""
    found = record(name) if is_record(name) else None
    return f"a record since {found.since.year}: {', '.join(found.sensors)}" if found else ""


def what_differs(name: str) -> str:
    """Say what changes from sensor to sensor of a record; "" for a product."""
    found = record(name) if is_record(name) else None
    return found.differs if found else ""


def archive_text(name: str, collection: str, held: Holdings) -> str:
    """Say what the archive has of a product, or of each product of a record; "": nothing."""
    found = record(name) if is_record(name) else None
    if found is None:
        one = held.of(name, collection)
        return held_text(one) if one else ""
    there = (held.of(one.product, Collection(one.collection)) for one in found.members)
    return "; ".join(f"{named(one)}: {held_text(one)}" for one in there if one)
