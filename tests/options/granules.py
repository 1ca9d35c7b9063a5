"""Tiny granules for the crossing of options: tiles and overlapping swaths with holes and codes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reprojection.grid.orbit import SCAN_SECONDS, swath
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    SwathToWrite,
    write_granule,
)
from tests.reprojection.reading_samples import small_tile

TILES = ((17, 3), (18, 3))
TILE_DAYS = (datetime(2012, 3, 29, tzinfo=UTC), datetime(2012, 4, 6, tzinfo=UTC))
SWATH_DAYS = (datetime(2012, 3, 31, tzinfo=UTC), datetime(2012, 4, 1, tzinfo=UTC))
ORBITS = ((742.5, 22.5, 755), (841.3, -2.2, 854))
"""Equator crossing in minutes of the day and its longitude, and the granule's first minute."""

_SIDE = 60
_SCANS, _CELLS = 68, 45  # of 30 km
_PRODUCED = "2012153130500"


def write_granules(folder: Path) -> None:
    """Write the archive: 4 tiles of MCD15A2, 4 of a product of nobody's, 4 swaths of MYD04_L2."""
    for granule in (*_tiles(), *swaths()):
        write_granule(folder / granule.local_name, granule)


def _tiles() -> Iterator[GranuleToWrite]:
    row, col = np.indices((_SIDE, _SIDE))
    for number, day in enumerate(TILE_DAYS):
        for h, v in TILES:
            lai = ((row + col + 7 * number) % 71).astype(np.uint8)
            lai[(row // 6 + col // 6) % 5 == 0] = 254
            lai[(row // 5 + col // 7) % 9 == 3] = 250
            qc = np.where((row // 4) % 3 == 0, 1, 0).astype(np.uint8)
            missing = (row // 6 + 2 * (col // 6)) % 7 == number
            lai[missing] = qc[missing] = 255
            depth = (row * 100 - col * 30).astype(np.int16)
            depth[missing] = -32768
            yield from (
                replace(made, start=day, end=day + timedelta(days=8, seconds=-1))
                for made in (
                    small_tile((h, v), date=f"{day:%Y%j}", fields=_leaf_fields(lai, qc)),
                    small_tile(
                        (h, v),
                        product="OWNA1",
                        collection=1,
                        date=f"{day:%Y%j}",
                        fields=_own_fields(depth, qc),
                    ),
                )
            )


def _leaf_fields(lai: npt.NDArray[np.uint8], qc: npt.NDArray[np.uint8]) -> list[FieldToWrite]:
    return [
        FieldToWrite(
            name="Lai_1km",
            values=lai,
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, 100), "_FillValue": 255},
            attributes={"scale_factor": 0.1, "add_offset": 0.0, "units": "m^2/m^2"},
        ),
        FieldToWrite(
            name="FparLai_QC",
            values=qc,
            dims=("YDim", "XDim"),
            typed={"valid_range": (0, 254), "_FillValue": 255},
            attributes={"units": "class-flag"},
        ),
    ]


def _own_fields(depth: npt.NDArray[np.int16], qc: npt.NDArray[np.uint8]) -> list[FieldToWrite]:
    return [
        FieldToWrite(
            name="Depth",
            values=depth,
            dims=("YDim", "XDim"),
            typed={"_FillValue": -32768},
            attributes={"scale_factor": 0.01, "add_offset": 0.0, "units": "m"},
        ),
        FieldToWrite(
            name="Depth_Quality",
            values=qc,
            dims=("YDim", "XDim"),
            typed={"_FillValue": 255},
        ),
    ]


def swaths() -> Iterator[GranuleToWrite]:
    """The swath granules."""
    for number, day in enumerate(SWATH_DAYS):
        for crossing, node, minute in ORBITS:
            yield _swath(day + timedelta(minutes=minute), 60.0 * (minute - crossing), node + number)


def _swath(start: datetime, seconds: float, node: float) -> GranuleToWrite:
    times = seconds + (np.arange(_SCANS, dtype=np.float64) * 3 + 1.5) * SCAN_SECONDS
    place = swath(times, np.arange(_CELLS, dtype=np.float64) * 30.0 + 14.5, node, np.zeros(_SCANS))
    places = np.indices(place.lat.shape)
    row, col = places[0], places[1]
    depth: npt.NDArray[np.int16] = (100 + 5 * row + 3 * col).astype(np.int16)
    cloudy = (row // 5 + col // 4 + start.minute) % 3 == 0
    depth[cloudy] = -9999
    flag: npt.NDArray[np.int16] = ((row // 3 + col // 5) % 4).astype(np.int16)
    begun = (start - datetime(1993, 1, 1, tzinfo=UTC)).total_seconds()
    seen = np.broadcast_to((begun + 3 * SCAN_SECONDS * np.arange(_SCANS))[:, None], row.shape)
    name = f"MYD04_L2.A{start:%Y%j}.{start:%H%M}.061.{_PRODUCED}.hdf"
    return GranuleToWrite(
        local_name=name,
        product="MYD04_L2",
        collection=61,
        start=start,
        end=start + timedelta(minutes=5),
        produced=datetime(2012, 6, 1, 13, 5, tzinfo=UTC),
        day_night="Day",
        ring=[(place.lon[at], place.lat[at]) for at in ((-1, 0), (0, 0), (0, -1), (-1, -1))],
        structure=SwathToWrite(
            name="mod04",
            geo_fields=[
                _field("Longitude", place.lon.astype(np.float32), (-180.0, 180.0), -999.0),
                _field("Latitude", place.lat.astype(np.float32), (-90.0, 90.0), -999.0),
            ],
            data_fields=[
                _field("Scan_Start_Time", seen.copy(), (0.0, 3.2e9), -9999.0),
                _scaled("Sensor_Zenith", np.rint(100 * place.sensor_zenith), (0, 18000), 0.01),
                _scaled("Land_Ocean_Quality_Flag", flag, (0, 3), 1.0),
                _scaled("Optical_Depth_Land_And_Ocean", depth, (-100, 5000), 0.001),
                _scaled(
                    "Corrected_Optical_Depth_Land",
                    np.stack([depth, np.where(cloudy, -9999, depth + 50), depth]),
                    (-100, 5000),
                    0.001,
                ),
            ],
        ),
        attributes={"Slope_and_Offset_Usage": "value = scale_factor * (stored - add_offset)"},
    )


def _field(
    name: str, values: npt.NDArray[np.generic], valid: tuple[float, float], fill: float
) -> FieldToWrite:
    return FieldToWrite(
        name=name,
        values=values,
        dims=("Cell_Along_Swath", "Cell_Across_Swath"),
        typed={"valid_range": valid, "_FillValue": fill},
    )


def _scaled(
    name: str, values: npt.NDArray[np.generic], valid: tuple[int, int], scale: float
) -> FieldToWrite:
    dims = ("Cell_Along_Swath", "Cell_Across_Swath")
    return FieldToWrite(
        name=name,
        values=values.astype(np.int16),
        dims=("Solution_3_Land", *dims) if values.ndim == 3 else dims,
        typed={"valid_range": valid, "_FillValue": -9999},
        attributes={"units": "None", "scale_factor": scale, "add_offset": 0.0},
    )
