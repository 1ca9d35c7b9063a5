"""Swaths of VIIRS onto grids: each pixel against a kd-tree, over zones, scans and granules."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial import cKDTree

from reprojection.grid.grids import Grid, Lattice
from reprojection.grid.sphere import unit_vectors
from reprojection.grid.targets import Centres
from reprojection.reproject import Options, reproject
from reprojection.warp.bow_tie import kept_footprints
from reprojection.warp.swath import Swath, nearest
from tests.oracle.numpy_swath import squared_radii
from tests.reprojection.viirs_scans import Scans, corners, deleted_in_scan, scans, write_pair

COLUMNS = {  # both edges, where zones begin, between, and nadir
    "M": (120, 640, 820, 1008, 1600, 2192, 2560, 3100),
    "I": (250, 1280, 2016, 3200, 5120),
    "D": (100, 2032, 3900),
}
STEP = {"M": 0.007, "I": 0.0035, "D": 0.007}


def lattice(box: tuple[float, ...], step: float) -> Grid:
    west, south, east, north = box
    return Lattice(crs="EPSG:4326", resolution=step).snap((west, south, east, north))


def by_tree(part: Scans, grid: Grid) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The kept footprint that each pixel sees, or -1; and where two are as near."""
    swath = Swath.of(part.geolocation())
    points = np.stack(unit_vectors(part.lat, part.lon), axis=-1)
    x, y, z = np.moveaxis(points, -1, 0)
    radii = squared_radii(x, y, z, part.lines, swath.cap).ravel()
    kept = np.flatnonzero(~part.deleted.ravel())
    rows = Centres(grid).rows(0, grid.height)
    here = np.stack(np.broadcast_arrays(*unit_vectors(rows.lat, rows.lon)), axis=-1)
    away, which = cKDTree(points.reshape(-1, 3)[kept]).query(here.reshape(-1, 3), k=2)
    seen = kept[which[:, 0]]
    seen[away[:, 0] ** 2 > radii[seen]] = -1
    tied = away[:, 1] - away[:, 0] < 1e-12
    return seen.reshape(grid.shape), tied.reshape(grid.shape)


@pytest.mark.parametrize(
    "band", ["M", *(pytest.param(band, marks=pytest.mark.proof) for band in "ID")]
)
def test_every_pixel_sees_the_footprint_that_a_kd_tree_finds(band: str) -> None:
    part = scans(band, 3)
    swath = Swath.of(part.geolocation())
    for box in corners(part, COLUMNS[band], 20 * STEP[band]):
        grid = lattice(box, STEP[band])
        right, tied = by_tree(part, grid)
        found = nearest(swath, Centres(grid).rows(0, grid.height))
        wrong = (found != right) & ~tied
        assert wrong.sum() == 0, box
        assert not part.deleted.ravel()[found[found >= 0]].any()
        assert (right >= 0).mean() > 0.8  # the rest is beyond the first and the last scan


@pytest.mark.parametrize("band", ["M", "I"])
def test_the_pixels_that_are_deleted_are_those_of_real_granules(band: str) -> None:
    part = scans(band, 3)
    kept = kept_footprints(part.lat, part.lon, part.lines)
    assert kept is not None
    assert np.array_equal(~kept, np.tile(deleted_in_scan(band), (3, 1)))


def test_a_swath_that_is_cut_within_scans_keeps_all() -> None:
    """The pattern would lie on other lines, and take values away."""
    part = scans("M", 4)
    for first in (4, 8, 15):
        rows = slice(first, first + 48)
        assert kept_footprints(part.lat[rows], part.lon[rows], 16) is None, first


def test_lines_that_do_not_overlap_are_all_kept() -> None:
    """Some products move pixels to other places, so that lines follow one another."""
    part = scans("M", 3)
    lat, lon = (np.linspace(one[0], one[-1], len(one)) for one in (part.lat, part.lon))
    assert kept_footprints(lat, lon, 16) is None
    assert kept_footprints(part.lat[:16], part.lon[:16], 16) is None
    assert kept_footprints(np.full_like(part.lat, np.nan), part.lon, 16) is None
    day_night = scans("D", 2)
    assert kept_footprints(day_night.lat, day_night.lon, 16) is None


def test_two_granules_have_no_stripe_of_deleted_pixels(tmp_path: Path) -> None:
    whole = scans("M", 6)
    parts = [whole.part(0, 3), whole.part(3, 6)]
    numbers = np.arange(whole.lat.size, dtype=np.uint32).reshape(whole.lat.shape)
    paths = []
    for part, hhmm, first in zip(parts, ("1030", "1036"), (0, 48), strict=True):
        rounded = part._replace(
            lat=part.lat.astype(np.float32).astype(float),
            lon=part.lon.astype(np.float32).astype(float),
        )
        paths += write_pair(tmp_path, rounded, hhmm, numbers[first : first + 48])
    options = Options(resampling="nearest", extra_bands=("reason",))
    for box in corners(whole, (120, 2900), 0.12):
        grid = lattice(box, 0.01)
        found = reproject(paths, "M13", grid, options)
        joined = whole._replace(
            lat=whole.lat.astype(np.float32).astype(float),
            lon=whole.lon.astype(np.float32).astype(float),
        )
        right, _ = by_tree(joined, grid)
        assert found.valid()[right >= 0].all()
        stored = found.data[0][found.valid()].astype(np.int64)
        assert not joined.deleted.ravel()[stored].any()
        # In the middle of a granule there is no choice between two.
        alone = [
            by_tree(part._replace(lat=joined.lat[at], lon=joined.lon[at]), grid)
            for part, at in zip(parts, (slice(0, 48), slice(48, 96)), strict=True)
        ]
        ones = [
            np.where(seen >= 0, seen + first * 3200, -1)
            for (seen, _), first in zip(alone, (0, 48), strict=True)
        ]
        clear = (ones[0] < 0) | (ones[1] < 0)
        tied = alone[0][1] | alone[1][1]
        only = np.maximum(*ones)
        check = clear & (only >= 0) & ~tied
        assert check.any()
        assert np.array_equal(found.data[0][check].astype(np.int64), only[check])
        both = ~clear & ~tied
        mine = found.data[0].astype(np.int64)
        assert ((mine == ones[0]) | (mine == ones[1]))[both].all()
