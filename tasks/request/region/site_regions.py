"""Sites as a region: a box around each, in which granules are looked for."""

from shapely.geometry import box

from modis.tile import Tile
from reprojection.grid.sinusoidal import tiles_touching
from tasks.request.region.region import Region
from tasks.request.region.regions import RegionKind, unwrap
from tasks.request.sites import parse_sites
from tasks.request.vertices import Area, union

AROUND_SITE = 0.05
"""Degrees around a site in which granules are looked for: a swath's pixels are large."""

_POINT_MARGIN = 1e-6  # degrees: a point as an area


def site_areas(region: Region, margin: float = AROUND_SITE) -> list[Area]:
    """Return the area of each site of a region: a box around it, `margin` degrees wider.

    Boxes end at the poles and at 180 degrees.
    """
    areas: list[Area] = []
    for site in parse_sites(region.sites or ""):
        west, south, east, north = (
            site.area.bounds if site.area is not None else (site.lon, site.lat) * 2
        )
        areas.append(
            box(
                max(west - margin, -180.0),
                max(south - margin, -90.0),
                min(east + margin, 180.0),
                min(north + margin, 90.0),
            )
        )
    return areas


def _tiles(region: Region) -> frozenset[Tile]:
    areas = site_areas(region, _POINT_MARGIN)
    return frozenset().union(*(tiles_touching(area) for area in areas))


def _words(region: Region) -> str:
    count = len(parse_sites(region.sites or ""))
    return f"at {count:,} site{'s' if count != 1 else ''}"


SITES = RegionKind(
    area=lambda region: unwrap(union(*site_areas(region))), words=_words, tiles=_tiles
)
