"""Layers read at sites, and the table of all that was read."""
