"""The archives of the cases: real granules where there are some, else synthetic ones."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.end_to_end import make_granule
from reprojection.grid.orbit import SCAN_SECONDS, swath
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    SwathToWrite,
    write_granule,
)
from reprojection.sample.sample import tile_granules

WARM_UP = datetime(2011, 6, 2, tzinfo=UTC)
"""The date of the granules with which a stack warms up; requests and scripts want those of 2012."""

_FIRST = datetime(2012, 1, 1, tzinfo=UTC)
_REFLECTANCE_TILES = ("h11v08", "h12v08", "h11v09", "h12v09")
_FILL = -9999
# Of each orbit: the minute of the day at which it crosses the equator, and where.
_ORBITS = ((620.0, 46.0), (718.8, 21.3), (817.6, -3.4))


def leaf_area(folder: Path, real: Path | None) -> None:
    """Make 16 dates of two 1 km tiles, linked from the folder `real` if it has them."""
    days = [_FIRST + timedelta(days=8 * n) for n in range(16)]
    found = sorted(real.rglob("MCD15A2.A2012*.h1[78]v03.005.*.hdf")) if real else []
    for path in found:
        (folder / path.name).symlink_to(path.resolve())
    _in_folder(folder, partial(_write_tiles, (WARM_UP,) if found else (WARM_UP, *days)))


def reflectance(folder: Path, _real: Path | None) -> None:
    """Make 8 dates of four 500 m tiles with seven layers."""
    days = [WARM_UP, *(_FIRST + timedelta(days=8 * n) for n in range(8))]
    wanted = [(day, tile) for day in days for tile in _REFLECTANCE_TILES]
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        pool.starmap(partial(make_granule, folder), wanted, chunksize=1)


def swaths(folder: Path, _real: Path | None) -> None:
    """Make 48 granules of 5 km: two of each of three orbits on eight days."""
    days = [WARM_UP, *(_FIRST + timedelta(days=n) for n in range(8))]
    _in_folder(folder, partial(_write_swaths, days))


def _in_folder(folder: Path, act: partial[None]) -> None:
    """Call in another process that works in the folder: HDF4 stores the path it is given."""
    with get_context("spawn").Pool(1, initializer=os.chdir, initargs=(folder,)) as pool:
        pool.apply(act)


def _write_tiles(days: Sequence[datetime]) -> None:
    for granule in tile_granules(days):
        write_granule(Path(granule.local_name), granule)


def _write_swaths(days: Sequence[datetime]) -> None:
    for number, day in enumerate(days):
        for minute, node in _ORBITS:
            for part in range(2):
                granule = _swath(day + timedelta(minutes=minute), part, node - 1.1 * number)
                write_granule(Path(granule.local_name), granule)


def _swath(crossing: datetime, part: int, node: float) -> GranuleToWrite:
    """Make five minutes of an orbit from its crossing of the equator on, as MYD07_L2 has them."""
    times = 300.0 * part + (np.arange(406, dtype=np.float64) + 0.5) * SCAN_SECONDS / 2
    place = swath(times, np.arange(270.0) * 5 + 2, node, np.zeros(406))
    ozone = 300 + 60 * np.sin(np.radians(4 * place.lat)) * np.cos(np.radians(3 * place.lon))
    stored = np.round(10 * ozone + 3 * node).astype(np.int16)
    stored[np.sin(place.lat) * np.cos(place.lon) > 0.8] = _FILL
    dims = ("Cell_Along_Swath", "Cell_Across_Swath")
    # Granules begin at full five minutes; where they lie is the orbit's.
    start = crossing.replace(minute=5 * (crossing.minute // 5), second=0, microsecond=0)
    start += timedelta(minutes=5 * part)
    produced = datetime(2012, 6, 1, start.hour, start.minute, tzinfo=UTC)
    name = f"MYD07_L2.A{start:%Y%j.%H%M}.061.{produced:%Y%j%H%M%S}.hdf"
    zenith = np.round(100 * place.sensor_zenith).astype(np.int16)
    return GranuleToWrite(
        local_name=name,
        product="MYD07_L2",
        collection=61,
        start=start,
        end=start + timedelta(minutes=5),
        produced=produced,
        day_night="Day",
        ring=[
            (float(place.lon[row, column]), float(place.lat[row, column]))
            for row, column in ((-1, 0), (0, 0), (0, -1), (-1, -1))
        ],
        structure=SwathToWrite(
            name="mod07",
            geo_fields=[
                FieldToWrite(
                    name=field,
                    values=degrees.astype(np.float32),
                    dims=dims,
                    typed={"valid_range": (-bound, bound), "_FillValue": -999.99},
                )
                for field, degrees, bound in (
                    ("Longitude", place.lon, 180.0),
                    ("Latitude", place.lat, 90.0),
                )
            ],
            data_fields=[
                FieldToWrite(
                    name=field,
                    values=values,
                    dims=dims,
                    typed={"valid_range": valid, "_FillValue": _FILL},
                    attributes={"scale_factor": scale, "add_offset": 0.0, "units": units},
                )
                for field, values, valid, scale, units in (
                    ("Total_Ozone", stored, (0, 5000), 0.1, "Dobson"),
                    ("Sensor_Zenith", zenith, (0, 18000), 0.01, "Degrees"),
                )
            ],
        ),
    )
