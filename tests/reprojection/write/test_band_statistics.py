"""What a raster's file says of all its pixels is what all its pixels say."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import which

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from reprojection.grid.grids import Grid
from reprojection.read.description import Band, Provenance
from reprojection.read.raster import Pixels, Raster
from reprojection.write.band_statistics import band_statistics, counted_in
from reprojection.write.stac import stac_item
from reprojection.write.write import open_raster, write_cog

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 20))
PLANES = st.sampled_from(["uint8", "int8", "int16", "uint16", "int32", "float32"]).flatmap(
    lambda name: arrays.arrays(np.dtype(name), SHAPES)
)


def raster(plane: Pixels, nodata: float | int | None, kind: str = "continuous") -> Raster:
    height, width = plane.shape
    return Raster(
        data=plane[np.newaxis],
        grid=Grid(crs="EPSG:4326", transform=(0.1, 0, 5, 0, -0.1, 50), width=width, height=height),
        nodata=nodata,
        kind=kind,  # type: ignore[arg-type]
        bands=(Band(name="v"),),
        provenance=Provenance(product="P", collection="1", layer="L", granules=()),
        scale=0.5,
        offset=10.0,
        units="K",
    )


@settings(max_examples=150, deadline=None)
@given(plane=PLANES, masked=st.booleans())
def test_statistics_are_those_of_all_pixels(plane: Pixels, masked: bool) -> None:
    nodata = (np.nan if plane.dtype.kind == "f" else int(plane[0, 0])) if masked else None
    found = band_statistics(raster(plane, nodata), 0)
    assert found is not None
    values = plane[raster(plane, nodata).valid(0)].astype(np.float64)
    values = values[np.isfinite(values)]
    assert (found.pixels, found.valid) == (plane.size, values.size)
    if not values.size:
        assert found.mean is found.least is None
        return
    assert (found.least, found.greatest) == (values.min(), values.max())
    near = 1e-9 * max(1.0, float(np.abs(values).max()))
    assert found.mean == pytest.approx(values.mean(), rel=1e-9, abs=near)
    assert found.deviation == pytest.approx(values.std(), rel=1e-6, abs=1e3 * near)
    assert found.quartiles == pytest.approx(np.percentile(values, (25, 50, 75)), rel=1e-9, abs=near)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float64"])
@pytest.mark.parametrize("many", [1, 2, 3, 4, 5, 7, 500])
def test_statistics_of_large_rasters(dtype: str, many: int) -> None:
    """Of few and of many different values, in any order, with gaps."""
    random = np.random.default_rng(many)
    plane = random.integers(0, many, (many, 997)).astype(dtype)
    plane += random.permutation(np.arange(plane.size)).reshape(plane.shape).astype(dtype) % 17
    gaps = random.random(plane.shape) < 0.4
    nodata = float("nan") if plane.dtype.kind == "f" else 99_999
    plane[gaps] = nodata
    if plane.dtype.kind == "f":
        plane[0, :3] = np.inf, -np.inf, np.nan
        gaps[0, :3] = True
    before = plane.copy()
    found = band_statistics(raster(plane, nodata), 0)
    assert found is not None
    np.testing.assert_array_equal(plane, before)
    values = plane[~gaps].astype(np.float64)
    assert (found.valid, found.least, found.greatest) == (values.size, values.min(), values.max())
    assert found.mean == pytest.approx(values.mean(), rel=1e-12)
    assert found.deviation == pytest.approx(values.std(), rel=1e-9)
    assert found.quartiles == tuple(np.percentile(values, (25, 50, 75)))


def test_they_are_where_gdal_and_stac_have_theirs(tmp_path: Path) -> None:
    """Over a raster with overviews, whose smallest has another mean."""
    random = np.random.default_rng(7)
    plane = random.integers(0, 3000, (700, 1100)).astype(np.int16)
    plane[:, 1] = -1
    plane[random.random(plane.shape) < 0.7] = -1
    path = tmp_path / "a.tif"
    write_cog(raster(plane, -1), path)
    valid = plane[plane >= 0].astype(np.float64)
    with rasterio.open(path) as dataset:
        tags = dataset.tags(1)
        assert dataset.overviews(1)
    assert float(tags["STATISTICS_MEAN"]) == pytest.approx(valid.mean(), rel=1e-8)
    assert float(tags["STATISTICS_STDDEV"]) == pytest.approx(valid.std(), rel=1e-8)
    assert float(tags["STATISTICS_MINIMUM"]) == valid.min()
    assert float(tags["STATISTICS_VALID_PERCENT"]) == pytest.approx(100 * valid.size / plane.size)
    (found,) = open_raster(path).statistics
    assert found is not None
    assert found.valid == valid.size
    item = json.loads(json.dumps(stac_item(path)))
    said = item["assets"]["data"]["bands"][0]["statistics"]
    assert said["mean"] == pytest.approx(valid.mean() * 0.5 + 10)
    assert said["stddev"] == pytest.approx(valid.std() * 0.5)
    assert (said["minimum"], said["count"]) == (valid.min() * 0.5 + 10, plane.size)
    if which("gdalinfo"):  # an independent program reads the same
        done = subprocess.run(
            ["gdalinfo", "-json", str(path)], capture_output=True, check=True, text=True
        )
        band = json.loads(done.stdout)["bands"][0]
        assert band["mean"] == pytest.approx(valid.mean(), rel=1e-6)


def test_classes_are_counted_and_have_no_mean(tmp_path: Path) -> None:
    plane = np.array([[1, 1, 2], [255, 9, 1]], np.uint8)
    path = tmp_path / "classes.tif"
    write_cog(raster(plane, 255, "class"), path)
    (found,) = open_raster(path).statistics
    assert found is not None
    assert (found.counts, found.mean, found.valid) == (((1, 3), (2, 1), (9, 1)), None, 5)
    assert "statistics" not in json.dumps(stac_item(path))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_classes_of_more_bytes_are_counted_as_long_as_they_are_few(dtype: str) -> None:
    plane = np.arange(300 * 7).reshape(300, 7).astype(dtype) % 256
    plane[0] = 99_999
    found = band_statistics(raster(plane, 99_999, "class"), 0)
    assert found is not None
    values, times = np.unique(plane[1:], return_counts=True)
    assert found.counts == tuple(zip(values.tolist(), times.tolist(), strict=True))
    assert (found.valid, found.mean) == (299 * 7, None)
    plane[299, 6] = 70_000  # the 257th
    many = band_statistics(raster(plane, 99_999, "class"), 0)
    assert many is not None
    assert (many.counts, many.valid, many.mean) == ((), 299 * 7, None)


def test_what_means_nothing_as_a_number_has_none(tmp_path: Path) -> None:
    plane = np.arange(6, dtype=np.uint16).reshape(2, 3)
    bits = raster(plane, 65535, "bitfield")
    assert band_statistics(bits, 0) is None
    counted = replace(
        raster(plane, 65535),
        data=np.stack([plane, plane]),
        bands=(Band(name="v"), Band(name="n", role="count")),
    )
    path = tmp_path / "counted.tif"
    write_cog(counted, path)
    first, second = open_raster(path).statistics
    assert first is not None
    assert second is None


def test_a_file_that_another_program_described_says_nothing(tmp_path: Path) -> None:
    """Its statistics may be those of an overview (`gdalinfo -approx_stats`)."""
    path = tmp_path / "plain.tif"
    write_cog(raster(np.ones((2, 2), np.int16), -1), path, statistics=False)
    assert open_raster(path).statistics == (None,)
    with rasterio.open(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as dataset:
        dataset.update_tags(1, STATISTICS_MEAN="3", STATISTICS_VALID_PERCENT="50")
    assert open_raster(path).statistics == (None,)


@pytest.mark.parametrize(
    ("plane", "nodata", "kind"),
    [
        (np.full((2, 3), -1, np.int16), -1, "continuous"),
        (np.full((2, 3), np.nan, np.float32), np.nan, "continuous"),
        (np.full((2, 3), 255, np.uint8), 255, "class"),
        (np.arange(300, dtype=np.uint16).reshape(15, 20), 65535, "class"),
        (np.array([[70_000, 3, 3], [0, -5, 3]], np.int32), 0, "class"),
        (np.zeros((2, 3), np.int32), 0, "class"),
    ],
    ids=["no integer", "no float", "no class", "many classes", "large classes", "no large class"],
)
def test_what_is_computed_is_read_back(
    plane: Pixels, nodata: float, kind: str, tmp_path: Path
) -> None:
    """Also the share alone, of a band without values or of more classes than are counted."""
    path = tmp_path / "a.tif"
    made = raster(plane, nodata, kind)
    write_cog(made, path)
    assert open_raster(path).statistics == (band_statistics(made, 0),)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
@pytest.mark.parametrize("shape", [(3, 5), (255, 1001)])
def test_integers_are_counted_by_value(dtype: type[np.integer], shape: tuple[int, int]) -> None:
    """Many bytes are counted in pairs, and an odd one is left over."""
    limits = np.iinfo(dtype)
    plane = np.random.default_rng(1).integers(limits.min, limits.max + 1, shape, dtype)
    plane[:, -1] = limits.min
    numbers, counts = counted_in(plane)
    expected = np.unique(plane, return_counts=True)
    np.testing.assert_array_equal(numbers, expected[0])
    np.testing.assert_array_equal(counts, expected[1])
