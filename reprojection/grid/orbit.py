"""The geometry of a MODIS swath in closed form: a circular orbit and a scan across it.

It differs from the real instrument by a few kilometres, but has the properties that tests and
samples need: footprints that grow towards the edges, curved swath edges, overlapping orbits. The
numbers are those of the MODIS Level 1A Earth Location ATBD (section 2) and the Aqua orbit.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modis.sphere import SPHERE_RADIUS_KM

ALTITUDE_KM = 705.0
INCLINATION_DEGREES = 98.2
PERIOD_SECONDS = 98.8 * 60
DAY_SECONDS = 86164.0905  # a sidereal day: the time in which the Earth turns once under the orbit
SCAN_SECONDS = 1.4771
PIXEL_RADIANS = 1.0 / ALTITUDE_KM  # one 1 km pixel at nadir
PIXELS_PER_SCAN = 1354

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Swath:
    """Latitude, longitude and sensor zenith in degrees, float64, shape (lines, pixels)."""

    lat: Floats
    lon: Floats
    sensor_zenith: Floats


def swath(times: Floats, pixels: Floats, node_longitude: float, lines_off_km: Floats) -> Swath:
    """Compute where the scans of an ascending orbit look.

    `times` are seconds since the equator crossing at `node_longitude` (degrees), one per line.
    `lines_off_km` is the distance at nadir of each line ahead of the scan's centre (the ten lines
    of a scan share one time). `pixels` are positions within the 1,354 pixels of 1 km; fractions are
    allowed.
    """
    along = 2 * np.pi * times / PERIOD_SECONDS
    tilt = np.radians(INCLINATION_DEGREES)
    position = np.stack(
        (np.cos(along), np.cos(tilt) * np.sin(along), np.sin(tilt) * np.sin(along)), axis=-1
    )
    heading = np.stack(
        (-np.sin(along), np.cos(tilt) * np.cos(along), np.sin(tilt) * np.cos(along)), axis=-1
    )
    right = np.cross(heading, position)
    look = (np.asarray(pixels) - (PIXELS_PER_SCAN - 1) / 2) * -PIXEL_RADIANS
    ratio = (SPHERE_RADIUS_KM + ALTITUDE_KM) / SPHERE_RADIUS_KM
    zenith = np.arcsin(ratio * np.sin(look))
    across = zenith - look
    # The distance of a line from the scan's centre grows towards the edge of the swath, because
    # the ground is farther away there: the bow-tie.
    distance = np.where(
        np.abs(look) > 1e-9,
        SPHERE_RADIUS_KM * np.sin(across) / np.where(np.abs(look) > 1e-9, np.sin(look), 1.0),
        ALTITUDE_KM,
    )
    ahead = lines_off_km[:, None] / ALTITUDE_KM * distance[None, :] / SPHERE_RADIUS_KM
    ground = (
        position[:, None, :] * np.cos(across)[None, :, None]
        + right[:, None, :] * np.sin(across)[None, :, None]
    )
    ground = ground * np.cos(ahead)[..., None] + heading[:, None, :] * np.sin(ahead)[..., None]
    lat = np.degrees(np.arcsin(np.clip(ground[..., 2], -1, 1)))
    inertial = np.degrees(np.arctan2(ground[..., 1], ground[..., 0]))
    lon = inertial + node_longitude - 360.0 * times[:, None] / DAY_SECONDS
    shape = lat.shape
    return Swath(
        lat=lat,
        lon=(lon + 180.0) % 360.0 - 180.0,
        sensor_zenith=np.broadcast_to(np.degrees(np.abs(zenith)), shape).copy(),
    )
