"""What is offered of a product, and the place of a day."""

import datetime as dt
from dataclasses import replace

from archives.formats.boundary import touches
from portal.viewer import shelf
from portal.viewer.shelf import place_of, shelf_of
from portal.views.state import MOST_GRANULES
from portal.views.wmts import WHOLE_EARTH
from tasks.holdings.holdings import Held
from tests.service_manager.shelf import tile_granule

DAY = dt.date(2020, 1, 1)


def test_a_product_that_the_catalogue_lacks_offers_the_layers_of_its_granules() -> None:
    most = shelf._MOST_BANDS
    lengths: dict[str, tuple[int, ...]] = {
        "plain": (), "bands": (2, 3), "most": (most,), "many": (most + 1,)
    }  # fmt: skip
    held = Held(
        name="MYOWN", collection="1", granules=2, first=DAY, last=DAY, bits="1", layers=lengths
    )
    (group,) = shelf_of(held).layers
    names = [one.name for one in group.layers]
    bands = [f"bands[{a},{b}]" for a in range(2) for b in range(3)]
    assert names == ["plain", *bands, *(f"most[{at}]" for at in range(most)), "many"]
    assert shelf_of(held).days == (DAY,)


def test_a_day_of_many_granules_is_shown_in_part() -> None:
    """The place is one that a map may count: not too many granules touch it."""
    few = [tile_granule(DAY, 17, 3), tile_granule(DAY, 18, 3)]
    box = place_of(few)
    assert (box.west, box.south, box.east, box.north) == (-20.0, 50.0, 20.0, 60.0)
    day = [tile_granule(DAY, h, v) for h in range(10, 26) for v in range(4, 14)]
    seen = sum(touches(one, place_of(day)) for one in day)
    assert 4 <= seen <= MOST_GRANULES
    lost = [replace(one, tile=None) for one in day]
    assert place_of(lost) == WHOLE_EARTH
