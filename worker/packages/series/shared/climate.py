"""Compute what is usual in each month, or how far one month is from it.

`climate.py climatology INPUT_DIR OUTPUT_DIR`: the mean of each calendar month over all its years,
each year with the mean of its own days by their weights, in twelve bands. `climate.py anomaly ...`:
for the month that the parameter `month` names (2012-07), its mean less that of the same month in
the other years, and that in standard deviations of the other years (at least two). NaN where there
is no value.
"""

import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, Layer, empty_pixels, raster, read_group, refuse, weighted_mean

NAMES = "January February March April May June July August September October November December"
MONTHS = NAMES.split()


def monthly(layer: Layer, values: np.ndarray, month: int) -> dict[int, np.ndarray]:
    """Return the mean of a calendar month's days in each year that has one."""
    years = {day.year for day in layer.days if day.month == month}
    chosen = {
        year: np.array([(day.year, day.month) == (year, month) for day in layer.days])
        for year in sorted(years)
    }
    return {year: weighted_mean(values[days], layer.weights[days]) for year, days in chosen.items()}


def climatology(layer: Layer, values: np.ndarray) -> np.ndarray:
    """Return the mean of each calendar month over its years."""
    found = np.full((12, *values.shape[1:]), np.nan)
    for month in range(1, 13):
        of_years = [*monthly(layer, values, month).values()]
        if of_years:
            found[month - 1] = np.nanmean(np.stack(of_years), axis=0)
    return found


def anomaly(layer: Layer, values: np.ndarray, year: int, month: int) -> np.ndarray:
    """Return a month's anomaly, and in standard deviations of the other years."""
    of_years = monthly(layer, values, month)
    own = of_years.pop(year, None)
    if own is None or not of_years:
        return np.full((2, *values.shape[1:]), np.nan)
    others = np.stack([*of_years.values()])
    away = own - np.nanmean(others, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        in_deviations = away / np.nanstd(others, axis=0, ddof=1)
    in_deviations[~np.isfinite(in_deviations)] = np.nan
    return np.stack([away, in_deviations])


def asked_month(group: Group) -> tuple[int, int]:
    """Return year and month of the parameter `month`."""
    text = group.parameters.get("month", "")
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", text):
        refuse(f"month is {text!r}; it should be like 2012-07")
    return int(text[:4]), int(text[5:])


def main() -> None:
    """Write the bands of each layer."""
    what, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    group = read_group(source, target)
    year, month = asked_month(group) if what == "anomaly" else (0, 0)
    name = f"{year:04d}-{month:02d}"
    bands = [f"anomaly {name}", f"{name} in standard deviations"] if year else MONTHS
    for layer in group.layers:
        with raster(
            group, f"{layer.label}_{what}.tif", bands, "" if year else layer.units
        ) as write:
            for rows in group.blocks(4 * len(layer.days) + 24):
                values = layer.values(rows)
                with empty_pixels():
                    write(
                        anomaly(layer, values, year, month) if year else climatology(layer, values),
                        rows,
                    )


if __name__ == "__main__":
    main()
