"""Make the granules of the worked example: what evapotranspiration per day is computed from.

They are of the tile h18v03 in April 2012: land surface temperature of each day but one, albedo of
each eighth day, leaf area of 8 days, and land cover of the year. What has pixels of 500 m is equal
in blocks of 1 km. Values are smooth functions of position and day, the same each time.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_SIZE, Tile
from reprojection.sample.hdfeos_write import FieldToWrite, GranuleToWrite, GridToWrite

TILE = Tile(18, 3)
DAYS = tuple(datetime(2012, 4, 1, tzinfo=UTC) + timedelta(days=n) for n in range(30))
WITHOUT = datetime(2012, 4, 17, tzinfo=UTC)
"""The day that has no temperature."""
EIGHTH_DAYS = tuple(datetime(2012, 3, 29, tzinfo=UTC) + timedelta(days=8 * n) for n in range(5))
YEAR = datetime(2012, 1, 1, tzinfo=UTC)

_SIDE = 1200
_PRODUCED = datetime(2012, 6, 1, 12, 0, 0, tzinfo=UTC)
_NOTE = (
    "SYNTHETIC: written by Swathmill's sample generator. The values are made up; this is not NASA "
    "data and must not be used as such."
)
_WATER, _URBAN, _CROPS, _FOREST = 17, 13, 12, 4  # classes of the IGBP

Floats = npt.NDArray[np.float64]


def evapotranspiration_granules(days: Sequence[datetime] = DAYS) -> Iterator[GranuleToWrite]:
    """Yield the granules; `days` are those of the temperature."""
    lat, lon = _places()
    cover = _cover(lat, lon)
    for day in days:
        if day != WITHOUT:
            yield _temperature(day, lat, lon)
    for day in EIGHTH_DAYS:
        yield _albedo(day, lat, lon, cover)
        yield _leaf_area(day, lat, lon, cover)
    values = FieldToWrite(
        name="LC_Type1",
        values=_halved(cover),
        dims=("YDim", "XDim"),
        typed={"valid_range": (1, 17), "_FillValue": 255},
        attributes={"long_name": "Land Cover Type 1: IGBP, synthetic"},
    )
    yield _granule("MCD12Q1", YEAR, 366, "MCD12Q1", [values])


def _places() -> tuple[Floats, Floats]:
    """Return the latitude and longitude of the pixels of 1 km, in degrees."""
    steps = (np.arange(_SIDE) + 0.5) * TILE_SIZE / _SIDE
    y = (TILE.top - steps)[:, None] / SPHERE_RADIUS
    lat = np.repeat(np.degrees(y), _SIDE, axis=1)
    return lat, np.degrees((TILE.left + steps)[None, :] / SPHERE_RADIUS / np.cos(y))


def _wave(lat: Floats, lon: Floats, scale: float, phase: float) -> Floats:
    """Compute a smooth field in [-1, 1] whose features are about `scale` degrees wide."""
    north, east = lat * np.pi / scale, lon * np.pi / (1.6 * scale)
    return np.asarray(0.5 * np.sin(north + phase) + 0.5 * np.sin(east + 0.8 * np.sin(north)))


def _cover(lat: Floats, lon: Floats) -> npt.NDArray[np.uint8]:
    cover = np.where(_wave(lat, lon, 0.7, 1.0) > 0.2, _FOREST, _CROPS).astype(np.uint8)
    cover[_wave(lat, lon, 0.4, 2.0) > 0.85] = _URBAN
    cover[_wave(lat, lon, 3.0, 0.3) > 0.6] = _WATER
    return cover


def weather(day: datetime, lat: float, lon: float, *, forest: bool) -> tuple[float, float, float]:
    """Return mean temperature and half the daily range in kelvin, and leaf area, at a place."""
    at = np.array([[lat]]), np.array([[lon]])
    mean, swing = _warmth(day.timetuple().tm_yday, *at)
    leaves = _leaves((day - EIGHTH_DAYS[0].replace(tzinfo=day.tzinfo)).days, *at)
    return mean.item(), swing.item(), leaves.item() + forest


def _warmth(number: int, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
    mean = 281.0 + 0.12 * (number - 92) - 0.5 * (lat - 53.0) + 2.0 * _wave(lat, lon, 2.0, number)
    return mean, 6.0 + 2.5 * _wave(lat, lon, 1.0, 0.5 * number)


def _leaves(days: int, lat: Floats, lon: Floats) -> Floats:
    """Return the leaf area of crops, so many days after the first granule."""
    return np.asarray(1.2 + 1.5 * (days / 32.0) + 0.8 * _wave(lat, lon, 0.8, 0.6))


def _temperature(day: datetime, lat: Floats, lon: Floats) -> GranuleToWrite:
    number = day.timetuple().tm_yday
    mean, swing = _warmth(number, lat, lon)
    cloudy = _wave(lat, lon, 1.6, 0.9 * number) > 0.55
    fields = []
    for word, kelvin in (("Day", mean + swing), ("Night", mean - swing)):
        stored = np.round(kelvin / 0.02).astype(np.uint16)
        stored[cloudy] = 0
        fields.append(
            FieldToWrite(
                name=f"LST_{word}_1km",
                values=stored,
                dims=("YDim", "XDim"),
                typed={"valid_range": (7500, 65535), "_FillValue": 0},
                attributes={
                    "long_name": f"{word}time 1km grid Land-surface Temperature, synthetic",
                    "units": "K",
                    "scale_factor": 0.02,
                    "add_offset": 0.0,
                },
            )
        )
    return _granule("MOD11A1", day, 1, "MODIS_Grid_Daily_1km_LST", fields)


def _albedo(
    day: datetime, lat: Floats, lon: Floats, cover: npt.NDArray[np.uint8]
) -> GranuleToWrite:
    number = day.timetuple().tm_yday
    share = 0.17 + 0.03 * _wave(lat, lon, 0.9, 0.05 * number) - 0.04 * (cover == _FOREST)
    stored = np.round(1000 * share).astype(np.int16)
    stored[cover == _WATER] = 32767
    field = FieldToWrite(
        name="Albedo_WSA_shortwave",
        values=_halved(stored),
        dims=("YDim", "XDim"),
        typed={"valid_range": (0, 32766), "_FillValue": 32767},
        attributes={
            "long_name": "Albedo_WSA_shortwave, synthetic",
            "units": "albedo, no units",
            "scale_factor": 0.001,
            "add_offset": 0.0,
        },
    )
    return _granule("MCD43A3", day, 1, "MOD_Grid_BRDF", [field])


def _leaf_area(
    day: datetime, lat: Floats, lon: Floats, cover: npt.NDArray[np.uint8]
) -> GranuleToWrite:
    leaves = _leaves((day - EIGHTH_DAYS[0]).days, lat, lon) + 1.0 * (cover == _FOREST)
    stored = np.round(10 * np.clip(leaves, 0.1, 7.0)).astype(np.uint8)
    stored[cover == _WATER] = 254
    stored[cover == _URBAN] = 250
    field = FieldToWrite(
        name="Lai_500m",
        values=_halved(stored),
        dims=("YDim", "XDim"),
        typed={"valid_range": (0, 100), "_FillValue": 255},
        attributes={
            "long_name": "MCD15A2H MODIS/Terra+Aqua Gridded 500M Leaf Area Index LAI, synthetic",
            "units": "m^2/m^2",
            "scale_factor": 0.1,
            "add_offset": 0.0,
        },
    )
    return _granule("MCD15A2H", day, 8, "MOD_Grid_MOD15A2H", [field])


def _halved(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Divide each pixel of 1 km into four of 500 m."""
    return np.repeat(np.repeat(values, 2, axis=0), 2, axis=1)


def _granule(
    product: str, day: datetime, days: int, grid: str, fields: list[FieldToWrite]
) -> GranuleToWrite:
    produced = _PRODUCED + timedelta(minutes=day.timetuple().tm_yday)
    sides = TILE.sides(np.array([TILE.north, TILE.south]))
    (north_west, south_west), (north_east, south_east) = (map(float, side) for side in sides)
    return GranuleToWrite(
        local_name=f"{product}.A{day:%Y%j}.{TILE.name}.061.{produced:%Y%j%H%M%S}.hdf",
        product=product,
        collection=61,
        start=day,
        end=day + timedelta(days=days) - timedelta(seconds=1),
        produced=produced,
        day_night="Day",
        ring=[
            (south_west, TILE.south),
            (north_west, TILE.north),
            (north_east, TILE.north),
            (south_east, TILE.south),
        ],
        structure=GridToWrite(
            name=grid,
            upper_left=(TILE.left, TILE.top),
            lower_right=(TILE.left + TILE_SIZE, TILE.top - TILE_SIZE),
            fields=fields,
        ),
        attributes={"synthetic": _NOTE},
    )
