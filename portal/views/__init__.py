"""Layers of granules on a map before they are requested: tiles, their range, values."""
