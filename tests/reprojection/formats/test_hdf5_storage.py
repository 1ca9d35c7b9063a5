"""Where HDF5 data sets lie is checked before they are read; values are those of the library."""

import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from reprojection.errors import UnreadableGranuleError
from reprojection.formats import hdf5_chunks
from reprojection.formats.hdf5 import Hdf5Container

FIELDS = "HDFEOS/GRIDS/G/Data Fields"
RNG = np.random.default_rng(5)
Part = tuple[tuple[int, int], tuple[int, int]]
NOISE = RNG.integers(-3000, 3000, (50, 70)).astype(np.int16)


def written(path: Path, **how: object) -> Path:
    with h5py.File(path, "w") as file:
        file.create_group(FIELDS).create_dataset("Band", data=NOISE, **how)
    return path


def read(path: Path, part: Part | None = None) -> NDArray[np.generic]:
    with closing(Hdf5Container(path)) as container:
        (dataset,) = container.datasets
        start, count = part or ((0, 0), dataset.shape)
        return container.read(dataset, start, count)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"chunks": (1, 70)},
        {"chunks": (16, 16), "compression": "gzip"},
        {"chunks": (16, 16), "compression": "gzip", "shuffle": True},
        {"chunks": (16, 16), "shuffle": True},
        {"chunks": (16, 16), "compression": "gzip", "fletcher32": True},
        {"chunks": (50, 70), "compression": "lzf"},
        {"chunks": (7, 3), "compression": "gzip", "compression_opts": 0},
    ],
)
def test_values_are_those_that_the_library_reads(tmp_path: Path, how: dict[str, object]) -> None:
    path = written(tmp_path / "a.h5", **how)
    assert np.array_equal(read(path), NOISE)
    assert np.array_equal(read(path, ((13, 5), (20, 61))), NOISE[13:33, 5:66])
    assert np.array_equal(read(path, ((49, 69), (1, 1))), NOISE[49:, 69:])


@pytest.mark.parametrize("kind", ["<u1", "<i2", ">i2", "<f4", ">u4", "<f8"])
@pytest.mark.parametrize(("batch", "run"), [(1, 1), (2000, 500), (10**9, 10**9)])
def test_chunks_are_read_alike_few_or_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, batch: int, run: int
) -> None:
    monkeypatch.setattr(hdf5_chunks, "_BATCH", batch)
    monkeypatch.setattr(hdf5_chunks, "_RUN", run)
    values = RNG.integers(0, 200, (5, 31, 23)).astype(kind)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        band = file.create_group(FIELDS).create_dataset(
            "Band", values.shape, kind, chunks=(2, 7, 23), compression="gzip", shuffle=True
        )
        for row in (21, 0, 14, 28, 7):  # not in the order of their places
            band[:, row : row + 7] = values[:, row : row + 7]
    for _ in range(5):
        low = [int(RNG.integers(0, size)) for size in values.shape]
        high = [int(RNG.integers(at, size + 1)) for at, size in zip(low, values.shape, strict=True)]
        count = tuple(to - at for at, to in zip(low, high, strict=True))
        block = tuple(slice(at, to) for at, to in zip(low, high, strict=True))
        with closing(Hdf5Container(tmp_path / "a.h5")) as container:
            found = container.read(container.datasets[0], tuple(low), count)
        assert found.dtype == np.dtype(kind).newbyteorder("=")
        assert np.array_equal(found, values[block])


def test_each_chunk_may_leave_out_its_own_filters(tmp_path: Path) -> None:
    values = RNG.integers(0, 3000, (4, 70)).astype("<i2")
    shuffled = [np.frombuffer(row.tobytes(), "u1").reshape(-1, 2).T.tobytes() for row in values]
    stored = [
        zlib.compress(shuffled[0]),
        zlib.compress(values[1].tobytes()),
        shuffled[2],
        values[3].tobytes(),
    ]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        band = file.create_group(FIELDS).create_dataset(
            "Band", values.shape, "<i2", chunks=(1, 70), compression="gzip", shuffle=True
        )
        for mask, data in enumerate(stored):
            band.id.write_direct_chunk((mask, 0), data, filter_mask=mask)
    assert np.array_equal(read(tmp_path / "a.h5"), values)


def test_filters_are_undone_in_the_order_of_the_file(tmp_path: Path) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((10, 70))
    plist.set_deflate(4)
    plist.set_shuffle()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group(FIELDS)
        space = h5py.h5s.create_simple(NOISE.shape)
        band = h5py.h5d.create(group.id, b"Band", h5py.h5t.STD_I16LE, space, plist)
        band.write(h5py.h5s.ALL, h5py.h5s.ALL, NOISE)
    with h5py.File(tmp_path / "a.h5") as file:
        assert np.array_equal(file[FIELDS]["Band"][:], NOISE)
    assert np.array_equal(read(tmp_path / "a.h5"), NOISE)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_chunk_with_a_byte_too_many_or_few_is_damage(tmp_path: Path, kept: int) -> None:
    data = zlib.compress(NOISE[0].tobytes())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        band = file.create_group(FIELDS).create_dataset(
            "Band", (1, 70), np.int16, chunks=(1, 70), compression="gzip"
        )
        band.id.write_direct_chunk((0, 0), data + b"x" if kept else data[:-1])
    with pytest.raises(UnreadableGranuleError, match="cannot be decoded"):
        read(tmp_path / "a.h5")


def test_a_chunk_that_would_not_shrink_is_stored_without_its_filter(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    chunk = RNG.integers(0, 255, 4096).astype(np.uint8)
    with h5py.File(path, "w") as file:
        band = file.create_group(FIELDS).create_dataset(
            "Band", (2, 4096), np.uint8, chunks=(1, 4096), compression="gzip"
        )
        band[0] = 0
        band.id.write_direct_chunk((1, 0), chunk.tobytes(), filter_mask=1)
    found = read(path)
    assert np.array_equal(found[1], chunk)
    assert not found[0].any()


def unwritten(path: Path) -> None:
    with h5py.File(path, "w") as file:
        band = file.create_group(FIELDS).create_dataset("Band", (50, 70), np.int16, chunks=(1, 70))
        band[:49] = NOISE[:49]


def never_written(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_group(FIELDS).create_dataset("Band", (50, 70), np.int16)


def masked(path: Path) -> None:
    with h5py.File(path, "w") as file:
        band = file.create_group(FIELDS).create_dataset(
            "Band", (2, 70), np.int16, chunks=(1, 70), compression="gzip"
        )
        band[0] = NOISE[0]
        band.id.write_direct_chunk((1, 0), NOISE[1].tobytes()[:-9], filter_mask=1)


def flagged(path: Path) -> None:
    with h5py.File(path, "w") as file:
        band = file.create_group(FIELDS).create_dataset(
            "Band", (1, 70), np.int16, chunks=(1, 70), compression="gzip"
        )
        band.id.write_direct_chunk((0, 0), NOISE[0].tobytes(), filter_mask=8)


def other_numbers(path: Path) -> None:
    """Twelve of sixteen bits, as a damaged description of the type has."""
    kind = h5py.h5t.STD_I16LE.copy()
    kind.set_precision(12)
    with h5py.File(path, "w") as file:
        group = file.create_group(FIELDS)
        space = h5py.h5s.create_simple((50, 70))
        h5py.h5d.create(group.id, b"Band", kind, space)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (unwritten, "49 chunks where its shape takes 50"),
        (never_written, "no place in the file"),
        (masked, "is not compressed has not its 140 bytes"),
        (flagged, "leaves out filters that there are not"),
        (other_numbers, "12 of 16 bits"),
    ],
)
def test_storage_that_its_shape_and_filters_do_not_explain_is_damage(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "a.h5")
    with pytest.raises(UnreadableGranuleError, match=words):
        read(tmp_path / "a.h5")


def test_no_byte_of_the_index_gives_wrong_values(tmp_path: Path) -> None:
    """Bytes of the file, the index and headers among them, inverted one at a time.

    `make proofs ONLY=values ARGS="--count 10000"` does so with larger files, and real ones.
    """
    path = written(tmp_path / "a.h5", chunks=(5, 70), compression="gzip")
    data = path.read_bytes()
    with h5py.File(path) as file:
        band = file[FIELDS]["Band"].id
        chunks = [band.get_chunk_info(n) for n in range(band.get_num_chunks())]
    streams = [range(one.byte_offset, one.byte_offset + one.size) for one in chunks]
    refused = 0
    for at in range(1, len(data), 8):
        if any(at in stream for stream in streams):
            continue
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        (tmp_path / "b.h5").write_bytes(damaged)
        try:
            with closing(Hdf5Container(tmp_path / "b.h5")) as container:
                found = {
                    one.name: container.read(one, (0, 0), one.shape) for one in container.datasets
                }
        except UnreadableGranuleError:
            refused += 1
            continue
        if "Band" in found:
            assert np.array_equal(found["Band"], NOISE), at
    assert refused > 30
