"""Coordinate systems, target grids, the sinusoidal tiles, and orbits."""
