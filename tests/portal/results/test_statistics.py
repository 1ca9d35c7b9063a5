"""The histogram of a layer whose values leave nothing to divide by."""

from typing import cast

import numpy as np
import pytest

from portal.results.statistics import histogram
from reprojection.read.raster import Raster


class OfFloats:
    """A raster of whose histogram no more than the type counts."""

    data = np.zeros((1, 2, 2), np.float32)


@pytest.mark.parametrize("value", [0.0, 5.0, -1e20])
def test_values_that_are_all_one_are_in_one_bin(value: float) -> None:
    found = histogram(np.full(4, value), cast("Raster", OfFloats()), value, value)
    assert sum(found.counts) == max(found.counts) == 4
    assert found.edges[0] < value < found.edges[1]
