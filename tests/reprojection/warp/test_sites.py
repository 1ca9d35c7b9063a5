"""Values at sites: those of the delivered raster, with what lies around them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import rasterio
import shapely
from numpy.typing import NDArray

from reprojection.formats import hdf4_data
from reprojection.grid.grids import Grid, Lattice
from reprojection.grid.pixel_at import pixel_at
from reprojection.read.granule import open_granule
from reprojection.read.granule_layer import find_places
from reprojection.reproject import Options, reproject
from reprojection.sample.evapotranspiration import evapotranspiration_granules
from reprojection.sample.hdfeos_write import FieldToWrite, GridToWrite, write_granule
from reprojection.warp import sites as reading
from reprojection.warp.sites import REASONS, Cell, Places, Site, Wanted
from reprojection.write.write import write_cog

GOOD = {"FparLai_QC": {"MODLAND": [0]}}


class Reading(NamedTuple):
    """What one layer holds at one site."""

    layer: str
    granule: str
    site: int
    time: datetime | None
    row: int
    column: int
    distance: float
    value: float | None
    mean: float | None
    std: float | None
    valid: int
    pixels: int
    reason: str
    quality: int | None
    decoded: str


def read_sites(paths: list[Path], layers: Sequence[Wanted], sites: list[Site]) -> list[Reading]:
    """Read layers at sites, and turn the arrays into rows, sorted by layer, site and time."""
    found = []
    for part in reading.read_sites(paths, layers, Places(sites))[0]:
        for n, site in enumerate(part.site.tolist()):
            numbers = (part.value[n].item(), part.mean[n].item(), part.std[n].item())
            value, mean, std = (None if np.isnan(one) else one for one in numbers)
            known = part.quality
            found.append(
                Reading(
                    layer=part.layer,
                    granule=part.granule,
                    site=site,
                    time=part.time[n].item(),
                    row=part.row[n].item(),
                    column=part.column[n].item(),
                    distance=part.distance[n].item(),
                    value=value,
                    mean=mean,
                    std=std,
                    valid=part.valid[n].item(),
                    pixels=part.pixels[n].item(),
                    reason=REASONS[part.reason[n].item()],
                    quality=None if known is None else known.stored[n].item(),
                    decoded="" if known is None else known.words[known.word[n]],
                )
            )
    order = [wanted.layer for wanted in layers]
    return sorted(found, key=lambda one: (order.index(one.layer), one.site, str(one.time)))


def scattered(count: int) -> list[Site]:
    rng = np.random.default_rng(5)
    places = rng.uniform((-9.0, 50.2), (9.0, 59.8), (count, 2))
    edge = np.array([(0.0001, 52.003), (-0.0001, 55.003)])  # on both sides of two tiles' edge
    return [
        Site(name=str(n), lon=float(lon), lat=float(lat))
        for n, (lon, lat) in enumerate(np.concatenate([places, edge]))
    ]


def grid_of_both(paths: list[Path], layer: str) -> Grid:
    grids = [place.grid for place in find_places(paths, layer).places if place.grid is not None]
    first = min(grids, key=lambda grid: grid.transform[2])
    width = sum(grid.width for grid in grids)
    return Grid(crs=first.crs, transform=first.transform, width=width, height=first.height)


def against_raster(paths: list[Path], wanted: Wanted, folder: Path) -> int:
    """Hold sites against `rasterio.sample` of the raster on the tiles' own pixels."""
    sites = scattered(300)
    found = {one.site: one for one in read_sites(paths, [wanted], sites)}
    grid = grid_of_both(paths, wanted.layer)
    raster = reproject(paths, wanted.layer, grid, Options(resampling="nearest", qa=wanted.rule))
    write_cog(raster, folder / "raster.tif")
    lon, lat = np.array([s.lon for s in sites]), np.array([s.lat for s in sites])
    x, y = grid.system.from_lonlat(lon, lat)
    with rasterio.open(folder / "raster.tif") as dataset:
        scale, offset, nodata = dataset.scales[0], dataset.offsets[0], dataset.nodata
        whole = dataset.read(1)
        sampled = [value.item() for (value,) in dataset.sample(zip(x, y, strict=True))]
        places = [dataset.index(*at) for at in zip(x, y, strict=True)]
    valid = 0
    for number, (stored, (row, col)) in enumerate(zip(sampled, places, strict=True)):
        if not (0 <= row < grid.height and 0 <= col < grid.width):
            assert number not in found
            continue
        one = found[number]
        expected = None if stored == nodata else stored * scale + offset
        assert one.value == (None if expected is None else pytest.approx(expected, abs=1e-12))
        assert bool(one.reason) == (one.value is None)
        around = whole[max(row - 1, 0) : row + 2, max(col - 1, 0) : col + 2]
        values = around[around != nodata] * scale + offset
        assert one.valid == values.size
        if values.size:
            assert one.mean == pytest.approx(values.mean())
            assert one.std == pytest.approx(values.std(), abs=1e-9)
            valid += 1
        assert one.distance <= 930 / np.sqrt(2) + 20
    return valid


@pytest.mark.parametrize("rule", [None, GOOD, "good"])
def test_tiles_agree_with_the_raster(
    sample_archive: Path, tmp_path: Path, rule: str | dict[str, dict[str, list[int]]] | None
) -> None:
    paths = sorted(sample_archive.glob("MCD15A2.A2012105*.hdf"))
    assert against_raster(paths, Wanted(layer="Lai_1km", rule=rule), tmp_path) > 20


@pytest.mark.real_data
def test_real_tiles_agree_with_the_raster(granules: Path, tmp_path: Path) -> None:
    paths = sorted(granules.rglob("MCD15A2.A2012113*.hdf"))
    assert against_raster(paths, Wanted(layer="Lai_1km", rule=GOOD), tmp_path) > 5


def across_180(first: float) -> Cell:
    """A raster of half degrees whose pixel holds its own column and row: 100 x row + column."""
    grid = Grid(crs="EPSG:4326", transform=(0.5, 0, first, 0, -0.5, 10), width=20, height=40)
    rows, columns = np.mgrid[0:40, 0:20].astype(np.float64)
    values = 100 * rows + columns + (0 if first < 180 else 20)
    return Cell(
        name=f"{first}",
        grid=grid,
        units="",
        continuous=True,
        rows=lambda begin, end: values[begin:end],
    )


def test_rasters_that_pass_180_are_read_on_both_sides() -> None:
    area = shapely.MultiPolygon([shapely.box(179, 0, 180, 1), shapely.box(-180, 0, -179, 1)])
    sites = [
        Site(name="west", lon=175.2, lat=9.7),
        Site(name="edge", lon=-179.9, lat=9.2),
        Site(name="east", lon=-171.3, lat=0.1),
        Site(name="far", lon=150.0, lat=5.0),
        Site(name="both", lon=179.6, lat=0.6, area=area),
    ]
    cells = [across_180(170.0), across_180(180.0)]
    found = {
        sites[n].name: (part.value[k], part.mean[k], part.pixels[k])
        for part in reading.read_cells("x", cells, Places(sites))
        for k, n in enumerate(part.site.tolist())
    }
    assert found["west"] == (10, pytest.approx(np.mean([9, 10, 11, 109, 110, 111])), 9)
    assert found["edge"] == (120, 120, 9)  # the 3 x 3 pixels go on beyond 180
    assert found["east"][0] == 1937
    assert "far" not in found
    assert found["both"] == (1819, pytest.approx(1869.5), 8)


def test_a_site_on_a_corner_has_the_pixel_of_its_raster() -> None:
    """All round coordinates on a grid of 0.01 degrees, read from cells cut out of the raster."""
    whole = Lattice(crs="EPSG:4326", resolution=0.01).snap((-8.0, 50.5, 6.0, 58.5))
    numbers = np.arange(whole.pixels, dtype=np.float64).reshape(whole.shape)
    random = np.random.default_rng(3)
    sites = [
        Site(
            name=str(n),
            lon=round(random.uniform(-8, 6), 2),
            lat=round(random.uniform(50.5, 58.5), 2),
        )
        for n in range(2000)
    ]
    a, b, c, d, e, f = whole.transform

    def cut(row: int, col: int) -> Cell:
        side = 350
        mine = numbers[row : row + side, col : col + side]
        grid = Grid(
            crs=whole.crs,
            transform=(a, b, c + col * a, d, e, f + row * e),
            width=mine.shape[1],
            height=mine.shape[0],
        )
        return Cell(
            name=f"{row} {col}",
            grid=grid,
            units="",
            continuous=True,
            rows=lambda first, last: mine[first:last],
        )

    cells = [cut(r, c) for r in range(0, whole.height, 350) for c in range(0, whole.width, 350)]
    found = {
        n: value
        for part in reading.read_cells("x", cells, Places(sites), [whole])
        for n, value in zip(part.site.tolist(), part.value.tolist(), strict=True)
    }
    for n, site in enumerate(sites):
        pixel = pixel_at(whole, site.lon, site.lat)
        expected = None if pixel is None else float(pixel.row * whole.width + pixel.col)
        assert found.get(n) == expected, site


def test_quality_is_decoded(sample_archive: Path) -> None:
    paths = sorted(sample_archive.glob("MCD15A2.A2012105*.hdf"))
    (one,) = read_sites(paths, [Wanted(layer="Lai_1km")], [Site(name="a", lon=-3.5, lat=57.1)])
    assert one.quality == 0
    assert one.decoded.startswith("MODLAND=0 (good); SENSOR=0 (Terra)")


def in_square(paths: list[Path], layer: str, area: shapely.Polygon) -> NDArray[np.float64]:
    values = []
    for path in paths:
        with open_granule(path) as granule:
            found = granule.layer(layer)
            where = granule.geolocation(found)
            inside = shapely.contains_xy(area, where.lon, where.lat)
            stored = granule.read(found)[inside]
            values.append(stored[stored != found.fill] * found.scale + found.offset)
    return np.concatenate(values)


def test_each_overpass_of_a_swath_is_a_row(sample_archive: Path) -> None:
    paths = sorted(sample_archive.glob("MYD04_L2.A2012105*.hdf"))
    layers = [Wanted(layer="Optical_Depth_Land_And_Ocean"), Wanted(layer="Sensor_Zenith")]
    found = read_sites(paths, layers, [Site(name="Moor", lon=-6.7, lat=56.6)])
    passes = [one for one in found if one.layer == "Sensor_Zenith"]
    times = [one.time for one in passes]
    assert [f"{time:%H:%M}" for time in times if time] == ["12:38", "14:16"]
    # Layers of one product come from one granule and footprint.
    assert [(r.granule, r.row, r.column) for r in found[:2]] == [
        (r.granule, r.row, r.column) for r in passes
    ]
    with open_granule(next(p for p in paths if p.name == passes[0].granule)) as granule:
        where = granule.geolocation("Sensor_Zenith")
        away = np.hypot((where.lon + 6.7) * np.cos(np.radians(56.6)), where.lat - 56.6)
        assert divmod(int(np.argmin(away)), away.shape[1]) == (passes[0].row, passes[0].column)


def test_two_granules_of_one_pass_give_one_row(sample_archive: Path) -> None:
    """The site lies on the seam of two granules that follow one another."""
    paths = sorted(sample_archive.glob("MYD04_L2.A2012105.12*.hdf"))
    ends = []
    for path, line in ((paths[0], -1), (paths[1], 0)):
        with open_granule(path) as granule:
            where = granule.geolocation("Sensor_Zenith")
            ends.append((where.lon[line, 60], where.lat[line, 60]))
    lon, lat = np.mean(ends, axis=0).tolist()
    sites = [Site(name="seam", lon=lon, lat=lat)]
    alone = [read_sites([path], [Wanted(layer="Sensor_Zenith")], sites) for path in paths]
    assert all(alone)  # both see it
    both = read_sites(paths, [Wanted(layer="Sensor_Zenith")], sites)
    nearer: Reading = min((one for some in alone for one in some), key=lambda one: one.distance)
    assert both == [nearer]
    assert isinstance(nearer.time, datetime)


def test_tiles_that_say_the_local_solar_time_have_times_in_utc(tmp_path: Path) -> None:
    """Seen at 10.6 h at 7.5 degrees east: 10:06. By night at 0.2 h: 23:42 of the same UTC day."""
    (granule,) = islice(evapotranspiration_granules([datetime(2012, 4, 20, tzinfo=UTC)]), 1)
    structure = granule.structure
    assert isinstance(structure, GridToWrite)
    hours = np.full((1200, 1200), 106, np.uint8), np.full((1200, 1200), 2, np.uint8)
    hours[0][600:] = 255  # not known in the south
    times = [
        FieldToWrite(
            name=f"{word}_view_time",
            values=values,
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, 240), "_FillValue": 255},
            attributes={"units": "hrs", "scale_factor": 0.1, "add_offset": 0.0},
        )
        for word, values in zip(("Day", "Night"), hours, strict=True)
    ]
    fields = [*structure.fields, *times]
    path = tmp_path / granule.local_name
    write_granule(path, replace(granule, structure=replace(structure, fields=fields)))
    sites = [Site(name="north", lon=7.5, lat=58.0), Site(name="south", lon=7.5, lat=52.0)]
    layers = [
        Wanted(layer="LST_Day_1km", solar_time="Day_view_time"),
        Wanted(layer="LST_Night_1km", solar_time="Night_view_time"),
        Wanted(layer="LST_Night_1km", solar_time="No_such_layer"),
    ]
    found = read_sites([path], layers, sites)
    assert [(one.layer, one.site, one.time) for one in found if one.layer != layers[1].layer] == [
        ("LST_Day_1km", 0, datetime(2012, 4, 20, 10, 6)),
        ("LST_Day_1km", 1, None),
    ]
    by_night = [one.time for one in found if one.layer == layers[1].layer]
    assert by_night.count(datetime(2012, 4, 20, 23, 42)) == 2
    assert by_night.count(None) == 2


def test_a_polygon_takes_the_footprints_inside(sample_archive: Path) -> None:
    paths = sorted(sample_archive.glob("MYD04_L2.A2012105.1415*.hdf"))
    area = shapely.box(-6.5, 51.0, -5.0, 52.0)
    site = Site(name="square", lon=-5.75, lat=51.5, area=area)
    (one,) = read_sites(paths, [Wanted(layer="Optical_Depth_Land_And_Ocean")], [site])
    values = in_square(paths, "Optical_Depth_Land_And_Ocean", area)
    assert one.valid == values.size > 9
    assert one.mean == pytest.approx(values.mean())


def test_a_site_that_no_granule_sees_has_no_row(sample_archive: Path) -> None:
    far = [Site(name="far", lon=100.0, lat=-30.0)]
    for pattern, layer in (
        ("MCD15A2.A2012105*", "Lai_1km"),
        ("MYD04_L2.A2012105*", "Sensor_Zenith"),
    ):
        assert read_sites(sorted(sample_archive.glob(pattern)), [Wanted(layer=layer)], far) == []


@pytest.mark.real_data
def test_only_what_holds_a_site_is_inflated(
    granules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inflated: list[int] = []
    inflate = hdf4_data._Elements.inflate

    def counted(self: hdf4_data._Elements, head: bytes, size: int, reach: int) -> bytes:
        inflated.append(size)
        return inflate(self, head, size, reach)

    monkeypatch.setattr(hdf4_data._Elements, "inflate", counted)
    path = next(granules.glob("l3-tiles/MCD15A2/*.h18v03.*.hdf"))
    # Each layer has 12 chunks of 100 rows; the 3 x 3 pixels of the second lie in two of them.
    layers = [Wanted(layer="Lai_1km", rule=GOOD), Wanted(layer="FparLai_QC")]
    sites = [Site(name="one", lon=8.0, lat=55.3), Site(name="two", lon=8.0, lat=54.1667)]
    found = read_sites([path], layers, sites)
    rows = {one.row for one in found if one.site == 1}
    assert len(found) == 4
    assert rows <= {499, 500, 599, 600, 699, 700}
    assert inflated == [120_000] * 6  # three chunks of each layer, once
