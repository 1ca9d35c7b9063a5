"""Write results: Cloud Optimized GeoTIFF, cubes, STAC items, mosaics and pictures."""
