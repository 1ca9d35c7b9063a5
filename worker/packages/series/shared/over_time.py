"""Compute a statistic of each layer over the days of a group: `over_time.py NAME INPUT OUTPUT`.

NaN where no day has a value; a standard deviation takes two. A mean counts each day by its weight;
all others are those of all days alike.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, empty_pixels, raster, read_group, refuse, weighted_mean

Compute = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes values (days, rows, columns) and weights (days)."""


def standard_deviation(values: np.ndarray, _weights: np.ndarray) -> np.ndarray:
    """Return the sample standard deviation over the days (one degree of freedom less)."""
    return np.nanstd(values, axis=0, ddof=1)


def count(values: np.ndarray, _weights: np.ndarray) -> np.ndarray:
    """Return on how many days there is a value."""
    return np.isfinite(values).sum(axis=0)


STATISTICS: dict[str, Compute] = {
    "mean": weighted_mean,
    "median": lambda values, _: np.nanmedian(values, axis=0),
    "minimum": lambda values, _: np.nanmin(values, axis=0),
    "maximum": lambda values, _: np.nanmax(values, axis=0),
    "count": count,
    "standard-deviation": standard_deviation,
}


def statistic(group: Group, name: str) -> tuple[str, Compute]:
    """Return the statistic of this name, and what to call it in file names."""
    if name == "percentile":
        share = group.number("percentile", 90, 0, 100)
        return "percentile", lambda values, _: np.nanpercentile(values, share, axis=0)
    if name not in STATISTICS:
        refuse(f"there is no statistic {name!r}; there are: {', '.join(STATISTICS)}")
    return name.replace("-", "_"), STATISTICS[name]


def main() -> None:
    """Write one band for each layer."""
    name, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    group = read_group(source, target)
    called, compute = statistic(group, name)
    for layer in group.layers:
        units = "" if name == "count" else layer.units
        with raster(
            group, f"{layer.label}_{called}.tif", [f"{called} {group.window}"], units
        ) as write:
            for rows in group.blocks(3 * len(layer.days)):
                with empty_pixels():
                    write(compute(layer.values(rows), layer.weights)[np.newaxis], rows)


if __name__ == "__main__":
    main()
