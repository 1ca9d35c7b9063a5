"""Target grids and regions: snapped outward, in one piece across the antimeridian."""

import json
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from modis.tile import TILE_SIZE, Tile
from reprojection.grid import covering
from reprojection.grid.crs import Crs
from reprojection.grid.grids import modis_tile_grid
from tasks.errors import RequestRefusedError
from tasks.request.document import parse_request
from tasks.request.region.kinds import region_area, region_tiles
from tasks.request.region.region import Region
from tasks.request.region.regions import area_geojson, tile_area
from tasks.request.resolved import resolve
from tasks.request.target import _MOST_SOURCE, Target


def target_of(region: dict[str, Any], grid: dict[str, Any]) -> Target:
    return resolve(
        parse_request(
            {
                "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
                "region": region,
                "time": {"start": "2012-01-01", "end": "2012-01-01"},
                "grid": grid,
            }
        )
    ).target


def test_the_grid_of_a_box_in_degrees() -> None:
    grid = target_of(
        {"bbox": [-8.0, 50.5, 6.0, 58.5]}, {"crs": "EPSG:4326", "resolution": 0.01}
    ).grid
    assert (grid.width, grid.height) == (1400, 800)
    assert grid.bounds == pytest.approx((-8.0, 50.5, 6.0, 58.5), abs=1e-9)


def test_bounds_are_snapped_outward() -> None:
    grid = target_of({"bbox": [0.34, 0.34, 0.66, 0.66]}, {"crs": "EPSG:4326", "resolution": 0.5})
    assert grid.grid.bounds == pytest.approx((0.0, 0.0, 1.0, 1.0))


def test_across_the_antimeridian_in_one_piece() -> None:
    for region in (
        {"bbox": [170, -20, -170, -10]},
        {
            "geojson": {
                "type": "MultiPolygon",
                "coordinates": [
                    [[[170, -20], [180, -20], [180, -10], [170, -10], [170, -20]]],
                    [[[-180, -20], [-170, -20], [-170, -10], [-180, -10], [-180, -20]]],
                ],
            }
        },
    ):
        grid = target_of(region, {"crs": "EPSG:4326", "resolution": 0.1}).grid
        assert grid.bounds == pytest.approx((170.0, -20.0, 190.0, -10.0))


def test_tiles_on_their_own_grid() -> None:
    goal = target_of({"tiles": ["h17v03", "h18v03"]}, {"modis": 500})
    assert (goal.grid.width, goal.grid.height) == (4800, 2400)
    assert goal.grid.transform[2] == modis_tile_grid(17, 3, 500).transform[2]
    assert goal.modis == 500


def test_tiles_on_a_users_grid_are_covered_whole() -> None:
    grid = target_of({"tiles": ["h17v03"]}, {"crs": "EPSG:4326", "resolution": 0.5}).grid
    assert grid.bounds == pytest.approx((-20.0, 50.0, 0.0, 60.0))


def test_a_grid_has_so_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    box = {"bbox": [0.0, 0.0, 1.0, 0.5]}
    assert covering._MOST == 2.0**40
    monkeypatch.setattr(covering, "_MOST", 5_000.0)
    assert target_of(box, {"crs": "EPSG:4326", "resolution": 0.01}).grid.pixels == 5_000
    monkeypatch.setattr(covering, "_MOST", 4_999.0)
    with pytest.raises(RequestRefusedError, match=r"0\.01 degree is too small for this region"):
        target_of(box, {"crs": "EPSG:4326", "resolution": 0.01})


def test_a_doubled_cell_has_so_many_source_pixels_at_most() -> None:
    """Source pixels of 1 km along a cell of 2048 pixels and a tile at each of its ends."""
    most = ((_MOST_SOURCE * 1000.0 - 2 * TILE_SIZE) / 2048) // 1
    box = {"bbox": [-150.0, -60.0, 150.0, 60.0]}
    for metres, side in ((most, 2048), (most + 1, 1024)):
        goal = target_of(box, {"crs": "EPSG:6933", "resolution": metres})
        assert goal.lattice.cell_size == side


@settings(max_examples=25)
@given(
    west=st.floats(-20, 20),
    south=st.floats(35, 65),
    width=st.floats(0.2, 15),
    height=st.floats(0.2, 5),
    crs=st.sampled_from(["EPSG:4326", "EPSG:3035", "EPSG:32631", "EPSG:3857", "modis"]),
)
def test_the_grid_holds_every_point_of_the_region(
    west: float, south: float, width: float, height: float, crs: str
) -> None:
    grid: dict[str, object] = (
        {"modis": 1000} if crs == "modis" else {"crs": crs, "resolution": 0.01}
    )
    if crs not in ("EPSG:4326", "modis"):
        grid["resolution"] = 1000.0
    box = [west, south, west + width, south + height]
    goal = target_of({"bbox": box}, grid).grid
    lon, lat = np.meshgrid(np.linspace(box[0], box[2], 41), np.linspace(box[1], box[3], 41))
    x, y = goal.system.from_lonlat(lon.ravel(), lat.ravel())
    left, bottom, right, top = goal.bounds
    room = goal.transform[0] * 1e-5
    assert (x >= left - room).all()
    assert (x <= right + room).all()
    assert (y >= bottom - room).all()
    assert (y <= top + room).all()


def test_one_spelling_of_a_crs() -> None:
    assert Crs.of("epsg:4326").normal_text == Crs.of("EPSG:4326").normal_text == "EPSG:4326"
    wkt = Crs.of("+proj=laea +lat_0=52 +lon_0=10 +datum=WGS84 +units=m").normal_text
    assert wkt.startswith("PROJCRS")
    assert Crs.of(wkt).normal_text == wkt


def test_tiles_of_a_region() -> None:
    assert region_tiles(Region(bbox=(-8.0, 50.5, 6.0, 58.5))) == {(17, 3), (18, 3)}
    assert region_tiles(Region(tiles=("h17v03",))) == {(17, 3)}


def test_the_area_of_a_tile() -> None:
    area = tile_area(Tile(18, 3))
    assert area.bounds == pytest.approx((0.0, 50.0, 20.0, 60.0))
    rim = tile_area(Tile(14, 0))  # its west side lies beyond the rim near the pole
    assert rim.bounds[0] >= -180.0
    assert rim.is_valid


def test_the_same_polygon_written_otherwise_is_one_text() -> None:
    ring = [[0, 50], [5, 50], [5, 55], [0, 50]]
    turned = [[5, 50], [5, 55], [0, 50], [5, 50]]
    texts = {
        area_geojson(region_area(Region(geojson={"type": "Polygon", "coordinates": [one]})))
        for one in (ring, turned, ring[::-1])
    }
    assert len(texts) == 1
    assert shapely.geometry.shape(json.loads(texts.pop())).area == pytest.approx(12.5)


def test_an_area_across_the_antimeridian_is_written_within_180_degrees() -> None:
    text = area_geojson(region_area(Region(bbox=(170.0, -20.0, -170.0, -10.0))))
    written = shapely.geometry.shape(json.loads(text))
    assert written.bounds == pytest.approx((-180.0, -20.0, 180.0, -10.0))
    assert written.area == pytest.approx(200.0)
