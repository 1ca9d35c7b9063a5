"""Packages and rasters that users bring."""
