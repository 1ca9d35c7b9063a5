"""Every layer of every real file at hand, value by value, against h5py, netCDF4 and pyhdf.

What is valid and what it is in units is worked out here from the attributes alone. `valid` differs
where the catalogue knows codes or another range: such values are left out of the comparison of
masks, never of stored values.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import netCDF4
import numpy as np
import numpy.typing as npt
import pytest
from pyhdf.SD import SD, SDC

from reprojection.read.granule import Granule, open_granule
from reprojection.read.qa import valid_mask

pytestmark = pytest.mark.real_data

Array = npt.NDArray[np.generic]
LEAST = {"files": 4, "layers": 22, "values": 48_000_000}
"""What there is at least of HDF5 and netCDF-4, without ocean colour in bins."""


class Stated(NamedTuple):
    """A data set as another library reads it: stored values, and attributes by name."""

    values: Array
    attributes: Mapping[str, object]


def in_hdf5(path: Path) -> dict[str, Stated]:
    found: dict[str, Stated] = {}

    def see(name: str, one: object) -> None:
        if isinstance(one, h5py.Dataset) and one.ndim >= 2 and one.dtype.kind in "iuf":
            found[name.rpartition("/")[2]] = Stated(one[...], dict(one.attrs))

    with h5py.File(path) as file:
        file.visititems(see)
    return found


def in_hdf4(path: Path) -> dict[str, Stated]:
    file = SD(str(path), SDC.READ)
    found = {}
    for name, (_, shape, *_) in file.datasets().items():
        if len(shape) >= 2 and 0 not in shape:
            one = file.select(name)
            found[name] = Stated(np.asarray(one.get()), one.attributes())
    file.end()
    return found


def numbers(stated: object) -> list[float]:
    if isinstance(stated, bytes | str | np.bytes_):
        text = stated if isinstance(stated, str) else bytes(stated).decode()
        return [float(part) for part in re.findall(r"\d+(?:\.\d+)?", text)]
    return [float(one) for one in np.atleast_1d(np.asarray(stated)).tolist()]


def ends(attributes: Mapping[str, object]) -> list[float]:
    if "valid_range" in attributes:
        return numbers(attributes["valid_range"])
    each = [numbers(attributes[word]) for word in ("valid_min", "valid_max") if word in attributes]
    return [one for part in each for one in part] if len(each) == 2 else []


def differences(granule: Granule, there: Mapping[str, Stated]) -> Iterator[tuple[str, int, int]]:
    """Yield each layer with its values and how many of them are read otherwise."""
    for name, layer in granule.layers.items():
        stated = there[name.rpartition("/")[2] if name not in there else name]
        bands = granule.read_all_bands(layer)
        one = np.squeeze(stated.values)
        flat = np.squeeze(bands)
        if flat.shape != one.shape:  # bands are stored last
            one = np.moveaxis(one, -1, 0)
        assert flat.shape == one.shape, name
        raw = flat.view(one.dtype) if flat.dtype.itemsize == one.dtype.itemsize else flat
        wrong = int((~((raw == one) | ((raw != raw) & (one != one)))).sum())
        entry = granule.entry.layer(layer.base_name) if granule.entry is not None else None
        known = entry is not None and (entry.valid_range is not None or entry.codes)
        if len(layer.bands) == 0 and not known and layer.dtype == stated.values.dtype:
            wrong += int((valid_mask(granule, layer, None) != valid(one, stated)).sum())
        yield name, one.size, wrong


def valid(one: Array, stated: Stated) -> npt.NDArray[np.bool_]:
    good = np.ones(one.shape, np.bool_) if one.dtype.kind != "f" else np.isfinite(one)
    for word in ("_FillValue", "missing_value"):
        for fill in numbers(stated.attributes[word]) if word in stated.attributes else ():
            good &= one != np.asarray(fill).astype(one.dtype)
    limits = ends(stated.attributes)
    if len(limits) == 2 and limits[0] <= limits[1]:
        good &= np.greater_equal(one, limits[0]) & np.less_equal(one, limits[1])
    return np.asarray(good)


def test_hdf5_and_netcdf_files_are_read_as_h5py_reads_them(granules: Path) -> None:
    seen, wrong = dict.fromkeys(LEAST, 0), []
    for path in sorted(granules.rglob("*.*")):
        if path.suffix not in (".h5", ".nc") or ".L3b_" in path.name or "peer" in str(path):
            continue
        seen["files"] += 1
        with open_granule(path) as granule:
            for name, size, other in differences(granule, in_hdf5(path)):
                seen["layers"] += 1
                seen["values"] += size
                if other:
                    wrong.append(f"{path.name} {name}: {other} of {size}")
    assert wrong == []
    assert all(seen[what] >= least for what, least in LEAST.items()), seen


@pytest.mark.proof
def test_units_are_those_of_netcdf4(granules: Path) -> None:
    count = 0
    for path in sorted(granules.rglob("*.*")):
        if path.suffix not in (".h5", ".nc") or ".L3b_" in path.name or "peer" in str(path):
            continue
        with netCDF4.Dataset(path) as file, open_granule(path) as granule:
            variables = dict(_variables(file))
            for name, layer in granule.layers.items():
                variable = variables[name]
                if layer.bands or not hasattr(variable, "scale_factor"):
                    continue
                variable.set_auto_mask(False)
                theirs = np.squeeze(np.asarray(variable[...], np.float64))
                ours = granule.read(layer).astype(np.float64) * layer.scale + layer.offset
                assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-6), (path.name, name)
                count += ours.size
    assert count > 20_000_000


def _variables(group: netCDF4.Dataset | netCDF4.Group) -> Iterator[tuple[str, Any]]:
    yield from group.variables.items()
    for inner in group.groups.values():
        yield from _variables(inner)


@pytest.mark.proof
def test_hdf4_files_are_read_as_pyhdf_reads_them(granules: Path) -> None:
    wrong, layers = [], 0
    for path in sorted(granules.rglob("*.hdf")):
        with open_granule(path) as granule:
            for name, size, other in differences(granule, in_hdf4(path)):
                layers += 1
                if other:
                    wrong.append(f"{path.name} {name}: {other} of {size}")
    assert wrong == []
    assert layers > 1000
