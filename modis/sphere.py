"""The sphere of the MODIS sinusoidal grid."""

import math

EASE_RADIUS = 6371228.0
"""Radius in metres of the sphere of the polar EASE-Grids (NSIDC, "EASE-Grid")."""

SPHERE_RADIUS = 6371007.181
"""Radius in metres of the sphere of the MODIS sinusoidal projection (MODIS Land, "Grids")."""

SPHERE_RADIUS_KM = 6371.007181
"""The same radius in kilometres."""

METRES_PER_DEGREE = SPHERE_RADIUS * math.radians(1.0)
"""Length in metres of a degree of latitude, or of longitude on the equator."""


def wrap_longitude(lon: float) -> float:
    """Return a longitude in degrees brought into [-180, 180)."""
    return (lon + 180.0) % 360.0 - 180.0
