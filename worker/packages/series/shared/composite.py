"""Put days together by periods: `composite.py PERIODS INPUT_DIR OUTPUT_DIR`.

For each layer a band per period of the group's window: 8-day periods that begin on January 1st of
each year, as MODIS composites do, or the seasons December to February, March to May, June to
August, September to November. A day belongs to the period in which it lies. NaN where a period has
no value.
"""

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from over_time import Compute, statistic
from series import Group, Layer, empty_pixels, raster, read_group

SEASONS = {12: "DJF", 3: "MAM", 6: "JJA", 9: "SON"}


def eight_days(day: dt.date) -> str:
    """Return the first day of a day's 8-day period."""
    number = (day - dt.date(day.year, 1, 1)).days // 8 * 8
    return (dt.date(day.year, 1, 1) + dt.timedelta(days=number)).isoformat()


def season(day: dt.date) -> str:
    """Return a day's season: the year of its January and its months."""
    first = day.month // 3 * 3 or 12
    return f"{day.year + (day.month == 12)} {SEASONS[first]}"


PERIODS = {"eight-day": eight_days, "season": season}


def periods(group: Group, name: str) -> Iterator[str]:
    """Yield the periods of the group's window, also those without a day of data."""
    day, last = group.first_day, group.last_day
    known = None
    while day <= last:
        found = PERIODS[name](day)
        if found != known:
            known = found
            yield found
        day += dt.timedelta(days=1)


def main() -> None:
    """Write a band per period for each layer."""
    name, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    group = read_group(source, target)
    called, compute = statistic(group, group.parameters.get("statistic", "mean"))
    wanted = [*periods(group, name)]
    for layer in group.layers:
        of = np.array([PERIODS[name](day) for day in layer.days])
        file = f"{layer.label}_composite.tif"
        units = "" if called == "count" else layer.units
        with raster(group, file, [f"{called} {period}" for period in wanted], units) as write:
            for rows in group.blocks(3 * len(layer.days) + len(wanted)):
                values = layer.values(rows)
                with empty_pixels():
                    write(
                        np.stack([_one(compute, layer, values, of == one) for one in wanted]), rows
                    )


def _one(compute: Compute, layer: Layer, values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    if not chosen.any():
        return np.full(values.shape[1:], np.nan)
    return compute(values[chosen], layer.weights[chosen])


if __name__ == "__main__":
    main()
