"""All kinds of regions. A feature adds its own here."""

from collections.abc import Mapping

from modis.tile import Tile
from reprojection.grid.sinusoidal import tiles_touching
from tasks.request.region.region import Region
from tasks.request.region.regions import AREAS, RegionKind
from tasks.request.region.site_regions import SITES
from tasks.request.vertices import Area

KINDS: Mapping[str, RegionKind] = {**AREAS, "sites": SITES}
"""By the name of the field in the document."""


def region_area(region: Region) -> Area:
    """Return the region as a polygon or multipolygon in degrees, longitudes from -180 up to 540.

    Raises RequestRefusedError for a GeoJSON document that is no polygon on the Earth and for tiles
    that lie off the Earth.
    """
    return KINDS[region.kind].area(region)


def region_tiles(region: Region) -> frozenset[Tile]:
    """Return the MODIS tiles in which the region has a share.

    Raises the same errors as `region_area`.
    """
    kind = KINDS[region.kind]
    return (
        frozenset(tiles_touching(kind.area(region))) if kind.tiles is None else kind.tiles(region)
    )


def region_words(region: Region) -> str:
    """Say where a region is: "in Bayern, Germany"."""
    return KINDS[region.kind].words(region)
