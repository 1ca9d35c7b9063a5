"""What the names of granules tell of a product that the catalogue does not know."""

import datetime as dt
from dataclasses import replace

import pytest

from service_manager.planner.granules import geometry
from tests.service_manager.shelf import swath_granule, tile_granule


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("VNP99A1", "tile"),
        ("VNP19A1", "outlined"),
        ("VJ119A1", "outlined"),
        ("VNP46A5", "outlined"),
    ],
)
def test_tiles_of_other_grids_lie_where_their_outline_says(product: str, kind: str) -> None:
    record = tile_granule(dt.date(2020, 1, 1), 25, 5, product)
    assert geometry(record if kind == "tile" else replace(record, tile=None)) == kind


def test_names_without_a_tile_are_of_swaths() -> None:
    start = dt.datetime(2020, 1, 1, 10, 30, tzinfo=dt.UTC)
    assert geometry(swath_granule(start, (0.0, 40.0, 20.0, 60.0))) == "swath"
