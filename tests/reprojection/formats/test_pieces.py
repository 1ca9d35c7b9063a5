"""Where bytes lie in a file, for others to read: what is handed out, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from reprojection.formats.hdf4_data import _Elements, _one_piece
from reprojection.formats.hdf5_pieces import pieces_of
from reprojection.formats.pieces import NotInPiecesError

VALUES = np.arange(48, dtype=">i2").reshape(6, 8)


def test_chunks_of_hdf5_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=VALUES, chunks=(4, 4), shuffle=True, compression="gzip")
        file.create_dataset("b", data=VALUES, chunks=(4, 4), fletcher32=True)
        file.create_dataset("c", data=VALUES)
    with h5py.File(tmp_path / "a.h5") as file:
        packed, summed, plain = (pieces_of(file[name]) for name in "abc")
        whole = (tmp_path / "a.h5").read_bytes()
    assert [codec["id"] for codec in packed.codecs] == ["shuffle", "zlib"]
    assert [codec["id"] for codec in summed.codecs] == ["fletcher32"]
    assert set(packed.places) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert packed.across(VALUES.shape) == (2, 2)
    ((offset, size),) = plain.places.values()
    assert (plain.chunk, plain.byte_order) == ((6, 8), ">")
    assert whole[offset : offset + size] == VALUES.tobytes()
    offset, size = summed.places[0, 1]
    assert whole[offset : offset + size - 4] == VALUES[:4, 4:].tobytes()


def _odd_chunk(file: h5py.File) -> h5py.Dataset:
    made = file.create_dataset("a", (4, 4), "i2", chunks=(2, 4), compression="gzip")
    made[:2] = 1
    made.id.write_direct_chunk((2, 0), bytes(16), filter_mask=1)
    return made


def _virtual(file: h5py.File) -> h5py.Dataset:
    layout = h5py.VirtualLayout(shape=(4,), dtype="i2")
    layout[:] = h5py.VirtualSource("b.h5", "b", shape=(4,))
    return file.create_virtual_dataset("a", layout)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_odd_chunk, "packed otherwise"),
        (_virtual, "other files"),
        (lambda file: file.create_dataset("a", (4,), "i2"), "not stored by themselves"),
        (
            lambda file: file.create_dataset("a", data=VALUES, chunks=(2, 2), scaleoffset=0),
            "packed by",
        ),
    ],
    ids=["mask", "virtual", "nothing", "scale-offset"],
)
def test_what_others_cannot_read_is_refused(
    make: Callable[[h5py.File], h5py.Dataset], told: str, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = make(file)
        file.flush()
        with pytest.raises(NotInPiecesError, match=told):
            pieces_of(made)


class _Scattered(_Elements):
    def __init__(self) -> None:
        pass

    def places(self, tag: int, number: int) -> list[tuple[int, int]]:  # noqa: ARG002
        return [(10, 5), (90, 5)][:number]


def test_scattered_bytes_are_refused() -> None:
    assert _one_piece(_Scattered(), 40, 1) == (10, 5)
    with pytest.raises(NotInPiecesError, match="scattered over 2 linked blocks"):
        _one_piece(_Scattered(), 40, 2)
