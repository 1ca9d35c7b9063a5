"""The time of a window's result is the window in all that tells it, whatever its inputs cover.

The real planner and the real phases, in this process, on tiny granules: composites of eight days
that reach over an end of the windows, beside a static map of an earlier year.
"""

import datetime as dt
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pystac
import pytest
import xarray
from pystac.validation import validate_dict
from zarr.storage import ZipStore

from archives.kinds.folder import FolderArchive
from reprojection.read.lineage import Lineage
from reprojection.read.outline import read_outlines
from reprojection.sample.hdfeos_write import write_granule
from reprojection.write.write import open_raster
from tasks.bag.spec import CubeSpec, MosaicSpec
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tests.reprojection.reading_samples import small_tile
from tests.service_manager.shelf import plan
from tests.small_cells import with_small_cells
from tests.worker.mill import Mill

GRANULES = (
    *(("MCD15A2", 5, day) for day in ("2011-01-25", "2011-02-02", "2012-01-25", "2012-02-02")),
    ("OWNA1", 1, "2010-06-01"),
)
REQUEST: dict[str, Any] = {
    "products": [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"], "use": "covering"},
        {"name": "OWNA1", "collection": "1", "layers": ["Lai_1km"], "use": "static"},
    ],
    "region": {"bbox": [-2, 52, -1, 53]},
    "time": {
        "start": "2011-01-20",
        "end": "2012-03-31",
        "every": {"from": "01-31", "to": "02-02"},
    },
    "grid": {"crs": "EPSG:4326", "resolution": 0.25},
    "weight": "days",
    "cube": "netcdf",
    "deliver": "results",
    "reduction": [
        {"name": "daily", "package": "maximum", "group_by": ["cell", "date"], "deliver": True},
        {
            "name": "monthly",
            "package": "mean",
            "group_by": ["cell", "month"],
            "takes": ["MCD15A2"],
            "deliver": True,
        },
        {
            "name": "usual",
            "package": "median",
            "group_by": ["cell", "month-of-year"],
            "takes": ["monthly"],
        },
    ],
}


@dataclass(frozen=True)
class Made:
    """The results of the request: files by name."""

    files: dict[str, Path]
    zarr: Path

    def item(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.files[f"{name}.json"].read_text())
        return found

    def lineage(self, name: str) -> Lineage:
        found = open_raster(self.files[f"{name}.tif"]).said.provenance.lineage
        assert found is not None
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("windows")
    granules = folder / "granules"
    granules.mkdir()
    for product, collection, day in GRANULES:
        start = dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC)
        one = small_tile(product=product, collection=collection, date=f"{start:%Y%j}")
        end = start + dt.timedelta(days=8 if product == "MCD15A2" else 365, seconds=-1)
        write_granule(granules / one.local_name, replace(one, start=start, end=end))
    mill = Mill(folder, granules)
    archive = FolderArchive(granules, folder / "index.sqlite", read_outlines)
    archive.refresh()
    files = {}
    with pytest.MonkeyPatch.context() as patch:
        with_small_cells(patch, 16)
        found = plan(parse_request(REQUEST), archive, Packages.of(mill.settings), mill.settings)
        for package in found.archives:
            mill.world.put_package(package)
        for task in found.tasks:
            for file in mill.make(task.spec):
                if isinstance(task.spec, MosaicSpec | CubeSpec):
                    files[file.name] = mill.fetch(file)
        cubes = [one.spec for one in found.tasks if isinstance(one.spec, CubeSpec)]
        (usual,) = [spec for spec in cubes if "median" in spec.name]
        (packed,) = mill.make(usual.model_copy(update={"form": "zarr"}))
        return Made(files, mill.fetch(packed))


DAILY = [f"{year}-{day}" for year in (2011, 2012) for day in ("01-31", "02-01", "02-02")]
WINDOWS = {
    **{f"MCD15A2.005.Lai_1km_maximum.{day}": (day, day) for day in DAILY},
    **{f"OWNA1.001.Lai_1km_maximum.{day}": (day, day) for day in DAILY},
    "Lai_1km_mean.2011-01": ("2011-01-01", "2011-01-31"),
    "Lai_1km_mean.2011-02": ("2011-02-01", "2011-02-28"),
    "Lai_1km_mean.2012-01": ("2012-01-01", "2012-01-31"),
    "Lai_1km_mean.2012-02": ("2012-02-01", "2012-02-29"),
    "Lai_1km_mean_median.month-01": ("2011-01-01", "2012-01-31"),
    "Lai_1km_mean_median.month-02": ("2011-02-01", "2012-02-29"),
}


def test_rasters_items_and_lineages_have_the_days_of_their_window(made: Made) -> None:
    assert {name.removesuffix(".tif") for name in made.files if name.endswith(".tif")} == {*WINDOWS}
    for name, (first, last) in WINDOWS.items():
        whole = f"{first}T00:00:00Z", f"{last}T23:59:59Z"
        said = open_raster(made.files[f"{name}.tif"]).said.provenance
        assert (said.start, said.end) == whole
        item = pystac.Item.from_dict(made.item(name))
        assert validate_dict({**made.item(name), "stac_extensions": []})  # theirs need the network
        about = item.properties
        assert (about["start_datetime"], about["end_datetime"]) == whole
        assert item.common_metadata.start_datetime == dt.datetime.fromisoformat(whole[0])
        assert about["datetime"] is None
        (*_, days) = [one.time.days for one in made.lineage(name).windows if one.time]
        assert said.window is not None
        assert days == said.window.days
        assert about["swathmill:window"]["days"] == [[str(a), str(b)] for a, b in days]
    # What the inputs cover has properties of its own.
    about = made.item("MCD15A2.005.Lai_1km_maximum.2011-02-01")["properties"]
    assert about["swathmill:inputs_start"] == "2011-01-25T00:00:00Z"
    assert about["swathmill:inputs_end"] == "2011-02-01T23:59:59Z"
    about = made.item("OWNA1.001.Lai_1km_maximum.2012-02-01")["properties"]
    assert about["swathmill:inputs_start"] == "2010-06-01T00:00:00Z"


def test_a_climatology_says_its_days_in_each_year_and_those_of_earlier_steps(made: Made) -> None:
    name = "Lai_1km_mean_median.month-02"
    window = made.item(name)["properties"]["swathmill:window"]
    assert window == {
        "days": [["2011-02-01", "2011-02-28"], ["2012-02-01", "2012-02-29"]],
        "recurs": True,
    }
    found = {one.window: one.time.days for one in made.lineage(name).windows if one.time}
    assert {*found} == {"2011-02", "2012-02", "month-02"}
    assert found["2012-02"] == ((dt.date(2012, 2, 1), dt.date(2012, 2, 29)),)


def read_bounds(path: Path) -> tuple[str, list[tuple[str, str]]]:
    """The attribute that names a cube's bounds, and the bounds as days, read by netCDF4
    and held to CF: times lie within, bounds ascend, and are not of both kinds."""
    with netCDF4.Dataset(path) as file:
        time = file["time"]
        (kind,) = {*time.ncattrs()} & {"bounds", "climatology"}
        pairs = file[time.getncattr(kind)][:]
        assert np.all(pairs[:, 0] <= time[:])
        assert np.all(time[:] < pairs[:, 1])
        found: Any = netCDF4.num2date(pairs, time.units, time.calendar)
        assert all(one.strftime("%H:%M:%S") == "00:00:00" for one in found.ravel())
        return kind, [(a.strftime("%Y-%m-%d"), b.strftime("%Y-%m-%d")) for a, b in found]


def test_cubes_have_bounds_by_cf_that_touch(made: Made) -> None:
    kind, found = read_bounds(made.files["daily.MCD15A2.005.Lai_1km_maximum.nc"])
    assert kind == "bounds"
    assert found[:2] == [("2011-01-31", "2011-02-01"), ("2011-02-01", "2011-02-02")]
    assert read_bounds(made.files["daily.OWNA1.001.Lai_1km_maximum.nc"]) == (kind, found)
    _, found = read_bounds(made.files["monthly.Lai_1km_mean.nc"])
    assert found == [
        *(("2011-01-01", "2011-02-01"), ("2011-02-01", "2011-03-01")),
        *(("2012-01-01", "2012-02-01"), ("2012-02-01", "2012-03-01")),
    ]
    with xarray.open_dataset(made.files["monthly.Lai_1km_mean.nc"]) as cube:
        assert cube["Lai_1km_mean"].attrs["cell_methods"] == "time: mean"
        assert [str(one)[:10] for one in cube["time_bnds"].values[0]] == [*found[0]]
        covered = cube["inputs_time"].values[:2].astype("M8[s]").astype(str).tolist()
    assert covered == [
        ["2011-01-25T00:00:00", "2011-02-02T00:00:00"],
        ["2011-01-25T00:00:00", "2011-02-10T00:00:00"],
    ]
    with xarray.open_dataset(made.files["daily.MCD15A2.005.Lai_1km_maximum.nc"]) as cube:
        (layer,) = [one for one in cube.data_vars.values() if one.ndim == 3]
        assert layer.attrs["cell_methods"] == "time: maximum"


def test_a_climatology_has_bounds_by_cf_from_the_first_year_to_the_last(made: Made) -> None:
    path = made.files["usual.Lai_1km_mean_median.nc"]
    expected = [("2011-01-01", "2012-02-01"), ("2011-02-01", "2012-03-01")]
    assert read_bounds(path) == ("climatology", expected)
    for opened in (xarray.open_dataset(path), xarray.open_zarr(ZipStore(made.zarr, mode="r"))):
        with opened as cube:
            assert "time_bnds" not in cube.variables
            assert [str(one)[:10] for one in cube["time"].values] == ["2011-01-01", "2011-02-01"]
            bounds = cube["climatology_bounds"].values.astype("M8[D]").astype(str).tolist()
            assert [(a, b) for a, b in bounds] == expected
            assert cube["Lai_1km_mean_median"].attrs["cell_methods"] == (
                "time: median within years time: median over years "
                "(comment: of the values of all years together)"
            )
