"""Layers on maps: of granules before they are requested, and of results, as tiles."""
