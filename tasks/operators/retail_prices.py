"""Prices from a file of the Azure Retail Prices API, or of a price sheet in its form.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices: a page is an
object with `Items`, and with the address of the next page in `NextPageLink`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.errors import SwathmillError
from tasks.operators.prices import PriceList, Prices

_UNIT = re.compile(r"(?P<count>\d+(?:\.\d+)?)\s*(?P<thousands>K|M(?:illion)?)?\b[\s/]*(?P<unit>.*)")
_THOUSANDS = {None: 1.0, "K": 1e3, "M": 1e6, "Million": 1e6}
_HOURS = {"day": 24.0, "hour": 1.0, "minute": 1 / 60, "second": 1 / 3600}
_NAMED = 6  # of what there is to choose from


class PriceFileError(SwathmillError):
    """A file of prices cannot be used; the message says why and what to do."""


class Item(BaseModel):
    """A price of a meter, for a quantity of at least `tier` units."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    currency: str = Field(alias="currencyCode")
    price: float = Field(alias="retailPrice", ge=0)
    unit: str = Field(alias="unitOfMeasure")
    meter: str = Field(alias="meterName")
    product: str = Field("", alias="productName")
    sku: str = Field("", alias="skuName")
    arm_sku: str = Field("", alias="armSkuName")
    region: str = Field("", alias="armRegionName")
    tier: float = Field(0.0, alias="tierMinimumUnits")
    kind: str = Field("Consumption", alias="type")
    since: str = Field("", alias="effectiveStartDate")

    @property
    def amount(self) -> tuple[float, str]:
        """The price of one unit, and the unit in small letters: "hour", "gib second", ""."""
        found = _UNIT.fullmatch(self.unit.strip())
        if not found:
            return self.price, self.unit.strip().lower()
        count = float(found["count"]) * _THOUSANDS[found["thousands"]]
        return self.price / (count or 1.0), found["unit"].lower()

    @property
    def text(self) -> str:
        """The item in words."""
        of = f"{self.product}, " if self.product else ""
        since = f", since {self.since[:10]}" if self.since else ""
        return f"{of}{self.meter} in {self.region}: {self.price:g} for {self.unit}{since}"


class Page(BaseModel):
    """A page of an answer of the API."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    items: tuple[Item, ...] = Field(alias="Items")
    following: str | None = Field(None, alias="NextPageLink")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which of a file's meters are those of this service.

    Attributes:
        region: as `armRegionName` has it, such as `westeurope`; "": the file has one alone.
        processor: a meter's name, or the size of a virtual machine.
        cores: of that size; 1 where the meter is of one core.
        memory: GiB beside each core, where memory has a meter of its own.
        blobs: product of the blobs.
        kept: access tier and redundancy of the blobs.
        moved: a meter of bytes to and from storage, such as that of private links; "": none.
    """

    region: str = ""
    processor: str = "Standard vCPU Active Usage"
    cores: float = 1.0
    memory: float = 2.0
    blobs: str = "General Block Blob v2"
    kept: str = "Hot LRS"
    moved: str = ""


def read_page(text: str, name: str) -> Page:
    """Read a page. Raises PriceFileError."""
    try:
        return Page.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise PriceFileError(
            f"{name} is not an answer of the Azure Retail Prices API: "
            f"{where + ': ' if where else ''}{first['msg']}. Save one as it comes, as JSON."
        ) from None


def chosen(items: Iterable[Item], choice: Choice, source: str) -> PriceList:
    """Choose the prices of the service from a file.

    Calls and bytes whose meters the file does not have get no price; a core has to have one.

    Raises:
        PriceFileError: the processor's meter is absent, or more than one could be meant.
    """
    found = _of_region(items, choice.region)
    meters: list[str] = []

    def price(what: str, some: Sequence[Item]) -> Item | None:
        one = _only(what, some)
        if one is not None:
            meters.append(f"{what}: {one.text}")
        return one

    core = price("core-hour", _processors(found, choice.processor))
    if core is None:
        raise PriceFileError(
            f"{source} has no meter {choice.processor!r}{_in(choice.region)}. Name by --processor "
            f"one that it has: {_some(one.meter for one in found)}."
        )
    core_hour = _hourly(core) / choice.cores
    beside = choice.processor.replace("vCPU", "Memory")
    if beside != choice.processor:
        memory = price("core-hour, memory", [one for one in found if one.meter == beside])
        core_hour += choice.memory * _hourly(memory) if memory else 0.0
    blobs = [one for one in found if one.product == choice.blobs]
    tier, _, redundancy = choice.kept.rpartition(" ")

    def operations(what: str, kind: str) -> float:
        names = (f"{tier} {redundancy} {kind} Operations", f"{tier} {kind} Operations")
        of_sku = (one for one in blobs if one.sku in ("", choice.kept))
        one = price(what, [one for one in of_sku if one.meter in names])
        return 1e4 * one.amount[0] if one else 0.0

    kept = price("storage", [one for one in blobs if one.meter == f"{choice.kept} Data Stored"])
    moved = price("moved", [one for one in found if choice.moved and one.meter == choice.moved])
    if choice.moved and moved is None:
        raise PriceFileError(f"{source} has no meter {choice.moved!r}{_in(choice.region)}.")
    prices = Prices(
        core_hour=core_hour,
        storage=kept.amount[0] if kept else 0.0,
        reads=operations("reads", "Read"),
        writes=operations("writes", "Write"),
        moved=moved.amount[0] if moved else 0.0,
    )
    return PriceList(currency=core.currency, prices=prices, source=source, meters=tuple(meters))


def with_own(known: PriceList, own: Prices, named: Iterable[str], currency: str) -> PriceList:
    """Put an operator's own prices in place of those `named`; the others stay.

    Raises:
        PriceFileError: it is not said in which currency.
    """
    currency = currency or known.currency
    if not currency or (known.currency not in ("", currency)):
        raise PriceFileError(
            f"Name the currency by --currency: there are prices in {known.currency or 'none'}."
        )
    given = {name: getattr(own, name) for name in named}
    prices = replace(known.prices, **given)
    replaced = tuple(name.replace("_", "-") for name in given)
    kept = [line for line in known.meters if line.partition(":")[0].split(",")[0] not in replaced]
    said = [f"{name.replace('_', '-')}: {value:g}, given by hand" for name, value in given.items()]
    return replace(
        known,
        currency=currency,
        prices=prices,
        source=known.source or "given by hand",
        meters=(*kept, *said),
    )


def _of_region(items: Iterable[Item], region: str) -> list[Item]:
    """Keep one price of each meter that is paid by use in a region, or in all of them.

    Of several it is the one of the lowest tier that is not free: a free first tier is an allowance
    of the subscription. Of one tier it is the newest.
    """
    everywhere = ("", "Global")
    used = [one for one in items if one.kind == "Consumption"]
    regions = sorted({one.region for one in used if one.region not in everywhere})
    if not region and len(regions) > 1:
        raise PriceFileError(
            f"The file has prices of {len(regions)} regions: {_some(regions)}. Name one by "
            "--region."
        )
    here = [one for one in used if not region or one.region in (region, *everywhere)]
    if len({one.currency for one in here}) > 1:
        raise PriceFileError("The file has prices in several currencies. Save it with one.")
    lowest: dict[tuple[str, ...], Item] = {}
    for one in sorted(here, key=lambda one: one.since, reverse=True):
        name = (one.meter, one.product, one.sku, one.arm_sku, one.region)
        known = lowest.setdefault(name, one)
        if (one.price == 0, one.tier) < (known.price == 0, known.tier):
            lowest[name] = one
    return list(lowest.values())


def _processors(items: Iterable[Item], name: str) -> list[Item]:
    """Return the prices of a meter, or of a size of machine with Linux that is not a spot one."""
    items = list(items)
    by_meter = [one for one in items if one.meter == name and "Windows" not in one.product]
    if by_meter:
        return by_meter
    reserved = ("Spot", "Low Priority")
    return [
        one
        for one in items
        if one.arm_sku == name
        and "Windows" not in one.product
        and not any(word in one.sku or word in one.meter for word in reserved)
    ]


def _only(what: str, some: Sequence[Item]) -> Item | None:
    """Return the price, if there is one. Raises PriceFileError if there are several."""
    if len({one.amount for one in some}) > 1:
        raise PriceFileError(
            f"{what} could be any of {len(some)} meters of the file: "
            f"{_some(one.text for one in some)}. Ask the API for fewer."
        )
    return some[0] if some else None


def _hourly(item: Item) -> float:
    """Return the price of an hour. Raises PriceFileError for a meter of something else."""
    price, unit = item.amount
    hours = _HOURS.get(re.split(r"[\s/]", unit)[-1].removesuffix("s"))
    if hours is None:
        raise PriceFileError(f"{item.text}: that is not a price by time. Name another meter.")
    return price / hours


def _some(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = len(found) - _NAMED
    return "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _in(region: str) -> str:
    return f" in {region}" if region else ""
