"""Where the chunks of an HDF5 data set lie in its file."""

from typing import Literal

import h5py

from reprojection.formats.pieces import INFLATE, Codec, NotInPiecesError, Pieces


def pieces_of(item: h5py.Dataset) -> Pieces:
    """List the chunks of a data set; raises NotInPiecesError where others could not read them."""
    order: Literal["<", ">"] = "<" if item.dtype.newbyteorder("<") == item.dtype else ">"
    if item.is_virtual or item.external:
        raise NotInPiecesError("its bytes lie in other files")
    if item.chunks is None:
        offset = item.id.get_offset()
        if offset is None:
            raise NotInPiecesError("its bytes are not stored by themselves")
        places = {(0,) * item.ndim: (int(offset), int(item.id.get_storage_size()))}
        return Pieces(chunk=item.shape, byte_order=order, places=places, codecs=())
    codecs, places = _codecs(item), {}
    for number in range(item.id.get_num_chunks()):
        found = item.id.get_chunk_info(number)
        if found.filter_mask:
            raise NotInPiecesError("some of its chunks are packed otherwise than the others")
        at = tuple(
            int(first) // size for first, size in zip(found.chunk_offset, item.chunks, strict=True)
        )
        places[at] = int(found.byte_offset), int(found.size)
    return Pieces(chunk=item.chunks, byte_order=order, places=places, codecs=codecs)


def _codecs(item: h5py.Dataset) -> tuple[Codec, ...]:
    made = item.id.get_create_plist()
    found: list[Codec] = []
    for number in range(made.get_nfilters()):
        code, _, _, name = made.get_filter(number)
        if code == h5py.h5z.FILTER_DEFLATE:
            found.append(INFLATE)
        elif code == h5py.h5z.FILTER_SHUFFLE:
            found.append({"id": "shuffle", "elementsize": item.dtype.itemsize})
        elif code == h5py.h5z.FILTER_FLETCHER32:
            found.append({"id": "fletcher32"})
        else:
            raise NotInPiecesError(f"its chunks are packed by {name.decode(errors='replace')!r}")
    return tuple(found)
