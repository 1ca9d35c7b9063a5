"""Colours of classes, for colour tables, and colours of values, for small pictures."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from reprojection.read.raster import Colour

# Anchors of a scale from dark blue over green to yellow. Its lightness rises evenly, so that it
# can be read without colour.
_ANCHORS = np.array(
    [
        (46, 20, 84),
        (50, 64, 132),
        (38, 108, 142),
        (32, 150, 134),
        (88, 188, 94),
        (178, 216, 52),
        (250, 232, 70),
    ],
    float,
)


def ramp(shares: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Return colours of values from 0 to 1, shape (..., 3); values beyond an end get its colour."""
    place = np.clip(shares, 0.0, 1.0) * (len(_ANCHORS) - 1)
    at = np.arange(len(_ANCHORS))
    parts = [np.interp(place, at, _ANCHORS[:, channel]) for channel in range(3)]
    return np.stack(parts, axis=-1).round().astype(np.uint8)


def class_colour(code: int) -> Colour:
    """Choose a colour for a class, always the same; neighbouring codes get distant colours."""
    hue = (code * 0.61803398875) % 1.0
    light = (0.95, 0.72, 0.85)[code % 3]
    sector, part = divmod(hue * 6.0, 1.0)
    low, rising = light * 0.35, light * (0.35 + 0.65 * part)
    falling = light * (1.0 - 0.65 * part)
    red, green, blue = (
        (light, rising, low),
        (falling, light, low),
        (low, light, rising),
        (low, falling, light),
        (rising, low, light),
        (light, low, falling),
    )[int(sector)]
    return round(red * 255), round(green * 255), round(blue * 255), 255


def colours_of(codes: Iterable[int]) -> dict[int, Colour]:
    """Choose a colour for each class, by code."""
    return {code: class_colour(code) for code in sorted(codes)}
