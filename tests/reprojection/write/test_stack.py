"""Stacks: what other programs read of them, band by band."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
from hypothesis import given
from hypothesis import strategies as st

from reprojection.grid.grids import Grid
from reprojection.read.raster import Pixels
from reprojection.write import tiff
from reprojection.write.stack import StackBand, write_stack

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64")


def grid(rows: int, cols: int) -> Grid:
    return Grid(crs="EPSG:32631", transform=(30.0, 0, 5e5, 0, -30.0, 6e6), width=cols, height=rows)


def bands(count: int) -> list[StackBand]:
    return [StackBand(name=f"day {n}", scale=0.1 * n, offset=n, units="m") for n in range(count)]


def drawn(count: int, rows: int, cols: int, dtype: str) -> list[Pixels]:
    random = np.random.default_rng(count * rows + cols)
    values = random.integers(0, 100, (count, rows, cols)).astype(dtype)
    values[:, rows // 2 :] = 7  # hardly varies: compressed by the other packer
    return [*values]


@given(
    count=st.integers(1, 5),
    rows=st.integers(1, 600),
    cols=st.integers(1, 600),
    dtype=st.sampled_from(TYPES),
    big=st.booleans(),
)
def test_each_band_comes_back_by_itself(
    count: int,
    rows: int,
    cols: int,
    dtype: str,
    big: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("stack") / "s.tif"
    planes = drawn(count, rows, cols, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiff, "CLASSIC_BYTES", 0 if big else tiff.CLASSIC_BYTES)
        write_stack(path, iter(planes), bands(count), grid(rows, cols), np.dtype(dtype), 99)
    assert path.read_bytes()[2:4] == (b"+\0" if big else b"*\0")
    with rasterio.open(path, driver="GTiff") as made:
        assert (made.count, made.shape, made.dtypes[0]) == (count, (rows, cols), dtype)
        for number, plane in enumerate(planes, 1):
            assert np.array_equal(made.read(number), plane)


def test_other_programs_see_names_scale_units_and_the_layout(tmp_path: Path) -> None:
    planes = drawn(3, 300, 700, "float32")
    write_stack(
        tmp_path / "s.tif", planes, bands(3), grid(300, 700), np.dtype("float32"), float("nan")
    )
    with rasterio.open(tmp_path / "s.tif") as made:
        assert made.descriptions == ("day 0", "day 1", "day 2")
        assert made.scales == pytest.approx((0.0, 0.1, 0.2))
        assert made.offsets == (0.0, 1.0, 2.0)
        assert made.units == ("m", "m", "m")
        assert np.isnan(made.nodata)
        assert made.crs == rasterio.crs.CRS.from_epsg(32631)
        assert tuple(made.transform)[:6] == (30.0, 0.0, 5e5, 0.0, -30.0, 6e6)
        assert made.profile["interleave"] == "band"
        assert (made.profile["blockxsize"], made.profile["blockysize"]) == (256, 256)
        assert made.profile["compress"] == "deflate"


def test_each_plane_is_let_go_before_the_next_is_taken(tmp_path: Path) -> None:
    held = 0

    class Plane(np.ndarray[tuple[int, int], np.dtype[np.uint8]]):
        def __del__(self) -> None:
            nonlocal held
            held -= self.base is None

    def planes() -> Iterator[Pixels]:
        nonlocal held
        for _ in range(4):
            assert held <= 1
            held += 1
            plane = Plane((40, 50), np.uint8)
            plane[:] = held
            yield plane

    write_stack(tmp_path / "s.tif", planes(), bands(4), grid(40, 50), np.dtype("uint8"), 255)


def test_planes_of_other_shapes_are_no_stack(tmp_path: Path) -> None:
    planes = [np.zeros((4, 4), np.uint8), np.zeros((4, 5), np.uint8)]
    with pytest.raises(ValueError, match=r"a plane has \(\(4, 5\)"):
        write_stack(tmp_path / "s.tif", planes, bands(2), grid(4, 4), np.dtype("uint8"), 255)
