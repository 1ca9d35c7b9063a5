"""Grids and swaths from StructMetadata."""

import pytest

from modis.tile import TILE_SIZE
from reprojection.errors import GridError, UnreadableGranuleError
from reprojection.formats import structmetadata
from reprojection.formats.structmetadata import GridInfo, parse_structure

GRID = """GROUP=GridStructure
GROUP=GRID_1
GridName="G"
XDim={width}
YDim=1200
UpperLeftPointMtrs=({left},{top})
LowerRightMtrs=({right},{bottom})
Projection={projection}
ProjParams=(6371007.181000,0,0,0)
END_GROUP=GRID_1
END_GROUP=GridStructure
END
"""
EUROPE = {"left": 0.0, "top": 6671703.118, "right": 1111950.519667, "bottom": 5559752.598333}


def grid(**changes: object) -> GridInfo:
    text = GRID.format(**{"width": 1200, "projection": "GCTP_SNSOID", **EUROPE, **changes})
    return parse_structure(text).grids[0]


def test_a_tile_is_known_by_its_corners() -> None:
    assert grid().tile == (18, 3)
    assert grid().pixel_width == pytest.approx(926.625433, abs=1e-6)


def test_corners_that_differ_by_tenths_of_a_millimetre_are_one_tile() -> None:
    assert grid(left=-0.0004, top=6671703.1184).tile == (18, 3)


def test_a_part_of_a_tile_is_no_tile() -> None:
    assert grid(right=EUROPE["right"] / 2).tile is None
    assert grid(left=TILE_SIZE / 2, right=TILE_SIZE * 1.5).tile is None


def test_geographic_corners_are_packed_degrees() -> None:
    found = grid(
        projection="GCTP_GEO",
        left=-180000000.0,
        top=90000000.0,
        right=180000000.0,
        bottom=-60030000.0,
    )
    assert (found.left, found.top, found.right) == (-180.0, 90.0, 180.0)
    assert found.bottom == pytest.approx(-60.5)
    assert found.crs == "EPSG:4326"
    assert found.tile is None


def test_another_projection_is_refused_when_its_crs_is_asked() -> None:
    with pytest.raises(GridError, match="GCTP_LAMAZ"):
        _ = grid(projection="GCTP_LAMAZ").crs


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 0},
        {"width": -5},
        {"width": 10**9},
        {"width": 1.5},
        {"left": "nan"},
        {"right": 0.0},
    ],
)
def test_impossible_grids_are_damage(changes: dict[str, object]) -> None:
    with pytest.raises(UnreadableGranuleError):
        grid(**changes)


def test_a_side_has_so_many_pixels() -> None:
    """The whole sinusoidal grid at 250 m has 172,800 columns."""
    assert grid(width=structmetadata.MAX_SIDE).width == 200_000
    with pytest.raises(UnreadableGranuleError):
        grid(width=structmetadata.MAX_SIDE + 1)


def test_a_dimension_map_of_increment_zero_is_damage() -> None:
    text = """GROUP=SwathStructure
GROUP=SWATH_1
SwathName="S"
GROUP=DimensionMap
OBJECT=DimensionMap_1
GeoDimension="a"
DataDimension="b"
Offset=0
Increment=0
END_OBJECT=DimensionMap_1
END_GROUP=DimensionMap
END_GROUP=SWATH_1
END_GROUP=SwathStructure
"""
    with pytest.raises(UnreadableGranuleError, match="increment 0"):
        parse_structure(text)
