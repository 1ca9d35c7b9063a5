"""Specifications in rows: their JSON, deflated with a text that specifications have in common.

A row of a task is written with its specification at each change of the task. Packed, it takes a
third of the bytes, and on one machine the row fits into a page of the file.
"""

import zlib

from tasks.errors import StoreError

_COMMON = (
    b'"missing":[],"missing_unnamed":null,"checksum_type":"","source":"cmr","url":"https://",'
    b'"size":,"kind":"collect","product":"MOD09GA","collection":"61","granule":"MOD.A20.h.061.hdf",'
    b'"production":"20","merge":"nadir","qa":"","mask":true,"units":"stored","codes":"mask",'
    b'"extra_bands":[],"day_night":"any","driver":null,"clamp":false,"kind":"reproject"},'
    b'"resampling":"nearest","layer":"","day":"20","grid":{"crs":"EPSG:4326",'
    b'"transform":[0.01,0.0,-92.16,0.0,-0.01,51.2],"width":1024,"height":1024},{"inputs":[{"key":"'
)
"""Part of the format of rows: what is stored is read with it, so it never changes."""
_LEVEL, _MEMORY = 6, 8
_WINDOW = -12  # 4 KiB: a larger one takes longer to set up than a specification to pack


_PACKED = b"\x01"  # before what is packed in this way; JSON begins with a brace


def pack(spec: bytes) -> bytes:
    """Pack a specification in JSON."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=_COMMON)
    return _PACKED + packer.compress(spec) + packer.flush()


def unpack(stored: bytes) -> bytes:
    """Return a specification in JSON; rows of schema 6 have it unpacked.

    Raises:
        StoreError: it is damaged.
    """
    if not stored.startswith(_PACKED):
        return stored
    try:
        return zlib.decompressobj(_WINDOW, zdict=_COMMON).decompress(stored[1:])
    except zlib.error as error:
        raise StoreError(f"a task's specification is damaged: {error}") from error
