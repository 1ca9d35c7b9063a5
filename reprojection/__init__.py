"""Reprojection: HDF-EOS in, numpy arrays and grids in between, Cloud Optimized GeoTIFF out."""
