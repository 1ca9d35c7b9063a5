"""How a call asks for a colour scale: which one, and the values at its ends."""

import math
from typing import Annotated

from fastapi import Query

from portal.serving.problems import BadCallError
from reprojection.write.palette import Scale

Rescale = Annotated[
    str, Query(description="Values at the ends of the colour scale: LOW,HIGH. Empty: the layer's.")
]
Colormap = Annotated[Scale, Query(description="The colour scale of values that are no classes.")]


def ends_of(text: str) -> tuple[float, float] | None:
    """Read the ends of a colour scale; None of an empty text. Raises BadCallError."""
    if not text:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = 0.0
    if not -math.inf < low < high < math.inf:
        raise BadCallError(
            f"{text!r} are no ends of a scale.",
            "Write LOW,HIGH, the lower one first, such as 0,0.9.",
            field="rescale",
        )
    return low, high
