"""Fit a line to each pixel's series: `trend.py INPUT_DIR OUTPUT_DIR`.

Ordinary least squares against time in years of 365.25 days. Bands: change per year, the two-sided p
of the hypothesis that there is none (Student's t with n - 2 degrees of freedom, as
scipy.stats.linregress), its standard error, and n. NaN below `least` values (3 at least) or where
all values lie on one day. The test takes the days' errors as independent; days that are alike make
p too small.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import raster, read_group
from student import two_sided

BANDS = ["change per year", "p", "standard error of the change per year", "values"]


def fit(values: np.ndarray, years: np.ndarray, least: float) -> np.ndarray:
    """Return slope, p, standard error and number of values at each pixel."""
    valid = np.isfinite(values)
    number = valid.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        time = np.where(valid, years[:, np.newaxis, np.newaxis], 0.0)
        known = np.where(valid, values, 0.0)
        time_off = np.where(valid, time - time.sum(axis=0) / number, 0.0)
        known_off = np.where(valid, known - known.sum(axis=0) / number, 0.0)
        spread = (time_off**2).sum(axis=0)
        slope = (time_off * known_off).sum(axis=0) / spread
        rest = ((known_off - slope * time_off) ** 2).sum(axis=0)
        error = np.sqrt(np.maximum(rest, 0.0) / (number - 2) / spread)
        p = two_sided(slope / error, number - 2)
    found = np.stack([slope, p, error, number])
    found[:3, (number < least) | (spread == 0)] = np.nan
    return found


def main() -> None:
    """Write four bands for each layer."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    least = group.number("least", 3, 3, 1e6)
    for layer in group.layers:
        first = min(layer.days)
        years = np.array([(day - first).days / 365.25 for day in layer.days])
        with raster(group, f"{layer.label}_trend.tif", BANDS) as write:
            for rows in group.blocks(6 * len(layer.days)):
                write(fit(layer.values(rows), years, least), rows)


if __name__ == "__main__":
    main()
