"""The table of products: what it says of each is tried, and it is not out of date."""

from datetime import date
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from reprojection import catalogue
from reprojection.catalogue import LayerEntry, Product
from reprojection.catalogue.layers import Scaling
from reprojection.grid.grids import Lattice
from reprojection.reproject import Options, reproject
from reprojection.sample import products
from reprojection.sample.products import Layout, write_product
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


def write_mapped(path: Path) -> Path:
    """A mapped netCDF-4 grid of one degree."""
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.6"
        file.createDimension("lat", 180)
        file.createDimension("lon", 360)
        file.createVariable("lat", "f4", ("lat",))[:] = 89.5 - np.arange(180)
        file.createVariable("lon", "f4", ("lon",))[:] = -179.5 + np.arange(360)
        file.createVariable("Data", "f4", ("lat", "lon"), fill_value=-32767.0)[:] = 1.0
    return path


@pytest.mark.parametrize(("name", "form"), READ)
def test_products_outside_the_catalogue_are_read_by_their_attributes(
    name: str, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalogue.product(name, "1") is None
    if form == "netcdf grid":
        path = write_mapped(tmp_path / f"{name}.nc")
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
    found = reproject([path], "Data", GRID, Options(resampling="nearest"))
    assert found.valid().mean() > 0.9
