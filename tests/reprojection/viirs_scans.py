"""Scans of VIIRS in closed form: where its pixels lie, and which of them it deletes.

The satellite flies along a great circle, 829 km high, over a sphere. A scan is 16 lines of M bands,
32 of I bands, 16 of the day/night band, and goes to 56.28 degrees on both sides. M and I bands have
three zones: samples are added in threes up to 31.72 degrees, in pairs up to 44.86, and single
beyond (VIIRS Geolocation ATBD, section 2.2). Pixels of the day/night band have one size.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from modis.sphere import SPHERE_RADIUS_KM
from reprojection.read.geolocation import Geolocation

Floats = npt.NDArray[np.float64]

ALTITUDE_KM = 829.0
ADVANCE_KM = 11.8  # from scan to scan
LINE_KM = 0.742
HALF = (592, 368, 640)  # pixels from nadir on: of three samples, of two, of one
LINES = {"M": 16, "I": 32, "D": 16}
EDGE = 56.28


class Scans(NamedTuple):
    """Places of pixels, their zenith, and which of them are deleted."""

    lat: Floats
    lon: Floats
    zenith: Floats
    deleted: npt.NDArray[np.bool_]
    lines: int

    def geolocation(self) -> Geolocation:
        return Geolocation(lat=self.lat, lon=self.lon, sensor_zenith=None, scan_lines=self.lines)

    def part(self, first: int, last: int) -> "Scans":
        """Some scans, as a granule has them."""
        rows = slice(first * self.lines, last * self.lines)
        lat, lon, zenith, deleted = (
            self.lat[rows],
            self.lon[rows],
            self.zenith[rows],
            self.deleted,
        )
        return Scans(lat, lon, zenith, deleted[rows], self.lines)


def scan_angles(band: str) -> Floats:
    """Degrees from nadir of the pixels of a line, from one edge to the other."""
    if band == "D":
        ground = (np.arange(4064) - 2031.5) / 2032 * np.radians(13.7)
        reach = SPHERE_RADIUS_KM * np.sin(ground)
        below = ALTITUDE_KM + SPHERE_RADIUS_KM * (1 - np.cos(ground))
        return np.asarray(np.degrees(np.arctan2(reach, below)))
    fine = LINES[band] // 16
    widths = np.repeat((3, 2, 1), [count * fine for count in HALF])
    edges = np.concatenate([[0], np.cumsum(widths)])
    half = (edges[:-1] + edges[1:]) / 2 / edges[-1] * EDGE
    return np.concatenate([-half[::-1], half])


def scans(band: str, count: int) -> Scans:
    lines = LINES[band]
    look = np.radians(scan_angles(band))
    off = (np.arange(lines) - (lines - 1) / 2) * (LINE_KM * 16 / lines) / ALTITUDE_KM
    start = np.radians((8.0, 47.0))
    zenith_of_start = np.array(
        [np.cos(start[1]) * np.cos(start[0]), np.cos(start[1]) * np.sin(start[0]), np.sin(start[1])]
    )
    east = np.array([-np.sin(start[0]), np.cos(start[0]), 0.0])
    north = np.cross(zenith_of_start, east)
    heading = np.radians(-13.0)
    track = north * np.cos(heading) + east * np.sin(heading)
    places, angles = [], []
    for number in range(count):
        step = number * ADVANCE_KM / SPHERE_RADIUS_KM
        up = zenith_of_start * np.cos(step) + track * np.sin(step)
        ahead = -zenith_of_start * np.sin(step) + track * np.cos(step)
        right = np.cross(ahead, up)
        flat = -up * np.cos(look)[:, None] + right * np.sin(look)[:, None]
        # Distances along the look at nadir's angle between lines; the day/night band has one size.
        tilt = off[:, None] * (np.cos(look) if band == "D" else np.ones_like(look))
        view = flat * np.cos(tilt)[..., None] + ahead * np.sin(tilt)[..., None]
        height = SPHERE_RADIUS_KM + ALTITUDE_KM
        down = view @ up * height
        far = -down - np.sqrt(down**2 - (height**2 - SPHERE_RADIUS_KM**2))
        place = (up * height + view * far[..., None]) / SPHERE_RADIUS_KM
        places.append(place)
        angles.append(np.degrees(np.arccos(-np.einsum("ijk,ijk->ij", view, place))))
    x, y, z = np.moveaxis(np.concatenate(places), -1, 0)
    deleted = np.tile(deleted_in_scan(band), (count, 1))
    return Scans(
        np.degrees(np.arcsin(z)),
        np.degrees(np.arctan2(y, x)),
        np.concatenate(angles),
        deleted,
        lines,
    )


def deleted_in_scan(band: str) -> npt.NDArray[np.bool_]:
    """The pixels of a scan that are deleted, written out line by line.

    They are those that held fill in all granules of VNP09 of March 2024 that somebody looked at,
    and in a real granule of sea surface temperature (VIIRS_NPP-NAVO-L2P, 5 August 2019).
    """
    columns = len(scan_angles(band))
    found = np.zeros((LINES[band], columns), np.bool_)
    zones: dict[str, tuple[tuple[tuple[int, ...], int, int], ...]] = {
        "M": (((0, 15), 1008, 2192), ((1, 14), 640, 2560)),
        "I": (((0, 1, 30, 31), 2016, 4384), ((2, 3, 28, 29), 1280, 5120)),
        "D": (),
    }
    for lines, left, right in zones[band]:
        for line in lines:
            found[line, :left] = found[line, right:] = True
    return found


def write_pair(folder: Path, part: Scans, hhmm: str, numbers: npt.NDArray[np.uint32]) -> list[Path]:
    """A granule of level 1B with one band, and the one that says where its pixels lie."""
    made = []
    granules: tuple[tuple[str, str, dict[str, npt.NDArray[np.generic]]], ...] = (
        (
            "VNP02MOD",
            "observation_data",
            {"M13": np.where(part.deleted, 2**32 - 3, numbers).astype(np.uint32)},
        ),
        (
            "VNP03MOD",
            "geolocation_data",
            {
                "latitude": part.lat.astype(np.float32),
                "longitude": part.lon.astype(np.float32),
                "sensor_zenith": np.rint(part.zenith * 100).astype(np.int16),
            },
        ),
    )
    for product, group, fields in granules:
        path = folder / f"{product}.A2020001.{hhmm}.002.2020002000000.nc"
        with h5py.File(path, "w") as file:
            file.attrs["ShortName"], file.attrs["VersionID"] = product, "2"
            file.attrs["RangeBeginningDate"] = "2020-01-01"
            file.attrs["RangeBeginningTime"] = f"{hhmm[:2]}:{hhmm[2:]}:00.000000"
            for name, size in zip(("lines", "pixels"), part.lat.shape, strict=True):
                file[f"number_of_{name}"] = np.zeros(size, np.float32)
                file[f"number_of_{name}"].make_scale(f"number_of_{name}")
            for name, values in fields.items():
                made_field = file.create_dataset(f"{group}/{name}", data=values)
                for axis, dim in enumerate(("lines", "pixels")):
                    made_field.dims[axis].attach_scale(file[f"number_of_{dim}"])
                made_field.attrs.update(_attributes(name))
        made.append(path)
    return made


def _attributes(name: str) -> dict[str, object]:
    if name == "M13":
        return {
            "_FillValue": np.uint32(2**32 - 1),
            "valid_min": np.uint32(0),
            "valid_max": np.uint32(327679),
            "scale_factor": np.float32(0.0005),
            "add_offset": np.float32(0.0),
        }
    if name == "sensor_zenith":
        return {"_FillValue": np.int16(-32768), "scale_factor": np.float32(0.01)}
    return {"_FillValue": np.float32(-999.9)}


def corners(part: Scans, columns: tuple[int, ...], half: float) -> Iterator[tuple[float, ...]]:
    """Boxes around the middle scan's pixels of some columns, in degrees."""
    row = part.lat.shape[0] // 2
    for column in columns:
        lat, lon = part.lat[row, column], part.lon[row, column]
        wide = half / np.cos(np.radians(lat))
        yield float(lon - wide), float(lat - half), float(lon + wide), float(lat + half)
