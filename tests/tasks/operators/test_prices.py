"""Prices: chosen from Azure's retail price file, by hand, stored; amounts of measured use."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tasks.bag.history import RequestUse
from tasks.bag.model import Use
from tasks.operators import prices
from tasks.operators.prices import PriceList, Prices, Spending, calls_text
from tasks.operators.retail_prices import (
    Choice,
    Item,
    PriceFileError,
    chosen,
    read_page,
    with_own,
)
from tasks.service.memory_runtime import memory_runtime

APPS, BLOBS = "Azure Container Apps", "General Block Blob v2"


def item(
    meter: str, price: float, unit: str, product: str = APPS, **more: object
) -> dict[str, Any]:
    """A price with all properties that Microsoft's page of the API documents, in its order.

    No answer of the API was at hand: figures and ids are made up for these tests, and the names of
    meters and units are those that the page and other people's programs have.
    """
    return {
        "currencyCode": "EUR",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "location": "EU West",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterId": "00000000-0000-0000-0000-000000000000",
        "meterName": meter,
        "productId": "DZH000000000",
        "skuId": "DZH000000000/0000",
        "productName": product,
        "skuName": "Standard" if product == APPS else "Hot LRS",
        "serviceName": product if product == APPS else "Storage",
        "serviceId": "DZH000000000",
        "serviceFamily": "Containers" if product == APPS else "Storage",
        "unitOfMeasure": unit,
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "",
    } | more


LIST = [
    item("Standard vCPU Active Usage", 0.00002, "1 Second"),
    item("Standard Memory Active Usage", 0.000002, "1 GiB Second"),
    item("Hot LRS Data Stored", 0.02, "1 GB/Month", BLOBS),
    item("Hot LRS Data Stored", 0.018, "1 GB/Month", BLOBS, tierMinimumUnits=51200.0),
    item("Hot LRS Write Operations", 0.05, "10K", BLOBS),
    item("Hot Read Operations", 0.004, "10K", BLOBS),
    item("Cool Read Operations", 0.01, "10K", BLOBS, skuName="Cool LRS"),
    item("D4as v5", 0.2, "1 Hour", "Virtual Machines Dasv5 Series", armSkuName="Standard_D4as_v5"),
    item(
        "D4as v5 Spot",
        0.05,
        "1 Hour",
        "Virtual Machines Dasv5 Series",
        armSkuName="Standard_D4as_v5",
    ),
    item(
        "D4as v5",
        0.4,
        "1 Hour",
        "Virtual Machines Dasv5 Series Windows",
        armSkuName="Standard_D4as_v5",
    ),
    item("D4as v5", 900.0, "1 Hour", "Virtual Machines", type="Reservation"),
    item("Standard Data Processed - Ingress", 0.01, "1 GB", "Virtual Network Private Link"),
]


def page(items: list[dict[str, Any]], following: str | None = None) -> str:
    """A page with what the documentation shows around the items."""
    return json.dumps(
        {
            "BillingCurrency": "EUR",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": items,
            "NextPageLink": following,
            "Count": len(items),
        }
    )


def items(more: list[dict[str, Any]] | None = None) -> Iterator[Item]:
    yield from read_page(page(LIST + (more or [])), "list.json").items


def test_the_meters_of_the_template_are_chosen() -> None:
    known = chosen(items(), Choice(), "list.json")
    assert known.currency == "EUR"
    assert vars(known.prices) == pytest.approx(
        {
            "core_hour": 3600 * (0.00002 + 2 * 0.000002),
            "storage": 0.02,
            "reads": 0.004,
            "writes": 0.05,
            "moved": 0.0,
            "download": 0.0,
        }
    )
    assert any("Hot LRS Data Stored in westeurope: 0.02 for 1 GB/Month" in m for m in known.meters)


@pytest.mark.parametrize(
    ("unit", "amount"),
    [
        ("1 Hour", (6.0, "hour")),
        ("100 Hours", (0.06, "hours")),
        ("10K", (0.0006, "")),
        ("1M", (6e-6, "")),
        ("1 Million", (6e-6, "")),
        ("1 GB/Month", (6.0, "gb/month")),
        ("100 GB", (0.06, "gb")),
        ("1 GiB Second", (6.0, "gib second")),
        ("1/Month", (6.0, "month")),
        ("1", (6.0, "")),
    ],
)
def test_a_price_is_of_one_unit(unit: str, amount: tuple[float, str]) -> None:
    price, of = Item.model_validate(item("x", 6.0, unit)).amount
    assert price == pytest.approx(amount[0])
    assert of == amount[1]


@pytest.mark.parametrize(
    ("unit", "price", "hour"),
    [("100 Hours", 5.0, 0.05), ("1 Second", 0.0001, 0.36), ("1/Hour", 0.2, 0.2), ("1 Day", 24, 1)],
)
def test_a_core_is_paid_by_the_hour_whatever_the_unit(unit: str, price: float, hour: float) -> None:
    known = chosen(items([item("Core", price, unit)]), Choice(processor="Core"), "x")
    assert known.prices.core_hour == pytest.approx(hour)


def test_a_free_first_tier_is_no_price_and_the_newest_of_a_tier_counts() -> None:
    """Container Apps are free up to some seconds of a subscription."""
    free = item("Standard vCPU Active Usage", 0.0, "1 Second")
    paid = item("Standard vCPU Active Usage", 0.00003, "1 Second", tierMinimumUnits=180000.0)
    newer = {**paid, "retailPrice": 0.00004, "effectiveStartDate": "2026-06-01T00:00:00Z"}
    for some in ([free, paid, newer], [newer, paid, free]):
        read = read_page(page([*LIST[1:], *some]), "x").items
        found = chosen(read, Choice(memory=0.0), "x")
        assert found.prices.core_hour == pytest.approx(3600 * 0.00004)


def test_a_size_of_machine_is_shared_out_over_its_cores() -> None:
    known = chosen(items(), Choice(processor="Standard_D4as_v5", cores=4), "x")
    assert known.prices.core_hour == pytest.approx(0.05)
    spot = chosen(items(), Choice(processor="D4as v5 Spot", cores=4), "x")
    assert spot.prices.core_hour == pytest.approx(0.0125)
    moved = chosen(items(), Choice(moved="Standard Data Processed - Ingress"), "x")
    assert moved.prices.moved == 0.01


@pytest.mark.parametrize(
    ("choice", "more", "says"),
    [
        (Choice(processor="D5"), [], "no meter 'D5'. Name by --processor"),
        (Choice(region="mars"), [], "no meter 'Standard vCPU Active Usage' in mars"),
        (Choice(moved="Nothing"), [], "no meter 'Nothing'"),
        (Choice(processor="Hot Read Operations"), [], "not a price by time"),
        (Choice(), [item("x", 1.0, "1", armRegionName="eastus")], "2 regions: eastus; westeurope"),
        (Choice(), [item("x", 1.0, "1", currencyCode="USD")], "several currencies"),
        (
            Choice(),
            [item("Standard vCPU Active Usage", 0.1, "1 Second", "Other")],
            "core-hour could be any of 2 meters",
        ),
    ],
)
def test_what_could_mean_two_things_is_refused(
    choice: Choice, more: list[dict[str, Any]], says: str
) -> None:
    with pytest.raises(PriceFileError, match=says):
        chosen(items(more), choice, "x")


@pytest.mark.parametrize("text", ["", "{}", '{"Items": [{"meterName": "x"}]}', "[]"])
def test_another_file_is_no_price_list(text: str) -> None:
    with pytest.raises(PriceFileError, match="not an answer of the Azure Retail Prices API"):
        read_page(text, "x")


def test_own_amounts_replace_those_named() -> None:
    known = chosen(items(), Choice(), "list.json")
    own = with_own(known, Prices(core_hour=1.0), ["core_hour"], "")
    assert (own.prices.core_hour, own.prices.storage) == (1.0, 0.02)
    assert not any("vCPU" in line or "Memory" in line for line in own.meters)
    with pytest.raises(PriceFileError, match="--currency"):
        with_own(PriceList(), Prices(core_hour=1.0), ["core_hour"], "")
    with pytest.raises(PriceFileError, match="in EUR"):
        with_own(known, Prices(core_hour=1.0), ["core_hour"], "USD")


def test_prices_are_kept_and_forgotten() -> None:
    runtime = memory_runtime()
    assert not prices.load(runtime.store)
    known = chosen(items(), Choice(), "list.json")
    prices.put(runtime.store, known)
    assert prices.load(runtime.store) == known
    prices.forget(runtime.store, runtime.clock)
    prices.forget(runtime.store, runtime.clock)
    assert not prices.load(runtime.store)


DONE = RequestUse(
    request="r",
    count=3,
    seconds=7200.0,
    made=5 * 10**9,
    use=Use(cpu=3600.0, reads=20_000, writes=10_000, received=10**9, sent=10**9),
)


def test_an_amount_is_of_what_was_measured() -> None:
    rates = Prices(core_hour=2.0, reads=0.1, writes=0.5, moved=0.25, storage=0.02)
    assert rates.amount(DONE.use) == pytest.approx(2.0 + 0.2 + 0.5 + 0.5)
    said = Spending.of(DONE, PriceList(currency="EUR", prices=rates))
    assert said.text == (
        "60 min of processors, slots held for 2 hours, 30,000 calls to storage, 2 GB to and from "
        "it: 3.20 EUR by the processors' time, 5.20 EUR by the slots'; 0.10 EUR a month while all "
        "is kept"
    )
    assert said.brief == "3.20 EUR to 5.20 EUR"


def test_without_prices_no_amount_is_said() -> None:
    said = Spending.of(DONE, PriceList())
    assert said.text == (
        "60 min of processors, slots held for 2 hours, 30,000 calls to storage, 2 GB to and from it"
    )
    assert said.brief == "60 min of processors"
    assert calls_text(Use(cpu=1.0)) == ""  # embedded storage has no calls
