"""HDF-EOS in, numpy arrays and grids through, Cloud Optimized GeoTIFF out."""
