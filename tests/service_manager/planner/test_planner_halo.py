"""Groups of a package that asks for a halo have what the neighbouring cells have of their days."""

import json
from pathlib import Path

import shapely

from tasks.bag.spec import GroupSpec, ReduceSpec
from tasks.packages.packages import SHIPPED, Packages
from tasks.request.document import parse_request
from tests.service_manager.shelf import LIMITS, REQUEST, Shelf, composites, plan, specs


def planned(tmp_path: Path, inputs: str, **changes: object) -> list[GroupSpec]:
    package = tmp_path / "smooth"
    package.mkdir(parents=True)
    (package / "package.yaml").write_text(
        "name: smooth\ncommand: [sh, run.sh]\noutputs: ['{layer}_s.tif']\n" + inputs
    )
    reduction = {"package": "smooth", "group_by": ["cell", "month"]}
    request = parse_request({**REQUEST, "cells": True, "reduction": reduction, **changes})
    shelf = Shelf(records=composites())
    found = plan(request, shelf, Packages([SHIPPED, tmp_path]), LIMITS)
    for group in specs(found, ReduceSpec):
        assert len(group.inputs) == 1
    return specs(found, GroupSpec)


def test_neighbours_are_inputs_and_the_cell_stays(tmp_path: Path) -> None:
    plain = {one.group: one for one in planned(tmp_path / "a", "")}
    haloed = {one.group: one for one in planned(tmp_path / "b", "inputs: {halo: 16}\n")}
    assert plain.keys() == haloed.keys()
    assert len({one.cell for one in plain.values()}) >= 4
    for name, group in haloed.items():
        before = plain[name]
        assert (group.grid, group.halo, before.halo) == (before.grid, 16, 0)
        own = [group.bands[index] for index in group.own]
        assert own == [*before.bands]
        assert {group.inputs[index].key for index in group.own} == {
            given.key for given in before.inputs
        }
        assert group.grid is not None
        wide = group.grid.widened(16)
        for band in group.bands:
            other = next(one for one in plain.values() if one.cell == band.cell)
            assert other.grid is not None
            assert wide.meets(other.grid)
            assert band.of in {one.of for one in own}
        expected = {
            one.cell
            for one in plain.values()
            if one.grid is not None and one.window == group.window and wide.meets(one.grid)
        }
        assert {band.cell for band in group.bands} == expected


def test_pixels_around_a_small_raster_are_those_of_its_cell(tmp_path: Path) -> None:
    """Without a halo a run takes the raster of a small region itself, which has no cell."""
    (plain,) = {one.grid for one in planned(tmp_path / "a", "", cells=False)}
    haloed = planned(tmp_path / "b", "inputs: {halo: 16}\n", cells=False)
    (wide,) = {one.grid for one in haloed}
    assert plain is not None
    assert wide is not None
    assert (plain.width, plain.height) == (1400, 800)
    assert (wide.width, wide.height) == (1792, 1024)
    assert {given.file for one in haloed for given in one.inputs} == {"cell.tif"}


def test_the_region_goes_along_where_it_is_asked_for(tmp_path: Path) -> None:
    plain = planned(tmp_path / "a", "")
    masked = planned(tmp_path / "b", "inputs: {region: true}\n")
    assert {one.region for one in plain} == {""}
    (region,) = {one.region for one in masked}
    west, south, east, north = shapely.from_geojson(region).bounds
    assert json.loads(region)["type"] == "Polygon"
    box = REQUEST["region"]["bbox"]
    assert [west, south, east, north] == [*box]
    assert {one.key for one in plain}.isdisjoint(one.key for one in masked)
