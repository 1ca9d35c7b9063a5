"""What granules state and was not understood is said by all that is made of them."""

from pathlib import Path

from reprojection.grid.grids import Grid
from reprojection.read.outline import read_layers
from reprojection.reproject import Options, reproject
from reprojection.write.mosaic import mosaic
from reprojection.write.stac import stac_item
from reprojection.write.write import open_raster, write_cog
from tests.reprojection.leaf_area import leaf_area

GRID = Grid(crs="EPSG:4326", transform=(0.05, 0, 2, 0, -0.05, 48), width=40, height=20)
ODD = {"valid_range": "from nothing to much"}


def test_a_range_that_is_no_range_is_said_in_raster_mosaic_and_item(tmp_path: Path) -> None:
    granule = leaf_area(tmp_path, Lai_1km=dict(ODD))
    (note,) = read_layers(granule).notes["Lai_1km"]
    assert "from nothing to much" in note
    cells = []
    for column in range(2):
        cell = tmp_path / f"cell{column}.tif"
        a, b, c, d, e, f = GRID.transform
        half = Grid(
            crs=GRID.crs, transform=(a, b, c + 20 * column * a, d, e, f), width=20, height=20
        )
        raster = reproject([granule], "Lai_1km", half, Options())
        assert raster.notes == (note,)
        write_cog(raster, cell)
        cells.append(cell)
    whole = mosaic(cells, GRID)
    assert whole.notes == (note,)
    path = tmp_path / "whole.tif"
    write_cog(whole, path)
    said = open_raster(path).said
    assert said.layer_record().notes == (note,)
    properties = stac_item(path)["properties"]
    assert isinstance(properties, dict)
    assert properties["swathmill:notes"] == [note]


def test_a_raster_of_what_was_understood_says_nothing(tmp_path: Path) -> None:
    granule = leaf_area(tmp_path)
    assert read_layers(granule).notes == {}
    path = tmp_path / "whole.tif"
    write_cog(reproject([granule], "Lai_1km", GRID, Options()), path)
    assert "notes" not in open_raster(path).said.model_dump_json()
