"""Colours of classes, for colour tables, and colours of values, for small pictures."""

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from reprojection.read.description import Colour

Scale = Literal["swathmill", "vegetation", "heat", "grey", "difference"]
"""Colour scales by name; `SCALES` says from which colour to which."""

SCALES: Mapping[Scale, str] = {
    "swathmill": "dark blue, green, yellow",
    "vegetation": "light yellow to dark green",
    "heat": "black, red, yellow",
    "grey": "black to white",
    "difference": "blue, white, red",
}
"""What each colour scale looks like from its low end to its high end."""

# The lightness of all but the last changes evenly, so that they can be read without colour.
_ANCHORS: Mapping[Scale, npt.NDArray[np.float64]] = {
    "swathmill": np.array(
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
    ),
    "vegetation": np.array(
        [(255, 255, 217), (217, 240, 163), (120, 198, 121), (35, 132, 67), (0, 60, 38)], float
    ),
    "heat": np.array(
        [(0, 0, 4), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], float
    ),
    "grey": np.array([(0, 0, 0), (255, 255, 255)], float),
    "difference": np.array(
        [(33, 60, 140), (120, 170, 215), (245, 245, 245), (230, 150, 115), (150, 25, 40)], float
    ),
}


def ramp(shares: npt.NDArray[np.floating], scale: Scale = "swathmill") -> npt.NDArray[np.uint8]:
    """Return colours of values from 0 to 1, shape (..., 3); values beyond an end get its colour."""
    anchors = _ANCHORS[scale]
    place = np.clip(shares, 0.0, 1.0) * (len(anchors) - 1)
    at = np.arange(len(anchors))
    parts = [np.interp(place, at, anchors[:, channel]) for channel in range(3)]
    return np.stack(parts, axis=-1).round().astype(np.uint8)


def colours(scale: Scale = "swathmill") -> tuple[str, ...]:
    """Return the colours of a scale at 49 even steps from its low to its high end, as #rrggbb.

    Each anchor of each scale is among them, so straight lines between them draw what `ramp` does.
    """
    return tuple("#{:02x}{:02x}{:02x}".format(*one) for one in ramp(np.linspace(0, 1, 49), scale))


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


_LEGENDS = (
    # MCD12 User Guide: the colours of the International Geosphere-Biosphere Programme's classes,
    # and for classes of other legends those of what they name.
    (("evergreen", "needleleaf"), (5, 69, 10)),
    (("evergreen", "broadleaf"), (8, 106, 16)),
    (("deciduous", "needleleaf"), (84, 167, 8)),
    (("deciduous", "broadleaf"), (120, 210, 3)),
    (("cropland", "natural"), (255, 109, 76)),
    (("forest", "cropland"), (255, 109, 76)),
    (("forest",), (0, 153, 0)),
    (("closed", "shrub"), (198, 176, 68)),
    (("dense", "shrub"), (198, 176, 68)),
    (("shrub",), (220, 209, 89)),
    (("woody", "savanna"), (218, 222, 72)),
    (("savanna",), (251, 255, 19)),
    (("wetland",), (39, 255, 135)),
    (("crop",), (194, 79, 68)),
    (("grass",), (182, 255, 5)),
    (("herbaceous",), (182, 255, 5)),
    (("urban",), (165, 165, 165)),
    (("barren",), (249, 255, 164)),
    (("non-vegetated",), (249, 255, 164)),
    # What a pixel shows, or why it shows nothing.
    (("no snow",), (150, 190, 120)),
    (("snow",), (105, 255, 248)),
    (("ice",), (105, 255, 248)),
    (("fire", "high"), (200, 0, 0)),
    (("fire", "nominal"), (240, 90, 20)),
    (("fire", "low"), (250, 180, 60)),
    (("non-fire", "water"), (28, 13, 255)),
    (("cloud", "shadow"), (110, 110, 120)),
    (("cloud",), (235, 235, 235)),
    (("night",), (30, 30, 60)),
    (("no decision",), (150, 140, 150)),
    (("missing",), (120, 100, 110)),
    (("not processed",), (140, 120, 130)),
    (("saturated",), (200, 60, 160)),
    (("fill",), (100, 90, 90)),
    (("deep", "ocean"), (10, 10, 120)),
    (("ocean",), (20, 30, 170)),
    (("shallow", "water"), (110, 150, 255)),
    (("inland", "water"), (70, 110, 255)),
    (("lake",), (70, 110, 255)),
    (("water",), (28, 13, 255)),
    (("coast",), (220, 190, 130)),
    (("land",), (150, 190, 120)),
)
"""Words of a class's name and its colour; the first line of which all words are there counts."""
_STEP = 0.3  # towards white, of a colour that another class of the layer has
_TRIES = 4


def colours_of(classes: Mapping[int, str]) -> dict[int, Colour]:
    """Choose a colour for each class by its name, as the products' own legends draw it.

    A class of a name that no legend draws has a colour by its code. No two have the same.
    """
    found: dict[int, Colour] = {}
    for code, name in sorted(classes.items()):
        found[code] = _free(_by_name(name) or class_colour(code), code, set(found.values()))
    return found


def _by_name(name: str) -> Colour | None:
    plain = name.lower()
    colours = (rgb for words, rgb in _LEGENDS if all(word in plain for word in words))
    chosen = next(colours, None)
    return None if chosen is None else (*chosen, 255)


def _free(colour: Colour, code: int, taken: Collection[Colour]) -> Colour:
    for step in range(_TRIES):
        if (lighter := _lightened(colour, step * _STEP)) not in taken:
            return lighter
    return class_colour(code)


def _lightened(colour: Colour, share: float) -> Colour:
    red, green, blue = (round(part + (255 - part) * share) for part in colour[:3])
    return red, green, blue, 255
