"""Structure of HDF5 is fetched for many objects at once, and guesses do no harm."""

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from reprojection.errors import NotHeldError
from reprojection.formats import hdf5_ahead, held
from reprojection.formats.hdf5 import Hdf5Container
from reprojection.formats.hdf5_ahead import open_every, pointed_at
from reprojection.formats.held import Held, HeldFile, completed, keep

FIELDS, ROWS = 9, 700
HEAD = 512


@pytest.fixture(scope="module")
def granule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fields apart from one another, each of 700 chunks: a tree of two levels."""
    path = tmp_path_factory.mktemp("far") / "a.h5"
    values = np.random.default_rng(1).integers(0, 255, (ROWS, 300)).astype(np.uint8)
    with h5py.File(path, "w") as file:
        fields = file.create_group("HDFEOS/GRIDS/G/Data Fields")
        for number in range(FIELDS):
            made = fields.create_dataset(f"Band{number}", data=values + number, chunks=(1, 300))
            made.attrs["long_name"] = "of the surface, " * 9
            for name in ("scale_factor", "add_offset", "valid_range", "units"):
                made.attrs[name] = np.arange(40.0) + number
    return path


def calls(path: Path, field: str, folder: Path) -> tuple[int, int]:
    """Read a field of a file elsewhere; return the calls one after another, and their bytes."""
    data, far = path.read_bytes(), folder / path.name
    keep(far, len(data), {0: data[:HEAD]})
    asked: list[int] = []

    def fetch(error: NotHeldError) -> None:
        asked.append(sum(high - low for low, high in error.ranges))
        keep(far, len(data), {low: data[low:high] for low, high in error.ranges})

    def work() -> NDArray[np.generic]:
        held = Hdf5Container(far)
        try:
            (found,) = (one for one in held.datasets if one.name == field)
            return held.read(found, (0, 0), found.shape)
        finally:
            held.close()

    got = completed(work, fetch)
    with h5py.File(path) as file:
        assert np.array_equal(got, file[f"HDFEOS/GRIDS/G/Data Fields/{field}"][:])
    return len(asked), sum(asked)


def test_a_layer_takes_few_calls_however_many_fields_there_are(
    granule: Path, tmp_path: Path
) -> None:
    """Without a look ahead it takes one for each field, and one for each node of the tree."""
    made, size = calls(granule, "Band7", tmp_path)
    assert made <= 8
    assert size < 0.5 * granule.stat().st_size


def tree(kind: int, level: int, count: int, children: list[int], key: int, room: int = 64) -> bytes:
    rows = b"".join(bytes(key) + struct.pack("<Q", one) for one in children)
    node = struct.pack("<4sBBHQQ", b"TREE", kind, level, count, 0, 0) + rows
    return node.ljust(24 + room * 8 + (room + 1) * key, b"\0")


def test_nodes_below_and_members_are_told() -> None:
    members = b"".join(
        struct.pack("<QQI4xQQ", 8, header, tree > 0, tree, tree and 900)
        for header, tree in ((5000, 0), (7000, 8000))
    )
    chunks, size = tree(1, 1, 2, [3000, 9000], 32), len(tree(1, 1, 0, [], 32))
    for data, found in (
        (chunks, [(3000, 3000 + size), (9000, 9000 + size)]),
        (tree(1, 0, 2, [3000, 9000], 32), []),  # these are chunks
        (tree(0, 0, 2, [3000, 9000], 8, 32), [(3000, 3328), (9000, 9328)]),
        (
            struct.pack("<4sBxH", b"SNOD", 1, 2) + members,
            [(5000, 6024), (7000, 8024), (8000, 9024), (900, 1924)],
        ),
        (b"OHDR" + bytes(600), []),
        (b"", []),
    ):
        assert pointed_at(memoryview(data)) == found


def test_what_is_damaged_tells_little_and_raises_nothing() -> None:
    noise = np.random.default_rng(2)
    for sort in (b"TREE\0\0", b"TREE\0\1", b"TREE\1\1", b"TREE\1\7", b"SNOD\1\0"):
        for length in (6, 8, 23, 24, 25, 31, 40, 327, 2096, 5000, 300_000):
            data = sort + b"\xff\xff" + noise.bytes(length)
            pointed_at(memoryview(data[:length]))
    most = hdf5_ahead._MOST
    for count in (most, most + 1):
        table = struct.pack("<4sBxH", b"SNOD", 1, count) + bytes(40 * count)
        assert len(pointed_at(memoryview(table))) == most


def pointing_file(folder: Path) -> Path:
    other = folder / "other.h5"
    with h5py.File(other, "w") as file:
        file["secret"] = np.arange(9)
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        file["own"] = np.arange(9)
        file["group/inner"] = np.arange(9)
        file["group/loop"] = file["group"]
        file["soft"] = h5py.SoftLink("/external/secret")
        file["external"] = h5py.ExternalLink(str(other), "/")
    return path


def test_no_link_to_another_file_is_followed(tmp_path: Path) -> None:
    path = pointing_file(tmp_path)
    seen: set[int] = set()
    with h5py.File(path) as file:
        open_every(file, seen)
        own = {h5py.h5o.get_info(file[name].id).addr for name in ("own", "group", "group/inner")}
    assert seen == own


def test_what_is_read_ahead_alone_is_never_missed(granule: Path, tmp_path: Path) -> None:
    """A guess that is not here stops nobody who has all that was read."""
    data, far = granule.read_bytes(), tmp_path / "a.h5"
    keep(far, len(data), {0: data[:HEAD]})
    held = Held.of(far)
    assert held is not None
    file = HeldFile(held, lambda _: [(HEAD, HEAD + 9)])
    with file:
        file.readinto(bytearray(100))
        file.look_up()
        file.seek(HEAD)
        file.readinto(bytearray(1))
        with pytest.raises(NotHeldError):
            file.look_up()


def test_a_file_that_points_everywhere_fills_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "_MOST_AHEAD", 100)
    path = tmp_path / "a.h5"
    keep(path, 10**9, {0: bytes(1000)})
    known = Held.of(path)
    assert known is not None
    places = ((at, at + 1) for at in range(10**6, 10**8, 1000))
    file = HeldFile(known, lambda _: [next(places) for _ in range(64)])
    for _ in range(100):
        file.read(10)
    file.read(1)
    with pytest.raises(NotHeldError) as raised:
        file.look_up()
    file.close()
    assert len(raised.value.ranges) == 2 * 64 + 1


def test_so_many_objects_are_opened_and_no_more(
    granule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5_ahead, "_MOST", 6)
    opened = set[int]()
    with h5py.File(granule) as file:
        open_every(file, opened)
    assert len(opened) == 6, "four groups and two fields of nine"
