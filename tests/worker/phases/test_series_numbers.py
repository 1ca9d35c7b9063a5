"""What shipped packages compute by numpy alone, against scipy."""

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from scipy.signal import savgol_filter
from scipy.special import stdtr

from tasks.packages.packages import SERIES

RANDOM = np.random.default_rng(40)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module as the packages do, that stand alone."""
    monkeypatch.syspath_prepend(str(SERIES / "shared"))
    before = {*sys.modules}
    yield import_module
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(SERIES)):
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 51, 400, 3001])
def test_the_probability_of_t_is_that_of_scipy(shared: Any, freedom: int) -> None:
    t = np.concatenate([[0.0, 1e-9, 1e300, np.inf], 10 ** RANDOM.uniform(-3, 3, 300)])
    found = shared("student").two_sided(
        t * RANDOM.choice([-1, 1], t.size), np.full(t.size, freedom)
    )
    np.testing.assert_allclose(found, 2 * stdtr(freedom, -t), rtol=1e-8, atol=1e-60)


def test_each_pixel_has_degrees_of_freedom_of_its_own(shared: Any) -> None:
    t = RANDOM.normal(0, 4, (30, 40))
    freedom = RANDOM.integers(-2, 60, t.shape)
    t[3] = np.nan
    found = shared("student").two_sided(t, freedom)
    expected = np.where(freedom < 1, np.nan, 2 * stdtr(np.maximum(freedom, 1), -np.abs(t)))
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    assert shared("student").two_sided(t[:0], freedom[:0]).shape == (0, 40)


@pytest.mark.parametrize(
    ("length", "order"), [(3, 0), (3, 2), (5, 1), (5, 2), (31, 2), (31, 6), (99, 1), (99, 6)]
)
def test_the_filter_is_that_of_scipy(shared: Any, length: int, order: int) -> None:
    for number in (length, length + 1, 150):
        values = RANDOM.normal(size=(number, 5))
        expected = savgol_filter(values, length, order, axis=0)
        np.testing.assert_allclose(
            shared("smooth").filtered(values, length, order), expected, atol=1e-8
        )
