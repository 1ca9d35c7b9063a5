"""What a request without a title is called."""

import pytest

from tasks.request import heading as heading_module
from tasks.request.document import parse_request
from tasks.request.heading import heading

PRODUCT = {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}
AEROSOL = {"name": "MYD04_L2", "collection": "061", "layers": ["Optical_Depth_Land_And_Ocean"]}
GRID = {"grid": {"crs": "EPSG:4326", "resolution": 0.01}}
DAYS = {"start": "2012-04-13", "end": "2012-04-15"}
SITES = "id,latitude,longitude\nMoor,56.6,-6.7\nBeech,54,9"
POLYGON = {"type": "Polygon", "coordinates": [[[0, 50], [1, 50], [1, 51], [0, 50]]]}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"title": "Spring"}, "Spring"),
        ({"title": "Spring\r\nof\x00 2012\n"}, "Spring of\\x00 2012"),
        ({"title": " \x00"}, "MCD15A2 in -8, 50.5, 6, 58.5, 2012-04-13 to 2012-04-15"),
        (
            {"products": [PRODUCT, AEROSOL, AEROSOL | {"day_night": "day"}]},
            "MCD15A2, MYD04_L2 in -8, 50.5, 6, 58.5, 2012-04-13 to 2012-04-15",
        ),
        (
            {"time": {"start": "2012-04-13", "end": "2012-04-13"}, "region": {"tiles": ["h18v03"]}},
            "MCD15A2 in h18v03, 2012-04-13",
        ),
        (
            {"region": {"tiles": [f"h{n}v03" for n in range(15, 21)]}},
            "MCD15A2 in h15v03, h16v03, h17v03, h18v03 and 2 more, 2012-04-13 to 2012-04-15",
        ),
        (
            {"region": {"place": "Bayern, Germany"}},
            "MCD15A2 in Bayern, Germany, 2012-04-13 to 2012-04-15",
        ),
        (
            {"region": {"geojson": POLYGON}},
            "MCD15A2 in a polygon, 2012-04-13 to 2012-04-15",
        ),
        (
            {"region": {"sites": SITES}, "grid": None},
            "MCD15A2 at 2 sites, 2012-04-13 to 2012-04-15",
        ),
    ],
)
def test_a_request_is_named_by_its_title_or_by_what_it_asks_for(
    document: dict[str, object], said: str
) -> None:
    whole = {
        "products": [PRODUCT],
        "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
        "time": DAYS,
        **GRID,
        **document,
    }
    made = parse_request({name: part for name, part in whole.items() if part is not None})
    assert heading(made) == said


def test_a_title_with_escapes_is_cut() -> None:
    """`_LONGEST`: what is shown as an escape is longer than it is."""
    region = {"bbox": [0, 0, 1, 1]}
    asked = {"products": [PRODUCT], "region": region, "time": DAYS, **GRID}
    made = heading(parse_request({**asked, "title": "x" * 100 + "\u200b" * 100}))
    assert len(made) == heading_module._LONGEST == 200


def test_a_long_name_is_cut() -> None:
    products = [{**PRODUCT, "name": f"PRODUCT_{number}"} for number in range(20)]
    asked = {"products": products, "region": {"tiles": ["h18v03"]}, "time": DAYS, **GRID}
    assert len(heading(parse_request(asked))) == 200
