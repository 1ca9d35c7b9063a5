"""Which product of a record stands for a date: the first in order of preference that has it.

Of a mean all that have it stand for it together.

A date is the first day of a composite, or the day of a swath; none is moved to another. A product
has a date if one of its granules that start on it touches the region.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from archives.model import GranuleRecord
from reprojection.records import sensor_of
from service_manager.planner.gaps import Seen
from tasks.request.resolved import ResolvedProduct


class RecordDates:
    """The products of a request that stand for one another, by number, in order of preference."""

    def __init__(self, products: Sequence[ResolvedProduct]) -> None:
        self._products = products
        self._heads = {one.number: one.head for one in products}
        self._members: dict[int, list[int]] = defaultdict(list)
        for number, head in self._heads.items():
            self._members[head].append(number)

    def is_mean(self, number: int) -> bool:
        """Tell whether a date of a product is part of a mean over sensors."""
        part = self._products[number].choice.part
        return part is not None and part.is_mean

    def beside(self, number: int) -> Sequence[int]:
        """List the products that stand for one another with one, itself among them."""
        return self._members[self._heads[number]]

    def chosen(
        self,
        records: Mapping[int, tuple[GranuleRecord, ...]],
        touches: Callable[[GranuleRecord], bool],
    ) -> dict[int, tuple[GranuleRecord, ...]]:
        """Leave out the granules of a day whose product another one stands for."""
        return {
            number: found
            for number, found in records.items()
            if self._first(number, records, touches) == number
            or (self.is_mean(number) and any(map(touches, found)))
        }

    def _first(
        self,
        number: int,
        records: Mapping[int, tuple[GranuleRecord, ...]],
        touches: Callable[[GranuleRecord], bool],
    ) -> int:
        there = [one for one in self.beside(number) if one in records]
        if len(there) == 1:
            return number
        return next((one for one in there if any(map(touches, records[one]))), there[0])

    def counted(
        self,
        records: Mapping[int, tuple[GranuleRecord, ...]],
        touches: Callable[[GranuleRecord], bool],
    ) -> Counter[int]:
        """Count the granules of records' products that touch the region, by number."""
        return Counter(
            {
                number: sum(map(touches, found))
                for number, found in records.items()
                if self._products[number].choice.part is not None
            }
        )

    def notes(self, seen: Mapping[int, Seen], granules: Mapping[int, int]) -> Iterator[str]:
        """Say of each record which sensor has how many of its dates, for the scientist.

        `seen` are the days of each product, `granules` counts those in the region.
        """
        told: dict[tuple[int, str], list[str]] = {}
        for one in self._products:
            part, days = one.choice.part, seen.get(one.number, {})
            if part is None:
                continue
            line = told.setdefault((part.place, part.record), [])
            if days and granules.get(one.number):
                sensor = sensor_of(one.choice.name)
                count, taken = len(days), granules[one.number]
                span = f"{min(days)} to {max(days)}" if count > 1 else f"{min(days)}"
                line.append(
                    f"{sensor.text if sensor else ''} ({one.choice.name}) {count:,} "
                    f"date{'s' if count != 1 else ''}, {span}, "
                    f"{taken:,} granule{'s' if taken != 1 else ''}"
                )
        for (_, record), lines in told.items():
            if lines:
                yield f"{record}: {'; '.join(lines)}. In physical units."

    def seen(self, number: int, seen: Callable[[int], Seen]) -> Seen:
        """Return the days of a product, and of those that stand for it."""
        beside = self.beside(number)
        if len(beside) == 1:
            return seen(number)
        return {day: tiles for one in beside for day, tiles in seen(one).items()}
