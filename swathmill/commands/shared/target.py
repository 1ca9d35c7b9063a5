"""Make the target grid of `reproject` from its options."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from modis.box import LonLatBox
from modis.tile import Tile
from reprojection.grid.covering import project_bounds
from reprojection.grid.grids import Grid, Lattice, modis_lattice, modis_tile_grid
from reprojection.read.granule import open_granule
from reprojection.read.outline import Outline, outline
from reprojection.write.write import read_grid
from swathmill.errors import RefusedError
from tasks.errors import RequestRefusedError
from tasks.request.target import check_degrees


def target_grid(
    files: list[Path],
    *,
    like: Path | None,
    modis: int | None,
    crs: str | None,
    resolution: float | None,
    bounds: LonLatBox | None,
) -> Grid:
    """Make the grid that the options ask for; without bounds, one that covers the granules.

    Raises:
        RefusedError: the options contradict one another or are not sufficient.
        GridError: CRS, bounds or resolution cannot be used.
    """
    if like is not None:
        if modis is not None or crs is not None or resolution is not None or bounds is not None:
            raise refused("like", "comes with another grid.", "Give --like alone.")
        return read_grid(like)
    lattice = _lattice(modis, crs, resolution)
    if bounds is not None:
        return lattice.snap(project_bounds(bounds, lattice.crs))
    places = [_outline(file) for file in files]
    tiles = [place.tile for place in places if place.tile is not None]
    if modis is not None and tiles and len(tiles) == len(places):
        return _grid_of_tiles(lattice, tiles)
    return lattice.snap(project_bounds(box_around(places), lattice.crs))


def box_around(places: Sequence[Outline]) -> LonLatBox:
    """Return the longitude-latitude box around granules.

    Raises:
        RefusedError: the position of a granule is unknown, or the granules cross the antimeridian
            or include a pole.
    """
    longitudes: list[float] = []
    latitudes: list[float] = []
    for place in places:
        points = _edge(place)
        longitudes += [lon for lon, _ in points]
        latitudes += [lat for _, lat in points]
    if any(map(_goes_around, places)):
        return LonLatBox(-180.0, min(latitudes), 180.0, max(latitudes))
    if max(longitudes) - min(longitudes) > 180.0:
        raise refused(
            "box",
            "the granules span more than 180 degrees, across the antimeridian or around a pole.",
            "Give --box W S E N; west may be greater than east.",
        )
    return LonLatBox(min(longitudes), min(latitudes), max(longitudes), max(latitudes))


def refused(field: str, problem: str, remedy: str) -> RefusedError:
    """Make the refusal of an option."""
    return RefusedError(field=f"--{field}", problem=problem, remedy=remedy, status=0)


def _lattice(modis: int | None, crs: str | None, resolution: float | None) -> Lattice:
    if modis is not None:
        if crs is not None or resolution is not None:
            raise refused(
                "modis", "comes with another grid.", "Give --modis, or --crs and --resolution."
            )
        return modis_lattice(modis)
    if resolution is None:
        raise refused(
            "resolution",
            "is missing.",
            "Give the pixel's side in units of the CRS, or --modis 1000, or --like FILE.",
        )
    lattice = Lattice(crs=crs or "EPSG:4326", resolution=resolution)
    try:
        check_degrees(lattice, "resolution")
    except RequestRefusedError as error:
        raise refused(error.field, error.problem, error.remedy) from None
    return lattice


def _outline(file: Path) -> Outline:
    with open_granule(file) as granule:
        return outline(granule)


def _grid_of_tiles(lattice: Lattice, tiles: Sequence[Tile]) -> Grid:
    """Make the grid of whole tiles (h, v) on the tiles' own lattice."""
    size = lattice.cell_size
    left, top = min(tile.col for tile in tiles), min(tile.row for tile in tiles)
    columns = max(tile.col for tile in tiles) + 1 - left
    rows = max(tile.row for tile in tiles) + 1 - top
    return lattice.window(left * size, top * size, columns * size, rows * size)


def _goes_around(place: Outline) -> bool:
    """Tell whether a granule's pieces, side by side, reach around the Earth."""
    rings = place.boundary or ()
    wests = {(min(lon for lon, _ in ring), max(lon for lon, _ in ring)) for ring in rings}
    return len(rings) > 1 and sum(east - west for west, east in wests) > 359.9


def _edge(place: Outline) -> list[tuple[float, float]]:
    """Return points along a granule's edge, longitude and latitude in degrees."""
    points: list[tuple[float, float]] = []
    if place.tile is not None:
        edge = modis_tile_grid(*place.tile, 1000).lonlat_outline()
        # A tile at the rim of the projection lies partly off the Earth.
        points = [(float(lon), float(lat)) for lon, lat in edge if isfinite(lon) and isfinite(lat)]
    for ring in place.boundary or ():
        points += ring
    if not points:
        raise refused("box", f"{place.name} does not say where it lies.", "Give --box W S E N.")
    return points
