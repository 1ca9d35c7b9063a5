"""Numbers of rasters as text: pages, tables and answers for programs write them in one way."""

import numpy as np
import numpy.typing as npt


def number_text(value: float, stored: npt.DTypeLike) -> str:
    """Write a physical value with all digits that its stored type carries, and no more.

    A value stored as float32 has the fewest digits that give the same float32 again.
    """
    if np.dtype(stored) == np.float32:
        return str(np.float32(value)).removesuffix(".0")
    return f"{value:.15g}"
