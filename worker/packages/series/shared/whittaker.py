"""Fill gaps and smooth each pixel's series: `whittaker.py INPUT_DIR OUTPUT_DIR`.

The smoother of Whittaker in the form of Eilers (2003), Analytical Chemistry 75, 3631-3636: of all
series at every `step` days of the group's window it is the one with the least sum of squared
distances to the values, and of squared second differences times `smoothness`. A value belongs to
the step at or before it; several in a step count with their mean. Bands: every step. NaN before the
first and after the last value, and where only one step has a value.
"""

import datetime as dt
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, empty_pixels, raster, read_group, refuse


def at_steps(values: np.ndarray, days: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the values at the steps, NaN where there is none; the first axis is time in both.

    A date before the window, as of a composite that reaches into it, counts in the first step.
    """
    of = np.maximum(np.searchsorted(steps, days, "right") - 1, 0)
    found = np.full((len(steps), *values.shape[1:]), np.nan)
    for step in np.unique(of):
        with empty_pixels():
            found[step] = np.nanmean(values[of == step], axis=0)
    return found


def smoothed(values: np.ndarray, smoothness: float) -> np.ndarray:
    """Return the smoothed series of values at equal steps, NaN outside each one's values."""
    valid = np.isfinite(values)
    enough = valid.sum(axis=0) > 1
    weights = np.where(enough, valid, 1.0)
    found = _solved(weights, np.where(valid, values, 0.0), smoothness)
    after_first = np.maximum.accumulate(valid, axis=0)
    before_last = np.maximum.accumulate(valid[::-1], axis=0)[::-1]
    return np.where(enough & after_first & before_last, found, np.nan)


def _solved(weights: np.ndarray, values: np.ndarray, smoothness: float) -> np.ndarray:
    """Solve (W + smoothness D'D) z = W y, with five diagonals, by L D L' for all pixels at once."""
    steps = len(values)
    second = np.diff(np.eye(steps), 2, axis=0)
    penalty = smoothness * second.T @ second
    d, z = np.empty_like(weights), np.empty_like(weights)
    one, two = np.zeros_like(weights), np.zeros_like(weights)  # L's diagonals below the main one
    for i in range(steps):
        d[i], z[i] = weights[i] + penalty[i, i], weights[i] * values[i]
        if i > 1:
            two[i] = penalty[i, i - 2] / d[i - 2]
            d[i] -= two[i] ** 2 * d[i - 2]
            z[i] -= two[i] * z[i - 2]
        if i > 0:
            above = two[i] * d[i - 2] * one[i - 1] if i > 1 else 0.0
            one[i] = (penalty[i, i - 1] - above) / d[i - 1]
            d[i] -= one[i] ** 2 * d[i - 1]
            z[i] -= one[i] * z[i - 1]
    z /= d
    for i in reversed(range(steps - 1)):
        z[i] -= one[i + 1] * z[i + 1]
        if i < steps - 2:
            z[i] -= two[i + 2] * z[i + 2]
    return z


def asked_steps(group: Group) -> tuple[np.ndarray, float]:
    """Return the steps in days after the window's first, and the smoothness, of the parameters."""
    step = int(group.number("step", 8, 1, 366))
    steps = np.arange(0, (group.last_day - group.first_day).days + 1, step)
    if len(steps) < 3:
        refuse(f"the window has {len(steps)} steps of {step} days; three are needed")
    return steps, group.number("smoothness", 10, 1e-6, 1e9)


def main() -> None:
    """Write a band per step for each layer."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    steps, smoothness = asked_steps(group)
    begin = group.first_day
    names = [(begin + dt.timedelta(days=int(after))).isoformat() for after in steps]
    for layer in group.layers:
        days = np.array([(day - begin).days for day in layer.days])
        with raster(group, f"{layer.label}_smooth.tif", names, layer.units) as write:
            for rows in group.blocks(len(layer.days) + 8 * len(steps)):
                write(smoothed(at_steps(layer.values(rows), days, steps), smoothness), rows)


if __name__ == "__main__":
    main()
