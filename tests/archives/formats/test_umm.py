"""Outlines of granules, at the bound of what a ring encloses."""

import pytest

from archives.formats import umm
from archives.formats.umm import box_ring
from modis.box import LonLatBox


@pytest.mark.parametrize(("east", "drawn"), [(150.0, True), (150.5, False)])
def test_a_box_that_is_too_wide_has_no_ring(east: float, drawn: bool) -> None:
    """A ring bounds the smaller part of the sphere."""
    assert umm._WIDEST == 170.0
    ring = box_ring(LonLatBox(west=-20.0, south=-10.0, east=east, north=10.0))
    assert (ring is not None) == drawn
