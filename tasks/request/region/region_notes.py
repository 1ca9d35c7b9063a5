"""What is worth saying of a region before it is sent: parts far away, and a CRS made for others."""

from collections.abc import Iterator

from tasks.request.places import MAIN, is_scattered
from tasks.request.region.kinds import region_area
from tasks.request.resolved import ResolvedRequest

_MARGIN = 1.0  # degrees by which a region may leave an area of use


def region_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield what a person may not expect of the region and the grid together."""
    region = resolved.request.region
    if region.in_place:
        return
    west, south, east, north = region_area(region).bounds
    if region.place is not None and is_scattered(region.place):
        yield (
            f"{region.place} has parts far from one another: it reaches from "
            f"{reach_text((west, south, east, north))}. Without them it is "
            f"'{region.place.strip()}, {MAIN}'."
        )
    grid = resolved.request.grid
    use = resolved.target.lattice.system.parsed.area_of_use if grid.crs else None
    if use is None:
        return
    width = (use.east - use.west) % 360.0 or 360.0
    begin = (west - use.west + _MARGIN) % 360.0
    inside = begin + (east - west) <= width + 2 * _MARGIN or width == 360.0
    if not inside or south < use.south - _MARGIN or north > use.north + _MARGIN:
        yield (
            f"The region leaves the area for which {grid.crs} is made "
            f"({reach_text((use.west, use.south, use.east, use.north))}): there shapes and sizes "
            "are wrong. Choose another coordinate system, or a smaller region."
        )


def reach_text(bounds: tuple[float, float, float, float]) -> str:
    """Write west, south, east and north in degrees: "8° W to 6° E, 50.5° N to 58.5° N"."""
    west, south, east, north = bounds
    return f"{_lon(west)} to {_lon(east)}, {_lat(south)} to {_lat(north)}"


def _lon(degrees: float) -> str:
    turned = (degrees + 180.0) % 360.0 - 180.0 if degrees != 180.0 else degrees
    return f"{abs(turned):.3g}° {'E' if turned >= 0 else 'W'}"


def _lat(degrees: float) -> str:
    return f"{abs(degrees):.3g}° {'N' if degrees >= 0 else 'S'}"
