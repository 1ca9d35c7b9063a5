"""A box of longitude and latitude, which may cross the antimeridian."""

from typing import NamedTuple

from modis.sphere import wrap_longitude


class LonLatBox(NamedTuple):
    """A box in degrees; west greater than east means across the antimeridian."""

    west: float
    south: float
    east: float
    north: float

    @property
    def width(self) -> float:
        """Degrees of longitude from west eastward to east, at most 360."""
        width = self.east - self.west
        return min(width + 360.0 if width < 0 else width, 360.0)

    @property
    def unwrapped_east(self) -> float:
        """The east edge counted on beyond 180, so that it is never less than west."""
        return self.east + 360.0 if self.east < self.west else self.east

    def spans(self) -> list[tuple[float, float]]:
        """Return the box's longitudes as one or two spans (west, east) within [-180, 180]."""
        width = self.width
        if width >= 360.0:
            return [(-180.0, 180.0)]
        west = wrap_longitude(self.west)
        if west + width <= 180.0:
            return [(west, west + width)]
        return [(west, 180.0), (-180.0, west + width - 360.0)]
