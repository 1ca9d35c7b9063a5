"""Sinusoidal grids with a central meridian of their own (MAIAC of VIIRS), and grids of two maps.

The bounding coordinates are those of a real granule, VNP19A2.A2024165.h25v05: from 131.1325 to
114.3107 degrees west, from 30 to 40 north, with the central meridian at 160 degrees west. They are
the corners of a tile from 25 to 35 degrees of the equator east of that meridian.
"""

from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pyproj
import pytest

from archives.kinds.folder import FolderArchive
from modis.granule_name import parse_granule_name
from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_SIZE
from reprojection.grid.blocks import plan_blocks
from reprojection.grid.coordinates import Coordinates, SourceSpace, exact_coordinates
from reprojection.grid.grids import Grid, Lattice
from reprojection.grid.pixel_coordinates import Chunk, centres
from reprojection.inspect.strict import disagreements
from reprojection.read.granule import open_granule
from reprojection.read.outline import outline, read_outlines
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import FieldToWrite, GridToWrite, write_granule
from tests.generated.hdf5_write import write_hdf5_granule
from tests.reprojection.reading_samples import START, wrap_up

SIDE = 160
PIXEL = TILE_SIZE / SIDE
LEFT, TOP = 2.5, 4.0  # of the real granule's tile, in tiles from the central meridian and equator
MERIDIAN = -160
SPHERE = pyproj.CRS(f"+proj=longlat +R={SPHERE_RADIUS} +no_defs")


def write(
    folder: Path, meridian: int, *, tile: str = "h25v05", left: float = LEFT, add: int = 0
) -> Path:
    numbers = np.arange(SIDE * SIDE, dtype=np.int32).reshape(SIDE, SIDE) + add
    corner = left * TILE_SIZE, TOP * TILE_SIZE
    grid = GridToWrite(
        name="grid750m",
        upper_left=corner,
        lower_right=(corner[0] + TILE_SIZE, corner[1] - TILE_SIZE),
        fields=[FieldToWrite(name="Number", values=numbers, dims=("YDim", "XDim"))],
        meridian=meridian,
    )
    name = f"VNP19A2.A2012065.{tile}.002.2012153130500.h5"
    write_hdf5_granule(folder / name, wrap_up(grid, name, "VNP19A2", 2), eos=True)
    return folder / name


def by_pyproj(grid: Grid, meridian: int, left: float = LEFT) -> npt.NDArray[np.float64]:
    """Columns and rows of every pixel's centre in a tile, by PROJ alone, from longitudes."""
    own = f"+proj=sinu +lon_0={meridian} +R={SPHERE_RADIUS} +units=m"
    way = pyproj.Transformer.from_crs(SPHERE, own, always_xy=True)
    a, _, c, _, e, f = grid.transform
    lon, lat = np.meshgrid(
        c + a * (np.arange(grid.width) + 0.5), f + e * (np.arange(grid.height) + 0.5)
    )
    x, y = way.transform(lon, lat)
    return np.stack([x / PIXEL - left * SIDE, TOP * SIDE - y / PIXEL], axis=-1)


@pytest.mark.parametrize(
    ("meridian", "left", "box"),
    [
        (MERIDIAN, LEFT, (-131.2, 29.9, -114.2, 40.1)),
        (MERIDIAN, -1.5, (164.0, 29.9, 188.0, 40.1)),  # 180 degrees in the middle
        (20, -0.5, (12.0, 29.9, 28.0, 40.1)),
    ],
)
def test_every_pixel_of_a_rotated_tile_is_where_pyproj_puts_it(
    tmp_path: Path, meridian: int, left: float, box: tuple[float, float, float, float]
) -> None:
    path = write(tmp_path, meridian, left=left)
    grid = Lattice(crs="EPSG:4326", resolution=0.06).snap(box)
    right = by_pyproj(grid, meridian, left)
    with open_granule(path) as granule:
        (own,) = granule.grids.values()
    corner = (own.pixel_width, 0.0, own.left, 0.0, -own.pixel_height, own.top)
    source = Grid(crs=own.crs, transform=corner, width=SIDE, height=SIDE)
    space = SourceSpace.of(source)
    rows, cols = np.arange(grid.height)[:, None], np.arange(grid.width)[None, :]
    found = np.stack(exact_coordinates(grid, space, rows, cols), axis=-1) - space.offset(source)
    plan = plan_blocks(Coordinates(grid=grid, space=space))
    whole = Chunk(top=0, bottom=grid.height, left=0, right=grid.width)
    quick = centres(plan, whole, quick=True) - space.offset(source)
    assert np.abs(found - right).max() < 1e-6
    assert np.abs(quick - right).max() < 0.01
    at = np.floor(right).astype(int)
    inside: npt.NDArray[np.bool_] = np.all((at >= 0) & (at < SIDE), axis=-1)
    assert inside.sum() > 15_000
    numbers = at[..., 1] * SIDE + at[..., 0]
    result = reproject([path], "Number", grid, Options(resampling="nearest"))
    tied: npt.NDArray[np.bool_] = np.any(np.abs(right - np.round(right)) < 0.01, axis=-1)
    assert np.array_equal(result.valid()[~tied], inside[~tied])
    clear = inside & ~tied
    assert np.array_equal(result.data[0][clear], numbers[clear])


def test_a_rotated_tile_is_not_the_tile_that_its_corners_have_on_the_grid_of_modis(
    tmp_path: Path,
) -> None:
    with open_granule(write(tmp_path, 60, tile="h16v05", left=-2.0)) as granule:
        assert outline(granule).tile is None
    path = write(tmp_path, MERIDIAN)
    name = parse_granule_name(path.name)
    assert name is not None
    assert (name.tile, name.other_tile, name.is_swath) == (None, "h25v05", False)
    with open_granule(path) as granule:
        (grid,) = granule.grids.values()
        place = outline(granule)
    assert (grid.tile, place.tile) == (None, None)
    assert place.boundary is not None
    lon, lat = np.array([point for ring in place.boundary for point in ring]).T
    assert (lon.min(), lon.max()) == pytest.approx((-131.1325, -114.3107), abs=1e-4)
    assert (lat.min(), lat.max()) == pytest.approx((30.0, 40.0), abs=1e-9)
    archive = FolderArchive(tmp_path, tmp_path / "index.sqlite", read_outlines)
    records = [*archive.search("VNP19A2", "2", START.date(), START.date())]
    assert [record.tile for record in records] == [None, None]


def test_a_grid_elsewhere_than_its_bounding_coordinates_is_named(tmp_path: Path) -> None:
    for meridian, wrong in ((MERIDIAN, 0), (0, 1)):
        path = write(tmp_path, meridian)
        with h5py.File(path, "a") as file:
            sides = (("West", -131.1325), ("South", 30.0), ("East", -114.3107), ("North", 40.0))
            for side, edge in sides:
                file.attrs[f"{side}BoundingCoord"] = np.array([edge])
        with open_granule(path) as granule:
            found = [line for line in disagreements(granule) if "bounding coordinates" in line]
        assert len(found) == wrong
        assert not wrong or "28.87 30.00 45.69 40.00" in found[0]


def test_tiles_of_two_meridians_make_one_raster(tmp_path: Path) -> None:
    first = write(tmp_path, MERIDIAN)
    # 60 degrees farther east, and there to the west of the meridian: the same ground in part.
    # Of granules of one start the first by name is first.
    second = write(tmp_path, MERIDIAN + 60, tile="h20v05", left=-2.0, add=10**6)
    grid = Lattice(crs="EPSG:4326", resolution=0.1).snap((-124.0, 34.0, -112.0, 36.0))
    options = Options(resampling="nearest", extra_bands=("source", "reason"))
    both = reproject([first, second], "Number", grid, options)
    ones = [reproject([path], "Number", grid, options) for path in (first, second)]
    there = [one.valid() for one in ones]
    assert (there[0] & there[1]).any()
    assert (~there[0] & there[1]).any()
    assert np.array_equal(both.valid(), there[0] | there[1])
    right = np.where(there[1], ones[1].data[0], ones[0].data[0])
    assert np.array_equal(both.data[0][both.valid()], right[both.valid()])
    named = [source.name for source in both.provenance.granules]
    numbers = [named.index(path.name) + 1 for path in (first, second)]
    sources = both.data[[band.role for band in both.bands].index("source")]
    assert np.array_equal(
        sources, np.where(there[1], numbers[1], np.where(there[0], numbers[0], 0))
    )


def test_tiles_of_both_poles_with_the_same_corners_are_two(tmp_path: Path) -> None:
    paths = []
    for pole, tile in ((90, "h09v07"), (-90, "h09v27")):
        field = FieldToWrite(
            name="Ice", values=np.full((40, 40), 90 + pole, np.int32), dims=("YDim", "XDim")
        )
        grid = GridToWrite(
            name="MOD_Grid_Seaice_1km",
            upper_left=(-2e5, 2e5),
            lower_right=(2e5, -2e5),
            fields=[field],
            pole=90 if pole > 0 else -90,
        )
        granule = wrap_up(grid, f"MOD29P1D.A2012065.{tile}.061.2012153130500.hdf", "MOD29P1D", 61)
        write_granule(tmp_path / granule.local_name, granule)
        paths.append(tmp_path / granule.local_name)
    earth = Lattice(crs="EPSG:4326", resolution=1.0).snap((-180.0, -90.0, 180.0, 90.0))
    found = reproject(paths, "Ice", earth, Options(resampling="nearest"))
    assert set(np.unique(found.data[0][0])) == {180}
    assert set(np.unique(found.data[0][-1])) == {0}
