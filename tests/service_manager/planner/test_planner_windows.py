"""How much of a request's cells is made: what it wants, in blocks, and whole where it is most."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service_manager.planner import plan_stream
from service_manager.planner.cells import WindowCell, places
from tasks.bag.spec import GroupSpec, MosaicSpec, RasterSpec, ReprojectSpec
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tasks.request.target import Target
from tasks.storage.schema import PARTS_AND_RECORDS
from tests.service_manager.shelf import REQUEST, SWATHS, composites, made, specs, swath_granule

DAY = {"start": "2012-01-01", "end": "2012-01-01"}
MONTHLY = {"package": "monthly-mean", "group_by": ["cell", "month"]}
CELL = 1024 * 1024


def cells_of(
    region: dict[str, Any], grid: dict[str, Any], **changes: Any
) -> tuple[Target, tuple[WindowCell, ...]]:
    request = parse_request({**REQUEST, "region": region, "grid": grid, **changes})
    goal = resolve(request).target
    return goal, places(goal, request.region)


def of_box(
    box: tuple[float, float, float, float], resolution: float, **changes: Any
) -> tuple[Target, tuple[WindowCell, ...]]:
    return cells_of({"bbox": box}, {"crs": "EPSG:4326", "resolution": resolution}, **changes)


def pixels(cells: tuple[WindowCell, ...]) -> int:
    return sum(cell.grid.pixels for cell in cells)


def test_a_small_region_in_one_cell_is_made_in_blocks_of_256_pixels() -> None:
    goal, (cell,) = of_box((1.0, 51.5, 3.0, 54.0), 0.01)
    assert goal.grid.pixels == 200 * 250
    assert goal.lattice.index(cell.grid) == (0, -5632)
    assert cell.grid.shape == (512, 512)
    assert cell.name == "r-6c0"


def test_a_small_region_across_four_cells_is_one_cell() -> None:
    goal, (cell,) = of_box((-1.0, 50.5, 1.0, 51.9), 0.01)
    assert len(goal.lattice.cells(goal.grid)) == 4
    assert cell.name == "r-6c-1_r-5c0"
    assert pixels((cell,)) == 512 * 512
    assert cell.window == goal.grid


def test_leaf_area_comes_to_under_half_of_its_four_cells() -> None:
    found = made(composites(), time=DAY, reduction=MONTHLY, deliver="results")
    cells = specs(found, ReprojectSpec)
    assert len(cells) == 2  # layers
    assert {cell.grid.pixels for cell in cells} == {1792 * 1024}
    (group,) = specs(found, GroupSpec)
    assert group.grid == cells[0].grid
    assert group.cell == "r-6c-1_r-5c0"


def test_a_small_raster_is_made_without_a_cell_and_a_run_takes_it() -> None:
    found = made(composites(), time=DAY, reduction=MONTHLY)
    rasters = specs(found, RasterSpec)
    assert len(rasters) == 2  # layers
    assert {(one.grid.width, one.grid.height) for one in rasters} == {(1400, 800)}
    assert not specs(found, ReprojectSpec)
    (group,) = specs(found, GroupSpec)
    assert group.grid == rasters[0].grid
    assert group.cell == "r-6c-1_r-5c0"
    assert {(one.key, one.file) for one in group.inputs} == {
        (one.key, f"{one.name}.tif") for one in rasters
    }


TRIANGLE = {"type": "Polygon", "coordinates": [[[-8, 51], [-7, 51], [-8, 58], [-8, 51]]]}


@pytest.mark.parametrize(
    "changes",
    [
        {"cells": True},
        {"deliver": "cells", "reduction": MONTHLY},
        {"deliver": "results", "reduction": MONTHLY},
        {"region": {"geojson": TRIANGLE, "clip": True}, "reduction": MONTHLY},
        {"grid": {"modis": 1000}},
        {
            "measurements": {
                "table": "site,date,h\nA,2012-01-01,1\n",
                "sites": "id,latitude,longitude\nA,55,0\n",
                "compare": {"Lai_1km": "h"},
            }
        },
        {"grid": {"crs": "EPSG:4326", "resolution": 0.005}, "reduction": MONTHLY},
    ],
)
def test_what_else_takes_cells_or_is_large_has_them(changes: dict[str, Any]) -> None:
    found = made(composites(), **changes)
    assert specs(found, ReprojectSpec)
    assert not specs(found, RasterSpec)


FINE = {"crs": "EPSG:4326", "resolution": 0.005}  # 2,800 x 1,600 pixels of six cells
FINE_PIXELS = 2800 * 1600


def test_a_raster_of_several_cells_is_made_without_them() -> None:
    found = made(composites(), time=DAY, grid=FINE)
    assert not specs(found, ReprojectSpec)
    assert not specs(found, MosaicSpec)
    assert {one.grid.pixels for one in specs(found, RasterSpec)} == {FINE_PIXELS}


@pytest.mark.parametrize(
    ("bound", "most", "changes"),
    [
        ("MOST_WHOLE", FINE_PIXELS, {}),
        ("MOST_WHOLE", 3 * FINE_PIXELS, {"extra_bands": ["count"], "codes": "keep"}),
        ("MOST_SOURCE", 2 * 1200**2, {}),  # two tiles
    ],
)
def test_a_raster_that_an_attempt_cannot_hold_has_cells(
    bound: str, most: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_stream, bound, most)
    assert specs(made(composites(), time=DAY, grid=FINE, **changes), RasterSpec)
    monkeypatch.setattr(plan_stream, bound, most - 1)
    found = made(composites(), time=DAY, grid=FINE, **changes)
    assert specs(found, ReprojectSpec)
    assert not specs(found, RasterSpec)


def test_swaths_onto_several_cells_have_them() -> None:
    passed = swath_granule(dt.datetime(2007, 4, 13, 13, tzinfo=dt.UTC), (0.0, 0.0, 10.0, 10.0))
    found = made([passed], SWATHS, grid={"crs": "EPSG:4326", "resolution": 0.005})
    assert specs(found, ReprojectSpec)
    assert not specs(found, RasterSpec)


def test_builds_before_this_one_are_given_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run beside it until the upgrade ends, and do not know tasks of the kind `raster`."""
    monkeypatch.setattr(plan_stream, "written", lambda: PARTS_AND_RECORDS - 1)
    found = made(composites())
    assert specs(found, ReprojectSpec)
    assert not specs(found, RasterSpec)


def test_a_raster_that_is_cut_out_is_made_without_a_cell() -> None:
    found = made(composites(), time=DAY, region={"geojson": TRIANGLE, "clip": True})
    assert not specs(found, ReprojectSpec)
    assert all(one.clip for one in specs(found, RasterSpec))


def test_a_larger_region_is_whole_cells_inside_and_parts_at_its_edge() -> None:
    goal, cells = of_box((-1.0, 49.0, 25.0, 72.0), 0.01, reduction=MONTHLY)
    assert [cell.name for cell in cells[:2]] == ["r-8c-1", "r-8c0"]
    sizes = {cell.name: (cell.grid.width, cell.grid.height) for cell in cells}
    assert sizes["r-7c1"] == (1024, 1024)  # inside
    assert sizes["r-7c2"] == (512, 1024)  # 452 columns are wanted
    assert sizes["r-8c-1"] == (256, 256)  # 100 columns, 32 rows
    assert sizes["r-5c0"] == (1024, 256)  # 220 rows
    assert len(cells) == len(goal.lattice.cells(goal.grid))
    assert pixels(cells) < 0.75 * CELL * len(cells)


def test_most_of_a_cell_is_made_whole() -> None:
    _, (most,) = of_box((0.0, 51.2, 10.0, 58.0), 0.01)
    _, (less,) = of_box((0.0, 51.2, 10.0, 56.0), 0.01)
    assert most.grid.shape == (1024, 1024)
    assert less.grid.shape == (512, 1024)


def test_across_the_antimeridian() -> None:
    goal, (cell,) = of_box((178.0, -7.5, -178.0, -2.7), 0.01)
    assert goal.grid.pixels == 400 * 480
    assert cell.grid.bounds.west < 178.0
    assert cell.grid.bounds.east > 182.0
    assert pixels((cell,)) == 768 * 512


def test_the_globe_has_as_many_cells_as_the_lattice() -> None:
    goal, cells = of_box((-180.0, -90.0, 180.0, 90.0), 0.06)
    assert len(cells) == len(goal.lattice.cells(goal.grid)) == 6 * 4
    assert goal.grid.pixels < pixels(cells) < 1.1 * goal.grid.pixels


def test_cells_beyond_a_clip_polygon_are_not_made() -> None:
    triangle = {"type": "Polygon", "coordinates": [[[-8, 51], [-7, 51], [-8, 58], [-8, 51]]]}
    grid = {"crs": "EPSG:4326", "resolution": 0.001}
    goal, cells = cells_of({"geojson": triangle, "clip": True}, grid, reduction=MONTHLY)
    _, box = cells_of({"geojson": triangle}, grid, reduction=MONTHLY)
    assert len(goal.lattice.cells(goal.grid)) == len(box) == 16
    assert len(cells) == 10
    assert pixels(cells) < 0.85 * pixels(box)


def test_cells_that_are_handed_over_are_whole() -> None:
    _, cells = of_box((-1.0, 50.5, 1.0, 51.9), 0.01, cells=True)
    assert [cell.name for cell in cells] == ["r-6c-1", "r-6c0", "r-5c-1", "r-5c0"]
    assert {cell.grid.shape for cell in cells} == {(1024, 1024)}


def test_on_the_tile_grid_cells_are_tiles_or_parts_of_them() -> None:
    _, named = cells_of({"tiles": ["h17v03", "h18v03"]}, {"modis": 1000})
    assert [(cell.name, cell.grid.shape) for cell in named] == [
        ("h17v03", (1200, 1200)),
        ("h18v03", (1200, 1200)),
    ]
    goal, cells = cells_of({"bbox": [-3.0, 51.0, 3.0, 55.0]}, {"modis": 1000})
    assert [(cell.name, cell.grid.shape) for cell in cells] == [
        ("h17v03", (600, 300)),
        ("h18v03", (600, 300)),
    ]
    assert goal.grid.pixels < pixels(cells)


def test_requests_of_nearly_the_same_region_share_cells() -> None:
    def keys(box: list[float]) -> set[str]:
        found = made(
            composites(), time=DAY, region={"bbox": box}, reduction=MONTHLY, deliver="results"
        )
        assert len({spec.grid.text for spec in specs(found, MosaicSpec)}) == 1
        return {spec.key for spec in specs(found, ReprojectSpec)}

    assert keys([-8.0, 50.5, 6.0, 58.5]) == keys([-9.0, 51.0, 6.0, 58.5])
    assert not keys([-8.0, 50.5, 6.0, 58.5]) & keys([-8.0, 50.5, 6.0, 54.0])


def of_pixels(columns: int, rows: int, **changes: Any) -> tuple[int, int]:
    """The side of the cells, and their number, for results of so many pixels of 0.004 degrees."""
    goal, cells = of_box((0.0, -0.004 * rows, 0.004 * columns, 0.0), 0.004, **changes)
    assert goal.grid.pixels == columns * rows
    return goal.lattice.cell_size, len(cells)


@pytest.mark.parametrize(
    ("columns", "rows", "side", "count"),
    [
        (2048, 1024, 1024, 1),
        (2048, 1025, 1024, 4),
        (2048, 1792, 1024, 4),
        (2048, 1793, 2048, 1),
        (4096, 3840, 2048, 4),
        (4096, 3841, 4096, 1),
        (16_384, 8192, 4096, 8),
        (16_384, 8193, 4096, 12),
    ],
)
def test_results_of_as_many_pixels_as_a_larger_cell_get_larger_cells(
    columns: int, rows: int, side: int, count: int
) -> None:
    assert of_pixels(columns, rows) == (side, count)


def test_a_larger_cell_is_made_as_far_as_it_is_wanted_too() -> None:
    goal, cells = of_box((-1.0, 49.0, 25.0, 72.0), 0.004)
    assert goal.lattice.cell_size == 4096
    shapes = {cell.name: cell.grid.shape for cell in cells}
    assert shapes == {
        "r-5c-1": (1792, 256),
        "r-5c0": (1792, 4096),
        "r-5c1": (1792, 2304),
        "r-4c-1": (4096, 256),
        "r-4c0": (4096, 4096),
        "r-4c1": (4096, 2304),
        "r-3c-1": (256, 256),
        "r-3c0": (256, 4096),
        "r-3c1": (256, 2304),
    }


@pytest.mark.parametrize(
    ("product", "resolution", "side"),
    [
        (("MOD13Q1", "61"), 0.0025, 1024),  # 250 m
        (("MOD09GA", "61"), 0.0045, 4096),  # 500 m
        (("MOD09GA", "61"), 0.005, 2048),
        (("MOD09GA", "61"), 0.01, 1024),
        (("MOD13A2", "61"), 0.01, 4096),  # 1 km
        (("MOD13A2", "61"), 0.02, 2048),
        (("MOD13A2", "61"), 0.03, 1024),
        (("MOD11B2", "61"), 0.03, 1024),  # 6 km
        (("MYD04_L2", "61"), 0.0045, 1024),  # a swath
        (("OWNA1", "1"), 0.0045, 1024),  # not in the catalogue
    ],
)
def test_a_larger_cell_needs_few_source_pixels(
    product: tuple[str, str], resolution: float, side: int
) -> None:
    products = [{"name": product[0], "collection": product[1], "layers": ["Layer"]}]
    goal, _ = of_box((-18.0, -35.0, 142.0, 38.0), resolution, products=products)
    assert goal.lattice.cell_size == side


def test_the_finest_product_of_a_request_counts() -> None:
    products = [
        {"name": name, "collection": "61", "layers": ["Layer"]} for name in ("MOD13A2", "MOD13Q1")
    ]
    assert of_pixels(8192, 8192, products=products[:1]) == (4096, 4)
    assert of_pixels(8192, 8192, products=products) == (1024, 64)


def test_cells_for_reductions_and_cells_that_are_handed_over_are_never_larger() -> None:
    assert of_pixels(4096, 4096, reduction=MONTHLY) == (1024, 16)
    assert of_pixels(4096, 4096, cells=True) == (1024, 16)
    assert of_pixels(4096, 4096) == (4096, 1)


def test_a_continent_is_divided_into_enough_cells() -> None:
    products = [{"name": "MOD09GA", "collection": "61", "layers": ["sur_refl_b01_1"]}]
    goal, cells = of_box((-18.0, -35.0, 52.0, 38.0), 0.0045, products=products)
    assert goal.grid.pixels > 250_000_000
    assert len(cells) == 20
    assert max(cell.grid.pixels for cell in cells) == 16 * CELL
    assert goal.grid.pixels < pixels(cells) < 1.1 * goal.grid.pixels


def test_large_requests_of_neighbouring_regions_share_their_inner_cells() -> None:
    _, ours = of_box((0.0, 20.0, 40.0, 60.0), 0.0045)
    _, theirs = of_box((10.0, 25.0, 60.0, 55.0), 0.0045)
    shared = {cell.grid for cell in ours} & {cell.grid for cell in theirs}
    assert 16 * CELL in {grid.pixels for grid in shared}


@pytest.mark.parametrize("whole", [False, True])
@settings(max_examples=60)
@given(
    west=st.floats(-180.0, 170.0),
    south=st.floats(-80.0, 60.0),
    width=st.floats(0.01, 80.0),
    height=st.floats(0.01, 20.0),
    crs=st.sampled_from((("EPSG:4326", 0.013), ("EPSG:4326", 0.004), ("EPSG:6933", 1_300.0))),
)
def test_every_pixel_of_the_results_is_in_one_cell(
    whole: bool, west: float, south: float, width: float, height: float, crs: tuple[str, float]
) -> None:
    box = [west, south, min(west + width, 180.0), south + height]
    goal, cells = cells_of({"bbox": box}, {"crs": crs[0], "resolution": crs[1]}, cells=whole)
    left, top = goal.lattice.index(goal.grid)
    seen = 0
    for cell in cells:
        col, row = goal.lattice.index(cell.grid)
        first, above = goal.lattice.index(cell.window)
        assert col <= first
        assert row <= above
        assert first + cell.window.width <= col + cell.grid.width
        assert above + cell.window.height <= row + cell.grid.height
        assert left <= first
        assert top <= above
        assert cell.grid.pixels <= max(goal.lattice.cell_size**2, 0 if whole else 2 * CELL)
        seen += cell.window.pixels
    assert seen == goal.grid.pixels
    assert len({goal.lattice.index(cell.grid) for cell in cells}) == len(cells)
