"""Global products: corners, outline, and requests for a region of them, from plan to raster."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from archives.formats.boundary import touches
from archives.kinds.folder import FolderArchive
from archives.model import GranuleRecord
from modis.box import LonLatBox
from reprojection.formats.held import completed
from reprojection.grid.grids import Lattice
from reprojection.read.granule import Granule, Layer, open_granule
from reprojection.read.outline import outline, read_outlines
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import FieldToWrite, GridToWrite, write_granule
from reprojection.warp import from_tiles
from reprojection.write.write import read_raster
from swathmill.commands.shared.target import box_around
from tasks.bag.spec import RasterSpec
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tests.reprojection.formats.test_held import Far
from tests.reprojection.reading_samples import START, wrap_up
from tests.service_manager.shelf import LIMITS, plan
from tests.worker.mill import Mill

SIDE = 0.5  # degrees
NAME = "MOD11C3.A2012065.061.2012153130500.hdf"
Corners = Literal["degrees", "packed degrees"]


def globe(
    folder: Path,
    corners: Corners = "packed degrees",
    box: tuple[float, float, float, float] = (-180.0, -90.0, 180.0, 90.0),
    name: str = NAME,
    *,
    quality: bool = False,
) -> Path:
    """A granule whose pixels hold 7500 + row * 100 + column, counted from the north-west corner."""
    west, south, east, north = box
    shape = round((north - south) / SIDE), round((east - west) / SIDE)
    row, column = np.indices(shape)
    field = FieldToWrite(
        name="LST_Day_CMG",
        values=(7500 + row * 100 + column).astype(np.uint16),
        dims=("YDim", "XDim"),
        typed={"valid_range": (7500, 65535), "_FillValue": 0},
        attributes={"scale_factor": 0.02, "add_offset": 0.0, "units": "K"},
    )
    flags = FieldToWrite(
        name="QC_Day", values=(row % 3 // 2).astype(np.uint8), dims=("YDim", "XDim")
    )
    grid = GridToWrite(
        name="MODIS_MONTHLY_0.05DEG_CMG_LST",
        upper_left=(west, north),
        lower_right=(east, south),
        fields=[field, flags] if quality else [field],
        corners=corners,
    )
    product = name.split(".")[0]
    folder.mkdir(parents=True, exist_ok=True)
    write_granule(folder / name, wrap_up(grid, name, product, 61))
    return folder / name


@pytest.mark.parametrize("corners", ["degrees", "packed degrees"])
def test_corners_are_plain_or_packed_degrees(tmp_path: Path, corners: Corners) -> None:
    with open_granule(globe(tmp_path, corners, (-7.25, 35.5, 10.0, 60.0))) as granule:
        (grid,) = granule.grids.values()
    assert (grid.left, grid.bottom, grid.right, grid.top) == (-7.25, 35.5, 10.0, 60.0)


def record(path: Path) -> GranuleRecord:
    (found,) = FolderArchive(path.parent, path.parent / "i.sqlite", read_outlines).search(
        "MOD11C3", "61", START.date(), START.date()
    )
    return found


@pytest.mark.parametrize(
    "box",
    [
        LonLatBox(-5.0, 40.0, 10.0, 55.0),
        LonLatBox(0.0, 0.0, 30.0, 30.0),
        LonLatBox(170.0, -20.0, -170.0, 0.0),
        LonLatBox(-180.0, -90.0, 180.0, -80.0),
        LonLatBox(44.99, 44.99, 45.01, 45.01),
        LonLatBox(-180.0, -90.0, 180.0, 90.0),
    ],
)
def test_a_globe_touches_every_region(tmp_path: Path, box: LonLatBox) -> None:
    assert touches(record(globe(tmp_path)), box)


def test_half_a_globe_touches_its_half(tmp_path: Path) -> None:
    half = record(globe(tmp_path, box=(-180.0, -90.0, 0.0, 90.0)))
    assert touches(half, LonLatBox(-120.0, 10.0, -110.0, 20.0))
    assert not touches(half, LonLatBox(80.0, 10.0, 90.0, 20.0))


def test_the_box_around_a_globe_is_the_whole_earth(tmp_path: Path) -> None:
    with open_granule(globe(tmp_path)) as granule:
        assert box_around([outline(granule)]) == LonLatBox(-180.0, -90.0, 180.0, 90.0)


REQUEST: dict[str, Any] = {
    "title": "A region of a globe",
    "products": [{"name": "MOD11C3", "collection": "61", "layers": ["LST_Day_CMG"]}],
    "region": {"bbox": [-5.0, 40.0, 10.0, 55.0]},
    "time": {"start": "2012-03-01", "end": "2012-03-31"},
    "grid": {"crs": "EPSG:4326", "resolution": SIDE},
    "resampling": "nearest",
}


@pytest.mark.parametrize("product", ["MOD11C3", "XYZ11C3"])
def test_a_region_of_a_globe_is_planned_and_made(tmp_path: Path, product: str) -> None:
    path = globe(tmp_path / "archive", name=NAME.replace("MOD11C3", product))
    held = FolderArchive(path.parent, tmp_path / "index.sqlite", read_outlines)
    products = [{**REQUEST["products"][0], "name": product}]
    request = parse_request({**REQUEST, "products": products})
    planned = plan(request, held, Packages.of(LIMITS), LIMITS)
    mill = Mill(tmp_path / "mill", path.parent)
    for task in planned.tasks:
        files = mill.make(task.spec)
        if isinstance(task.spec, RasterSpec):
            raster = read_raster(mill.fetch(next(f for f in files if f.name.endswith(".tif"))))
    grid = Lattice(crs="EPSG:4326", resolution=SIDE).snap((-5.0, 40.0, 10.0, 55.0))
    whole = reproject([path], "LST_Day_CMG", grid, Options(resampling="nearest"))
    assert raster.grid.shape == whole.data.shape[1:] == (30, 30)
    row, column = np.indices((30, 30)) + np.array([70, 350])[:, None, None]
    assert np.array_equal(raster.data[0], 7500 + row * 100 + column)
    assert np.array_equal(raster.data, whole.data)


def test_dates_that_a_globe_lacks_are_gaps(tmp_path: Path) -> None:
    path = globe(tmp_path / "archive")
    held = FolderArchive(path.parent, tmp_path / "index.sqlite", read_outlines)
    request = parse_request({**REQUEST, "time": {"start": "2012-01-01", "end": "2012-03-31"}})
    planned = plan(request, held, Packages.of(LIMITS), LIMITS)
    assert {"MOD11C3.061 2012-01-01", "MOD11C3.061 2012-02-01"} < {gap.what for gap in planned.gaps}
    assert all(gap.reason == "the archive has no granule of this date" for gap in planned.gaps)


@pytest.mark.parametrize(
    "method",
    [
        "nearest",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("bilinear", "cubic", "average", "median")
        ),
    ],
)
@pytest.mark.parametrize(
    ("crs", "resolution", "box"),
    [
        ("EPSG:4326", 0.3, (-5.0, 40.0, 10.0, 55.0)),
        ("EPSG:4326", 3.0, (-60.0, -30.0, 60.0, 30.0)),
        ("EPSG:3413", 50_000.0, (-2e6, -2e6, 2e6, 2e6)),
        ("EPSG:32660", 40_000.0, (0.0, 5e6, 1e6, 7e6)),
    ],
)
def test_a_window_of_a_globe_gives_the_pixels_of_the_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    crs: str,
    resolution: float,
    box: tuple[float, float, float, float],
) -> None:
    path = globe(tmp_path)
    grid = Lattice(crs=crs, resolution=resolution).snap(box)
    options = Options(resampling=method, extra_bands=("reason",))
    whole = reproject([path], "LST_Day_CMG", grid, options)
    rows: list[int] = []
    read = Granule.read

    def counted(granule: Granule, layer: Layer | str) -> Any:
        found = read(granule, layer)
        rows.append(len(found))
        return found

    monkeypatch.setattr(Granule, "read", counted)
    monkeypatch.setattr(from_tiles, "WINDOWED", 1)
    windowed = reproject([path], "LST_Day_CMG", grid, options)
    assert windowed.data.tobytes() == whole.data.tobytes()
    assert rows
    assert max(rows) < 360


def test_quality_layers_are_read_by_the_same_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = globe(tmp_path, quality=True)
    grid = Lattice(crs="EPSG:4326", resolution=SIDE).snap((-5.0, 40.0, 10.0, 55.0))
    whole = reproject([path], "LST_Day_CMG", grid, Options(qa="best", resampling="nearest"))
    monkeypatch.setattr(from_tiles, "WINDOWED", 1)
    windowed = reproject([path], "LST_Day_CMG", grid, Options(qa="best", resampling="nearest"))
    assert windowed.data.tobytes() == whole.data.tobytes()
    far = Far(path, tmp_path / "far")
    options = Options(qa="best", resampling="nearest", extra_bands=("reason",))
    part = completed(lambda: reproject([far.path], "LST_Day_CMG", grid, options), far.fetch)
    assert part.data.tobytes() == reproject([path], "LST_Day_CMG", grid, options).data.tobytes()
    assert 0.0 < whole.valid().mean() < 1.0
