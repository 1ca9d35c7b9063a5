"""Fill gaps and smooth each pixel's series: `smooth.py INPUT_DIR OUTPUT_DIR`.

The values are interpolated linearly to every `step` days of the group's window, between the first
and the last value of the pixel, and smoothed by a filter of Savitzky and Golay (1964), Analytical
Chemistry 36, 1627-1639, as scipy.signal.savgol_filter does: `length` steps, an odd number, and
polynomials of `order`; the first and last half lengths are on the polynomial of the first and last
`length` steps. Bands: every step. NaN before the first and after the last value, and where
there are fewer steps than `length` between them.
"""

import datetime as dt
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import raster, read_group, refuse


def smoothed(
    values: np.ndarray, days: np.ndarray, steps: np.ndarray, length: int, order: int
) -> np.ndarray:
    """Return the smoothed values at the steps; the first axis is time in both."""
    filled = interpolated(values, days, steps)
    found = np.full(filled.shape, np.nan)
    there = np.isfinite(filled)
    first, number = there.argmax(axis=0), there.sum(axis=0)
    # Pixels whose values begin and end alike are filtered together.
    for begin, many in np.unique(np.stack([first, number])[:, number >= length], axis=1).T:
        alike = (first == begin) & (number == many)
        part = filled[begin : begin + many, alike]
        found[begin : begin + many, alike] = filtered(part, length, order)
    return found


def filtered(values: np.ndarray, length: int, order: int) -> np.ndarray:
    """Return values smoothed along the first axis by polynomials fitted to `length` of them."""
    half = length // 2
    place = np.arange(-half, half + 1) / half
    basis, _ = np.linalg.qr(np.vander(place, order + 1))
    fitted = basis @ basis.T  # from the values of a window to its polynomial's
    found = np.zeros_like(values)
    inner = found[half : len(values) - half]
    for first, share in enumerate(fitted[half]):
        inner += share * values[first : first + len(inner)]
    found[:half] = fitted[:half] @ values[:length]
    found[len(values) - half :] = fitted[half + 1 :] @ values[-length:]
    return found


def interpolated(values: np.ndarray, days: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the values at the steps by linear interpolation; NaN outside each pixel's values."""
    number = np.arange(len(days)).reshape(-1, *[1] * (values.ndim - 1))
    valid = np.isfinite(values)
    before = np.maximum.accumulate(np.where(valid, number, -1), axis=0)
    after = np.minimum.accumulate(np.where(valid, number, len(days))[::-1], axis=0)[::-1]
    found = np.full((len(steps), *values.shape[1:]), np.nan)
    for at, step in enumerate(steps):
        left, right = np.searchsorted(days, step, "right") - 1, np.searchsorted(days, step)
        if left < 0 or right >= len(days):
            continue
        one, two = before[left], after[right]
        inside = (one >= 0) & (two < len(days))
        one, two = np.where(inside, one, 0), np.where(inside, two, 0)
        low = np.take_along_axis(values, one[np.newaxis], axis=0)[0]
        high = np.take_along_axis(values, two[np.newaxis], axis=0)[0]
        share = (step - days[one]) / np.maximum(days[two] - days[one], 1)
        found[at] = np.where(inside, low + (high - low) * share, np.nan)
    return found


def main() -> None:
    """Write a band per step for each layer."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    step = int(group.number("step", 8, 1, 366))
    length = int(group.number("length", 5, 3, 99))
    order = int(group.number("order", 2, 0, 6))
    if length % 2 == 0 or order >= length:
        refuse(f"length is {length}, order {order}: length is odd, order less than it")
    begin = group.first_day
    steps = np.arange(0, (group.last_day - begin).days + 1, step)
    names = [(begin + dt.timedelta(days=int(after))).isoformat() for after in steps]
    for layer in group.layers:
        days = np.array([(day - begin).days for day in layer.days])
        with raster(group, f"{layer.label}_smooth.tif", names, layer.units) as write:
            for rows in group.blocks(2 * (len(layer.days) + len(steps))):
                write(smoothed(layer.values(rows), days, steps, length, order), rows)


if __name__ == "__main__":
    main()
