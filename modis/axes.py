"""Rows and columns by name, so that neither is mistaken for the other between modules."""

from typing import NamedTuple


class Shape(NamedTuple):
    """Rows and columns of a raster, as numpy orders them."""

    rows: int
    cols: int


class Pixel(NamedTuple):
    """Row and column of a pixel, counted from 0 at the first corner."""

    row: int
    col: int
