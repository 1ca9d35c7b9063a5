"""Boxes of longitude and latitude, also across the antimeridian."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modis.box import LonLatBox
from modis.tile import Tile

FIJI = LonLatBox(west=175.0, south=-20.0, east=-178.0, north=-15.0)


def test_a_box_may_cross_the_antimeridian() -> None:
    assert FIJI.width == 7.0
    assert FIJI.unwrapped_east == 182.0
    assert FIJI.spans() == [(175.0, 180.0), (-180.0, -178.0)]
    assert Tile(0, 10).meets(FIJI)
    assert Tile(35, 10).meets(FIJI)
    assert not Tile(18, 10).meets(FIJI)


@pytest.mark.parametrize(
    ("west", "east", "width", "spans"),
    [
        (-10.0, 10.0, 20.0, [(-10.0, 10.0)]),
        (-180.0, 180.0, 360.0, [(-180.0, 180.0)]),
        (170.0, 190.0, 20.0, [(170.0, 180.0), (-180.0, -170.0)]),
        (-300.0, 300.0, 360.0, [(-180.0, 180.0)]),
        (5.0, 5.0, 0.0, [(5.0, 5.0)]),
        (10.0, -10.0, 340.0, [(10.0, 180.0), (-180.0, -10.0)]),
    ],
)
def test_width_and_spans(
    west: float, east: float, width: float, spans: list[tuple[float, float]]
) -> None:
    box = LonLatBox(west, 0.0, east, 1.0)
    assert box.width == width
    assert box.spans() == spans


@given(st.floats(-180, 180), st.floats(-180, 180))
def test_spans_are_as_wide_as_the_box_and_on_the_map(west: float, east: float) -> None:
    box = LonLatBox(west, 0.0, east, 1.0)
    spans = box.spans()
    assert sum(b - a for a, b in spans) == pytest.approx(box.width, abs=1e-9)
    assert all(-180.0 <= a <= b <= 180.0 for a, b in spans)
