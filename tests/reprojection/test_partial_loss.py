"""A granule that lacks a layer, its values or its geolocation costs its part, not the raster."""

import shutil
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import combinations
from pathlib import Path

import h5py
import numpy as np
import pytest

from modis.tile import Tile
from reprojection import catalogue
from reprojection.errors import NoGeolocationError, UnknownLayerError
from reprojection.grid.grids import Grid
from reprojection.read.completeness import (
    WHOLE,
    Completeness,
    Missing,
    found_besides,
    is_by_granule,
)
from reprojection.reproject import Options, reproject
from reprojection.warp.sites import Places, Site, Wanted, read_sites
from tests.generated.products import write_product

NAMES = ("VNP02MOD", "VNP03MOD")
GRID = Grid(crs="EPSG:4326", transform=(0.25, 0.0, 7.0, 0.0, -0.25, 47.0), width=24, height=16)
LAYER, THERMAL = "M05", "M15"


def write_day(folder: Path) -> list[Path]:
    """Write a granule of radiances and its granule of geolocation."""
    for name in NAMES:
        entry = catalogue.product(name, "2")
        assert entry is not None
        write_product(folder, entry, "2", date(2023, 1, 1), Tile(18, 4))
    return sorted(folder.glob("*.1030.*"))


def write_night(
    day: list[Path], folder: Path, change: Callable[[h5py.File], None], time: str = "2242"
) -> list[Path]:
    """Write the granules of another time, by night; the change is made to the radiances."""
    made = []
    for path in day:
        made.append(folder / path.name.replace(".1030.", f".{time}."))
        shutil.copy(path, made[-1])
        with h5py.File(made[-1], "a") as file:
            file.attrs["LocalGranuleID"] = made[-1].name.encode()
            file.attrs["RangeBeginningTime"] = f"{time[:2]}:{time[2:]}:00.000000".encode()
            file.attrs["RangeEndingTime"] = f"{time[:2]}:{time[2:]}:59.000000".encode()
            file.attrs["DayNightFlag"] = b"Night"
            if "observation_data" in file:
                change(file)
    return made


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_day(tmp_path_factory.mktemp("level1b"))


def without_band(file: h5py.File) -> None:
    for band in [name for name in file["observation_data"] if name.startswith(LAYER)]:
        del file["observation_data"][band]


def without_values(file: h5py.File) -> None:
    found = file["observation_data"][LAYER]
    found[...] = found.attrs["_FillValue"]


@pytest.fixture
def night(day: list[Path], tmp_path: Path) -> Callable[..., list[Path]]:
    return partial(write_night, day, tmp_path)


def seen(day: list[Path]) -> Site:
    """Return the centre of a pixel in which the day's granule has a value."""
    row, column = np.argwhere(reproject(day, LAYER, GRID, Options()).valid())[0].tolist()
    return Site(name="a", lon=7.0 + 0.25 * (column + 0.5), lat=47.0 - 0.25 * (row + 0.5))


def test_the_day_is_there_as_without_the_night(
    day: list[Path], night: Callable[..., list[Path]]
) -> None:
    dark = night(without_band)
    alone = reproject(day, LAYER, GRID, Options())
    both = reproject([*dark, *day], LAYER, GRID, Options())
    assert alone.valid_share > 0.0
    np.testing.assert_array_equal(both.data, alone.data)
    assert both.provenance == alone.provenance
    assert alone.completeness == WHOLE
    why = "holds no layer M05, as granules of night do"
    assert both.completeness == Completeness(
        share=0.5, missing=(Missing(what=dark[0].name, why=why),)
    )
    assert is_by_granule(why)
    thermal = reproject([*dark, *day], THERMAL, GRID, Options())
    assert len(thermal.provenance.granules) == 2
    assert thermal.completeness == WHOLE


def test_a_night_of_fill_is_no_part_either(
    day: list[Path], night: Callable[..., list[Path]]
) -> None:
    dark = night(without_values)
    both = reproject([*day, *dark], LAYER, GRID, Options())
    np.testing.assert_array_equal(both.data, reproject(day, LAYER, GRID, Options()).data)
    (named,) = both.completeness.missing
    assert named.what == dark[0].name
    assert named.why == "holds only fill in layer M05, as granules of night do"
    with pytest.raises(UnknownLayerError, match="of night, which hold only fill"):
        reproject(dark, LAYER, GRID, Options())


def test_it_is_a_failure_where_no_granule_has_the_layer(night: Callable[..., list[Path]]) -> None:
    dark = [*night(without_band), *night(without_band, "2248")]
    with pytest.raises(UnknownLayerError, match="no layer 'M05' in any of 2 granules, all of nig"):
        reproject(dark, LAYER, GRID, Options())


def test_a_swath_without_its_geolocation_is_no_part(
    day: list[Path], night: Callable[..., list[Path]]
) -> None:
    (dark, _) = night(lambda _: None)
    both = reproject([*day, dark], THERMAL, GRID, Options())
    np.testing.assert_array_equal(both.data, reproject(day, THERMAL, GRID, Options()).data)
    why = "does not say where its pixels lie: without VNP03MOD"
    assert both.completeness.missing == (Missing(what=dark.name, why=why),)
    with pytest.raises(NoGeolocationError):
        reproject([dark], THERMAL, GRID, Options())


def test_any_choice_of_granules_equals_those_of_it_that_hold_the_layer(
    day: list[Path], night: Callable[..., list[Path]]
) -> None:
    pairs = [day, night(lambda _: None, "1036"), night(without_band), night(without_band, "2248")]
    for size in (2, 3, 4):
        for chosen in combinations(range(4), size):
            holding = [path for n in chosen for path in pairs[n] if n < 2]
            if not holding:
                continue
            every = [path for n in chosen for path in pairs[n]]
            made = reproject(every, LAYER, GRID, Options())
            right = reproject(holding, LAYER, GRID, Options())
            np.testing.assert_array_equal(made.data, right.data)
            lacking = sum(n >= 2 for n in chosen)
            assert len(made.completeness.missing) == lacking
            assert made.completeness.share == pytest.approx((size - lacking) / size, abs=1e-5)


def test_at_sites_a_layer_is_lost_and_the_other_read(
    day: list[Path], night: Callable[..., list[Path]]
) -> None:
    dark, layers = night(without_band), [Wanted(layer=LAYER), Wanted(layer=THERMAL)]
    places = Places([seen(day)])
    found, lacks = read_sites([*day, *dark], layers, places)
    assert [one.layer for one in found] == [LAYER, THERMAL, THERMAL]
    assert [one.what for one in lacks.missing] == [dark[0].name]
    found, lacks = read_sites(dark, layers, places)
    assert [one.layer for one in found] == [THERMAL]
    assert lacks.share == 0.5
    with pytest.raises(UnknownLayerError, match="of night"):
        read_sites(dark, layers[:1], places)


def test_what_is_named_already_is_not_counted_again() -> None:
    tile = Missing(what="h18v04", why="not there")
    dark = Missing(what="night.nc", why="holds no layer M05")
    said = Completeness(share=0.5, missing=(tile,), unnamed=2)
    found = Completeness(share=0.5, missing=(dark,))
    both = found_besides(said, found)
    assert both == Completeness(share=0.25, missing=(tile, dark), unnamed=2)
    assert found_besides(both, found) == both
    assert found_besides(said, WHOLE) == said
