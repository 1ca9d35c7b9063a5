"""The dates on which two sensors of a record are compared: those that both have.

Where a record goes on with another sensor, its user wants to know how the two differ. So of each
pair that follow one another in a request, one date of each month of the year is compared, the last
that both have, in some cells: what that takes has a bound, however long the request is. Nothing is
adjusted by it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from archives.model import GranuleRecord
from service_manager.planner.draft import Draft
from service_manager.planner.layers import Made, ProductLayers, plan_date
from service_manager.planner.located import Locator
from service_manager.planner.parts import PartsPlan
from tasks.bag.spec import Input, OverlapSpec
from tasks.request.resolved import COMPARED_CELLS, ResolvedRequest
from tasks.spec_parts import RecordedLayer, SensorCell


@dataclass(kw_only=True)
class _Common:
    """A date that two products have: the granules of each, and the cells that were planned."""

    day: date
    records: Mapping[int, tuple[GranuleRecord, ...]]
    made: dict[int, list[Made]] = field(default_factory=dict)


class Overlaps:
    """The products of records in a request, and the common dates seen so far."""

    def __init__(self, resolved: ResolvedRequest, places: int) -> None:
        self._records = [*resolved.compared()]
        self._kept = (
            {places * n // COMPARED_CELLS for n in range(COMPARED_CELLS)} if places else set()
        )
        parts = {one.number: one.choice.part for one in resolved.products}
        self._prefers = {
            n: part is not None and part.overlap == "prefer" for n, part in parts.items()
        }
        self._stands: set[int] = set()
        self._dates: dict[tuple[int, int], dict[int, _Common]] = {}

    def __bool__(self) -> bool:
        """Tell whether the request has a record whose sensors are compared."""
        return bool(self._records)

    @property
    def places(self) -> frozenset[int]:
        """The places that are compared."""
        return frozenset(self._kept)

    def look_at(
        self,
        day: date,
        records: Mapping[int, tuple[GranuleRecord, ...]],
        touches: Callable[[GranuleRecord], bool],
    ) -> None:
        """Take in the granules of a day, by product, of which a record may have several."""
        for members in self._records:
            there = [one for one in members if any(map(touches, records.get(one, ())))]
            alone = self._prefers[members[0]]
            self._stands.update(there[:1] if alone else there)
            for other in there[1:]:
                both = {one: records[one] for one in (there[0], other)}
                dates = self._dates.setdefault((there[0], other), {})
                dates[day.month] = _Common(day=day, records=both)

    def take(self, number: int, day: date, made: list[Made]) -> None:
        """Take in the cells of a product's date, which has been planned."""
        for pair, dates in self._dates.items():
            there = dates.get(day.month)
            if number in pair and there is not None and there.day == day:
                there.made[number] = [one for one in made if one.place in self._kept]

    def plan(
        self, wanted: Sequence[ProductLayers], locator: Locator, parts: PartsPlan, draft: Draft
    ) -> None:
        """Add the comparison of each layer of the records to the draft."""
        for members in self._records:
            pairs = [pair for pair in self._dates if pair[0] in members and self._follow(pair)]
            cells: dict[int, list[tuple[SensorCell, Input]]] = {}
            for pair in pairs:
                for common in self._dates[pair].values():
                    for number in pair:
                        made = common.made.get(number)
                        if made is None:
                            made = _planned(wanted[number], common, number, locator, parts, draft)
                        for one in made:
                            cells.setdefault(one.layer, []).append(_cell(wanted[number], one))
            for layer, found in sorted(cells.items()):
                self._add(wanted, members[0], layer, dict(found), pairs, draft)

    def _follow(self, pair: tuple[int, int]) -> bool:
        """Tell whether both of a pair stand for dates."""
        return set(pair) <= self._stands

    def _add(
        self,
        wanted: Sequence[ProductLayers],
        head: int,
        layer: int,
        found: Mapping[SensorCell, Input],
        pairs: Sequence[tuple[int, int]],
        draft: Draft,
    ) -> None:
        first = wanted[head]
        own = first.layers[layer]
        part = first.choice.part
        if part is None or not first.layers[layer].is_continuous:
            return
        named = first.choice.asked_layer(own.name)
        spec = OverlapSpec(
            inputs=tuple(found.values()),
            name=f"{part.record}.{first.names[own.name]}.overlap",
            record=RecordedLayer(record=part.record, layer=named, units=part.units[named]),
            cells=tuple(found),
            pairs=tuple((wanted[a].choice.name, wanted[b].choice.name) for a, b in pairs),
        )
        draft.add(spec, f"{part.record}/{first.names[own.name]}")


def _cell(wanted: ProductLayers, made: Made) -> tuple[SensorCell, Input]:
    name = wanted.layout.places[made.place].name
    cell = SensorCell(product=wanted.choice.name, day=made.day, cell=name)
    return cell, Input(key=made.key, name=cell.text, file=made.file)


def _planned(
    wanted: ProductLayers,
    common: _Common,
    number: int,
    locator: Locator,
    parts: PartsPlan,
    draft: Draft,
) -> list[Made]:
    """Plan the cells of a date that are in none of the results."""
    records = common.records[number]
    locator.look_up(records)
    made = plan_date(wanted, common.day, 0, records, locator, parts, draft, mosaics=False)
    return made or []
