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
    """A price as the API writes it. The figures are made up for these tests."""
    return {
        "currencyCode": "EUR",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterName": meter,
        "productName": product,
        "skuName": "Standard" if product == APPS else "Hot LRS",
        "unitOfMeasure": unit,
        "type": "Consumption",
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
    return json.dumps({"Items": items, "NextPageLink": following, "Count": len(items)})


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
