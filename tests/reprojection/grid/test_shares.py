"""Shares of pixels in polygons: held to shapely pixel by pixel, and areas to geodesy."""

import numpy as np
import pyproj
import pytest
import shapely
from shapely import MultiPolygon, Polygon

from reprojection.grid import shares
from reprojection.grid.grids import MODIS_SINUSOIDAL, Grid
from reprojection.grid.shares import NotCoveredError, Shares, shares_of

GEOD = pyproj.Geod(ellps="WGS84")
FIELD = Polygon(
    [(5.1, 50.2), (7.9, 50.9), (6.3, 53.1), (5.0, 52.0)],
    [[(6.0, 51.5), (6.1, 52.0), (6.5, 52.0), (6.5, 51.5)]],
)
ACROSS = MultiPolygon([shapely.box(178, -20, 180, -15), shapely.box(-180, -20, -179, -15)])


def grid(crs: str, size: float, west: float, south: float, east: float, north: float) -> Grid:
    return Grid(
        crs=crs,
        transform=(size, 0.0, west, 0.0, -size, north),
        width=round((east - west) / size),
        height=round((north - south) / size),
    )


DEGREES = grid("EPSG:4326", 0.1, 4, 49, 9, 54)


def square_km(area: Polygon | MultiPolygon) -> float:
    """The area between edges that are straight in degrees, by geodesics of a hundredth of one."""
    dense = shapely.segmentize(shapely.orient_polygons(area), 0.01)
    return abs(GEOD.geometry_area_perimeter(dense)[0]) / 1e6


def as_plane(grid: Grid, found: Shares) -> np.ndarray:
    plane = np.zeros(grid.shape)
    plane[found.rows, found.columns] = found.shares
    return plane


def star(rng: np.random.Generator) -> Polygon:
    """A random polygon, not convex, of up to some tens of pixels, now and then within one."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(3, 12))))
    radius = rng.choice([0.02, 0.3, 1.5]) * rng.uniform(0.3, 1.0, angles.size)
    x, y = rng.uniform((4.2, 49.2), (8.8, 53.8))
    return Polygon(np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], axis=1))


def test_shares_are_those_of_each_pixel_s_intersection() -> None:
    rng = np.random.default_rng(7)
    a, _, c, _, e, f = DEGREES.transform
    rows, columns = np.indices(DEGREES.shape)
    cells = shapely.box(c + a * columns, f + e * (rows + 1), c + a * (columns + 1), f + e * rows)
    for number in range(16):
        area = shapely.make_valid(star(rng)) if number else FIELD
        if not isinstance(area, Polygon | MultiPolygon) or area.area < 1e-6:
            continue
        truth = shapely.area(shapely.intersection(cells, area)) / abs(a * e)
        assert np.abs(as_plane(DEGREES, shares_of(DEGREES, area)) - truth).max() < 2e-5, area.wkt


@pytest.mark.parametrize(
    ("made", "area"),
    [
        (DEGREES, FIELD),
        (grid("EPSG:3035", 2000, 3.9e6, 2.9e6, 4.4e6, 3.4e6), FIELD),
        (grid("EPSG:32632", 2000, 1e5, 5.5e6, 6e5, 6e6), FIELD),
        (grid("EPSG:3857", 2000, 5e5, 6.4e6, 9.5e5, 7.1e6), FIELD),
        (grid(MODIS_SINUSOIDAL, 1853.25, 3e5, 5.5e6, 7e5, 6e6), FIELD),
        (grid("EPSG:4326", 0.05, 177, -22, 183, -14), ACROSS),
        (grid("EPSG:4326", 0.05, -183, -22, -177, -14), ACROSS),
        (grid("EPSG:3832", 5000, 2.9e6, -3e6, 3.5e6, -1e6), ACROSS),
        (grid("EPSG:3413", 40_000, -4e6, -4e6, 4e6, 4e6), shapely.box(-180, 70, 180, 90)),
    ],
    ids=lambda one: one.crs[:12] if isinstance(one, Grid) else "",
)
def test_areas_are_those_on_the_ellipsoid(made: Grid, area: Polygon | MultiPolygon) -> None:
    """Whatever the CRS, across the antimeridian, around the pole, and with a hole."""
    found = shares_of(made, area)
    assert not found.reaches_beyond
    assert found.weights.sum() / 1e6 == pytest.approx(square_km(area), rel=2e-5)


def test_a_polygon_far_beyond_a_map_s_grid_is_cut_to_it() -> None:
    """To the pole, which Mercator's projection does not reach."""
    made = grid("EPSG:3857", 2e4, -1e7, -1e7, 1e7, 1e7)
    ((_, north),) = np.stack(made.system.to_lonlat(np.zeros(1), np.full(1, 1e7)), axis=1)
    found = shares_of(made, shapely.box(0, 60, 9, 90))
    assert found.reaches_beyond
    assert found.weights.sum() / 1e6 == pytest.approx(
        square_km(shapely.box(0, 60, 9, north)), rel=1e-5
    )


def test_what_lies_beyond_the_grid_is_left_out_and_said() -> None:
    half = grid("EPSG:4326", 0.05, 177, -22, 180, -14)
    found = shares_of(half, ACROSS)
    assert found.reaches_beyond
    assert found.weights.sum() / 1e6 == pytest.approx(square_km(ACROSS.geoms[0]), rel=1e-6)


def test_a_polygon_within_one_pixel_has_its_share_of_it() -> None:
    tiny = shapely.box(5.02, 50.03, 5.04, 50.04)
    found = shares_of(DEGREES, tiny)
    assert found.shares == pytest.approx([0.02])
    assert found.window == (39, 10, 1, 1)


@pytest.mark.parametrize(
    ("made", "area", "why"),
    [
        (DEGREES, shapely.box(20, 50, 21, 51), "outside the results' raster"),
        (
            Grid(crs="EPSG:4326", transform=(0.1, 0.01, 4, 0.01, -0.1, 54), width=9, height=9),
            FIELD,
            "rotated",
        ),
        (grid("EPSG:3035", 1e4, 3e6, 2e6, 5e6, 4e6), shapely.box(189, -53, 191, -51), "defined"),
    ],
)
def test_what_has_no_shares_is_refused_with_what_to_do(made: Grid, area: Polygon, why: str) -> None:
    with pytest.raises(NotCoveredError, match=why) as refused:
        shares_of(made, area)
    assert any(word in str(refused.value) for word in ("choose", "request", "give"))


def test_a_box_has_as_many_pixels_as_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MOST_WINDOW", 20 * 10)
    assert shares_of(DEGREES, shapely.box(5, 50, 7, 51)).shares.size == 200
    with pytest.raises(NotCoveredError, match=r"has 210 pixels, and 200 are the most"):
        shares_of(DEGREES, shapely.box(5, 50, 7.1, 51))


def test_a_ring_is_bent_into_as_many_vertices_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    bent = grid("EPSG:3035", 500, 3.9e6, 2.9e6, 4.4e6, 3.4e6)
    triangle = Polygon([(5.0, 50.0), (7.0, 50.0), (6.0, 52.0)])
    there = shares_of(bent, triangle)
    monkeypatch.setattr(shares, "MOST_BENT", 40)
    with pytest.raises(NotCoveredError, match="its edges cannot be followed"):
        shares_of(bent, triangle)
    assert there.weights.sum() / 1e6 == pytest.approx(square_km(triangle), rel=1e-6)
