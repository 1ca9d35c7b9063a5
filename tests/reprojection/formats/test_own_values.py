"""A granule that points at another file of the machine is refused; nothing of that file is read."""

import ast
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from pyhdf.SD import SD, SDC

from modis.formats import HDF4_MAGIC
from reprojection.errors import PointingFileError, UnreadableGranuleError
from reprojection.formats import own_values
from reprojection.formats.own_values import check_hdf4, open_hdf5
from reprojection.grid.grids import Lattice
from reprojection.inspect.inspect import inspect
from reprojection.read.granule import open_granule
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import write_granule
from reprojection.sample.sample import tile_granules

FIELDS = "HDFEOS/GRIDS/G/Data Fields"
SIDE = 40


def canary(folder: Path) -> Path:
    """A file of the machine with a secret."""
    path = folder / "secrets.json"
    path.write_bytes(b"AccountKey=do-not-show;".ljust(SIDE * SIDE, b"x"))
    return path


def hdf5(folder: Path) -> tuple[Path, h5py.File]:
    path = folder / "VNP09GA.A2012001.h18v03.001.2012017211237.h5"
    file = h5py.File(path, "w")
    file.create_group(FIELDS)["Good"] = np.zeros((SIDE, SIDE), np.uint8)
    return path, file


def external(folder: Path) -> Path:
    path, file = hdf5(folder)
    with file:
        file[FIELDS].create_dataset(
            "Band", (SIDE, SIDE), np.uint8, external=[(str(canary(folder)), 0, SIDE * SIDE)]
        )
    return path


def external_text(folder: Path) -> Path:
    """The metadata text itself lies elsewhere."""
    path, file = hdf5(folder)
    with file:
        kind = h5py.string_dtype("ascii", SIDE * SIDE)
        outside = [(str(canary(folder)), 0, SIDE * SIDE)]
        file.create_dataset("HDFEOS INFORMATION/StructMetadata.0", (1,), kind, external=outside)
    return path


def virtual(folder: Path) -> Path:
    with h5py.File(folder / "other.h5", "w") as other:
        other["secret"] = np.full((SIDE, SIDE), 7, np.uint8)
    path, file = hdf5(folder)
    with file:
        layout = h5py.VirtualLayout((SIDE, SIDE), np.uint8)
        layout[:] = h5py.VirtualSource(folder / "other.h5", "secret", (SIDE, SIDE))
        file[FIELDS].create_virtual_dataset("Band", layout)
    return path


def external_link(folder: Path) -> Path:
    with h5py.File(folder / "other.h5", "w") as other:
        other["secret"] = np.full((SIDE, SIDE), 7, np.uint8)
    path, file = hdf5(folder)
    with file:
        file[FIELDS]["Band"] = h5py.ExternalLink("other.h5", "/secret")
    return path


def link_by_way_of_a_link(folder: Path) -> Path:
    with h5py.File(folder / "other.h5", "w") as other:
        other["secret"] = np.full((SIDE, SIDE), 7, np.uint8)
    path, file = hdf5(folder)
    with file:
        file["away"] = h5py.ExternalLink("other.h5", "/")
        file[FIELDS]["Band"] = h5py.SoftLink("/away/secret")
    return path


def hdf4_external(folder: Path) -> Path:
    """A tile with one layer more, whose values lie elsewhere."""
    path = folder / "MOD99A1.A2012001.h18v03.061.2012017211237.hdf"
    write_granule(path, next(tile_granules()))
    file = SD(str(path), SDC.WRITE)
    layer = file.create("Outside", SDC.UINT8, (SIDE, SIDE))
    layer.setexternalfile(str(canary(folder)), 0)
    layer.endaccess()
    file.end()
    return path


Make = Callable[[Path], Path]
POINTERS: list[Make] = [
    external,
    external_text,
    virtual,
    external_link,
    link_by_way_of_a_link,
    hdf4_external,
]


@pytest.mark.parametrize("make", POINTERS)
def test_a_file_that_points_elsewhere_is_refused_as_a_whole(tmp_path: Path, make: Make) -> None:
    path = make(tmp_path)
    with (
        pytest.raises(PointingFileError, match="lies in another file") as caught,
        open_granule(path),
    ):
        pass
    assert "do-not-show" not in str(caught.value)
    with pytest.raises(UnreadableGranuleError):
        inspect(path)
    grid = Lattice(crs="EPSG:4326", resolution=0.5).snap((0.0, 50.0, 10.0, 60.0))
    with pytest.raises(UnreadableGranuleError):
        reproject([path], "Band", grid, Options())


def test_links_within_a_file_are_followed(tmp_path: Path) -> None:
    path, file = hdf5(tmp_path)
    with file:
        file[FIELDS]["Soft"] = h5py.SoftLink(f"/{FIELDS}/Good")
        file[FIELDS]["Hard"] = file[f"{FIELDS}/Good"]
    with open_hdf5(path) as opened:
        assert set(opened[FIELDS]) == {"Good", "Soft", "Hard"}


def test_a_list_of_elements_that_cannot_be_followed_is_damage(tmp_path: Path) -> None:
    """What the check does not see to its end, the library is not given."""
    path = hdf4_external(tmp_path)
    data = path.read_bytes()
    for bad in (
        data[:7],
        data[:4] + b"\xff\xff" + data[6:],
        data[:6] + (4).to_bytes(4) + data[10:],
    ):
        path.write_bytes(bad)
        with pytest.raises(UnreadableGranuleError):
            check_hdf4(path)


# Modules that may open files by these libraries, with the reason.
_OPENS = {
    ("reprojection/formats/own_values.py", "h5py.File"): "the guard itself",
    ("reprojection/formats/hdf4.py", "SD"): "after check_hdf4",
    ("reprojection/user_rasters/conversion.py", "h5py.File"): "writes",
    ("reprojection/user_rasters/geotiff.py", "rasterio.open"): "the driver GTiff alone",
    ("worker/sandbox/reading/read_rasters.py", "rasterio.open"): "the driver GTiff, in the sandbox",
    ("reprojection/write/cube.py", "netCDF4.Dataset"): "writes",
    ("reprojection/write/write.py", "rasterio.open"): "rasters of Swathmill; --like of one's own",
    ("worker/phases/netcdf.py", "Dataset"): "writes",
}
_OURS = {  # rasters that Swathmill wrote
    "reprojection/explain/explain.py",
    "reprojection/write/cube.py",
    "reprojection/write/mosaic.py",
    "reprojection/write/picture.py",
    "reprojection/write/sensor_overlap.py",
    "worker/phases/sites/extract.py",
    "worker/phases/flat.py",
    "worker/phases/group.py",
    "worker/phases/netcdf.py",
    "worker/phases/valid_pixels.py",
    "portal/results/picture_reading.py",
    "portal/elsewhere/takeaway.py",
    "swathmill/package_kit.py",
    "swathmill/job.py",
}
_CALLS = {"h5py.File", "SD", "rasterio.open", "netCDF4.Dataset", "Dataset"}
_LEFT_OUT = ("reprojection/sample/", "worker/packages/", "swathmill/skeletons/")
ROOT = Path(__file__).parents[3]
TOPS = ("portal", "service_manager", "worker", "tasks", "reprojection", "archives", "swathmill")


def test_no_other_place_opens_a_file() -> None:
    """A new place opens strangers' files through `own_values`, or comes here with its reason."""
    found = set()
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(_LEFT_OUT):
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if called in _CALLS and not (called == "rasterio.open" and name in _OURS):
                    found.add((name, called))
    assert found <= _OPENS.keys()


def test_a_file_has_so_many_elements_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, empty = tmp_path / "a.hdf", struct.pack(">HHII", 1, 0, 0xFFFFFFFF, 0xFFFFFFFF)
    blocks = [struct.pack(">HI", 2, 100), struct.pack(">HI", 1, 0)]
    data = (HDF4_MAGIC + blocks[0] + 2 * empty).ljust(100, b"\0") + blocks[1] + empty
    path.write_bytes(data)
    monkeypatch.setattr(own_values, "_MOST_ENTRIES", 3)
    check_hdf4(path)
    monkeypatch.setattr(own_values, "_MOST_ENTRIES", 2)
    with pytest.raises(UnreadableGranuleError, match="its list of elements breaks off"):
        check_hdf4(path)


def test_a_list_of_elements_has_no_more_than_fit_into_its_file(tmp_path: Path) -> None:
    """Blocks of a list that lie over each other are read once each, and not for ever."""
    path = tmp_path / "a.hdf"
    one = struct.pack(">HI", 20, 0)
    listed = [
        (4 + 6 * number, struct.pack(">HI", 20, 4 + 6 * (number + 1))) for number in range(40)
    ]
    data = bytearray(HDF4_MAGIC + bytes(600))
    for place, head in listed:
        data[place : place + 6] = head
    data[4 + 240 : 4 + 246] = one
    path.write_bytes(data)
    with pytest.raises(UnreadableGranuleError, match="its list of elements breaks off"):
        check_hdf4(path)
