"""File formats of granules: the first bytes of a file and the endings of file names."""

HDF4_MAGIC = b"\x0e\x03\x13\x01"
"""First bytes of an HDF4 file (HDF Specification, "File Header")."""

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
"""First bytes of an HDF5 file (HDF5 File Format Specification, "Superblock")."""

MAGICS = (HDF4_MAGIC, HDF5_MAGIC)

GRANULE_SUFFIXES = (".hdf", ".h4", ".hdf4", ".h5", ".he5", ".hdf5", ".nc")
"""Endings of granule files: HDF4-EOS, HDF5-EOS and netCDF-4."""
