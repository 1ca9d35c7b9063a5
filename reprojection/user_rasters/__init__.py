"""Rasters that users bring: GeoTIFF and netCDF."""
