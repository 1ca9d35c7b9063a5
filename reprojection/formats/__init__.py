"""HDF4, HDF5, netCDF and ODL: from bytes to data sets and attributes."""
