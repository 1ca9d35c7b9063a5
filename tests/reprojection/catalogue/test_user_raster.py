"""Users' rasters: what is taken, how it is read, and what is refused in words."""

import datetime as dt
import hashlib
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import rasterio
from rasterio import Affine
from rasterio.errors import NotGeoreferencedWarning
from scipy.ndimage import binary_erosion

from reprojection.catalogue.layers import LayerKind
from reprojection.catalogue.user_raster import UserRaster
from reprojection.grid.grids import Grid
from reprojection.read.granule import open_granule
from reprojection.reproject import Options, reproject
from reprojection.user_rasters import conversion
from reprojection.user_rasters import netcdf as netcdf_module
from reprojection.user_rasters.conversion import convert, day_in_name
from reprojection.user_rasters.source import RasterChoices, RasterFile, RasterRefusedError

UTM = "EPSG:32632"
CORNER = Affine(500.0, 0.0, 500_000.0, 0.0, -500.0, 5_300_000.0)


def hills(rows: int = 120, columns: int = 140) -> npt.NDArray[np.float32]:
    row, column = np.mgrid[0:rows, 0:columns]
    return np.asarray(500.0 + 300.0 * np.sin(column / 9.0) * np.cos(row / 7.0), np.float32)


def geotiff(path: Path, values: npt.NDArray[Any] | None = None, **profile: Any) -> Path:
    values = hills() if values is None else values
    stack = values if values.ndim == 3 else values[np.newaxis]
    usual = {"crs": UTM, "transform": CORNER, "compress": "deflate", "dtype": stack.dtype}
    shape = {"count": len(stack), "height": stack.shape[1], "width": stack.shape[2]}
    said = {key: value for key, value in {**usual, **profile}.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", driver="GTiff", **shape, **said) as out:
            out.write(stack)
    return path


def netcdf(path: Path, *, times: int = 0, upward: bool = True, **changes: Any) -> Path:
    """Write temperature over (time,) latitude and longitude, as netCDF-4 libraries do."""
    lats = np.arange(50.05, 52.0, 0.1) if upward else np.arange(51.95, 50.0, -0.1)
    with h5py.File(path, "w") as file:
        axes = {"latitude": lats, "longitude": np.arange(5.05, 8.0, 0.1)}
        units = {"latitude": "degrees_north", "longitude": "degrees_east"}
        if times:
            axes = {"time": np.arange(times) * 24.0 + 6.0, **axes}
            units["time"] = changes.get("since", "hours since 2012-04-01")
        for name, values in axes.items():
            file[name] = values
            file[name].make_scale(name)
            file[name].attrs["units"] = units[name]
        shape = tuple(len(values) for values in axes.values())
        stored = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
        made = file.create_dataset("t2m", data=stored)
        for axis, name in enumerate(axes):
            made.dims[axis].attach_scale(file[name])
        made.attrs.update(
            {"units": "K", "scale_factor": 0.01, "add_offset": 250.0, "_FillValue": np.int16(7)}
        )
    return path


def taken(path: Path, *more: Path, day: dt.date | None = None, **choices: Any) -> UserRaster:
    files = [RasterFile(path=one, name=one.name, day=day) for one in (path, *more)]
    said = RasterChoices(**{"name": "elevation", **choices})
    return convert(files, said, path.parent / "kept.h5")


def test_a_geotiff_is_kept_with_its_grid_nodata_and_units(tmp_path: Path) -> None:
    path = geotiff(tmp_path / "dem.tif", nodata=-9999.0)
    with rasterio.open(path, "r+") as opened:
        opened.set_band_unit(1, "m")
    found = taken(path)
    assert (found.crs, found.transform, found.days) == (UTM, tuple(CORNER)[:6], ())
    (layer,) = found.layers
    assert (layer.name, layer.units, layer.nodata) == ("elevation", "m", -9999)
    with open_granule(tmp_path / "kept.h5") as granule:
        assert np.array_equal(granule.read("elevation"), hills())
        assert granule.product == "raster:elevation"
    west, south, east, north = found.box
    assert 9.0 <= west < east < 10.0
    assert 47.0 < south < north < 48.0


def test_equal_uploads_give_equal_files(tmp_path: Path) -> None:
    path = geotiff(tmp_path / "dem.tif")
    digests = []
    for _ in range(2):
        taken(path)
        digests.append(hashlib.sha256((tmp_path / "kept.h5").read_bytes()).hexdigest())
    assert digests[0] == digests[1]


@pytest.mark.skipif(not which("gdalwarp"), reason="needs gdalwarp")
@pytest.mark.parametrize(
    ("method", "gdal", "pixel"),
    [
        ("nearest", "near", 0.005),
        ("bilinear", "bilinear", 0.004),
        ("gdal-average", "average", 0.02),
    ],
)
def test_pixels_are_those_of_gdalwarp(tmp_path: Path, method: str, gdal: str, pixel: float) -> None:
    values = hills()
    values[30:50, 40:70] = -9999.0
    path = geotiff(tmp_path / "dem.tif", values, nodata=-9999.0)
    taken(path)
    wide = round(0.6 / pixel)
    grid = Grid(
        crs="EPSG:4326", transform=(pixel, 0, 9.1, 0, -pixel, 47.8), width=wide, height=wide
    )
    made = reproject([tmp_path / "kept.h5"], "elevation", grid, Options(resampling=method))
    out = tmp_path / "gdal.tif"
    box = [str(edge) for edge in (9.1, 47.2, 9.7, 47.8)]
    subprocess.run(
        [
            *("gdalwarp", "-q", "-et", "0", "-r", gdal, "-t_srs", "EPSG:4326", "-te", *box),
            *("-ts", str(wide), str(wide), str(path), str(out)),
        ],
        check=True,
    )
    with rasterio.open(out) as opened:
        theirs = opened.read(1, masked=True)
    mine = np.ma.masked_invalid(made.values())
    assert 0.1 < mine.mask.mean() < 0.9
    assert (mine.mask != theirs.mask).mean() < 2e-3
    # At the edge of the data GDAL's average takes a part of a pixel, and ours the exact share.
    both = binary_erosion(~(mine.mask | theirs.mask), np.ones((3, 3)))
    apart = np.abs(mine.data - theirs.data)[both]
    assert np.percentile(apart, 99.5) < 0.05  # metres, of hills of 600 m


def test_rows_from_the_south_are_turned(tmp_path: Path) -> None:
    values = hills()
    south = CORNER.f + CORNER.e * len(values)
    turned = Affine(500.0, 0.0, CORNER.c, 0.0, 500.0, south)
    found = taken(geotiff(tmp_path / "dem.tif", values[::-1].copy(), transform=turned))
    assert found.transform == tuple(CORNER)[:6]
    with open_granule(tmp_path / "kept.h5") as granule:
        assert np.array_equal(granule.read("elevation"), values)


def test_several_files_are_dates_by_their_names(tmp_path: Path) -> None:
    later = geotiff(tmp_path / "lai_20120409.tif", hills() + np.float32(1))
    first = geotiff(tmp_path / "lai_2012-04-01.tif")
    found = taken(later, first, name="lai")
    assert found.days == (dt.date(2012, 4, 1), dt.date(2012, 4, 9))
    assert found.period == 8
    with open_granule(tmp_path / "kept.h5") as granule:
        assert np.array_equal(granule.read("lai[0]"), hills())
        assert np.array_equal(granule.read("lai[1]"), hills() + np.float32(1))
    grid = Grid(crs=UTM, transform=found.transform, width=found.width, height=found.height)
    made = reproject([tmp_path / "kept.h5"], "lai[1]", grid, Options())
    assert made.provenance.start == "2012-04-09T00:00:00Z"


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("MCD15A2H.A2012092.tif", dt.date(2012, 4, 1)),
        ("x-2012-04-01.tif", dt.date(2012, 4, 1)),
        ("x20120401.tif", dt.date(2012, 4, 1)),
        ("x-2012-02-31.tif", None),
        ("120120401.tif", None),
    ],
)
def test_the_date_in_a_name(name: str, day: dt.date | None) -> None:
    assert day_in_name(name) == day


@pytest.mark.parametrize("upward", [True, False])
def test_a_netcdf_file_over_time(tmp_path: Path, upward: bool) -> None:
    found = taken(netcdf(tmp_path / "era.nc", times=3, upward=upward), name="era5")
    assert found.days == tuple(dt.date(2012, 4, day) for day in (1, 2, 3))
    assert found.crs == "EPSG:4326"
    assert found.transform == pytest.approx((0.1, 0.0, 5.0, 0.0, -0.1, 52.0))
    with open_granule(tmp_path / "kept.h5") as granule:
        layer = granule.layer("t2m[1]")
        stored = granule.read(layer)
    assert (layer.scale, layer.offset, layer.units, layer.fill) == (0.01, 250.0, "K", 7)
    plain = np.arange(3 * 20 * 30, dtype=np.int16).reshape(3, 20, 30)[1]
    assert np.array_equal(stored, plain[::-1] if upward else plain)


def test_classes_are_said_by_a_colour_table_or_by_the_owner(tmp_path: Path) -> None:
    zones = np.ones((20, 30), np.uint8)
    path = geotiff(tmp_path / "zones.tif", zones)
    assert taken(path, name="koeppen").layers[0].kind is LayerKind.CONTINUOUS
    assert taken(path, layers=("koeppen",), classes=("koeppen",)).layers[0].kind is LayerKind.CLASS
    with rasterio.open(path, "r+") as opened:
        opened.write_colormap(1, {1: (255, 0, 0, 255)})
    assert taken(path, name="koeppen").layers[0].kind is LayerKind.CLASS


Make = Callable[[Path], Path]


def _text(content: bytes) -> Make:
    def make(folder: Path) -> Path:
        path = folder / "dem.tif"
        path.write_bytes(content)
        return path

    return make


def _cut(folder: Path) -> Path:
    path = geotiff(folder / "dem.tif")
    path.write_bytes(path.read_bytes()[:3000])
    return path


def _bomb(folder: Path) -> Path:
    path = folder / "dem.tif"
    size = {"width": 20_000, "height": 20_000, "count": 4}
    usual = {"driver": "GTiff", "dtype": "float32", "crs": "EPSG:4326", "sparse_ok": True}
    at = Affine(0.001, 0.0, 0.0, 0.0, -0.001, 20.0)
    with rasterio.open(path, "w", **usual, **size, transform=at, tiled=True):
        pass
    return path


def _masked(folder: Path) -> Path:
    path = folder / "dem.tif"
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        geotiff(path)
        with rasterio.open(path, "r+") as opened:
            opened.write_mask(hills() > 400)
    return path


def _linked(folder: Path) -> Path:
    path = netcdf(folder / "era.nc")
    with h5py.File(path, "r+") as file:
        file["passwd"] = h5py.ExternalLink("/etc/passwd", "/")
    return path


def _elsewhere(folder: Path) -> Path:
    path = netcdf(folder / "era.nc")
    with h5py.File(path, "r+") as file:
        file.create_dataset("x2", (4,), "u1", external=[("/etc/passwd", 0, 4)])
    return path


def _virtual(folder: Path) -> Path:
    path = netcdf(folder / "era.nc")
    with h5py.File(path, "r+") as file:
        layout = h5py.VirtualLayout((4,), "u1")
        layout[:] = h5py.VirtualSource("/etc/other.h5", "x", (4,))
        file.create_virtual_dataset("x2", layout)
    return path


def _uneven(folder: Path) -> Path:
    path = netcdf(folder / "era.nc")
    with h5py.File(path, "r+") as file:
        file["longitude"][3] += 0.05
    return path


def _without_degrees(folder: Path) -> Path:
    path = netcdf(folder / "era.nc")
    with h5py.File(path, "r+") as file:
        for old, new, word in (("latitude", "y", "y"), ("longitude", "x", "x")):
            file[old].attrs["units"] = "m"
            file[old].attrs["standard_name"] = f"projection_{word}_coordinate"
            del new
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_text(b'<VRTDataset rasterXSize="2"/>'), "is a VRT, which names other files"),
        (_text(b"CDF\x01" + b"\0" * 60), "classic netCDF-3"),
        (_text(b"<html>"), "is a web page"),
        (_text(b""), "is empty"),
        (_text(b"PK\x03\x04"), "is a zip"),
        (_text(b'{"type": "mrf"}'), "is text in JSON"),
        (_text(b"II*\0" + b"\xff" * 200), "cannot be read"),
        (lambda f: geotiff(f / "a.tif", crs=None), "does not say its CRS"),
        (lambda f: geotiff(f / "a.tif", transform=Affine.identity()), "where its pixels lie"),
        (lambda f: geotiff(f / "a.tif", transform=Affine(1, 0.2, 0, 0, -1, 0)), "rotated"),
        (lambda f: geotiff(f / "a.tif", hills().astype(np.complex64)), "of the type complex64"),
        (_cut, "cannot be read"),
        (_bomb, "more than 1000 times as many"),
        (_masked, "has a mask or a band of opacity"),
        (_linked, "values of passwd lie in other files"),
        (_elsewhere, "lie in other files"),
        (_virtual, "lie in other files"),
        (_uneven, "not evenly spaced"),
        (_without_degrees, "does not say its CRS"),
        (lambda f: netcdf(f / "a.nc", times=2, since="months since 2012-01-01"), "days since"),
        (lambda f: netcdf(f / "a.nc", times=2, since="days since 0000-01-01"), "cannot be read"),
        (lambda f: netcdf(f / "a.nc", times=2, since="days since 2012-01-01 noon"), "time zone"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_words(tmp_path: Path, make: Make, words: str) -> None:
    with pytest.raises(RasterRefusedError, match=words):
        taken(make(tmp_path))


def test_what_is_said_of_a_raster_must_fit_it(tmp_path: Path) -> None:
    path = geotiff(tmp_path / "dem.tif")
    other = geotiff(tmp_path / "dem-2012-04-02.tif", transform=CORNER @ Affine.translation(1, 0))
    dated = geotiff(tmp_path / "dem-2012-04-01.tif")
    same = geotiff(tmp_path / "again-2012-04-01.tif")
    calls: list[tuple[Callable[[], UserRaster], str]] = [
        (lambda: taken(path, layers=("a", "b")), "2 names are given for 1 layers"),
        (lambda: taken(path, layers=("1st",)), "is not a name of a layer"),
        (lambda: taken(path, classes=("zone",)), "there is no layer 'zone'"),
        (lambda: taken(path, classes=("elevation",)), "Store them as whole numbers"),
        (lambda: taken(path, dated), "does not say its date"),
        (lambda: taken(dated, other), "does not lie on the same grid"),
        (lambda: taken(dated, same), "two rasters of 2012-04-01"),
    ]
    for call, words in calls:
        with pytest.raises(RasterRefusedError, match=words):
            call()


def test_files_beside_a_geotiff_are_not_looked_at(tmp_path: Path) -> None:
    """A world file and an auxiliary file could say where it lies, and lead to others."""
    path = geotiff(tmp_path / "dem.tif", transform=Affine.identity(), crs=None)
    path.with_suffix(".tfw").write_text("500\n0\n0\n-500\n500000\n5300000\n")
    path.with_name("dem.tif.aux.xml").write_text(
        "<PAMDataset><SRS>EPSG:32632</SRS></PAMDataset>", "utf-8"
    )
    with pytest.raises(RasterRefusedError, match="does not say its CRS"):
        taken(path)


def test_too_many_pixels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = geotiff(tmp_path / "dem.tif")
    monkeypatch.setattr(conversion, "MOST_PIXELS", 100 * 100)
    with pytest.raises(RasterRefusedError, match="140 x 120 pixels; 10,000 are taken"):
        taken(path)
    monkeypatch.undo()
    monkeypatch.setattr(conversion, "MOST_VALUES", 100 * 100)
    with pytest.raises(RasterRefusedError, match="16,800 values in all"):
        taken(path)


def test_each_bound_of_a_raster_is_met_and_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_metres = geotiff(tmp_path / "dem.tif", compress=None)
    degrees = Affine(0.01, 0.0, 5.0, 0.0, -0.01, 52.0)
    in_degrees = geotiff(tmp_path / "deg.tif", crs="EPSG:4326", transform=degrees)
    layers = geotiff(tmp_path / "two.tif", np.stack([hills(), hills()]), compress=None)
    times = netcdf(tmp_path / "a.nc", times=3)
    monkeypatch.setattr(conversion, "_FREE_BYTES", 0)
    bounds: tuple[tuple[Path, object, str, int, str], ...] = (
        (in_metres, conversion, "MAX_SIDE", 140, "140 x 120 pixels; 139 are taken along a side"),
        (in_metres, conversion, "MOST_PIXELS", 16_800, "120 pixels; 16,799 are taken in this CRS"),
        (in_degrees, conversion, "MOST_DEGREE_PIXELS", 16_800, "16,799 are taken in this CRS"),
        (layers, conversion, "MOST_VALUES", 33_600, "33,600 values in all; 33,599 are taken"),
        (layers, conversion, "MOST_LAYERS", 2, "2 layers are too many; 1 are taken"),
        (times, netcdf_module, "MOST_DAYS", 3, "a.nc has 3 times; 2 are taken"),
        (times, conversion, "MOST_DAYS", 3, "3 dates are too many; 2 are taken"),
        (in_metres, conversion, "MOST_SWELLING", 1, "more than 0 times as many"),
    )
    for path, module, name, most, words in bounds:
        with monkeypatch.context() as patched:
            patched.setattr(module, name, most)
            taken(path)
            patched.setattr(module, name, most - 1)
            with pytest.raises(RasterRefusedError, match=words):
                taken(path)


@pytest.mark.parametrize(
    ("zone", "first"),
    [
        ("", "04-01"),
        (" 00:00:00.0 UTC", "04-01"),
        ("T00:00Z", "04-01"),
        (" 00:00 +10:00", "03-31"),
        (" 20:00 -02:00", "04-02"),
    ],
)
def test_times_count_in_utc_from_the_zone_of_their_units(
    tmp_path: Path, zone: str, first: str
) -> None:
    found = taken(netcdf(tmp_path / "a.nc", times=1, since=f"hours since 2012-04-01{zone}"))
    assert found.days == (dt.date.fromisoformat(f"2012-{first}"),)


def test_coordinates_in_float32_are_even(tmp_path: Path) -> None:
    path = netcdf(tmp_path / "a.nc")
    with h5py.File(path, "r+") as file:
        file["longitude"][...] = (np.arange(30) / 240 + 150).astype(np.float32)
    assert taken(path).transform[0] == pytest.approx(1 / 240, rel=1e-3)


def test_a_raster_over_the_antimeridian_has_a_box_across_it(tmp_path: Path) -> None:
    raster = geotiff(
        tmp_path / "a.tif", crs="EPSG:4326", transform=Affine(0.5, 0, 175, 0, -0.5, 10)
    )
    found = taken(raster)
    west, south, east, north = found.box
    assert west == pytest.approx(175)
    assert north == pytest.approx(10)
    assert east == pytest.approx(175 + 0.5 * found.width - 360)
    assert south == pytest.approx(10 - 0.5 * found.height)
