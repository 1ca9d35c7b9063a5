"""From notebook to service: the request that makes what a dataset of `load` holds."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from reprojection.errors import ChoiceRefusedError
from reprojection.grid.grids import Grid, Lattice, modis_lattice, modis_tile_grid
from reprojection.reproject import Options
from swathmill import load
from swathmill.xarray import requesting
from swathmill.xarray.explaining import OPTIONS
from tasks.errors import RequestRefusedError
from tasks.request.document import parse_request
from tasks.request.request_file import load_request
from tasks.request.resolved import resolve

DEPTH = "Optical_Depth_Land_And_Ocean"
BOX = (-8.0, 50.5, 6.0, 58.5)
GRID = Lattice(crs="EPSG:4326", resolution=0.05).snap(BOX)
ODD = Grid(
    crs="EPSG:32630", transform=(2500.0, 0.0, 401_234.5, 0.0, -2500.0, 6.3e6), width=9, height=7
)


@pytest.fixture(scope="module")
def tiles(sample_archive: Path) -> list[Path]:
    return sorted(sample_archive.rglob("MCD15A2.A2012[01][0-9]5*.hdf"))


@pytest.fixture(scope="module")
def swaths(sample_archive: Path) -> list[Path]:
    return sorted(sample_archive.rglob("MYD04_L2.*.hdf"))


@pytest.mark.parametrize(
    "target",
    [
        GRID,
        Lattice(crs="EPSG:3035", resolution=1000.0).snap((3.2e6, 3.1e6, 3.9e6, 3.6e6)),
        Lattice(crs="EPSG:32630", resolution=250.0).snap((4e5, 57e5, 5e5, 58e5)),
        modis_tile_grid(17, 3, 1000),
        modis_lattice(1000).window(-700, -7000, 300, 200),
    ],
    ids=["degrees", "laea", "utm", "tile", "window"],
)
def test_a_server_makes_the_same_grid_layers_dates_and_options(
    tiles: list[Path], target: Grid, tmp_path: Path
) -> None:
    options = Options(qa="good", units="physical", resampling="cubic", clamp=True)
    quality = Options(units="physical", clamp=True)
    chosen = {"Lai_1km": options, "Fpar_1km": options, "FparLai_QC": quality}
    dataset = load(tiles, list(chosen), target, options=chosen)
    path = tmp_path / "request.yaml"
    document = dataset.swathmill.to_request(path, title="Leaves", cube="zarr")
    request = load_request(path)
    assert request == parse_request(document)
    assert (request.title, request.cube) == ("Leaves", "zarr")
    assert (request.time.start, request.time.end) == (date(2012, 3, 5), date(2012, 4, 14))
    made = resolve(request)
    assert made.target.grid.transform == target.transform
    assert made.target.grid.shape == target.shape
    (product,) = made.products
    assert (product.choice.name, product.choice.collection) == ("MCD15A2", "5")
    for layer in product.layers:
        held = dataset[layer.name].encoding[OPTIONS]
        assert layer.resampling == held.resampling
        assert layer.qa == (held.qa or "")
        assert (layer.units, layer.mask) == (held.units, held.mask)
    assert request.clamp


def test_layers_of_swaths_follow_the_same_one(swaths: list[Path]) -> None:
    other = "Corrected_Optical_Depth_Land[1]"
    options = Options(resampling="average", merge="latest", extra_bands=("source", "count"))
    dataset = load(swaths, [DEPTH, other], GRID, options=options)
    request = parse_request(dataset.swathmill.to_request())
    (product,) = resolve(request).products
    assert product.choice.layers == (DEPTH, other)
    assert product.driver.name == dataset[list(dataset)[-1]].encoding[OPTIONS].driver.layer
    assert (request.merge, request.extra_bands) == ("latest", ("source", "count"))
    assert {layer.resampling for layer in product.layers} == {"average"}
    alone = dataset[[name for name in dataset if str(name).startswith("Corrected")]]
    with pytest.raises(ChoiceRefusedError, match=f"put '{DEPTH}' first"):
        alone.swathmill.to_request()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"target": ODD}, "no request has the dataset's grid"),
        ({"options": Options(search="valid")}, "knows no search"),
        (
            {"options": {"Lai_1km": Options(units="physical"), "Fpar_1km": Options()}},
            "units differs between layers",
        ),
        (
            {"options": {"Lai_1km": Options(qa="good"), "Fpar_1km": Options(qa="best")}},
            "rules of quality differ",
        ),
        (
            {"options": {"Lai_1km": Options(qa="good"), "Fpar_1km": Options()}},
            "'Fpar_1km' would be made with good",
        ),
    ],
)
def test_what_no_request_makes_is_refused(
    tiles: list[Path], arguments: dict[str, Any], told: str
) -> None:
    given = {"target": GRID, "options": Options(), **arguments}
    dataset = load(tiles[:2], ["Lai_1km", "Fpar_1km"], **given)
    with pytest.raises(ChoiceRefusedError, match=told):
        dataset.swathmill.to_request()


def test_fields_are_those_of_a_request(tiles: list[Path]) -> None:
    dataset = load(tiles[:2], "Lai_1km", GRID)
    steps = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    made = parse_request(dataset.swathmill.to_request(reduction=steps))
    assert made.steps[0].package == "monthly-mean"
    with pytest.raises(RequestRefusedError, match="titel"):
        dataset.swathmill.to_request(titel="Leaves")


def test_other_datasets_are_refused(tiles: list[Path]) -> None:
    with pytest.raises(ChoiceRefusedError, match="does not say how it was made"):
        xr.open_dataset(tiles[0], engine="swathmill").swathmill.to_request()
    with pytest.raises(ChoiceRefusedError, match="has no variable"):
        xr.Dataset().swathmill.to_request()


def test_an_outline_is_tried_with_so_many_points_along_a_side_at_most() -> None:
    outlines: list[Any] = list(requesting._polygons(ODD))
    sizes = [len(region["geojson"]["coordinates"][0]) // 4 for region in outlines]
    assert sizes == [4, 16, 64, 256, requesting._MOST_POINTS]
