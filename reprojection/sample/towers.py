"""Make the towers of the worked example: latent heat of half hours, made up.

There are three in April 2012, in tables as those of FLUXNET. Their
temperature and leaves are those of the granules, their latent heat follows from both by a simple
rule of its own, with a noise that is the same each time. Nothing was measured.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from reprojection.sample.evapotranspiration import DAYS, weather

FOLDER = "towers"
_NOTE = "# SYNTHETIC: made up by Swathmill's sample generator. Nothing was measured."
_HALF_HOUR = timedelta(minutes=30)
_MISSING = -9999
_WATTS = 2.45e6 / 86400  # of latent heat for each mm of a day


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A tower: its id, its place in degrees, what covers the ground, and its bias in mm a day."""

    name: str
    lat: float
    lon: float
    cover: str
    bias: float


TOWERS = (
    Tower(name="XX-Bir", lat=53.554, lon=9.80, cover="forest", bias=0.15),
    Tower(name="XX-Fel", lat=52.354, lon=10.20, cover="crops", bias=-0.10),
    Tower(name="XX-Lin", lat=52.904, lon=9.35, cover="crops", bias=0.05),
)
_GAP = ("XX-Fel", 9, 12)  # no measurement from the 9th to the 12th day


def tower_files() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each tower's table; times are local standard time."""
    for number, tower in enumerate(TOWERS):
        lines = [_NOTE, "TIMESTAMP_START,TIMESTAMP_END,LE_F_MDS,TA_F"]
        for count, day in enumerate(DAYS):
            lines += _day(tower, number, count, day.replace(tzinfo=None))
        name = f"FLX_{tower.name}_SYNTHETIC_FULLSET_HH_2012-2012_1-0.csv"
        yield name, "\n".join(lines) + "\n"


def _day(tower: Tower, number: int, count: int, day: datetime) -> Iterator[str]:
    """Yield the half hours of a day."""
    mean, swing, leaves = weather(day, tower.lat, tower.lon, forest=tower.cover == "forest")
    random = np.random.default_rng((number, count))
    covered = 1.0 - 0.7 * math.exp(-0.5 * leaves)
    daily = covered * (0.83 + 0.0975 * (mean - 273.16)) * math.sqrt(swing / 3.0) + tower.bias
    daily = max(daily + 0.2 * random.standard_normal(), 0.0)
    hours = (np.arange(48) + 0.5) / 2
    sun = np.clip(np.sin(np.pi * (hours - 6.0) / 12.0), 0.0, None) ** 1.5
    heat = daily * _WATTS * sun / sun.mean()
    air = mean - 273.16 + swing * np.sin(np.pi * (hours - 9.0) / 12.0)
    lost = random.random(48) < 0.03
    lost |= _GAP[0] == tower.name and _GAP[1] <= day.day <= _GAP[2]
    for n in range(48):
        start = day + n * _HALF_HOUR
        end = start + _HALF_HOUR
        said = f"{_MISSING}" if lost[n] else f"{heat[n]:.2f}"
        yield f"{start:%Y%m%d%H%M},{end:%Y%m%d%H%M},{said},{air[n]:.2f}"
