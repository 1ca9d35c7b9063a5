"""Cells to one raster."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shapely import Polygon, box

from reprojection.errors import ChoiceRefusedError, GridError
from reprojection.grid.grids import Lattice
from reprojection.grid.targets import pixel_centres
from reprojection.read.qa import Reason
from reprojection.read.raster import Raster
from reprojection.write.mosaic import mosaic
from reprojection.write.write import write_cog
from tests.reprojection.raster_samples import GRID, LATTICE, hills, plain


def cells(folder: Path) -> list[Path]:
    """The cells of the sample's grid, each of another granule."""
    paths = []
    for number, cell in enumerate(LATTICE.cells(GRID)):
        path = folder / f"cell{number}.tif"
        names = (f"{number}a.hdf", f"{number}b.hdf")
        write_cog(hills(LATTICE.cell_grid(*cell), names), path, overviews=False)
        paths.append(path)
    return paths


def test_cells_make_the_whole_again(tmp_path: Path) -> None:
    paths = cells(tmp_path)
    assert len(paths) == 9
    found = mosaic(paths[::-1], GRID)
    whole = hills()
    assert np.array_equal(found.data[0], whole.data[0])
    assert np.array_equal(found.data[2], whole.data[2])
    assert (found.grid, found.nodata, found.units) == (GRID, -9999, "m")


def test_source_numbers_name_the_granules_of_all_cells(tmp_path: Path) -> None:
    paths = cells(tmp_path)
    found = mosaic(paths, GRID)
    names = [source.name for source in found.provenance.granules]
    assert len(names) == 18
    for number, cell in enumerate(LATTICE.cells(GRID)):
        one = mosaic([paths[number]], LATTICE.cell_grid(*cell))
        both = mosaic(paths, LATTICE.cell_grid(*cell))
        local = [source.name for source in one.provenance.granules]
        assert local == [f"{number}a.hdf", f"{number}b.hdf"]
        mine = np.array(["", *local])[one.data[1]]
        theirs = np.array(["", *names])[both.data[1]]
        assert np.array_equal(mine, theirs)


def test_a_missing_cell_is_nodata_with_its_reason(tmp_path: Path) -> None:
    paths = cells(tmp_path)
    first = LATTICE.cell_grid(*LATTICE.cells(GRID)[0])
    found = mosaic(paths[1:], first)
    assert (found.data[0] == -9999).all()
    assert (found.data[1] == 0).all()
    assert (found.data[2] == Reason.NO_GRANULE).all()


def test_a_polygon_keeps_the_pixels_whose_centre_is_inside(tmp_path: Path) -> None:
    centres = pixel_centres(GRID)
    lat, lon = centres.lat, centres.lon
    middle = box(float(lon[40, 30]), float(lat[90, 30]), float(lon[40, 100]), float(lat[40, 100]))
    found = mosaic(cells(tmp_path), GRID, middle)
    west, south, east, north = middle.bounds
    inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
    assert 0.1 < inside.mean() < 0.5
    expected = np.where(inside, hills().data[0], -9999)
    assert (found.data[0] != expected).sum() <= 4  # centres on the polygon's edge


def test_a_polygon_across_the_antimeridian(tmp_path: Path) -> None:
    lattice = Lattice(crs="EPSG:4326", resolution=1.0, cell_size=16)
    grid = lattice.window(176, -4, 8, 8)
    values = np.ones((8, 8), np.uint8)
    raster = plain(values)
    write_cog(Raster(**{**vars(raster), "grid": grid}), tmp_path / "c.tif")
    polygon = Polygon([(178, -2), (182, -2), (182, 2), (178, 2)])
    found = mosaic([tmp_path / "c.tif"], grid, polygon)
    expected = np.full((8, 8), 255)
    expected[2:6, 2:6] = 1
    assert np.array_equal(found.data[0], expected)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    paths = cells(tmp_path)
    write_cog(plain(np.ones((4, 4), np.uint8)), tmp_path / "other.tif")
    with pytest.raises(ChoiceRefusedError, match="not cells of one layer"):
        mosaic([*paths, tmp_path / "other.tif"], GRID)
    with pytest.raises(ChoiceRefusedError, match="at least one"):
        mosaic([], GRID)
    beside = Lattice(crs="EPSG:32631", resolution=499.0).window(800, -11000, 10, 10)
    with pytest.raises(GridError, match="lattice"):
        mosaic(paths, beside)


def test_source_numbers_of_physical_units_are_floats(tmp_path: Path) -> None:
    """Each cell numbers its own granules, in the type of the values: here float32."""
    paths = []
    for number, cell in enumerate(LATTICE.cells(GRID)[:2]):
        raster = hills(LATTICE.cell_grid(*cell), (f"{number}a.hdf", f"{number}b.hdf"))
        path = tmp_path / f"cell{number}.tif"
        floats = replace(raster, data=raster.data.astype(np.float32), nodata=np.nan)
        write_cog(floats, path, overviews=False)
        paths.append(path)
    found = mosaic(paths, GRID)
    assert found.data.dtype == np.float32
    assert {*np.unique(found.data[1]).tolist()} <= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert {1.0, 3.0} <= {*np.unique(found.data[1]).tolist()}


def test_more_granules_than_the_type_can_number_are_refused(tmp_path: Path) -> None:
    raster = hills(
        LATTICE.cell_grid(*LATTICE.cells(GRID)[0]), tuple(f"{n}.hdf" for n in range(300))
    )
    values = np.minimum(raster.data, 200).clip(0).astype(np.uint8)
    path = tmp_path / "cell.tif"
    write_cog(replace(raster, data=values, nodata=255), path, overviews=False)
    with pytest.raises(ChoiceRefusedError, match="300 granules in type uint8"):
        mosaic([path], GRID)
