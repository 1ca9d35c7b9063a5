"""The table of products: what it says of each is tried, and it is not out of date."""

from datetime import date
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from reprojection import catalogue
from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.layers import Scaling
from reprojection.errors import BadFormatError
from reprojection.grid.grids import Lattice
from reprojection.reproject import Options, reproject
from reprojection.sample import products
from reprojection.sample.products import Layout, write_product
from tasks.request.document import ProductChoice
from tools.products_table import OTHERS, PAGE, REAL, Form, page, share_read

DAY = date(2020, 1, 1)
GRID = Lattice(crs="EPSG:4326", resolution=0.25).snap((8.5, 43.0, 10.5, 46.0))
READ = [(name, other.form) for other in OTHERS if not other.why for name in other.names.split()]


def test_the_page_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_at_least_95_of_100_products_are_read() -> None:
    assert share_read() >= 0.95


def test_real_granules_are_those_at_hand(granules: Path) -> None:
    there = {path.name.split(".")[0] for path in granules.rglob("*.hdf")}
    assert there >= set(REAL)


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


@pytest.mark.parametrize(("name", "form"), READ)
def test_products_outside_the_catalogue_are_read_by_their_attributes(
    name: str, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalogue.product(name, "1") is None
    layer = "Data"
    if form.startswith("netcdf") and "grid" in form:
        path = write_mapped(tmp_path / f"{name}.A2020001.011.2020100000000.nc", form)
        layer = "Data_Mean" if form == "netcdf grid of groups" else layer
    else:
        kind, _, geometry = form.rpartition(" ")
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
            family="",
            title="",
            geometry=geometry,
            resolution=1000,
            period=1,
            scaling=Scaling.ADD,
            layers={"Data": LayerEntry()},
        )
        path = write_product(tmp_path, plain, "1", DAY)
    found = reproject([path], layer, GRID, Options(resampling="nearest"))
    assert found.valid().mean() > 0.9
    if "grid" in form:  # rows count from the north, however the file stores them
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
