"""File formats of granules: the first bytes of a file and the endings of file names."""

HDF4_MAGIC = b"\x0e\x03\x13\x01"
"""First bytes of an HDF4 file (HDF Specification, "File Header")."""

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
"""First bytes of an HDF5 file (HDF5 File Format Specification, "Superblock")."""

NETCDF3_MAGICS = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
"""First bytes of a netCDF-3 file: classic, with 64-bit offsets, with 64-bit data."""

GRANULE_SUFFIXES = (".hdf", ".h4", ".hdf4", ".h5", ".he5", ".hdf5", ".nc")
"""Endings of granule files: HDF4-EOS, HDF5-EOS and netCDF-4."""


def is_granule_file(name: str) -> bool:
    """Tell whether a file has the ending of a granule, whatever its name says."""
    return name.lower().endswith(GRANULE_SUFFIXES)
