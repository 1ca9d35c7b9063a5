"""Convert positions on the Earth to unit vectors, with identical bits in numpy and in C.

The sines are our own: those of numpy and of C libraries differ in the last bit between machines,
and a tie between two footprints would then be decided differently. kernels/csrc/swath.c holds the
same operations in the same order.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer
_SINE = [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(8)]
_COSINE = [(-1.0) ** n / math.factorial(2 * n) for n in range(9)]


def unit_vectors(lat: Floats, lon: Floats) -> tuple[Floats, Floats, Floats]:
    """Compute x, y, z of WGS84 latitudes and longitudes in degrees, as angles on a sphere.

    `lat` and `lon` broadcast. The result is NaN if either is NaN or beyond 90 or 360 degrees.
    """
    with np.errstate(invalid="ignore"):
        lat = np.where(np.abs(lat) <= 90.0, lat, np.nan)
        lon = np.where(np.abs(lon) <= 360.0, lon, np.nan)
        sine, cosine = _sine_cosine(lat)
        east, north = _sine_cosine(lon)
    x, y = cosine * north, cosine * east
    return x, y, np.where(np.isnan(x), np.nan, sine)


def _sine_cosine(degrees: Floats) -> tuple[Floats, Floats]:
    """Compute sine and cosine; the error is below 2e-16.

    Quarter turns are reduced exactly, then Taylor series are used.
    """
    quarter = (degrees * (1.0 / 90.0) + _ROUND) - _ROUND
    r = (degrees - quarter * 90.0) * 0.017453292519943295
    square = r * r
    s, c = r * _horner(_SINE, square), _horner(_COSINE, square)
    turn = quarter - 4.0 * ((quarter * 0.25 + _ROUND) - _ROUND)
    odd = np.abs(turn) == 1.0
    half = np.abs(turn) == 2.0
    a, b = np.where(odd, c, s), np.where(odd, s, c)
    return np.where((turn == -1.0) | half, -a, a), np.where((turn == 1.0) | half, -b, b)


def _horner(terms: list[float], square: Floats) -> Floats:
    total = np.full_like(square, terms[-1])
    for term in reversed(terms[:-1]):
        total = term + square * total
    return total
