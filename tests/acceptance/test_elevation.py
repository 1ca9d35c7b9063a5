"""A user's elevation joined with each day's temperature: the example, from push to values."""

import datetime as dt
import json
import runpy
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyproj
import pytest
import rasterio
from pyhdf.SD import SD

from archives.kinds.folder import FolderArchive
from reprojection.read.outline import read_outlines
from reprojection.sample.evapotranspiration import evapotranspiration_granules
from reprojection.sample.hdfeos_write import write_granule
from reprojection.user_rasters.conversion import convert
from reprojection.user_rasters.source import RasterChoices, RasterFile
from swathmill.commands.remake.making import remake
from tasks.bag.spec import CollectSpec, GroupSpec, MosaicSpec, ReprojectSpec
from tasks.packages.packages import Packages
from tasks.request.request_file import load_request
from tasks.requests.plan import Plan
from tasks.uploads import raster_operations
from tests.service_manager.shelf import plan, specs
from tests.worker.mill import Mill

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "elevation"
DAYS = [dt.date(2012, 4, 20), dt.date(2012, 4, 22)]  # nothing was seen on the 21st
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """The example carried out: its plan, the files of each task by name, and where it began."""

    plan: Plan
    files: dict[str, dict[str, Path]]
    granules: Path
    elevation: Path


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Carried:
    folder = tmp_path_factory.mktemp("elevation")
    granules = folder / "granules"
    granules.mkdir()
    days = [dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC) for day in DAYS]
    for granule in islice(evapotranspiration_granules(days), len(days)):  # temperature comes first
        write_granule(granules / granule.local_name, granule)
    archive = FolderArchive(granules, folder / "index.sqlite", read_outlines)
    archive.refresh()
    elevation = folder / "elevation.tif"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["make_elevation.py", str(elevation)])
        runpy.run_path(str(EXAMPLE / "make_elevation.py"), run_name="__main__")
    mill = Mill(folder, granules, files=True)
    kept = folder / "kept.h5"
    raster = convert(
        [RasterFile(path=elevation, name=elevation.name)], RasterChoices(name="elevation"), kept
    )
    raster_operations.push(mill.world.runtime, "ada", raster, "", kept, elevation.name)
    request = raster_operations.described(
        mill.world.runtime, "ada", load_request(EXAMPLE / "request.yaml")
    )
    found = plan(request, archive, Packages([EXAMPLE / "packages"]), mill.settings)
    for package in found.archives:
        mill.world.put_package(package)
    files = {
        task.key: {file.name: mill.fetch(file) for file in mill.make(task.spec)} for task in found
    }
    return Carried(plan=found, files=files, granules=granules, elevation=elevation)


def test_each_task_is_there_once_as_a_person_counts(carried: Carried) -> None:
    """Two days of one tile, one elevation for both: 2 runs, 2 rasters, the absent day a gap."""
    assert Counter(task.spec.kind for task in carried.plan) == {
        "collect": 2 + 1,
        "reproject": 2 + 1,
        "group": 2,
        "reduce": 2,
        "mosaic": 2,
    }
    assert [gap.what for gap in carried.plan.gaps] == [
        "MOD11A1.061 2012-04-21",
        "sea-level 2012-04-21",
    ]


def test_a_result_is_made_again_with_the_raster_as_it_is_kept(
    carried: Carried, tmp_path: Path
) -> None:
    for task in carried.plan:
        if task.spec.kind == "collect":
            for name, path in carried.files[task.key].items():
                shutil.copy(path, tmp_path / name)
    spec = specs(carried.plan, MosaicSpec)[0]
    again = remake(carried.files[spec.key][f"{spec.name}.tif"], [tmp_path], [EXAMPLE / "packages"])
    assert again.equal, again.differences


def test_values_are_those_of_a_plain_computation(carried: Carried) -> None:
    for day in DAYS:
        (key,) = [s.key for s in specs(carried.plan, MosaicSpec) if s.name.endswith(str(day))]
        (path,) = [file for name, file in carried.files[key].items() if name.endswith(".tif")]
        with rasterio.open(path) as made:
            found, where, units = made.read(1), made.transform, made.units
        assert units == ("K",)
        lon = where.c + where.a * (np.arange(found.shape[1]) + 0.5)
        lat = where.f + where.e * (np.arange(found.shape[0]) + 0.5)
        height, share = metres(carried.elevation, where, found.shape)
        expected = kelvin(carried.granules, day, lon, lat) + 0.0065 * height
        whole = (share == 1.0) & np.isfinite(expected)
        assert whole.mean() > 0.2
        assert np.isnan(expected).mean() > 0.02
        # gdalwarp's average, too, is up to 0.65 m off these points: it takes upright boxes.
        # Where less than a sample's share of a pixel has a value, only the exact areas know of it.
        assert (np.isnan(found) & np.isfinite(expected)).sum() == 0
        assert (np.isfinite(found) & np.isnan(expected)).mean() < 2e-3
        np.testing.assert_allclose(found[whole], expected[whole], atol=0.0065 * 0.7)


def kelvin(granules: Path, day: dt.date, lon: Floats, lat: Floats) -> Floats:
    """The nearest pixel of a tile of the sinusoidal grid, by its formula."""
    (path,) = granules.glob(f"MOD11A1.A{day:%Y%j}.*")
    stored = np.asarray(SD(str(path)).select("LST_Day_1km")[:], np.float64)
    h, v = int(path.name.split(".h")[1][:2]), int(path.name.split("v")[1][:2])
    x = lon[None, :] * np.cos(np.radians(lat))[:, None]  # in degrees along the equator
    column = np.floor((x - (h - 18) * 10) * 120).astype(int)
    row = np.floor(((9 - v) * 10 - lat) * 120).astype(int)[:, None] + np.zeros_like(column)
    inside = (column >= 0) & (column < 1200) & (row >= 0) & (row < 1200)
    values = np.full(column.shape, np.nan)
    values[inside] = stored[row[inside], column[inside]]
    return np.where(values > 0, 0.02 * values, np.nan)


def metres(
    elevation: Path, where: rasterio.Affine, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    """The mean of the elevation's pixels by area, and the share of it with a value.

    From 20 x 20 points in each target pixel.
    """
    with rasterio.open(elevation) as opened:
        stored, own, crs = opened.read(1).astype(np.float64), opened.transform, opened.crs
    fine = 20
    rows, columns = shape
    lon = where.c + where.a * (np.arange(columns * fine) + 0.5) / fine
    lat = where.f + where.e * (np.arange(rows * fine) + 0.5) / fine
    to_utm = pyproj.Transformer.from_crs("EPSG:4326", crs.to_wkt(), always_xy=True)
    x, y = to_utm.transform(*np.meshgrid(lon, lat))
    column = np.floor((x - own.c) / own.a).astype(int)
    row = np.floor((y - own.f) / own.e).astype(int)
    inside = (column >= 0) & (column < stored.shape[1]) & (row >= 0) & (row < stored.shape[0])
    values = np.full(column.shape, np.nan)
    values[inside] = stored[row[inside], column[inside]]
    values[values == -9999] = np.nan
    blocks = values.reshape(rows, fine, columns, fine)
    count = np.isfinite(blocks).sum(axis=(1, 3))
    total = np.nansum(blocks, axis=(1, 3))
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean, count / fine**2


def test_the_manifest_and_the_raster_name_the_exact_version(carried: Carried) -> None:
    (collected,) = [s for s in specs(carried.plan, CollectSpec) if s.source == "raster"]
    group = next(iter(specs(carried.plan, GroupSpec)))
    bands = json.loads(carried.files[group.key]["manifest.json"].read_text("utf-8"))["bands"]
    (band,) = [one for one in bands if one["product"] == "raster:elevation"]
    (granule,) = band["granules"]
    assert granule["name"] == f"elevation-{collected.checksum}.h5"
    assert granule["sha256"] == collected.checksum
    assert band["collection"] == f"sha256-{collected.checksum[:16]}"
    assert (band["units"], band["kind"], band["layer"]) == ("m", "continuous", "elevation")


def test_a_raster_of_no_date_is_put_onto_the_grid_once_for_all_spans(carried: Carried) -> None:
    (cell,) = [s for s in specs(carried.plan, ReprojectSpec) if s.product == "raster:elevation"]
    assert cell.day == dt.date.min
