"""Open files of strangers only if they hold their values themselves.

HDF5 and HDF4 let a file say that its values lie in another file of the machine: external storage,
virtual data sets and external links; external elements. A reader that follows them copies bytes of
any file that it may read into a result. A granule never does so. Every place that opens a file of
somebody else with these libraries does it through this module (a test holds that).

Source: HDF5 File Format Specification version 3, IV.A.2.h "External Data Files", IV.A.2.i "Data
Layout", IV.A.2.g "Link"; HDF Specification and Developer's Guide 4.2, "Extended Tags and Special
Elements".
"""

import os
import struct
from pathlib import Path

import h5py

from modis.formats import HDF4_MAGIC
from reprojection.errors import PointingFileError, UnreadableGranuleError
from reprojection.formats.hdf5_ahead import open_every
from reprojection.formats.held import HeldFile

_LINKS = (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT)  # those that stay within the file
_SPECIAL_MASK, _SPECIAL = 0xC000, 0x4000  # these bits of a tag say that a special code leads
_EXTERNAL, _COMPRESSED = 2, 3
_HEAD = struct.Struct(">HHIH")  # code; of a compressed element also version, length, its stream
_HELD = {1: "linked blocks", 3: "compressed", 5: "chunks", 7: "compressed raster"}
_NOTHING = 0xFFFFFFFF  # offset and length of an element that was never written
_MOST_ENTRIES = 5_000_000


def open_hdf5(path: Path, through: HeldFile | None = None) -> h5py.File:
    """Open an HDF5 or netCDF-4 file for reading, one that is held in part `through` its bytes.

    Raises:
        PointingFileError: a link, or the storage of a data set, leads to another file.
        NotHeldError: its structure is not all there.
        OSError: it is no HDF5 file, or its directory is damaged.
    """
    file = h5py.File(path if through is None else through, "r")
    try:
        if through is not None:
            open_every(file)
            through.look_up()
        _stay_within(path, file)
    except BaseException:
        file.close()
        raise
    return file


def _stay_within(path: Path, file: h5py.File) -> None:
    leading: list[str] = []

    def look_at_link(name: bytes, info: h5py.h5l.LinkInfo) -> None:
        if info.type not in _LINKS:
            leading.append(name.decode("utf-8", "replace"))

    def look_at_object(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            leading.append(name)

    file.id.links.visit(look_at_link, info=True)
    if not leading:  # else the next look would follow the link
        file.visititems(look_at_object)
    if leading:
        raise PointingFileError(path.name, leading[0])


def check_hdf4(path: Path) -> None:
    """Refuse an HDF4 file of which an element lies in another file, before the library opens it.

    Raises:
        PointingFileError: one does.
        UnreadableGranuleError: the list of its elements is damaged, so that it cannot be told.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
        if os.pread(descriptor, 4, 0) != HDF4_MAGIC:
            return  # the library does not read it as HDF4 either
        streams: set[int] = set()
        for tag, number, offset in _special_elements(path, descriptor, size):
            head = os.pread(descriptor, _HEAD.size, offset)
            if len(head) < _HEAD.size:
                raise _damaged(path, "an element's header lies beyond its end")
            kind, _, _, stream = _HEAD.unpack(head)
            if kind == _COMPRESSED:
                if stream in streams:
                    raise _damaged(path, f"two elements have the compressed bytes {stream}")
                streams.add(stream)
            if kind == _EXTERNAL:
                raise PointingFileError(path.name, f"element {tag & ~_SPECIAL}/{number}")
            if kind not in _HELD:
                part = f"element {tag & ~_SPECIAL}/{number}"
                raise _damaged(path, f"{part} is stored in an unknown way ({kind})")


def _special_elements(path: Path, descriptor: int, size: int) -> list[tuple[int, int, int]]:
    """List tag, reference number and offset of the elements that begin with a special code."""
    found: list[tuple[int, int, int]] = []
    block, seen, entries = len(HDF4_MAGIC), set[int](), 0
    while block:
        head = os.pread(descriptor, 6, block)
        if len(head) < 6 or block in seen:
            raise _damaged(path, "its list of elements breaks off")
        seen.add(block)
        count, following = struct.unpack(">HI", head)
        listed = os.pread(descriptor, 12 * count, block + 6)
        entries += count
        if len(listed) < 12 * count or entries > min(_MOST_ENTRIES, size // 12 + 1):
            raise _damaged(path, "its list of elements breaks off")
        for tag, number, offset, length in struct.iter_unpack(">HHII", listed):
            if tag & _SPECIAL_MASK == _SPECIAL and (offset, length) != (_NOTHING, _NOTHING):
                found.append((tag, number, offset))
        block = following
    return found


def _damaged(path: Path, problem: str) -> UnreadableGranuleError:
    return UnreadableGranuleError(
        f"{path.name} is an HDF4 file that cannot be read ({problem}); it is truncated or damaged: "
        "fetch it again"
    )
