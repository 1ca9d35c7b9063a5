"""Read granules: HDF4 and HDF5, their metadata, geolocation, quality and raster values."""
