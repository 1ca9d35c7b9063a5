"""What the archive holds, as the manager last listed it.

The portal reads it to refuse at once a request that can find nothing. It is in the table
`requests`, in a partition of its own: `held` is the list, `asked` a number that the portal raises
when it asks for a new look at the archive. The list repeats the number that it answers, so that no
request is refused because of a list older than the question. Only the manager writes `held`; it can
be made again at any time, so backups leave it out.
"""

import datetime as dt
import zlib
from collections.abc import Iterable, Mapping
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archives.kinds.coverage import Square
from modis.tile import Tile
from tasks.requests.request_table import ASKED, HELD, HOLDINGS, TABLE
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.schema import current, written
from tasks.storage.store import Entity, Operation, Row, Store, Upsert

MOST_PRODUCTS = 1000
_PART = 60_000  # bytes of a property
_MOST_PARTS = 14  # of an entity of 1 MiB


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Held(_Part):
    """One product in one collection, as the archive holds it.

    `bits` is a hexadecimal number whose bit i stands for the day `first` + i. Its granules lie in
    the sinusoidal `tiles` and in the `cells` of 10 degrees; `anywhere`: some may lie elsewhere.
    `layers` are those of a few granules, with the lengths of the axes besides rows and columns;
    none: not looked at. `notes` has, by layer, what those granules state and was not understood.
    """

    name: str
    collection: str
    granules: int
    first: dt.date
    last: dt.date
    bits: str
    tiles: frozenset[Tile] = frozenset()
    cells: frozenset[Square] = frozenset()
    anywhere: bool = False
    layers: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, exclude_if=lambda notes: not notes
    )

    @cached_property
    def _bits(self) -> int:
        return int(self.bits, 16)

    def nearest(self, start: dt.date, end: dt.date) -> tuple[dt.date | None, dt.date | None]:
        """Return the last day with granules up to `end`, and the first from `start` on.

        When neither is in the span, nothing lies between the two.
        """
        upto, after = (end - self.first).days, (start - self.first).days
        before = self._bits & ((1 << (upto + 1)) - 1) if upto >= 0 else 0
        later = self._bits >> after << after if after > 0 else self._bits
        return (
            self.first + dt.timedelta(days=before.bit_length() - 1) if before else None,
            self.first + dt.timedelta(days=(later & -later).bit_length() - 1) if later else None,
        )

    def days(self, start: dt.date, end: dt.date) -> list[dt.date]:
        """List the days with granules in an inclusive span."""
        first = max(0, (start - self.first).days)
        last = min((end - self.first).days, self._bits.bit_length() - 1)
        return [
            self.first + dt.timedelta(days=day)
            for day in range(first, last + 1)
            if self._bits >> day & 1
        ]

    def has_days(self, start: dt.date, end: dt.date) -> bool:
        """Tell whether there are granules in an inclusive span of days."""
        before, _ = self.nearest(start, end)
        return before is not None and before >= start


class Holdings(_Part):
    """All that an archive holds. `answers` is the number of the question it answers.

    `absent` are folders of it that are not there: what they hold is not among the products.
    """

    products: tuple[Held, ...] = ()
    absent: tuple[str, ...] = ()
    answers: int = 0

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, str], Held]:
        return {(held.name, held.collection): held for held in self.products}

    def of(self, name: str, collection: str) -> Held | None:
        """Return a product in a collection; None when the archive has none of it."""
        return self._by_name.get((name, collection))

    def collections(self, name: str) -> tuple[str, ...]:
        """List the collections of a product."""
        return tuple(held.collection for held in self.products if held.name == name)


def day_bits(days: Iterable[dt.date], first: dt.date) -> str:
    """Days as `Held.bits` has them."""
    bits = 0
    for day in days:
        bits |= 1 << (day - first).days
    return f"{bits:x}"


def publish(store: Store, holdings: Holdings | None, answers: int) -> None:
    """Say what the archive holds; None: it cannot list itself, so that nothing is known.

    A list that is too long for a row loses its layers first, then counts as not known. Raises
    StoreError.
    """
    data = _packed(holdings) if holdings is not None else b""
    if holdings is not None and (len(data) > _PART * _MOST_PARTS):
        bare = (held.model_copy(update={"layers": {}, "notes": {}}) for held in holdings.products)
        data = _packed(Holdings(products=tuple(bare), absent=holdings.absent))
    if len(data) > _PART * _MOST_PARTS:
        data = b""
    entity: Entity = {"schema": written(), "answers": answers, "size": len(data)}
    for number, start in enumerate(range(0, len(data), _PART)):
        entity[f"part{number:02d}"] = data[start : start + _PART]
    store.transact(TABLE, HOLDINGS, [Upsert(row=HELD, entity=entity)])


def read(store: Store) -> tuple[Holdings | None, int]:
    """Read what the archive holds, and the number of the question that the list answers.

    The holdings are None when they are not known. Raises StoreError.
    """
    row = store.get(TABLE, HOLDINGS, HELD)
    if row is None:
        return None, 0
    entity = current("holdings", row)
    parts = [bytes(entity[name]) for name in sorted(entity) if name.startswith("part")]  # type: ignore[arg-type]
    answers = int(entity["answers"])
    try:
        found = Holdings.model_validate_json(zlib.decompress(b"".join(parts)))
    except (zlib.error, ValidationError):
        return None, answers  # empty: nothing is known
    return found.model_copy(update={"answers": answers}), answers


def ask(store: Store, clock: Clock) -> int:
    """Ask the manager to look at the archive again; return the question's number.

    Raises StoreError.
    """
    number = 0

    def raised(row: Row | None) -> tuple[Operation, ...]:
        nonlocal number
        number = _number(row) + 1
        entity: Entity = {"schema": written(), "number": number}
        return (updates.write(row, ASKED, entity),)

    updates.update(store, clock, TABLE, HOLDINGS, ASKED, raised)
    return number


def asked(store: Store) -> int:
    """Read the number of the latest question, or 0. Raises StoreError."""
    return _number(store.get(TABLE, HOLDINGS, ASKED))


def _number(row: Row | None) -> int:
    return int(current("holdings", row)["number"]) if row is not None else 0


def _packed(holdings: Holdings) -> bytes:
    return zlib.compress(holdings.model_dump_json().encode(), 9)
