"""Coarse geolocation brought to finer pixels, against a swath known in closed form."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprojection.grid.orbit import SCAN_SECONDS, Swath, swath
from reprojection.kernels import kernels
from reprojection.read.interpolation import (
    AxisMap,
    Positions,
    axis_weights,
    interpolate_positions,
    interpolate_values,
)
from tests.oracle.numpy_geolocation import positions_in_numpy

SCANS = 20
ROWS, COLUMNS = SCANS * 10, 1354


def true_swath(seconds: float, node: float, scans: int = SCANS) -> Swath:
    """Every 1 km pixel of a few scans, from the closed form."""
    times = np.repeat(seconds + (np.arange(scans) + 0.5) * SCAN_SECONDS, 10)
    ahead = np.tile(np.arange(10) - 4.5, scans)
    return swath(times, np.arange(float(COLUMNS)), node, ahead)


def maps(coarse_columns: int, scans: int = SCANS) -> tuple[AxisMap, AxisMap]:
    rows = AxisMap(fine=scans * 10, coarse=scans * 2, offset=2, increment=5, group=10)
    columns = AxisMap(fine=COLUMNS, coarse=coarse_columns, offset=2, increment=5, group=COLUMNS)
    return rows, columns


def coarse(truth: Swath, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The 5 km pixels as a granule stores them: float32 degrees."""
    lat, lon = (
        values[2::5, 2::5][:, :columns].astype(np.float32).astype(np.float64)
        for values in (truth.lat, truth.lon)
    )
    return lat, lon


def metres_apart(found: Positions, truth: Swath) -> np.ndarray:
    def vectors(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
        phi, lam = np.radians(lat), np.radians(lon)
        return np.stack((np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)))

    apart = vectors(*found) - vectors(truth.lat, truth.lon)
    metres: np.ndarray = 6371007.0 * np.sqrt(np.square(apart).sum(axis=0))
    return metres


PLACES = {
    "tropics": (300.0, 20.0),
    "antimeridian": (300.0, 178.0),
    "high north": (1150.0, 20.0),
    "over the pole": (1400.0, 20.0),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("columns", [270, 271])
def test_interpolation_is_metres_from_the_truth(place: str, columns: int) -> None:
    truth = true_swath(*PLACES[place])
    rows, across = maps(columns)
    apart = metres_apart(interpolate_positions(*coarse(truth, columns), rows, across), truth)
    assert apart[:, 2 : 5 * columns - 2].max() < 8  # between coarse columns
    assert apart.max() < (9 if columns == 271 else 60)  # with 270, six columns are extrapolated


def test_scans_do_not_bleed_into_one_another() -> None:
    truth = true_swath(300.0, 20.0)
    rows, across = maps(271)
    lat, lon = coarse(truth, 271)
    before = interpolate_positions(lat, lon, rows, across)
    lat[6:8] += 0.7  # the fourth scan alone moves
    after = interpolate_positions(lat, lon, rows, across)
    moved = (before[0] != after[0]).any(axis=1)
    assert moved.tolist() == [30 <= row < 40 for row in range(ROWS)]


def test_unknown_positions_stay_unknown_and_spread_no_further_than_their_scan() -> None:
    truth = true_swath(300.0, 20.0)
    rows, across = maps(271)
    lat, lon = coarse(truth, 271)
    lat[4:6] = lon[4:6] = np.nan
    found = interpolate_positions(lat, lon, rows, across)
    for values in found:
        assert np.isnan(values[20:30]).all()
        assert np.isfinite(values[:20]).all()
        assert np.isfinite(values[30:]).all()


def test_coarse_pixels_keep_their_place() -> None:
    truth = true_swath(300.0, 178.0)
    rows, across = maps(271)
    lat, lon = coarse(truth, 271)
    found_lat, found_lon = interpolate_positions(lat, lon, rows, across)
    assert np.allclose(found_lat[2::5, 2::5], lat, rtol=0, atol=1e-10)
    turned = np.abs(found_lon[2::5, 2::5] - lon) % 360
    assert np.minimum(turned, 360 - turned).max() < 1e-10
    assert found_lon.min() >= -180
    assert found_lon.max() < 180


@settings(max_examples=25)
@given(
    st.floats(0, 5900),
    st.floats(-180, 180),
    st.sampled_from([270, 271, 268]),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_kernel_gives_the_reference_values(
    seconds: float, node: float, columns: int, scans: int, holes: bool
) -> None:
    truth = true_swath(seconds, node, scans)
    rows, across = maps(columns, scans)
    lat, lon = coarse(truth, columns)
    if holes:
        lat[0, 3:5] = lon[0, 3:5] = np.nan
    fast = interpolate_positions(lat, lon, rows, across)
    slow = positions_in_numpy(lat, lon, rows, axis_weights(rows), axis_weights(across))
    polar = np.nanmax(np.abs(lat)) > 65
    for one, other in zip(fast, slow, strict=True):
        if polar:  # sines and cosines of two libraries differ in their last bits
            turned = np.abs(one - other) % 360
            assert np.nanmax(np.minimum(turned, 360 - turned)) < 1e-6
            assert np.array_equal(np.isnan(one), np.isnan(other))
        else:
            assert np.array_equal(one, other, equal_nan=True)


@pytest.mark.parametrize("place", PLACES)
def test_single_precision_results_are_the_double_ones_rounded(place: str) -> None:
    truth = true_swath(*PLACES[place])
    rows, across = maps(271)
    double = interpolate_positions(*coarse(truth, 271), rows, across)
    single = tuple(np.empty((ROWS, COLUMNS), np.float32) for _ in range(2))
    interpolate_positions(*coarse(truth, 271), rows, across, out=(single[0], single[1]))
    for one, other in zip(double, single, strict=True):
        assert np.array_equal(one.astype(np.float32), other)


@given(
    st.integers(1, 12),
    st.integers(1, 8),
    st.integers(0, 4),
    st.sampled_from([1, 2, 4, 5, 10]),
    st.floats(-5, 5),
    st.floats(-5, 5),
)
def test_straight_lines_are_kept_whatever_the_map(
    coarse_rows: int, coarse_columns: int, offset: int, increment: int, slope: float, level: float
) -> None:
    """Any map, with or without scans, reproduces a plane where two elements define one."""
    rows = AxisMap(
        fine=coarse_rows * increment, coarse=coarse_rows, offset=0, increment=increment, group=10
    )
    columns = AxisMap(
        fine=coarse_columns * increment,
        coarse=coarse_columns,
        offset=offset,
        increment=increment,
        group=coarse_columns * increment,
    )
    at_rows = np.arange(coarse_rows) * increment
    at_columns = offset + np.arange(coarse_columns) * increment
    plane = (level + slope * (at_rows[:, None] - at_columns[None, :])).astype(np.float32)
    if min(coarse_rows, coarse_columns) < 2 or rows.coarse_group < 2:
        return
    found = interpolate_values(plane, rows, columns)
    wanted = level + slope * (np.arange(rows.fine)[:, None] - np.arange(columns.fine)[None, :])
    assert np.allclose(found, wanted, atol=2e-3)


def test_finer_geolocation_is_thinned() -> None:
    fine = AxisMap(fine=5, coarse=10, offset=0, increment=-2, group=5)
    values = np.arange(100, dtype=np.float32).reshape(10, 10)
    assert np.allclose(interpolate_values(values, fine, fine), values[::2, ::2], atol=1e-4)


def test_results_of_another_shape_or_type_are_refused() -> None:
    truth = true_swath(300.0, 20.0)
    rows, across = maps(271)
    for wrong in (np.empty((3, 3)), np.empty((ROWS, COLUMNS), np.float16)):
        with pytest.raises(ValueError, match="out must be"):
            interpolate_positions(*coarse(truth, 271), rows, across, out=(wrong, wrong))


def test_the_scratch_room_grows_with_its_sizes() -> None:
    room = kernels.function("swathmill_geolocate_scratch", (ctypes.c_int64,) * 3, ctypes.c_int64)
    assert room is not None
    assert room(271, 1354, 2) < room(271, 1354, 4) < room(271, 2708, 4) < room(1354, 2708, 4)
