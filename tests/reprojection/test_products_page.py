"""The table of products: what it says of each is tried, and it is not out of date."""

from datetime import date
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from reprojection import catalogue
from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.layers import Scaling
from reprojection.errors import BadFormatError, UnreadableGranuleError
from reprojection.grid.grids import Lattice
from reprojection.reproject import Options, reproject
from tasks.request.document import ProductChoice
from tests.generated import products
from tests.generated.products import Layout, write_product
from tools.products_table import OTHERS, PAGE, REAL, Form, page, rows, shares, with_headers

DAY = date(2020, 1, 1)
GRID = Lattice(crs="EPSG:4326", resolution=0.25).snap((8.5, 43.0, 10.5, 46.0))
READ = [(name, other.form) for other in OTHERS if not other.why for name in other.names.split()]
FIRST = {form: name for name, form in reversed(READ)}


def test_the_page_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_only_real_granules_show_that_a_product_is_read() -> None:
    read, header, specified = shares()
    assert {name for name, _, state, *_ in rows() if state.startswith("read")} == set(REAL)
    headed = {name for name, _, state, *_ in rows() if state.startswith("by header")}
    assert headed == with_headers()
    assert read + header + specified >= 0.95


def test_real_granules_are_those_at_hand(granules: Path) -> None:
    there = [path.name for path in granules.rglob("*.*") if path.suffix in (".hdf", ".h5", ".nc")]
    assert [name for name in REAL if not any(name in file for file in there)] == []


def write_mapped(path: Path, form: Form) -> Path:
    """A netCDF-4 grid of one degree, in the form of the product's files."""
    lat, lon = ("lat", "lon") if form == "netcdf grid" else ("latitude", "longitude")
    north = 89.5 - np.arange(180)
    values = np.broadcast_to(np.arange(180.0)[:, None], (180, 360))
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.6"
        file.createDimension(lat, 180)
        file.createDimension(lon, 360)
        rows = file.createVariable(lat, "f4", (lat,))
        file.createVariable(lon, "f4", (lon,))[:] = -179.5 + np.arange(360)
        if form == "netcdf grid":
            rows[:] = north
            file.createVariable("Data", "f4", (lat, lon), fill_value=-32767.0)[:] = values
            return path
        rows[:] = north[::-1]
        if form == "netcdf northward grid":
            file.createVariable("Data", "f4", (lat, lon), fill_value=-999.0)[:] = values[::-1]
            return path
        for number, name in enumerate(("Data", "Cloud_Fraction")):
            group = file.createGroup(name)
            mean = group.createVariable("Mean", "f8", (lon, lat), fill_value=-9999.0)
            mean[:] = values[::-1].T + 1000.0 * number
            counts = group.createVariable("Pixel_Counts", "i4", (lon, lat), fill_value=-9999)
            counts[:] = 7
    return path


def write_bins(path: Path) -> Path:
    """A binned file of rings of one degree: bins hold their ring's number from the north, as sums
    of weight 2; those of every tenth place of a ring are missing.
    """
    rings = 180
    width = np.rint(2 * rings * np.cos(np.radians(np.arange(rings) - 89.5))).astype(int)
    start = 1 + np.concatenate([[0], np.cumsum(width)[:-1]])
    kept = [np.arange(width[ring])[np.arange(width[ring]) % 10 != 9] for ring in range(rings)]
    index = np.zeros(rings, [(word, "u4") for word in ("start_num", "begin", "extent", "max")])
    index["start_num"], index["max"] = start, width
    index["begin"] = start
    index["extent"] = [len(one) for one in kept]
    total = int(index["extent"].sum())
    listed = np.zeros(total, [("bin_num", "u4"), ("nobs", "i2"), ("weights", "f4")])
    listed["bin_num"] = np.concatenate([start[ring] + one for ring, one in enumerate(kept)])
    listed["nobs"], listed["weights"] = 3, 2.0
    sums = np.zeros(total, [("sum", "f4"), ("sum_squared", "f4")])
    sums["sum"] = np.concatenate(
        [np.full(len(one), 2.0 * (rings - 1 - ring)) for ring, one in enumerate(kept)]
    )
    with h5py.File(path, "w") as file:
        file.attrs["time_coverage_start"] = "2020-01-01T00:00:00.000Z"
        group = file.create_group("level-3_binned_data")
        group["BinIndex"], group["BinList"], group["Data"] = index, listed, sums
    return path


def test_pixels_of_binned_files_have_the_mean_of_the_bin_that_their_centre_lies_in(
    tmp_path: Path,
) -> None:
    path = write_bins(tmp_path / "AQUA_MODIS.20200101.L3b.DAY.CHL.nc")
    grid = Lattice(crs="EPSG:4326", resolution=0.5).snap((-180.0, -90.0, 180.0, 90.0))
    found = reproject([path], "Data", grid, Options(resampling="nearest"))
    counts = reproject([path], "nobs", grid, Options(resampling="nearest"))
    lat = 90.0 - 0.5 * (np.arange(360) + 0.5)
    lon = -180.0 + 0.5 * (np.arange(720) + 0.5)
    ring = np.floor(90.0 - lat).astype(int)
    width = np.rint(360 * np.cos(np.radians(89.5 - ring))).astype(int)
    # The grid's columns are one degree wide; the bin is that of the column's centre.
    centre = np.floor(lon[None, :] + 180.0) + 0.5
    place = np.floor(centre / 360.0 * width[:, None]).astype(int)
    there = place % 10 != 9
    assert np.array_equal(found.valid(), there)
    assert np.array_equal(counts.valid(), there)
    assert (found.data[0][there] == np.broadcast_to(ring[:, None], there.shape)[there]).all()
    assert (counts.data[0][there] == 3).all()


def test_binned_files_whose_tables_disagree_are_refused(tmp_path: Path) -> None:
    path = write_bins(tmp_path / "AQUA_MODIS.20200101.L3b.DAY.CHL.nc")
    with h5py.File(path, "a") as file:
        table = file["level-3_binned_data/BinIndex"]
        rows = table[...]
        rows["extent"][100] += 5
        table[...] = rows
    with pytest.raises(UnreadableGranuleError, match="table of rings"):
        reproject([path], "Data", GRID, Options())


def test_every_product_of_the_catalogue_is_in_the_table_once() -> None:
    names = [name for name, *_ in rows()]
    assert len(names) == len(set(names))
    assert {one.name for one in catalogue.products()} <= set(names)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        # One product of each form is enough for every day.
        pytest.param(name, form, marks=() if FIRST[form] == name else pytest.mark.slow)
        for name, form in READ
    ],
)
def test_products_outside_the_catalogue_are_read_by_their_attributes(
    name: str, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalogue.product(name, "1") is None
    layer = "Data"
    if form == "netcdf bins":
        path = write_bins(tmp_path / f"{name}.A2020001.011.2020100000000.nc")
    elif form.startswith("netcdf") and "grid" in form:
        path = write_mapped(tmp_path / f"{name}.A2020001.011.2020100000000.nc", form)
        layer = "Data_Mean" if form == "netcdf grid of groups" else layer
    else:
        kind, _, geometry = form.rpartition(" ")
        kind, special = kind.partition(" ")[0], form.removeprefix("hdf5 ")
        outlined = {"polar grid": "", "geographic tile": "46", "rotated tile": "19"}
        geometry = "outlined" if special in outlined else geometry
        formats = {"hdf5": "hdf5", "netcdf": "netcdf"}
        layout = Layout.model_validate(
            {
                "products": [name],
                "format": formats.get(kind, "hdf4"),
                "structures": {"geophysical_data": 1},
            }
        )
        monkeypatch.setattr(products, "layouts", lambda: {name: layout})
        plain = Product(
            name=name,
            collections=("1",),
            family=outlined.get(special, ""),
            title="",
            geometry=geometry,
            resolution=1000,
            period=1,
            covers=1,
            scaling=Scaling.ADD,
            layers={"Data": LayerEntry()},
        )
        path = write_product(tmp_path, plain, "1", DAY)
    found = reproject([path], layer, GRID, Options(resampling="nearest"))
    # A geographic tile ends at 10 degrees east, within the grid.
    assert found.valid().mean() > (0.7 if "geographic" in form else 0.9)
    if (
        form.startswith("netcdf") and "swath" not in form
    ):  # rows count from the north, however the file stores them
        assert (found.data[0, :4] == 44.0).all()
        assert (found.data[0, -4:] == 46.0).all()


def test_products_may_be_requested_by_name() -> None:
    for name in (name for other in OTHERS for name in other.names.split()):
        ProductChoice(name=name, collection="1", layers=("Data",))


def test_binned_ocean_colour_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "AQUA_MODIS.20200101.L3b.DAY.CHL.nc"
    with netCDF4.Dataset(path, "w") as file:
        group = file.createGroup("level-3_binned_data")
        group.createDimension("binListDim", 10)
        group.createVariable("chlor_a", "f4", ("binListDim",))[:] = 1.0
    with pytest.raises(BadFormatError, match=r"bins on rings of the sphere.*mapped product"):
        reproject([path], "chlor_a", GRID, Options())
