"""Make the sample archive: small granules with synthetic data in the real HDF4-EOS format.

It has two products over the British Isles and the North Sea in spring: 10 km aerosol swaths of two
overlapping orbits on three days, and 1 km leaf area tiles of two neighbours on ten dates. The
coasts are those of the Earth, and leaf area is on land and grows in spring; all else are smooth
functions of position and day without randomness, so the files are identical byte for byte each
time. Every file says in its attributes that it is synthetic.
"""

import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_SIZE, Tile
from reprojection.errors import ReprojectionError
from reprojection.grid.orbit import SCAN_SECONDS, swath
from reprojection.sample.evapotranspiration import evapotranspiration_granules
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    GridToWrite,
    SwathToWrite,
    write_granule,
)

SYNTHETIC_NOTE = (
    "SYNTHETIC: written by Swathmill's sample generator. The values are made up; this is not NASA "
    "data and must not be used as such."
)

TILES = (Tile(17, 3), Tile(18, 3))
TILE_DAYS = tuple(datetime(2012, 3, 5, tzinfo=UTC) + timedelta(days=8 * n) for n in range(10))
SWATH_DAYS = tuple(datetime(2012, 4, day, tzinfo=UTC) for day in (13, 14, 15))
# Equator crossings of two successive orbits: minute of the day, longitude in degrees.
ORBITS = ((12 * 60 + 22.5, 8.0 + 14.5), (12 * 60 + 22.5 + 98.8, 8.0 + 14.5 - 24.7))
GRANULE_MINUTES = ((750, 755), (850, 855))

_SIDE = 1200
_SCANS, _CELLS = 203, 135
_PRODUCED = datetime(2012, 6, 1, 12, 0, 0, tzinfo=UTC)

_LARGEST = 30_000_000  # bytes of an archive

Floats = npt.NDArray[np.float64]


def write_sample_archive(folder: Path, parts: Sequence[str] = ("tiles", "swaths")) -> list[Path]:
    """Write the sample granules into a folder (made if absent); return their paths by name.

    The part "evapotranspiration" has the granules of the worked example. This takes a few seconds
    and at most 30 MB. Raises ReprojectionError if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _LARGEST:
        raise ReprojectionError(
            f"{folder} has {free:,} bytes free, and the sample archive takes up to {_LARGEST:,}; "
            "make room, or name another folder"
        )
    # HDF4 stores the path it is given, so each writer runs inside the folder and passes bare names.
    # `-P` keeps the folder's own files off the import path.
    writers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", _WRITER.format(part=part, path=sys.path)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in parts
    ]
    names: list[str] = []
    for writer in writers:
        out, problem = writer.communicate()
        if writer.returncode != 0:
            last = problem.strip().splitlines()[-1:] or ["no message"]
            raise ReprojectionError(f"the sample archive in {folder} failed: {last[0]}")
        names += out.split()
    return sorted(folder / name for name in names)


_WRITER = """
import sys
sys.path[:] = {path!r}
from reprojection.sample.sample import write_part
write_part({part!r})
"""


def write_part(part: str) -> None:
    """Write one product's granules into the working directory and print their names."""
    for granule in _PARTS[part]():
        write_granule(Path(granule.local_name), granule)
        sys.stdout.write(granule.local_name + "\n")


def tile_granules(days: Sequence[datetime] = TILE_DAYS) -> Iterator[GranuleToWrite]:
    """Yield the MCD15A2-like tiles, every date of every tile."""
    for tile in TILES:
        lat, lon = _tile_places(tile)
        ground = _Ground(
            lat=lat,
            lon=lon,
            codes=_surface_codes(lat, lon),
            green=0.42
            + 0.16 * _waves(lat, lon, 3.0, 1.0)
            + 0.10 * _waves(lat, lon, 0.9, 2.4)
            + 0.06 * _waves(lat, lon, 0.3, 0.7)
            - 0.02 * (lat - 50.0),
        )
        for day in days:
            yield _tile_granule(tile, day, ground)


@dataclass(frozen=True, kw_only=True)
class _Ground:
    """The properties of a tile that are the same on every date."""

    lat: Floats
    lon: Floats
    codes: npt.NDArray[np.uint8]  # codes of pixels without leaf area, 0 elsewhere
    green: Floats


def _tile_places(tile: Tile) -> tuple[Floats, Floats]:
    step = TILE_SIZE / _SIDE
    x = tile.left + (np.arange(_SIDE) + 0.5) * step
    y = tile.top - (np.arange(_SIDE) + 0.5) * step
    lat = np.repeat(np.degrees(y / SPHERE_RADIUS)[:, None], _SIDE, axis=1)
    lon = np.degrees(x[None, :] / SPHERE_RADIUS / np.cos(y[:, None] / SPHERE_RADIUS))
    return lat, lon


def _waves(lat: Floats, lon: Floats, scale: float, phase: float) -> Floats:
    """Compute a smooth field in about [-1, 1] whose features are `scale` degrees wide."""
    a, b = lat * np.pi / scale, lon * np.pi / (1.6 * scale)
    return (
        np.sin(a + 0.7 * np.sin(b + phase)) + np.sin(1.3 * b + phase + 0.9 * np.cos(0.7 * a))
    ) / 2.0


@cache
def _land_mask() -> npt.NDArray[np.bool_]:
    """Return where land is from 60 to 50 degrees north, 20 west to 20 east, in 0.02 degrees.

    `land.bin` is drawn from Natural Earth's countries (1:10 million, public domain), as the places
    of requests are: a bit for each cell, packed by zlib.
    """
    packed = zlib.decompress(Path(__file__).with_name("land.bin").read_bytes())
    return np.unpackbits(np.frombuffer(packed, np.uint8)).reshape(500, 2000).astype(bool)


def _land(lat: Floats, lon: Floats) -> npt.NDArray[np.bool_]:
    row = np.clip(((60.0 - lat) / 0.02).astype(int), 0, 499)
    column = np.clip(((lon + 20.0) / 0.02).astype(int), 0, 1999)
    return np.asarray(_land_mask()[row, column])


def _surface_codes(lat: Floats, lon: Floats) -> npt.NDArray[np.uint8]:
    """Return codes of ground without leaf area, in 2 x 2 pixel blocks; coasts in single pixels."""
    north, east = lat[::2, ::2], lon[::2, ::2]
    blocks = np.zeros(north.shape, np.uint8)
    blocks[_waves(north, east, 0.8, 5.0) > 0.93] = 250
    blocks[_waves(north, east, 0.9, 2.2) > 0.95] = 251
    blocks[_waves(north, east, 1.0, 3.1) > 0.95] = 253
    blocks[(north > 58.5) & (_waves(north, east, 0.7, 0.2) > 0.8)] = 252
    blocks[_waves(north, east, 0.5, 4.4) > 0.985] = 249
    codes = np.repeat(np.repeat(blocks, 2, axis=0), 2, axis=1)
    codes[~_land(lat, lon)] = 254
    return codes


def _weather(ground: _Ground, scale: float, phase: float) -> Floats:
    """Compute a field like `_waves` in blocks of 8 x 8 pixels, as cloud masks are coarser."""
    blocks = _waves(ground.lat[4::8, 4::8], ground.lon[4::8, 4::8], scale, phase)
    return np.repeat(np.repeat(blocks, 8, axis=0), 8, axis=1)


def _tile_granule(tile: Tile, day: datetime, ground: _Ground) -> GranuleToWrite:
    lat, lon, surface = ground.lat, ground.lon, ground.codes
    season = (day - TILE_DAYS[0]).days / 80.0
    # Leaves come in April, later in the north.
    leaves = 1.0 / (1.0 + np.exp(-10.0 * (season - 0.4 - 0.03 * (lat - 54.0))))
    green = np.clip(ground.green * (0.55 + 1.1 * leaves), 0.02, 1.0)
    number = day.timetuple().tm_yday
    cloudy = _weather(ground, 2.5, 0.11 * number) > 0.7
    missing = (_weather(ground, 1.5, 0.07 * number + 2.0) > 0.97) & (surface != 254)
    empty = surface > 0
    lai = np.where(empty, surface, np.round(55 * green)).astype(np.uint8)
    fpar = np.where(empty, surface, np.round(92 * np.sqrt(green))).astype(np.uint8)
    # Bits as in FparLai_QC: MODLAND, sensor, dead detector, cloud state (2), SCF_QC (3).
    backup = cloudy & (green > 0.3)
    qc = np.where(backup, 1 | (3 << 5), np.where(green > 0.7, 1 << 5, 0))
    qc = (qc | np.where(cloudy, 1 << 3, 0)).astype(np.uint8)
    qc[empty] = 1 | (4 << 5)
    for values in (lai, fpar, qc):
        values[missing] = 255
    produced = _PRODUCED + timedelta(minutes=int(day.timetuple().tm_yday))
    name = f"MCD15A2.A{day:%Y%j}.{tile.name}.005.{produced:%Y%j%H%M%S}.hdf"
    corners = [(lon[row, column], lat[row, column]) for row, column in _CORNERS]
    return GranuleToWrite(
        local_name=name,
        product="MCD15A2",
        collection=5,
        start=day,
        end=day + timedelta(days=8) - timedelta(seconds=1),
        produced=produced,
        day_night="Day",
        ring=corners,
        structure=GridToWrite(
            name="MOD_Grid_MOD15A2",
            upper_left=(tile.left, tile.top),
            lower_right=(tile.left + TILE_SIZE, tile.top - TILE_SIZE),
            fields=[
                _leaf_field("Fpar_1km", fpar, 0.01, "Percent", "FPAR"),
                _leaf_field("Lai_1km", lai, 0.1, "m^2/m^2", "Leaf Area Index LAI"),
                FieldToWrite(
                    name="FparLai_QC",
                    values=qc,
                    dims=("YDim", "XDim"),
                    typed={"valid_range": (0, 254), "_FillValue": 255},
                    attributes={
                        "long_name": "MCD15A2 QC for FPAR and LAI (8-day composite), synthetic",
                        "units": "class-flag",
                    },
                ),
            ],
        ),
        attributes={"synthetic": SYNTHETIC_NOTE},
    )


_CORNERS = ((-1, 0), (0, 0), (0, -1), (-1, -1))


def _leaf_field(
    name: str, values: npt.NDArray[np.uint8], scale: float, units: str, title: str
) -> FieldToWrite:
    return FieldToWrite(
        name=name,
        values=values,
        dims=("YDim", "XDim"),
        typed={"valid_range": (0, 100), "_FillValue": 255},
        attributes={
            "scale_factor": scale,
            "add_offset": 0.0,
            "long_name": f"MCD15A2 Gridded 1KM {title} (8-day composite), synthetic",
            "units": units,
        },
    )


def swath_granules() -> Iterator[GranuleToWrite]:
    """Yield the MYD04_L2-like swaths, two granules of each of two orbits on every day."""
    for day_number, day in enumerate(SWATH_DAYS):
        for (node_minute, node_longitude), minutes in zip(ORBITS, GRANULE_MINUTES, strict=True):
            for minute in minutes:
                # The ground track shifts from day to day.
                node = node_longitude - 1.5 * day_number
                start = day + timedelta(minutes=minute)
                yield _swath_granule(start, 60.0 * (minute - node_minute), node)


def _swath_granule(start: datetime, seconds: float, node_longitude: float) -> GranuleToWrite:
    times = seconds + (np.arange(_SCANS, dtype=np.float64) + 0.5) * SCAN_SECONDS
    pixels = np.arange(_CELLS, dtype=np.float64) * 10.0 + 4.5
    place = swath(times, pixels, node_longitude, np.zeros(_SCANS))
    lat, lon = place.lat, place.lon
    phase = 0.9 * start.timetuple().tm_yday
    depth = 0.28 + 0.2 * _waves(lat, lon, 6.0, phase) + 0.05 * _waves(lat, lon, 1.5, phase)
    cloudy = _waves(lat, lon, 5.0, phase + 1.0) + 0.4 * _waves(lat, lon, 1.2, phase) > 0.55
    stored = np.round(1000 * depth).astype(np.int16)
    flag = np.clip(np.round(2.2 - 2.0 * _waves(lat, lon, 3.0, phase)), 0, 3).astype(np.int16)
    bands = np.stack([np.round(stored * gain) for gain in (1.2, 1.0, 0.8)]).astype(np.int16)
    stored[cloudy], bands[:, cloudy], flag[cloudy] = -9999, -9999, 0
    produced = _PRODUCED + timedelta(hours=start.hour, minutes=start.minute)
    name = f"MYD04_L2.A{start:%Y%j}.{start:%H%M}.061.{produced:%Y%j%H%M%S}.hdf"
    return GranuleToWrite(
        local_name=name,
        product="MYD04_L2",
        collection=61,
        start=start,
        end=start + timedelta(minutes=5),
        produced=produced,
        day_night="Day",
        ring=[(lon[at], lat[at]) for at in _CORNERS],
        structure=SwathToWrite(
            name="mod04",
            geo_fields=[
                _geo_field("Longitude", lon, 180.0, "Degrees_east"),
                _geo_field("Latitude", lat, 90.0, "Degrees_north"),
            ],
            data_fields=[
                _swath_field(
                    "Sensor_Zenith",
                    np.round(100 * place.sensor_zenith).astype(np.int16),
                    (0, 18000),
                    0.01,
                    "Degrees",
                    "Sensor_Zenith Angle, Cell to Sensor",
                ),
                _swath_field(
                    "Land_Ocean_Quality_Flag",
                    flag,
                    (0, 3),
                    1.0,
                    "None",
                    "Quality Flag 0= bad 1 = Marginal 2= Good 3=Very Good",
                ),
                _swath_field(
                    "Optical_Depth_Land_And_Ocean",
                    stored,
                    (-100, 5000),
                    0.001,
                    "None",
                    "AOT at 0.55 micron",
                ),
                _swath_field(
                    "Corrected_Optical_Depth_Land",
                    bands,
                    (-100, 5000),
                    0.001,
                    "None",
                    "AOT at 0.47, 0.55, 0.66 micron",
                ),
            ],
        ),
        attributes={
            "synthetic": SYNTHETIC_NOTE,
            "Number_of_Instrument_Scans": _SCANS,
            "Slope_and_Offset_Usage": "value = scale_factor * (stored - add_offset)",
        },
    )


def _geo_field(name: str, degrees: Floats, bound: float, units: str) -> FieldToWrite:
    return FieldToWrite(
        name=name,
        values=degrees.astype(np.float32),
        dims=("Cell_Along_Swath", "Cell_Across_Swath"),
        typed={"valid_range": (-bound, bound), "_FillValue": -999.0},
        attributes={"long_name": f"Geodetic {name}", "units": units},
    )


def _swath_field(
    name: str,
    values: npt.NDArray[np.int16],
    valid_range: tuple[int, int],
    scale: float,
    units: str,
    title: str,
) -> FieldToWrite:
    dims: tuple[str, ...] = ("Cell_Along_Swath", "Cell_Across_Swath")
    if values.ndim == 3:
        dims = ("Solution_3_Land", *dims)
    return FieldToWrite(
        name=name,
        values=values,
        dims=dims,
        typed={"valid_range": valid_range, "_FillValue": -9999},
        attributes={
            "long_name": f"{title}, synthetic",
            "units": units,
            "scale_factor": scale,
            "add_offset": 0.0,
        },
    )


_PARTS: Mapping[str, Callable[[], Iterator[GranuleToWrite]]] = {
    "tiles": tile_granules,
    "swaths": swath_granules,
    "evapotranspiration": evapotranspiration_granules,
}
