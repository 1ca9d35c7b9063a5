"""What the archive holds: kept in a row, and held against a request."""

import datetime as dt
from typing import Any

import pytest

from archives.kinds.coverage import Square
from modis.tile import Tile
from tasks.errors import RequestRefusedError
from tasks.holdings import holdings
from tasks.holdings.held import check_held, lacking
from tasks.holdings.holdings import Held, Holdings, day_bits
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tasks.storage.memory_store import MemoryStore
from tests.counts.counting import calls_of

FIRST = dt.date(2012, 1, 1)
DAYS = [FIRST + dt.timedelta(days=8 * number) for number in range(16)]
PLAIN: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}


def held(name: str = "MCD15A2", **given: Any) -> Held:
    values = {
        "collection": "5",
        "granules": 32,
        "first": DAYS[0],
        "last": DAYS[-1],
        "bits": day_bits(DAYS, DAYS[0]),
        "tiles": frozenset({Tile(17, 3), Tile(18, 3)}),
    }
    return Held(name=name, **{**values, **given})


def day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        ("2012-01-01", "2012-01-01", True),
        ("2012-01-02", "2012-01-08", False),
        ("2012-01-02", "2012-01-09", True),
        ("2012-04-30", "2013-01-01", True),
        ("2012-05-01", "2013-01-01", False),
        ("2011-01-01", "2011-12-31", False),
        ("2011-01-01", "2012-01-01", True),
        ("2000-01-01", "2031-01-01", True),
    ],
)
def test_days_are_known_one_by_one(start: str, end: str, found: bool) -> None:
    assert held().has_days(day(start), day(end)) is found


def test_what_is_published_is_read() -> None:
    store = MemoryStore()
    assert holdings.read(store) == (None, 0)
    layers = {f"layer {number}" * 9: (number,) for number in range(72)}
    told = Holdings(products=tuple(held(f"MOD{n}", layers=layers) for n in range(900)))
    holdings.publish(store, told, 7)
    found, answers = holdings.read(store)
    assert found is not None
    assert (found.products, answers) == (told.products, 7)
    holdings.publish(store, None, 8)
    assert holdings.read(store) == (None, 8)


def told_as(told: Holdings, *, less: int) -> Holdings | None:
    """What is read of holdings that are published where a row has so many bytes too few."""
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(holdings, "_MOST_PARTS", 1)
        patched.setattr(holdings, "_PART", len(holdings._packed(told)) - less)
        holdings.publish(store, told, 1)
    return holdings.read(store)[0]


def test_a_list_that_is_too_long_for_a_row_loses_its_layers_and_then_counts_as_unknown() -> None:
    """The row is an entity of 1 MiB, whose properties have 64 KiB at most."""
    assert holdings._PART <= 65_536
    assert holdings._PART * holdings._MOST_PARTS < 2**20 - 65_536
    seen = held(layers={"Lai_1km": (3,)}, notes={"Lai_1km": ("odd",)})
    told = Holdings(products=(seen,), absent=("/archive/b",))
    bare = Holdings(products=(held(),), absent=("/archive/b",))
    whole, cut = told_as(told, less=0), told_as(told, less=1)
    assert whole is not None
    assert whole.products == told.products
    assert cut is not None
    assert (cut.products, cut.absent) == (bare.products, bare.absent)
    assert told_as(bare, less=0) is not None
    assert told_as(bare, less=1) is None


def check(*products: Held, **changes: Any) -> None:
    check_held(resolve(parse_request({**PLAIN, **changes})), Holdings(products=products))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"region": {"bbox": [-180, -90, 180, 90]}, "grid": {"crs": "EPSG:4326", "resolution": 1}},
        {"region": {"bbox": [0.01, 50, 0.011, 50.001]}},
        {"region": {"bbox": [3, 49.9, 4, 49.999]}},  # a kernel reaches over the tile's edge
        {"region": {"tiles": ["h18v03"]}, "grid": {"modis": 1000}},
        {"region": {"bbox": [0, 50, 5, 55]}, "grid": {"crs": "EPSG:3035", "resolution": 1000}},
    ],
)
def test_what_may_be_there_is_let_through(changes: dict[str, Any]) -> None:
    check(held(), **changes)


def test_of_a_record_one_product_is_enough_and_none_is_refused() -> None:
    record = {"products": [{"record": "leaf-area-8day", "layers": ["Lai"]}]}
    check(held("MOD15A2H", collection="61"), **record)
    late = held("VNP15A2H", collection="2", first=day("2013-01-01"), last=day("2013-01-01"))
    there = Holdings(products=(held("MOD15A2H", collection="61"), late))
    assert [*lacking(resolve(parse_request({**PLAIN, **record})), there)] == []
    with pytest.raises(RequestRefusedError, match="any product of the record leaf-area-8day"):
        check(held("MOD15A2H", collection="6"), **record)


def test_what_one_of_several_products_lacks_is_a_gap_and_said() -> None:
    old = held("MCD12Q1", first=day("2011-01-01"), last=day("2011-01-01"), bits="1")
    products = [*PLAIN["products"], {"name": "MCD12Q1", "collection": "5", "layers": ["x"]}]
    check(held(), old, products=products)
    request = parse_request({**PLAIN, "products": products})
    (lack,) = lacking(resolve(request), Holdings(products=(held(), old)))
    assert lack.field == "time.start"
    assert "it has one day, 2011-01-01" in lack.remedy


def test_what_is_lacking_is_told_of_each_product() -> None:
    far = held("MYD15A2", tiles=frozenset({Tile(9, 9)}))
    names = ("MYD15A2", "MCD12Q1", "MCD15A2")
    products = [{"name": n, "collection": "5", "layers": ["Lai_1km"]} for n in names]
    request = parse_request({**PLAIN, "products": products})
    found = [*lacking(resolve(request), Holdings(products=(held(), far)))]
    assert [lack.field for lack in found] == ["region.bbox", "products.1.name"]
    assert "tiles h09v09" in found[0].remedy


def test_swaths_of_the_other_side_of_the_antimeridian_may_touch() -> None:
    swaths = held(tiles=frozenset(), cells=frozenset({Square(35, 9)}))
    check(swaths, region={"bbox": [-179.5, 1, -179, 2]})
    with pytest.raises(RequestRefusedError, match="none touches"):
        check(swaths, region={"bbox": [10, 1, 11, 2]})


def test_swaths_over_a_pole_are_near_all_that_is_near_it() -> None:
    swaths = held(tiles=frozenset(), cells=frozenset({Square(0, 17)}))
    grid = {"crs": "EPSG:3413", "resolution": 5000}
    check(swaths, region={"bbox": [20, 85, 30, 89]}, grid=grid)


LAYERS: dict[str, tuple[int, ...]] = {"Lai_1km": (), "FparExtra_QC": ()}


@pytest.mark.parametrize("rule", ["best", {"FparLai_QC": {"MODLAND": [0]}}])
def test_a_rule_over_a_quality_layer_that_granules_lack_is_refused(rule: object) -> None:
    """The request was accepted, fetched, and failed in each cell."""
    with pytest.raises(RequestRefusedError, match="no quality layer 'FparLai_QC', which the rule"):
        check(held(layers=LAYERS), qa=rule)
    check(held(layers={**LAYERS, "FparLai_QC": ()}), qa=rule)
    check(held(layers=LAYERS), qa={"FparExtra_QC": {"LANDSEA": [0]}})
    check(held(layers={}), qa=rule)  # nothing is known of the granules
    told = [
        *lacking(
            resolve(parse_request({**PLAIN, "qa": rule})), Holdings(products=(held(layers=LAYERS),))
        )
    ]
    assert ["quality layer" in str(one) for one in told] == [True]


def test_a_check_takes_no_call_for_each_sample() -> None:
    """Of a grid a hundred thousand samples are looked at; two fifths of a submission went there."""
    resolved = resolve(parse_request(PLAIN))
    there = Holdings(products=(held(),))
    assert calls_of(lambda: check_held(resolved, there)) < 2000
