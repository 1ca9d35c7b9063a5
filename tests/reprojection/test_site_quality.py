"""The quality of a site's pixel, also where the QA layer is a class and not bit fields."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from modis.tile import Tile
from reprojection import catalogue
from reprojection.errors import UnknownLayerError
from reprojection.grid.crs import Crs
from reprojection.read import qa
from reprojection.read.granule import Granule, open_granule
from reprojection.warp.sites import Places, Readings, Site, Wanted, read_sites
from tests.generated.products import write_product

CASES = [
    ("MYD04_L2", "61", "Optical_Depth_Land_And_Ocean"),
    ("MOD13A2", "61", "1 km 16 days NDVI"),
    ("VNP13A2", "2", "1 km 16 days NDVI"),
    ("MOD10A1", "61", "NDSI_Snow_Cover"),
    ("VNP10A1", "2", "NDSI_Snow_Cover"),
    ("MCD43A3", "61", "Albedo_BSA_Band1"),
    ("VNP46A2", "2", "DNB_BRDF-Corrected_NTL"),
]
SITES = [
    Site(name=str(n), lon=float(lon), lat=45.0) for n, lon in enumerate(np.linspace(8, 13, 11))
]


def written(product: str, collection: str, folder: Path) -> Path:
    entry = catalogue.product(product, collection)
    assert entry is not None
    write_product(folder, entry, collection, date(2023, 1, 1), Tile(18, 4))
    return next(folder.glob(f"{product}.*"))


def read(path: Path, layer: str) -> Readings:
    (found,) = read_sites([path], [Wanted(layer=layer)], Places(SITES))[0]
    return found


@pytest.mark.parametrize(("product", "collection", "layer"), CASES, ids=[c[0] for c in CASES])
def test_it_is_the_value_of_the_class_and_its_meaning(
    product: str, collection: str, layer: str, tmp_path: Path
) -> None:
    path = written(product, collection, tmp_path)
    found = read(path, layer)
    assert found.quality is not None
    with open_granule(path) as granule:
        name = granule.layers[layer].qa
        assert name is not None
        assert not qa.has_fields(granule, name)
        about = granule.layers[name]
        down, across = qa.placement(granule, granule.layers[layer], about)
        rows = found.row if down is None else down[found.row]
        columns = found.column if across is None else across[found.column]
        right = granule.read(about)[rows, columns].astype(np.int64)
        np.testing.assert_array_equal(found.quality.stored, right)
        meanings = {**about.codes, **about.classes}
        said = [found.quality.words[word] for word in found.quality.word]
        assert said == [
            meanings.get(value, "fill" if value == about.fill else "") for value in right.tolist()
        ]
        assert any(said)
        known = next(value for value in right.tolist() if value in meanings)
        (field,) = qa.decode(granule, name, known)
        assert (field.name, field.value, field.meaning) == ("value", known, meanings[known])


def test_a_class_without_a_qa_layer_has_no_quality(tmp_path: Path) -> None:
    assert read(written("MYD04_L2", "61", tmp_path), "Land_sea_Flag").quality is None


def test_every_qa_layer_of_the_catalogue_has_words() -> None:
    """Each layer that another names as its quality has bit fields, or classes; QC has no legend."""
    silent = []
    for product in catalogue.products():
        for entry in product.layers.values():
            about = product.layer(entry.qa.replace("*", "x")) if entry.qa else None
            if about is not None and not (about.bits or about.classes or about.codes):
                silent.append((product.name, entry.qa))
    assert {*silent} <= {("MCD12Q1", "QC")}


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("pattern", "layer"),
    [
        ("**/MYD04_L2.A2007103.*.hdf", "Optical_Depth_Land_And_Ocean"),
        ("**/MOD13A2.*.hdf", "1 km 16 days NDVI"),
        ("**/VNP13A2.*.h5", "1 km 16 days NDVI"),
        ("**/MOD10A1.*.hdf", "NDSI_Snow_Cover"),
    ],
)
def test_it_is_there_in_real_granules(granules: Path, pattern: str, layer: str) -> None:
    for path in sorted(granules.glob(pattern)):
        with open_granule(path) as granule:
            centre = _centre(granule, layer)
        if centre is None:
            continue
        (found,) = read_sites([path], [Wanted(layer=layer)], Places([centre]))[0]
        assert found.quality is not None
        assert found.quality.words[int(found.quality.word[0])]
        return
    pytest.skip(f"no {pattern}")


def _centre(granule: Granule, layer: str) -> Site | None:
    """Return a place within a granule at which its quality is known."""
    try:
        found = granule.layer(layer)
    except UnknownLayerError:
        return None
    if found.qa not in granule.layers:
        return None
    if found.swath:
        where = granule.geolocation(found)
        valid = np.argwhere(qa.valid_mask(granule, found) & np.isfinite(where.lat))
        row, column = valid[len(valid) // 2]
        return Site(name="a", lon=float(where.lon[row, column]), lat=float(where.lat[row, column]))

    info = granule.grids[str(found.grid)]
    row, column = np.argwhere(qa.valid_mask(granule, found))[0]
    lon, lat = Crs.of(info.crs).to_lonlat(
        np.array([info.left + (column + 0.5) * info.pixel_width]),
        np.array([info.top - (row + 0.5) * info.pixel_height]),
    )
    return Site(name="a", lon=float(lon[0]), lat=float(lat[0]))
