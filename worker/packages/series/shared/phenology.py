"""Find the growing season in each pixel's series: `phenology.py INPUT_DIR OUTPUT_DIR`.

The series is smoothed as by `whittaker.py`. Its greatest value is the peak; the least ones before
and after the peak are the two bases. The season starts where the series last rises through `share`
of the way from the base to the peak, and ends where it first falls through that of its other side,
as in TIMESAT (Jonsson and Eklundh 2004, Computers and Geosciences 30, 833-845); between steps the
series is a line. Bands: start, peak and end as days of the window, 1 for its first day (in a year:
days of the year), length in days, and amplitude, the peak less the mean of the bases. NaN where
there is no rise, no fall, or less amplitude than `least`.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import raster, read_group
from whittaker import asked_steps, at_steps, smoothed

BANDS = ["start of season", "peak of season", "end of season", "length in days", "amplitude"]


def seasons(curve: np.ndarray, steps: np.ndarray, share: float, least: float) -> np.ndarray:
    """Return start, peak, end, length and amplitude of the season of each pixel's curve."""
    there = np.isfinite(curve)
    number = np.arange(len(steps)).reshape(-1, *[1] * (curve.ndim - 1))
    peak = np.where(there, curve, -np.inf).argmax(axis=0)
    height = np.take_along_axis(curve, peak[np.newaxis], axis=0)[0]
    before, after = there & (number <= peak), there & (number >= peak)
    left = np.where(before, curve, np.inf).min(axis=0)
    right = np.where(after, curve, np.inf).min(axis=0)
    start = _crossing(curve, steps, left + share * (height - left), before, rising=True)
    end = _crossing(curve, steps, right + share * (height - right), after, rising=False)
    amplitude = height - (left + right) / 2
    found = np.stack([start, steps[peak].astype(float), end, end - start, amplitude])
    found[:3] += 1
    none = ~np.isfinite(found).all(axis=0) | (amplitude < least) | (amplitude <= 0)
    found[:, none] = np.nan
    return found


def _crossing(
    curve: np.ndarray, steps: np.ndarray, level: np.ndarray, side: np.ndarray, *, rising: bool
) -> np.ndarray:
    """Return the day of the last rise, or of the first fall, through a level on a side."""
    low, high = curve[:-1], curve[1:]
    inside = side[:-1] & side[1:]
    if rising:
        passes = inside & (low < level) & (high >= level)
        at = len(passes) - 1 - passes[::-1].argmax(axis=0)
    else:
        passes = inside & (low >= level) & (high < level)
        at = passes.argmax(axis=0)
    one = np.take_along_axis(low, at[np.newaxis], axis=0)[0]
    two = np.take_along_axis(high, at[np.newaxis], axis=0)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        day = steps[at] + (level - one) / (two - one) * (steps[at + 1] - steps[at])
    return np.where(passes.any(axis=0), day, np.nan)


def main() -> None:
    """Write five bands for each layer."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    steps, smoothness = asked_steps(group)
    share = group.number("share", 0.5, 0.01, 0.99)
    least = group.number("least", 0, 0, 1e30)
    for layer in group.layers:
        days = np.array([(day - group.first_day).days for day in layer.days])
        with raster(group, f"{layer.label}_phenology.tif", BANDS) as write:
            for rows in group.blocks(len(layer.days) + 14 * len(steps)):
                curve = smoothed(at_steps(layer.values(rows), days, steps), smoothness)
                write(seasons(curve, steps, share, least), rows)


if __name__ == "__main__":
    main()
