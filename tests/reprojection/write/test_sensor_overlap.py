"""The numbers by which sensors differ are those of all pairs at once, by numpy.

What a whole request says of them: tests/acceptance/test_records.py.
"""

import numpy as np

from reprojection.write.sensor_overlap import Moments


def test_moments_of_parts_are_those_of_the_whole() -> None:
    random = np.random.default_rng(1)
    x = random.normal(300.0, 5.0, 5000)
    y = 0.9 * x + 30.0 + random.normal(0.0, 1.0, x.size)
    found = Moments()
    for part in np.split(np.stack([x, y]), [1, 1, 7, 4000], axis=1):
        found.add(part)
    by_numpy = (y - x).mean(), np.sqrt(((y - x) ** 2).mean()), np.corrcoef(x, y)[0, 1]
    np.testing.assert_allclose(found.numbers, by_numpy, rtol=1e-10)
    assert found.n == 5000
    assert np.isnan(Moments().numbers).all()
