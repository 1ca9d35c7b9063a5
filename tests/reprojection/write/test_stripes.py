"""Rasters that are written stripe by stripe: they are those that are written from memory."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapely import Polygon
from shapely.affinity import scale

from reprojection.grid.grids import Grid
from reprojection.read.description import Band
from reprojection.read.lineage import Kind
from reprojection.read.raster import Pixels, Raster
from reprojection.write import tiff, write
from reprojection.write.band_statistics import BandStatistics, band_statistics
from reprojection.write.mosaic import joined, mosaic
from reprojection.write.stripe_statistics import StripeStatistics
from reprojection.write.write import (
    open_raster,
    read_raster,
    write_cog,
    write_result,
    write_stripes,
)
from tests.reprojection.raster_samples import plain

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64")


def rows_of(raster: Raster) -> Callable[[int, int], Pixels]:
    return lambda start, stop: raster.data[:, start:stop]


def about(raster: Raster) -> Raster:
    """The raster without its pixels."""
    nothing = np.broadcast_to(np.zeros((), raster.data.dtype), raster.data.shape)
    return replace(raster, data=nothing)


def drawn(dtype: str, rows: int, cols: int, kind: Kind, share: float, seed: int) -> Raster:
    random = np.random.default_rng(seed)
    values = random.normal(0, 3000, (rows, cols))
    if kind != "continuous":
        values = values // 1000
    if not dtype.startswith("float"):
        info = np.iinfo(dtype)
        values = np.clip(np.round(values), info.min + 1, info.max - 1)
    values = values.astype(dtype)
    nodata: float = float("nan") if dtype.startswith("float") else int(np.iinfo(dtype).max)
    values[random.random((rows, cols)) < share] = nodata
    return replace(plain(values, nodata), kind=kind)


def rounded(found: BandStatistics | None) -> object:
    """What a file holds of statistics, whose sums differ in their last digits."""
    if found is None:
        return None
    tags = found.tags()
    return {
        name: value
        if name not in ("STATISTICS_MEAN", "STATISTICS_STDDEV")
        else pytest.approx(float(value), rel=1e-8, abs=1e-8)
        for name, value in tags.items()
    }


@given(
    dtype=st.sampled_from(TYPES),
    rows=st.integers(1, 400),
    cols=st.integers(1, 90),
    step=st.integers(1, 120),
    kind=st.sampled_from(["continuous", "class", "bitfield"]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 99),
)
def test_statistics_by_stripes_are_those_of_the_whole(
    dtype: str, rows: int, cols: int, step: int, kind: Kind, share: float, seed: int
) -> None:
    raster = drawn(dtype, rows, cols, kind, share, seed)
    made = StripeStatistics(about(raster), 0)
    for turn in range(made.turns):
        made.begin(turn)
        for start in range(0, rows, step):
            made.add(turn, raster.data[0, start : start + step])
    found, whole = made.found(), band_statistics(raster, 0)
    told = None if found is None else {k: v for k, v in found.tags().items()}
    expected = rounded(whole)
    if told is not None and isinstance(expected, dict):
        for name in ("STATISTICS_MEAN", "STATISTICS_STDDEV"):
            if name in told:
                assert float(told.pop(name)) == expected.pop(name)
    assert told == expected


@pytest.mark.parametrize("shape", [(1, 1), (511, 700), (512, 1024), (1300, 2100), (2049, 40)])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("big", [False, True])
def test_files_by_stripes_are_those_from_memory_byte_by_byte(
    shape: tuple[int, int], dtype: str, big: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = drawn(dtype, *shape, "continuous", 0.2, 5)
    values = np.concatenate([one.data, np.greater(one.data, 5).astype(one.data.dtype)])
    bands = (*one.bands, Band(name="count", role="count"))
    raster = replace(one, data=values, bands=bands)
    monkeypatch.setattr(write, "STRIPE_BYTES", 0)
    if big:
        monkeypatch.setattr(tiff, "CLASSIC_BYTES", 0)
    made, share = write_stripes(about(raster), rows_of(raster), tmp_path / "striped.tif")
    whole, _ = write_result(raster, tmp_path / "whole.tif")
    assert (tmp_path / "striped.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()
    assert share == raster.valid_share
    assert replace(made, path=whole.path) == replace(whole, nodata=made.nodata)
    assert open_raster(made.path).statistics == made.statistics
    assert sorted(path.name for path in tmp_path.iterdir()) == ["striped.tif", "whole.tif"]


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_no_more_rows_are_asked_for_than_a_stripe_has(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raster = drawn(dtype, 3000, 64, "continuous", 0.2, 1)
    monkeypatch.setattr(write, "STRIPE_BYTES", 1100 * 64 * raster.data.itemsize)
    asked: list[tuple[int, int]] = []

    def rows(start: int, stop: int) -> Pixels:
        asked.append((start, stop))
        return raster.data[:, start:stop]

    write_stripes(about(raster), rows, tmp_path / "r.tif")
    once = [(0, 1024), (1024, 2048), (2048, 3000)]
    assert asked == once * (2 if dtype == "float32" else 1), "quartiles of floats take two turns"


def test_nothing_is_left_of_a_file_whose_rows_cannot_be_read(tmp_path: Path) -> None:
    raster = plain(np.zeros((600, 600), np.uint8), 255)

    def rows(start: int, stop: int) -> Pixels:
        raise OSError(f"rows {start} to {stop}")

    with pytest.raises(OSError, match="rows 0 to 600"):
        write_stripes(about(raster), rows, tmp_path / "r.tif")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("cut", [False, True])
def test_a_mosaic_by_stripes_is_that_in_memory(
    cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four cells that lie anywhere to the stripes, with a corner that no cell has."""
    values = np.random.default_rng(1).integers(1, 90, (1400, 1300)).astype(np.int16)
    raster = plain(values, -1)
    a, b, c, d, e, f = raster.grid.transform
    paths = []
    for row, col, down, across in ((0, 0, 700, 800), (0, 800, 700, 500), (700, 0, 700, 800)):
        grid = Grid(
            crs=raster.grid.crs,
            transform=(a, b, c + a * col, d, e, f + e * row),
            width=across,
            height=down,
        )
        part = raster.data[:, row : row + down, col : col + across]
        paths.append(tmp_path / f"{row}-{col}.tif")
        write_cog(replace(raster, data=part, grid=grid), paths[-1], overviews=False)
    window = Grid(
        crs=raster.grid.crs, transform=(a, b, c + a * 7, d, e, f + e * 9), width=1290, height=1380
    )
    monkeypatch.setattr(write, "STRIPE_BYTES", 0)
    clip = scale(Polygon(window.lonlat_outline(9)), 0.7, 0.7) if cut else None
    cells = joined(paths, window, clip)
    write_stripes(cells.about, cells.rows, tmp_path / "striped.tif")
    whole = mosaic(paths, window, clip)
    if cut:
        assert 0.4 < whole.valid_share < 0.5
    else:
        assert np.array_equal(whole.data[0, :691], values[9:700, 7:1297])
        assert (whole.data[0, 691:, 793:] == -1).all()
    write_cog(whole, tmp_path / "whole.tif")
    assert (tmp_path / "striped.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()
    assert np.array_equal(read_raster(tmp_path / "striped.tif").data, whole.data)
