"""What a request asks for and the archive does not have: days without a granule, tiles without."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import date

from archives.model import Holding, Misnamed
from modis.collection import Collection, versioned
from modis.composites import MONTHLY, YEARLY
from modis.tile import Tile
from service_manager.planner.naming import product_name
from tasks.request.document import ProductChoice, Time
from tasks.requests.plan import Gap

Seen = dict[date, frozenset[Tile]]
"""The days on which the archive has granules, with their tiles; of swaths those that touch."""


def unserved(choice: ProductChoice, held: Sequence[Holding]) -> Iterator[Gap]:
    """Yield the gap of a product whose collection the archive does not serve.

    Its text says which collections the archive serves.
    """
    if held and Collection(choice.collection) not in {h.collection for h in held}:
        served = " and ".join(holding.collection.padded for holding in held)
        yield Gap(
            what=product_name(choice),
            reason=f"the archive does not serve this collection; it serves {served}",
        )


def tile_gaps(
    choice: ProductChoice,
    period: int,
    span: Time,
    wanted: Iterable[Tile],
    found: Mapping[date, frozenset[Tile]],
    misnamed: Iterable[Misnamed] = (),
    phase: int = 0,
) -> Iterator[Gap]:
    """Yield the gaps of a tile product.

    A gap is a tile that is missing in the whole span, a day that lacks all tiles, a day that lacks
    one, or a file that only has the name of a granule. `found` has the tiles in the archive by
    start day, `wanted` are the tiles that the region enters.
    """
    name = product_name(choice)
    wrong = {(one.day, one.tile): one for one in misnamed}
    present = {*frozenset().union(*found.values())} | {tile for _, tile in wrong}
    yield from absent_tiles(choice, wanted, present)
    there = [tile for tile in _by_row(wanted) if tile in present]
    named = {day for day, tile in wrong if tile in there}
    for day in sorted({*expected_days(period, span, found, phase), *named}):
        lacking = [tile for tile in there if tile not in found.get(day, frozenset())]
        if there and len(lacking) == len(there) and day not in named:
            yield Gap(
                what=f"{name} {day.isoformat()}", reason="the archive has no granule of this date"
            )
            continue
        for tile in lacking:
            other = wrong.get((day, tile))
            yield Gap(
                what=f"{name} {day.isoformat()} {tile.name}",
                reason=misnaming(other)
                if other
                else "the archive has no granule of this tile and date",
            )


def absent_tiles(
    choice: ProductChoice, wanted: Iterable[Tile], present: Iterable[Tile | None]
) -> Iterator[Gap]:
    """Yield a gap for each tile that the region enters and the archive never has."""
    for tile in _by_row({*wanted}.difference(present)):
        yield Gap(
            what=f"{product_name(choice)} {tile.name}",
            reason="the archive has no granule of this tile in the whole time span",
        )


def date_gaps(
    choice: ProductChoice,
    expected: Iterable[date],
    found: Container[date],
    misnamed: Iterable[Misnamed],
    where: str = "",
) -> Iterator[Gap]:
    """Yield the gaps of a product that is no tile product: absent dates, and misnamed files.

    `where` says which granules of a day count.
    """
    for day in expected:
        if day not in found:
            reason = f"the archive has no granule of this {where or 'date'}"
            yield Gap(what=f"{product_name(choice)} {day.isoformat()}", reason=reason)
    for one in misnamed:
        yield Gap(what=f"{product_name(choice)} {one.day.isoformat()}", reason=misnaming(one))


def _by_row(tiles: Iterable[Tile]) -> list[Tile]:
    return sorted(tiles, key=lambda tile: (tile.v, tile.h))


def misnaming(found: Misnamed) -> str:
    """Describe a file that has another granule's name."""
    holds = found.holds
    product = versioned(holds.product, holds.collection)
    if holds.tile is not None:
        what = f"{holds.tile.name} of {product} of {holds.start_day}"
    else:
        what = f"{product} of {holds.start:%Y-%m-%d %H:%M}"
    return (
        f"the file {found.file} holds {what}, as its metadata says: rename the file, "
        "and download the granule that this name belongs to"
    )


def expected_days(period: int, span: Time, found: Iterable[date], phase: int = 0) -> Iterator[date]:
    """Yield the days within a span (inclusive) on which a product of this period starts.

    Composites start again each January 1st, some products 8 days later (the Aqua half of 16-day
    pairs): the days that were found decide, or `phase` where none was found. Days found out of step
    are expected, too.
    """
    if period <= 1:
        yield from span.each_day()
        return
    seen = sorted({day for day in found if span.holds(day)})
    yield from starts(period, phase_of(period, seen, phase), span, seen)


def phase_of(period: int, seen: Iterable[date], usual: int) -> int:
    """Return how many days after January 1st a product of this period starts.

    Most of the days in `seen` decide; without a day it is `usual`.
    """
    phases = Counter((day.timetuple().tm_yday - 1) % period for day in seen)
    return phases.most_common(1)[0][0] if phases else usual


def starts(period: int, phase: int, span: Time, seen: Iterable[date]) -> list[date]:
    """List the days in a span on which a product starts, and those seen there out of step."""
    there = {day for day in seen if span.holds(day)}
    return sorted(there.union(d for d in span.each_day() if starts_on(d, period, phase)))


def starts_on(day: date, period: int, phase: int) -> bool:
    """Tell whether a product of a period and phase starts on a day, by NASA's calendar."""
    if period >= YEARLY:
        return day.timetuple().tm_yday - 1 == phase
    if period in MONTHLY:
        return day.day == 1
    return (day.timetuple().tm_yday - 1) % period == phase
