"""The MODIS sinusoidal tile grid: 36 x 18 tiles, 10 degrees of the equator wide and high."""

import math

from modis.sphere import SPHERE_RADIUS

TILES_ACROSS = 36
TILES_DOWN = 18

TILE_SIZE = math.pi * SPHERE_RADIUS / TILES_DOWN
"""Side of a tile in metres, 1111950.5197 (MODIS Land, "Grids")."""

TILE_PIXELS = {250: 4800, 500: 2400, 1000: 1200}
"""Pixels along a tile's side by nominal resolution in metres."""
