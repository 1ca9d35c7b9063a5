"""Write small HDF5-EOS and netCDF-4 granules, for the sample archive and the tests only.

HDF5-EOS ("HDF-EOS5 Data Model, File Format and Library") as VIIRS land tiles have it: fields under
/HDFEOS/GRIDS/NAME/Data Fields, described by StructMetadata.0. netCDF-4 as VIIRS L1B and L2 files of
LAADS have it: groups geolocation_data and observation_data or geophysical_data, and the inventory
as global attributes.
"""

from pathlib import Path

import h5py
import numpy as np

from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    GridToWrite,
    core_metadata,
    struct_metadata,
)


def write_hdf5_granule(path: Path, granule: GranuleToWrite, *, eos: bool) -> None:
    """Write a granule as HDF5-EOS, or as netCDF-4."""
    with h5py.File(path, "w", track_order=True) as file:
        if eos:
            _write_eos(file, granule)
        else:
            _write_netcdf(file, granule)


def _write_eos(file: h5py.File, granule: GranuleToWrite) -> None:
    information = file.create_group("HDFEOS INFORMATION")
    text = struct_metadata(granule).replace("=GCTP", "=HE5_GCTP")
    information["StructMetadata.0"] = np.bytes_(text)
    information["CoreMetadata.0"] = np.bytes_(core_metadata(granule))
    for structure in (granule.structure, *granule.more):
        if isinstance(structure, GridToWrite):
            fields = file.create_group(f"HDFEOS/GRIDS/{structure.name}/Data Fields")
            for item in structure.fields:
                _write_field(fields, item)


def _write_netcdf(file: h5py.File, granule: GranuleToWrite) -> None:
    file.attrs["ShortName"] = granule.product
    file.attrs["VersionID"] = str(granule.collection)
    file.attrs["LocalGranuleID"] = granule.local_name
    file.attrs["RangeBeginningDate"] = granule.start.strftime("%Y-%m-%d")
    file.attrs["RangeBeginningTime"] = granule.start.strftime("%H:%M:%S.000000")
    file.attrs["RangeEndingDate"] = granule.end.strftime("%Y-%m-%d")
    file.attrs["RangeEndingTime"] = granule.end.strftime("%H:%M:%S.000000")
    file.attrs["DayNightFlag"] = granule.day_night
    ring = list(granule.ring)
    file.attrs["GRingPointLongitude"] = np.array([lon for lon, _ in ring], np.float32)
    file.attrs["GRingPointLatitude"] = np.array([lat for _, lat in ring], np.float32)
    structure = granule.structure
    if isinstance(structure, GridToWrite):
        raise AssertionError("netCDF granules are swaths")
    for name, items in (
        ("geolocation_data", structure.geo_fields),
        (structure.name, structure.data_fields),
    ):
        if not items:
            continue
        group = file.require_group(name)
        for item in items:
            lower = item.name.lower() if name == "geolocation_data" else item.name
            _write_field(group, item, lower)


def _write_field(group: h5py.Group, item: FieldToWrite, name: str = "") -> None:
    made = group.create_dataset(name or item.name, data=item.values, compression="gzip")
    for axis, dim in enumerate(item.dims):
        made.dims[axis].label = dim
    for key, value in item.typed.items():
        made.attrs[key] = np.array(value if isinstance(value, tuple) else [value], made.dtype)
    for key, attribute in item.attributes.items():
        made.attrs[key] = np.bytes_(attribute) if isinstance(attribute, str) else attribute
