"""Small cells: a small raster has several, as large ones have."""

from dataclasses import replace

import pytest

from reprojection.grid.grids import Lattice


def with_small_cells(patch: pytest.MonkeyPatch, size: int) -> None:
    """Give the lattices of requests cells of so many pixels a side."""
    normal = Lattice.normal
    patch.setattr(
        Lattice,
        "normal",
        lambda crs, resolution: replace(normal(crs, resolution), cell_size=size),
    )
