"""Colour scales: each can be read without colour."""

import numpy as np
import pytest

from reprojection.write.palette import SCALES, Scale, colours

_WEIGHTS = 0.2126, 0.7152, 0.0722  # of red, green and blue in what looks light


def _light(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return sum(weight * part for weight, part in zip(_WEIGHTS, parts, strict=True))


@pytest.mark.parametrize("scale", [name for name in SCALES if name != "difference"])
def test_a_scale_gets_lighter_or_darker_all_the_way(scale: Scale) -> None:
    steps = np.diff([_light(one) for one in colours(scale)])
    assert (steps > 0).all() or (steps < 0).all()


def test_differences_are_lightest_in_the_middle() -> None:
    light = [_light(one) for one in colours("difference")]
    assert len(light) == 49
    assert max(light) == light[24]
