"""How much of a raster is in memory while it is written."""

TILE = 512
"""Rows and columns of a tile."""

WHOLE_BYTES = 1 << 28
"""Pixels of all bands of a raster that is put together in memory; a larger one is written by
stripes."""

STRIPE_BYTES = 1 << 26
"""Pixels of a stripe, which has at least the rows of a tile."""

STRIPES = 3
"""As much memory as so many stripes is taken while one is written."""

MEAN_BYTES = 24
"""Bytes that each pixel of a row of tiles takes besides while a mean of sensors is made."""
