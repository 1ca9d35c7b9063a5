"""What a written raster holds, how it is laid out, and that equal rasters give equal bytes."""

import errno
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import rasterio
from hypothesis import example, given
from hypothesis import strategies as st

from reprojection.errors import BadFormatError
from reprojection.read.description import Band
from reprojection.read.raster import Raster
from reprojection.write import tiff
from reprojection.write.overviews import averaged
from reprojection.write.picture import write_png
from reprojection.write.stac import item_of, stac_item
from reprojection.write.write import (
    Compression,
    open_raster,
    read_raster,
    write_cog,
    write_result,
)
from tests.oracle.numpy_overviews import averaged_in_numpy
from tests.reprojection.raster_samples import classes, hills, plain


def same(one: Raster, other: Raster) -> bool:
    return (
        one.description() == other.description()
        and one.data.dtype == other.data.dtype
        and np.array_equal(one.data, other.data, equal_nan=one.data.dtype.kind == "f")
        and repr(one.nodata) == repr(other.nodata)
    )


@pytest.mark.parametrize("compress", ["deflate", "zstd", "none", "quick"])
def test_a_raster_comes_back_whole(tmp_path: Path, compress: Compression) -> None:
    write_cog(hills(), tmp_path / "hills.tif", compress=compress)
    assert same(read_raster(tmp_path / "hills.tif"), hills())


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [
        ("int8", -128),
        ("uint8", 255),
        ("uint16", 65535),
        ("int32", -1),
        ("uint32", 0),
        ("float32", float("nan")),
        ("float64", -9999.0),
    ],
)
def test_every_type_comes_back(tmp_path: Path, dtype: str, nodata: float | int) -> None:
    values = np.random.default_rng(3).integers(1, 100, (70, 90)).astype(dtype)
    values[:9] = nodata
    raster = plain(values, nodata)
    write_cog(raster, tmp_path / "r.tif")
    assert same(read_raster(tmp_path / "r.tif"), raster)
    assert not raster.valid()[:9].any()
    assert raster.valid()[9:].all()


def changed(raster: Raster) -> Raster:
    """A raster of floats, most of whose statistics have more digits than a file keeps."""
    data = np.where(
        raster.data == raster.nodata, np.float32(np.nan), raster.data.astype(np.float32) / 3
    )
    return replace(raster, data=data.astype(np.float32), nodata=float("nan"))


@pytest.mark.parametrize(
    "raster", [hills(), classes(np.arange(600, dtype=np.uint8).reshape(20, 30)), changed(hills())]
)
def test_what_is_written_is_known_without_opening_it(tmp_path: Path, raster: Raster) -> None:
    path = tmp_path / "r.tif"
    made, share = write_result(raster, path)
    assert share == raster.valid_share
    there = open_raster(path)
    assert (made.path, made.said, made.dtype) == (there.path, there.said, there.dtype)
    assert repr(made.nodata) == repr(there.nodata)
    assert made.statistics == there.statistics
    assert any(made.statistics)
    assert json.dumps(item_of(made)) == json.dumps(stac_item(path))
    write_cog(raster, tmp_path / "same.tif")
    assert path.read_bytes() == (tmp_path / "same.tif").read_bytes()


def test_other_programs_see_scale_units_nodata_and_names(tmp_path: Path) -> None:
    write_cog(hills(), tmp_path / "hills.tif")
    with rasterio.open(tmp_path / "hills.tif") as dataset:
        assert dataset.crs == rasterio.crs.CRS.from_epsg(32631)
        assert tuple(dataset.transform)[:6] == hills().grid.transform
        assert dataset.nodata == -9999
        assert (dataset.scales[0], dataset.offsets[0], dataset.units[0]) == (0.1, -50.0, "m")
        assert (dataset.scales[1], dataset.offsets[1]) == (1.0, 0.0)
        assert dataset.descriptions == ("Height", "source", "reason")


def test_classes_have_a_colour_table(tmp_path: Path) -> None:
    raster = classes(np.tile([1, 2, 9, 255], (20, 5)))
    write_cog(raster, tmp_path / "c.tif")
    assert same(read_raster(tmp_path / "c.tif"), raster)
    with rasterio.open(tmp_path / "c.tif") as dataset:
        assert dataset.colormap(1)[9] == (200, 0, 0, 255)


def test_equal_rasters_give_equal_bytes_and_nothing_else_remains(tmp_path: Path) -> None:
    write_cog(hills(), tmp_path / "one.tif")
    (tmp_path / "elsewhere").mkdir()
    write_cog(hills(), tmp_path / "elsewhere" / "two.tif")
    assert (tmp_path / "one.tif").read_bytes() == (tmp_path / "elsewhere/two.tif").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "one.tif"]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_quick_compresses_where_that_halves_the_pixels(tmp_path: Path, dtype: str) -> None:
    some = np.random.default_rng(5)
    noise = some.normal(100, 20, (600, 1100)).astype(dtype)
    if dtype == "int16":
        noise = some.integers(-32000, 32000, (600, 1100)).astype(dtype)
    mostly_empty = noise.copy()
    mostly_empty[:, :900] = 0
    for values, expected in ((noise, None), (mostly_empty, "deflate")):
        raster = plain(values, 0.0 if dtype == "float32" else 0)
        write_cog(raster, tmp_path / "r.tif", overviews=False, compress="quick")
        with rasterio.open(tmp_path / "r.tif") as dataset:
            assert dataset.profile.get("compress") == expected
        assert same(read_raster(tmp_path / "r.tif"), raster)


@pytest.mark.parametrize("compress", ["deflate", "zstd", "none", "quick"])
def test_nothing_remains_of_a_file_that_cannot_be_written(
    tmp_path: Path, compress: Compression
) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_cog(hills(), tmp_path / "folder", compress=compress)
    with pytest.raises(FileNotFoundError):
        write_cog(hills(), tmp_path / "absent" / "hills.tif", compress=compress)
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]


def test_nothing_remains_of_a_file_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: BinaryIO, *_: object, **__: object) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("reprojection.write.write.write_tiff", full)
    with pytest.raises(OSError, match="No space left"):
        write_cog(hills(), tmp_path / "hills.tif")
    assert list(tmp_path.iterdir()) == []


def big(kind: str) -> Raster:
    """1,200 x 1,100 pixels, so that there are overviews, with a hole."""
    row, col = np.indices((1100, 1200))
    if kind == "class":
        return classes(np.where((row // 8 + col // 8) % 2, 1, 9))
    values = (1000 + row + col).astype(np.int16)
    values[:, :300] = -9999
    return plain(values, -9999)


def test_overviews_average_values_and_leave_nodata_out(tmp_path: Path) -> None:
    write_cog(big("continuous"), tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert dataset.overviews(1) == [2, 4]
        small = dataset.read(1, out_shape=(550, 600))
    assert (small[:, :150] == -9999).all()
    full = big("continuous").data[0].astype(float)
    mean = full.reshape(550, 2, 600, 2).mean(axis=(1, 3))
    assert np.abs(small[:, 150:] - mean[:, 150:]).max() <= 0.5


def test_overviews_of_classes_hold_classes(tmp_path: Path) -> None:
    write_cog(big("class"), tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as dataset:
        for factor in dataset.overviews(1):
            small = dataset.read(1, out_shape=(1100 // factor, 1200 // factor))
            assert set(np.unique(small)) <= {1, 9}


def test_extra_bands_are_not_averaged(tmp_path: Path) -> None:
    raster = big("continuous")
    row, col = np.indices((1100, 1200))
    source = np.where((row + col) % 2, 1, 3).astype(np.int16)
    both = replace(
        raster,
        data=np.stack([raster.data[0], source]),
        bands=(raster.bands[0], replace(raster.bands[0], name="source", role="source")),
    )
    write_cog(both, tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert set(np.unique(dataset.read(2, out_shape=(550, 600)))) <= {1, 3}


def test_the_layout_is_that_of_a_cloud_optimized_geotiff(tmp_path: Path) -> None:
    """IFDs first, largest first; then the tiles, smallest overview first; all tiled."""
    write_cog(big("continuous"), tmp_path / "b.tif")
    ifds = _ifds((tmp_path / "b.tif").read_bytes())
    assert [ifd.width for ifd in ifds] == [1200, 600, 300]
    assert [ifd.place for ifd in ifds] == sorted(ifd.place for ifd in ifds)
    first_tiles = [min(ifd.offsets) for ifd in ifds]
    assert first_tiles == sorted(first_tiles, reverse=True)
    assert max(ifd.place for ifd in ifds) < min(first_tiles)
    assert all(ifd.tile == 512 for ifd in ifds)
    for ifd in ifds:
        assert list(ifd.offsets) == sorted(ifd.offsets)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_gdal_reads_every_level_and_calls_it_a_cog(tmp_path: Path, dtype: str) -> None:
    values = np.random.default_rng(5).integers(1, 200, (1030, 1111)).astype(dtype)
    raster = replace(
        plain(values, 0),
        data=np.stack([values, values[::-1]]),
        bands=(Band(name="a"), Band(name="b")),
    )
    write_cog(raster, tmp_path / "r.tif")
    with rasterio.open(tmp_path / "r.tif") as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert np.array_equal(dataset.read(), raster.data)
        small = averaged(raster.data[1], 0)
        assert np.array_equal(dataset.read(2, out_shape=small.shape), small)


def test_a_file_too_large_for_four_byte_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiff, "CLASSIC_BYTES", 1000)
    write_cog(big("continuous"), tmp_path / "b.tif")
    assert (tmp_path / "b.tif").read_bytes()[:4] == b"II+\0"
    assert same(read_raster(tmp_path / "b.tif"), big("continuous"))
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert dataset.overviews(1) == [2, 4]


def test_threads_change_no_byte(tmp_path: Path) -> None:
    for threads in (1, 3):
        write_cog(big("continuous"), tmp_path / f"{threads}.tif", threads=threads)
    assert (tmp_path / "1.tif").read_bytes() == (tmp_path / "3.tif").read_bytes()


@given(
    dtype=st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "float32", "float64"]),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 200)),
    nodata=st.sampled_from([None, 0, 3, 100]),
    seed=st.integers(0, 1000),
)
@example(dtype="float32", shape=(1, 20), nodata=3, seed=976)
@example(dtype="float64", shape=(9, 200), nodata=0, seed=1)
def test_means_in_c_are_those_in_numpy(
    dtype: str, shape: tuple[int, int], nodata: int | None, seed: int
) -> None:
    low = 0 if dtype.startswith("u") else -5
    plane = np.random.default_rng(seed).integers(low, 6, shape).astype(dtype)
    found = averaged(plane, nodata)
    assert found.dtype == plane.dtype
    assert np.array_equal(found, averaged_in_numpy(plane, nodata))
    if nodata is not None and (plane != nodata).all():
        assert (found != nodata).all()


class _Ifd:
    """What the test reads of an image file directory (TIFF 6.0, section 2)."""

    def __init__(self, blob: bytes, place: int) -> None:
        self.place = place
        (count,) = struct.unpack_from("<H", blob, place)
        values: dict[int, tuple[int, ...]] = {}
        for entry in range(count):
            tag, kind, number, inline = struct.unpack_from("<HHII", blob, place + 2 + 12 * entry)
            letter, size = {3: ("H", 2), 4: ("I", 4)}.get(kind, ("", 0))
            if not letter:
                continue
            at = place + 10 + 12 * entry if number * size <= 4 else inline
            values[tag] = struct.unpack_from(f"<{number}{letter}", blob, at)
        self.width, self.tile = values[256][0], values[322][0]
        self.offsets = values[324]
        (self.next,) = struct.unpack_from("<I", blob, place + 2 + 12 * count)


def _ifds(blob: bytes) -> list[_Ifd]:
    assert blob[:4] == b"II*\0"
    (place,) = struct.unpack_from("<I", blob, 4)
    found = []
    while place:
        found.append(_Ifd(blob, place))
        place = found[-1].next
    return found


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.tif").write_text("hello")
    with pytest.raises(BadFormatError, match=r"text\.tif"):
        open_raster(tmp_path / "text.tif")
    with rasterio.open(
        tmp_path / "alien.tif",
        "w",
        driver="GTiff",
        width=2,
        height=2,
        count=1,
        dtype="uint8",
        crs="EPSG:4326",
        transform=rasterio.Affine(0.5, 0, 0, 0, -0.5, 1),
    ) as dataset:
        dataset.write(np.zeros((1, 2, 2), np.uint8))
    with pytest.raises(BadFormatError, match="not written by Swathmill"):
        read_raster(tmp_path / "alien.tif")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_a_picture_is_small_and_see_through_where_nothing_is(tmp_path: Path) -> None:
    write_cog(big("continuous"), tmp_path / "b.tif")
    write_png(tmp_path / "b.tif", tmp_path / "b.png", 300)
    with rasterio.open(tmp_path / "b.png") as dataset:
        assert (dataset.width, dataset.height, dataset.count) == (300, 275, 4)
        red, _, _, opacity = dataset.read()
    assert (opacity[:, :74] == 0).all()
    assert (opacity[:, 76:] == 255).all()
    assert red[:, 80].mean() < red[:, 299].mean()
