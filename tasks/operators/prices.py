"""The prices that operators gave: one row, which all processes read; without it no amount is shown.

In the table `operators`, partition `prices`. `retail_prices` fills it from a file of Azure's.
"""

from dataclasses import dataclass, replace
from typing import Self

from tasks.bag.history import RequestUse
from tasks.bag.model import NO_USE, Use
from tasks.operators.restrictions import TABLE
from tasks.setting_values import Amounts
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, in_json
from tasks.storage.store import Delete, Row, Store, Upsert
from tasks.storage.updates import update

PARTITION = "prices"
_ROW = "prices"
_GB = 1e9
_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Prices(Amounts):
    """Prices in one currency; what has none is 0 and in no amount.

    An hour of one core, with its memory; a GB kept for a month; 10,000 calls that read, or change,
    storage; a GB to or from storage; a GB fetched from an archive.
    """

    core_hour: float = 0.0
    storage: float = 0.0
    reads: float = 0.0
    writes: float = 0.0
    moved: float = 0.0
    download: float = 0.0

    def amount(self, use: Use, *, stored: int = 0, fetched: int = 0) -> float:
        """Return what a use costs, with a month of `stored` bytes and `fetched` ones from outside.

        Reads and writes are priced by 10,000 calls, as Azure does.
        """
        calls = use.reads * self.reads + use.writes * self.writes
        kept = stored * self.storage + fetched * self.download
        moved = (use.received + use.sent) * self.moved
        return use.cpu / _HOUR * self.core_hour + calls / 10_000 + (kept + moved) / _GB


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """The prices, and where they are from. `currency` is empty where there are none.

    `meters` says for each price what it was read from. `taken` is when, in POSIX seconds.
    """

    currency: str = ""
    prices: Prices = Prices()
    source: str = ""
    meters: tuple[str, ...] = ()
    taken: float = 0.0

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.currency)

    def text(self, amount: float) -> str:
        """Return an amount in words: "1,234.50 USD", or "less than 0.01 USD"."""
        if 0 < amount < 0.005:  # which rounds to 0.00
            return f"less than 0.01 {self.currency}"
        return f"{amount:,.2f} {self.currency}"


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What was executed on account of something, in words and, where there are prices, money.

    `brief` is the money, by both times, or the processor time where there are no prices.
    """

    quantities: str
    brief: str
    used: float = 0.0  # by processor seconds that were used, calls and bytes
    held: float = 0.0  # by the time in which slots were held, in place of processor seconds
    money: str = ""

    @classmethod
    def of(cls, done: RequestUse, known: PriceList) -> Self:
        """Say what a request has taken so far."""
        said = _quantities(done.use, done.seconds)
        if not known:
            return cls(quantities=said, brief=f"{time_text(done.use.cpu)} of processors")
        used = known.prices.amount(done.use)
        held = known.prices.amount(replace(done.use, cpu=done.seconds))
        money = f"{known.text(used)} by the processors' time, {known.text(held)} by the slots'"
        if done.made and known.prices.storage:
            month = known.prices.amount(NO_USE, stored=done.made)
            money += f"; {known.text(month)} a month while all is kept"
        low, high = known.text(used), known.text(held)
        brief = low if low == high else f"{low} to {high}"
        return cls(quantities=said, brief=brief, used=used, held=held, money=money)

    @property
    def text(self) -> str:
        """Both, in one line."""
        return f"{self.quantities}: {self.money}" if self.money else self.quantities


def time_text(seconds: float) -> str:
    """Return a time with two digits that say something: 0.42 s, 12 min, 3.1 hours, 1,250 hours."""
    if seconds < 99.5:
        return f"{seconds:.2g} s"
    if seconds < 1.5 * _HOUR:
        return f"{seconds / 60:.2g} min"
    hours = seconds / _HOUR
    return f"{hours:,.0f} hours" if hours >= 99.5 else f"{hours:.2g} hours"


def calls_text(use: Use) -> str:
    """Return calls and bytes in words; "" where storage is embedded, which has no calls."""
    calls = use.reads + use.writes
    moved = (use.received + use.sent) / _GB
    return f"{calls:,} calls to storage, {moved:,.3g} GB to and from it" if calls else ""


def _quantities(use: Use, held: float) -> str:
    parts = [f"{time_text(use.cpu)} of processors, slots held for {time_text(held)}"]
    return ", ".join([*parts, *filter(None, [calls_text(use)])])


_CODEC = Codec(PriceList, "prices", {"prices": in_json(Prices), "meters": in_json(tuple[str, ...])})


def load(store: Store) -> PriceList:
    """Return the prices there are. Raises StoreError."""
    row = store.get(TABLE, PARTITION, _ROW)
    return _CODEC.load(row) if row else PriceList()


def put(store: Store, known: PriceList) -> None:
    """Keep prices in place of earlier ones. Raises StoreError."""
    store.transact(TABLE, PARTITION, [Upsert(row=_ROW, entity=_CODEC.dump(known))])


def forget(store: Store, clock: Clock) -> None:
    """Have no prices any more. Raises StoreError."""

    def change(found: Row | None) -> tuple[Delete, ...]:
        return () if found is None else (Delete(row=found.row, etag=found.etag),)

    update(store, clock, TABLE, PARTITION, _ROW, change)
