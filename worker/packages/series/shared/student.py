"""Student's t distribution, by its finite series for whole degrees of freedom."""

import numpy as np

# Below it one minus the series would lose digits, and the rest of the series is summed instead.
_SMALL = 1e-6
_EXACT = 1e-9  # of the rest, relative
_STEEPEST = 1e100  # tangent; what is beyond has a probability of none
_NONE = 1e-100


def two_sided(t: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return the probability that |t| is at least as large; NaN where freedom is below 1.

    Abramowitz and Stegun (1964), 26.7.3 and 26.7.4, with tan(angle) = t / sqrt(freedom): the sine
    times a sum over powers of the cosine, of as many terms as half the degrees of freedom. The sum
    of all terms, infinitely many, is probability one, so that the others sum to the answer.
    """
    found = np.full(t.shape, np.nan)
    there = (freedom >= 1) & ~np.isnan(t)
    for odd in (False, True):
        mine = there & (freedom % 2 == odd)
        found[mine] = _of_parity(np.abs(t[mine]), freedom[mine], odd)
    return found


def _of_parity(t: np.ndarray, freedom: np.ndarray, odd: bool) -> np.ndarray:
    tangent = np.minimum(t / np.sqrt(freedom), _STEEPEST)
    cosine = 1 / np.hypot(1.0, tangent)
    sine = tangent * cosine
    terms = (freedom - odd) // 2
    # The term of power 2n (2n + 1 of odd degrees) follows from the one before it.
    term = sine * cosine * (2 / np.pi) if odd else sine
    total = np.zeros(t.shape)
    number = 0
    while (some := number < terms).any():
        total += np.where(some, term, 0.0)
        number += 1
        term = np.where(some, term * _ratio(number, cosine, odd), term)
    angle = 2 / np.pi * np.arctan(tangent) if odd else 0.0
    found = np.asarray(np.clip(1 - angle - total, 0.0, 1.0))
    small = found < _SMALL
    found[small] = _rest(term[small], terms[small], cosine[small], odd)
    return found


def _ratio(number: int | np.ndarray, cosine: np.ndarray, odd: bool) -> np.ndarray:
    return cosine**2 * (2 * number - 1 + odd) / (2 * number + odd)


def _rest(term: np.ndarray, terms: np.ndarray, cosine: np.ndarray, odd: bool) -> np.ndarray:
    """Sum the terms from a number on; their ratio is below the cosine's square."""
    total, number = term.copy(), terms.copy()
    while (term > _EXACT * (1 - cosine**2) * total + _NONE).any():
        number += 1
        term = term * _ratio(number, cosine, odd)
        total += term
    return total
