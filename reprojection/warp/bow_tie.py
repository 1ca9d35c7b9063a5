"""What VIIRS deletes of its scans on board: pixels that have a place, and never a value.

Scans overlap away from nadir (the bow-tie). Where samples are not aggregated, the instrument drops
the first and the last two of 16 lines (four of 32 in the I bands); where two are aggregated, the
first and the last one (two). What is left reaches from scan to scan: the ground of a deleted pixel
is seen in the neighbouring scan (VIIRS Level 1B Product User's Guide, section 2.3). The day/night
band has no such zones.
"""

import numpy as np
import numpy.typing as npt

from reprojection.grid.sphere import unit_vectors

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LINES = {3200: 16, 6400: 32}
"""Lines of a scan by columns: M bands, I bands."""

_SINGLE, _PAIRS = 640, 1008
"""Columns from each edge, of 3200, up to which samples are single, and are added in pairs."""

_SAMPLES = 5  # scans at which the overlap is measured


def kept_footprints(lat: Floats, lon: Floats, scan_lines: int) -> Bools | None:
    """Tell which pixels of a VIIRS swath the instrument keeps; None where it keeps all.

    None, too, where the lines that are left would not reach from scan to scan: some products move
    their pixels to other places and fill all lines. So it is where lines do not go on evenly within
    what should be a scan: the swath was cut elsewhere than between two.
    """
    rows, columns = lat.shape
    if _LINES.get(columns) != scan_lines or rows % scan_lines or rows < 2 * scan_lines:
        return None
    fine = scan_lines // 16
    single, pairs = _SINGLE * fine, _PAIRS * fine
    for lines, middle in ((12, single // 2), (14, (single + pairs) // 2)):
        for at in (middle, columns - 1 - middle):
            if not _reaches(lat[:, at], lon[:, at], scan_lines, lines * fine):
                return None
    line, column = np.indices((scan_lines, columns))
    outer = np.minimum(line, scan_lines - 1 - line)
    edge = np.minimum(column, columns - 1 - column)
    deleted = ((outer < 2 * fine) & (edge < single)) | ((outer < fine) & (edge < pairs))
    return np.tile(~deleted, (rows // scan_lines, 1))


def _reaches(lat: Floats, lon: Floats, scan_lines: int, left: int) -> bool:
    """Tell whether so many lines of a scan reach to the next scan, along one column."""
    points = np.stack(unit_vectors(lat, lon), axis=-1).reshape(-1, scan_lines, 3)
    scans = np.unique(np.linspace(0, len(points) - 2, _SAMPLES).astype(int))
    ahead = np.linalg.norm(points[scans + 1] - points[scans], axis=-1)
    within = np.diff(points[scans], axis=1)
    steps = np.linalg.norm(within, axis=-1)
    if not (np.isfinite(ahead).any() and np.isfinite(steps).any()):
        return False
    back = (within[:, 1:] * within[:, :-1]).sum(axis=-1) < 0
    if back.all(axis=0).any():
        return False  # at one line of each: a step back goes from scan to scan
    return bool(left * np.nanmedian(steps) >= np.nanmedian(ahead))
