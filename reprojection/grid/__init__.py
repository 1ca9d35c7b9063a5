"""Where pixels are: coordinate systems, target grids, the sinusoidal tiles, orbits."""
