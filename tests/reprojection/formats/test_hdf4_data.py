"""Values found past the HDF4 library are the library's own, or left to it."""

import os
import struct
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from pyhdf.SD import SD, SDC

from reprojection.errors import NotHeldError, UnreadableGranuleError
from reprojection.formats import hdf4
from reprojection.formats.hdf4 import Hdf4Container
from reprojection.formats.hdf4_data import (
    DamagedStreamError,
    StoredData,
    _descriptors,
    deflated_places,
)
from reprojection.formats.held import Held, completed, keep
from reprojection.sample.hdfeos_write import write_granule
from reprojection.sample.sample import swath_granules, tile_granules
from tests.reprojection.reading_samples import small_tile

Elements = dict[tuple[int, int], bytes]
SHORT = np.dtype(np.int16)
SPECIAL = 0x4000
GROUP, VALUES, DEFLATED, LINKED, CHUNK = 720, 702, 40, 20, 61
REFERENCE = 9


def build(path: Path, elements: Mapping[tuple[int, int], bytes]) -> Path:
    """An HDF4 file of nothing but these elements, in one block of descriptors."""
    at = 4 + 6 + 12 * len(elements)
    table, data = struct.pack(">HI", len(elements), 0), b""
    for (tag, number), content in elements.items():
        table += struct.pack(">HHII", tag, number, at + len(data), len(content))
        data += content
    path.write_bytes(b"\x0e\x03\x13\x01" + table + data)
    return path


def group() -> Elements:
    return {(GROUP, REFERENCE): struct.pack(">HHHHHH", 106, 9, 701, 9, VALUES, 4)}


def compressed(size: int, number: int, coder: int = 4) -> bytes:
    return struct.pack(">HHIHHHH", 3, 0, size, number, 0, coder, 6)


def deflated(values: npt.NDArray[np.generic]) -> Elements:
    data = values.astype(values.dtype.newbyteorder(">")).tobytes()
    head = compressed(len(data), 1)
    return {**group(), (VALUES | SPECIAL, 4): head, (DEFLATED, 1): zlib.compress(data)}


def chunked(values: npt.NDArray[np.int16], chunk: tuple[int, int], *, without: int) -> Elements:
    """A data set in deflated chunks, of which one was never written and is filled with -1."""
    tall, wide = chunk
    head = struct.pack(">BIIIIHHHHI", 0, 3, values.size, tall * wide, 2, 1962, 5, 1, 0, 2)
    for length, part in zip(values.shape, chunk, strict=True):
        head += struct.pack(">III", 0, length, part)
    head += struct.pack(">Ih", 2, -1)
    comp = struct.pack(">HIHHH", 3, 6, 0, 4, 6)
    found = {**group(), (VALUES | SPECIAL, 4): struct.pack(">HI", 5, len(head)) + head + comp}
    table, number = b"", 0
    across = -(-values.shape[1] // wide)
    for row in range(-(-values.shape[0] // tall)):
        for col in range(across):
            number += 1
            if number == without:
                continue
            piece = values[row * tall : (row + 1) * tall, col * wide : (col + 1) * wide]
            beyond = [(0, side - size) for side, size in zip(chunk, piece.shape, strict=True)]
            whole = np.pad(piece, beyond).astype(">i2")
            found[DEFLATED, number] = zlib.compress(whole.tobytes())
            found[CHUNK | SPECIAL, number] = compressed(whole.nbytes, number)
            table += struct.pack(">iiHH", row, col, CHUNK, number)
    found[1962, 5] = struct.pack(">HIHH", 0, len(table) // 12, 12, 3)
    # The table in two linked blocks, the second no longer than it need be.
    first = 24
    found[1963 | SPECIAL, 5] = struct.pack(">HIIIH", 1, len(table), len(table) - first, 2, 90)
    found[LINKED, 90] = struct.pack(">HHH", 0, 91, 92)
    found |= {(LINKED, 91): table[:first], (LINKED, 92): table[first:]}
    return found


def read(
    path: Path,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike = SHORT,
    part: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> npt.NDArray[np.generic] | None:
    start, count = part or ((0,) * len(shape), shape)
    with closing(StoredData(path)) as stored:
        return stored.read(REFERENCE, shape=shape, dtype=np.dtype(dtype), start=start, count=count)


def of_every_dataset(path: Path) -> dict[str, bool]:
    """Whether each data set was read past the library; asserts that it says the same."""
    direct, library = StoredData(path), SD(str(path), SDC.READ)
    container, found = Hdf4Container(path), {}
    for dataset in container.datasets:
        if 0 in dataset.shape:
            continue
        zero, shape = [0] * len(dataset.shape), dataset.shape
        sds = library.select(int(dataset.key))
        values = direct.read(
            sds.ref(), shape=shape, dtype=dataset.dtype, start=tuple(zero), count=shape
        )
        found[dataset.name] = values is not None
        if values is not None:
            said = np.asarray(sds.get(zero, list(shape), [1] * len(zero))).reshape(shape)
            assert values.dtype == said.dtype
            assert values.tobytes() == said.tobytes(), dataset.name
        sds.endaccess()
    container.close()
    direct.close()
    library.end()
    return found


def values_of(path: Path) -> dict[str, bytes | None]:
    """The bytes of each data set; None where it is refused as damaged."""
    container, found = Hdf4Container(path), dict[str, bytes | None]()
    for dataset in container.datasets:
        try:
            values = container.read(dataset, (0,) * len(dataset.shape), dataset.shape)
        except UnreadableGranuleError:
            found[dataset.name] = None
        else:
            found[dataset.name] = values.tobytes()
    container.close()
    return found


def test_sample_granules_are_read_past_the_library(tmp_path: Path) -> None:
    for number, granule in enumerate((next(tile_granules()), next(swath_granules()))):
        path = tmp_path / f"{number}.hdf"
        write_granule(path, granule)
        found = of_every_dataset(path)
        assert found
        assert all(found.values())


@pytest.mark.real_data
def test_real_granules_have_the_librarys_values(granules: Path) -> None:
    left: set[str] = set()
    for folder in sorted(granules.glob("l*/*")):
        path = min(folder.glob("*.hdf"))
        found = of_every_dataset(path)
        left |= {path.parent.name for direct in found.values() if not direct}
    assert not left


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"])
def test_parts_of_any_type_are_the_librarys(tmp_path: Path, dtype: str, deflate: bool) -> None:
    path = tmp_path / "one.hdf"
    numbers = {"i1": SDC.INT8, "u1": SDC.UINT8, "i2": SDC.INT16, "u2": SDC.UINT16}
    numbers |= {"i4": SDC.INT32, "u4": SDC.UINT32, "f4": SDC.FLOAT32, "f8": SDC.FLOAT64}
    values = np.random.default_rng(1).integers(0, 127, (5, 7, 3)).astype(dtype)
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    sds = file.create("Band", numbers[dtype], values.shape)
    if deflate:
        sds.setcompress(SDC.COMP_DEFLATE, 5)
    sds.set(values)
    reference = sds.ref()
    sds.endaccess()
    file.end()
    stored = StoredData(path)
    for start, count in (((0, 0, 1), (5, 7, 1)), ((2, 3, 0), (3, 4, 3)), ((4, 6, 2), (1, 1, 1))):
        found = stored.read(
            reference, shape=values.shape, dtype=values.dtype, start=start, count=count
        )
        cut = tuple(slice(at, at + n) for at, n in zip(start, count, strict=True))
        assert found is not None
        assert found.dtype == values.dtype
        assert np.array_equal(found, values[cut])
        assert found.flags.writeable
    stored.close()


def test_what_was_appended_lies_in_linked_blocks(tmp_path: Path) -> None:
    path = tmp_path / "grown.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    grown, other = (file.create(name, SDC.INT16, (SDC.UNLIMITED, 40)) for name in ("A", "B"))
    values = np.arange(30 * 40, dtype=np.int16).reshape(30, 40)
    for row in range(0, 30, 10):
        for sds in (grown, other):
            sds[row : row + 10] = values[row : row + 10]
    grown.endaccess()
    other.endaccess()
    file.end()
    assert struct.pack(">H", VALUES | SPECIAL) in path.read_bytes()
    assert of_every_dataset(path) == {"A": True, "B": True}


def test_chunks_reach_beyond_the_edge(tmp_path: Path) -> None:
    values = np.arange(150 * 130, dtype=np.int16).reshape(150, 130)
    path = build(tmp_path / "chunks.hdf", chunked(values, (64, 100), without=0))
    whole = read(path, values.shape)
    assert whole is not None
    assert np.array_equal(whole, values)
    part = read(path, values.shape, part=((60, 90), (80, 33)))
    assert part is not None
    assert np.array_equal(part, values[60:140, 90:123])


def test_a_missing_chunk_is_damage(tmp_path: Path) -> None:
    """The library fills it: a chunk whose place was damaged would read as fill."""
    values = np.arange(150 * 130, dtype=np.int16).reshape(150, 130)
    path = build(tmp_path / "chunks.hdf", chunked(values, (64, 100), without=3))
    with pytest.raises(DamagedStreamError, match="table of its 6 chunks"):
        read(path, values.shape)
    with pytest.raises(DamagedStreamError):
        taken(path, values.shape, (np.array([0]), np.array([0])))


Place = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


def taken(path: Path, shape: tuple[int, int], at: Place) -> npt.NDArray[np.generic] | None:
    with closing(StoredData(path)) as stored:
        return stored.take(REFERENCE, shape=shape, dtype=SHORT, at=at)


def test_single_elements_are_those_of_the_whole(tmp_path: Path) -> None:
    """What is not in chunks is left to whoever reads blocks."""
    values = np.arange(150 * 130, dtype=np.int16).reshape(150, 130)
    one = build(tmp_path / "one.hdf", deflated(values))
    assert taken(one, values.shape, (np.array([1]), np.array([2]))) is None
    path = build(tmp_path / "some.hdf", chunked(values, (64, 100), without=0))
    whole = read(path, values.shape)
    assert whole is not None
    rng = np.random.default_rng(3)
    at = rng.integers(0, 150, 500), rng.integers(0, 130, 500)  # in no order, some of them twice
    found = taken(path, values.shape, at)
    assert found is not None
    assert found.dtype == whole.dtype
    assert np.array_equal(found, whole[at])


def test_only_chunks_that_hold_an_element_are_read_and_held_to_their_checksums(
    tmp_path: Path,
) -> None:
    values = np.arange(150 * 130, dtype=np.int16).reshape(150, 130)
    elements = chunked(values, (64, 100), without=0)
    stream = elements[DEFLATED, 4]  # rows 64 to 127, columns 100 to 129
    elements[DEFLATED, 4] = stream[:-1] + bytes([stream[-1] ^ 1])
    path = build(tmp_path / "damaged.hdf", elements)
    with pytest.raises(DamagedStreamError):
        read(path, values.shape)
    beside = np.array([0, 63, 64, 128]), np.array([0, 129, 99, 120])
    found = taken(path, values.shape, beside)
    assert found is not None
    assert np.array_equal(found, values[beside])
    with pytest.raises(DamagedStreamError):
        taken(path, values.shape, (np.array([0, 64]), np.array([0, 100])))


VALUES_HERE = np.arange(60 * 80, dtype=np.int16).reshape(60, 80)


def test_damage_to_a_stream_is_noticed(tmp_path: Path) -> None:
    whole = deflated(VALUES_HERE)
    path = build(tmp_path / "whole.hdf", whole)
    found = read(path, VALUES_HERE.shape)
    assert found is not None
    assert np.array_equal(found, VALUES_HERE)
    stream, longer = whole[DEFLATED, 1], zlib.compress(bytes(10_000_000))
    wrong_sum = stream[:-1] + bytes([stream[-1] ^ 1])
    for number, bad in enumerate((stream[:-9], wrong_sum, longer, b"", b"\xff" * 99)):
        path = build(tmp_path / f"{number}.hdf", {**whole, (DEFLATED, 1): bad})
        for part in (None, ((0, 0), (1, 80))):  # also where only the first row is wanted
            with pytest.raises(DamagedStreamError):
                read(path, VALUES_HERE.shape, part=part)


def test_a_stream_in_linked_blocks_is_checked_and_its_blocks_are_listed(tmp_path: Path) -> None:
    """As MOD10A1 and MOD10A2 store their layers."""
    whole = deflated(VALUES_HERE)
    stream = whole.pop((DEFLATED, 1))
    blocks = [stream[at : at + 1000].ljust(1000, b"\0") for at in range(0, len(stream), 1000)]
    whole[DEFLATED | SPECIAL, 1] = struct.pack(">HIIIH", 1, len(stream), 1000, len(blocks), 90)
    numbers = range(91, 91 + len(blocks))
    whole[LINKED, 90] = struct.pack(f">{len(blocks) + 1}H", 0, *numbers)
    whole |= {(LINKED, n): one for n, one in zip(numbers, blocks, strict=True)}
    path = build(tmp_path / "linked.hdf", whole)
    found = read(path, VALUES_HERE.shape)
    assert found is not None
    assert np.array_equal(found, VALUES_HERE)
    places = deflated_places(path)
    data = bytearray(path.read_bytes())
    listed = b"".join(bytes(data[at : at + length]) for at, length in places)
    assert len(places) == len(blocks) > 2
    assert listed[: len(stream)] == stream
    for at, _ in places:
        damaged = bytearray(data)
        damaged[at + 5] ^= 0xFF
        copy = tmp_path / "damaged.hdf"
        copy.write_bytes(damaged)
        with pytest.raises(DamagedStreamError):
            read(copy, VALUES_HERE.shape)


@pytest.mark.real_data
def test_an_inverted_byte_never_gives_wrong_values(granules: Path, tmp_path: Path) -> None:
    """One byte of the deflated data of real granules, at places spread over all its streams."""
    for product in ("MCD15A2", "MOD11B2", "MYD04_L2"):
        path = min(granules.glob(f"l*/{product}/*.hdf"))
        whole = path.read_bytes()
        with path.open("rb") as file:
            streams = [at for (tag, _), at in _descriptors(file).items() if tag == DEFLATED]
        places = [at + n for at, length in streams for n in range(0, length, max(1, length // 3))]
        clean = values_of(path)
        for place in places[:: max(1, len(places) // 8)]:
            damaged = bytearray(whole)
            damaged[place] ^= 0xFF
            copy = tmp_path / path.name
            copy.write_bytes(damaged)
            found = values_of(copy)
            wrong = [name for name in found if found[name] not in (None, clean[name])]
            assert not wrong, (product, place, wrong)
            assert None in found.values(), f"{product}: nobody noticed byte {place}"


def test_other_ways_of_storing_are_left_to_the_library(tmp_path: Path) -> None:
    whole = deflated(VALUES_HERE)
    for number, coder in enumerate((0, 1, 2, 3, 5)):
        head = compressed(VALUES_HERE.nbytes, 1, coder=coder)
        path = build(tmp_path / f"{number}.hdf", {**whole, (VALUES | SPECIAL, 4): head})
        assert read(path, VALUES_HERE.shape) is None


def test_damage_to_what_says_where_values_lie_is_told(tmp_path: Path) -> None:
    whole = deflated(VALUES_HERE)
    heads = {
        "no coder": compressed(VALUES_HERE.nbytes, 1, coder=251),
        "another size": compressed(VALUES_HERE.nbytes - 2, 1),
        "no such stream": compressed(VALUES_HERE.nbytes, 7),
        "cut off": b"\0\3\0",
    }
    for number, head in enumerate(heads.values()):
        path = build(tmp_path / f"{number}.hdf", {**whole, (VALUES | SPECIAL, 4): head})
        with pytest.raises(DamagedStreamError):
            read(path, VALUES_HERE.shape)
    twice = {(GROUP, REFERENCE): struct.pack(">HHHH", VALUES, 4, VALUES, 4)}
    for name, elements in (("twice", {**whole, **twice}), ("none", group())):
        with pytest.raises(DamagedStreamError):
            read(build(tmp_path / f"{name}.hdf", elements), VALUES_HERE.shape)


def test_elements_upon_one_another_and_beyond_the_end_are_damage(tmp_path: Path) -> None:
    path = build(tmp_path / "whole.hdf", deflated(VALUES_HERE))
    data = path.read_bytes()
    with path.open("rb") as file:
        offset, length = _descriptors(file)[DEFLATED, 1]
    entry = data.index(struct.pack(">HHII", DEFLATED, 1, offset, length))
    for number, (at, size) in enumerate(((offset - 8, length), (offset, length + 10_000))):
        moved = struct.pack(">HHII", DEFLATED, 1, at, size)
        copy = tmp_path / f"{number}.hdf"
        copy.write_bytes(data[:entry] + moved + data[entry + 12 :])
        with pytest.raises(DamagedStreamError, match=r"upon one another|beyond the end"):
            read(copy, VALUES_HERE.shape)


def test_damage_to_chunks_is_told(tmp_path: Path) -> None:
    values = np.zeros((150, 130), np.int16)
    whole = chunked(values, (64, 100), without=0)
    head, places = whole[VALUES | SPECIAL, 4], whole[1962, 5]
    at = struct.calcsize(">HIBIIIIHHHHI")
    wrongs: list[Elements] = [
        {(VALUES | SPECIAL, 4): head[: at + 8] + struct.pack(">I", 1 << 31) + head[at + 12 :]},
        {(VALUES | SPECIAL, 4): head[: at + 8] + bytes(4) + head[at + 12 :]},
        {(VALUES | SPECIAL, 4): head[:-4]},
        {(1962, 5): struct.pack(">HI", 0, 1 << 30) + places[6:]},
        {(LINKED, 91): struct.pack(">iiHH", 0, 0, CHUNK, 1) * 2},  # one place twice
        {(LINKED, 91): struct.pack(">iiHH", 9, 0, CHUNK, 1) * 2},  # off the data set
        {(LINKED, 90): struct.pack(">HHH", 90, 91, 0)},  # a circle of tables
    ]
    for number, wrong in enumerate(wrongs):
        path = build(tmp_path / f"{number}.hdf", {**whole, **wrong})
        with pytest.raises(DamagedStreamError):
            read(path, values.shape)
    assert read(build(tmp_path / "whole.hdf", whole), values.shape) is not None
    with pytest.raises(DamagedStreamError):
        read(build(tmp_path / "stream.hdf", {**whole, (DEFLATED, 2): b"x"}), values.shape)


def test_a_chunk_that_two_places_name_is_damage(tmp_path: Path) -> None:
    """One byte of a table made it name another chunk, whose checksum was right, too."""
    values = np.arange(150 * 130, dtype=np.int16).reshape(150, 130)
    whole = chunked(values, (64, 100), without=0)
    rows = whole[LINKED, 91]
    row = struct.pack(">iiHH", 0, 1, CHUNK, 5)  # in place of chunk 2
    same = {**whole, (LINKED, 91): rows[:12] + row}
    # A second data set whose table is that of the first.
    other = {**whole, (VALUES | SPECIAL, 6): whole[VALUES | SPECIAL, 4]}
    for name, elements in (("same", same), ("other", other)):
        path = build(tmp_path / f"{name}.hdf", elements)
        with pytest.raises(DamagedStreamError, match="two places"):
            read(path, values.shape)


def test_a_circle_of_descriptor_blocks_ends(tmp_path: Path) -> None:
    path = build(tmp_path / "circle.hdf", deflated(VALUES_HERE))
    data = bytearray(path.read_bytes())
    data[6:10] = struct.pack(">I", 4)
    for bad in (data, data[:30]):
        path.write_bytes(bad)
        with pytest.raises(DamagedStreamError):
            read(path, VALUES_HERE.shape)


def test_one_thread_at_a_time_is_let_into_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library has no locks. A fork has its own: it lacks the thread that may hold another."""
    write_granule(tmp_path / "a.hdf", small_tile())
    with closing(Hdf4Container(tmp_path / "a.hdf")) as container, ThreadPoolExecutor(1) as other:
        with container._selected(0):
            assert not other.submit(may_enter).result()
            monkeypatch.setattr(os, "getpid", lambda: -1)
            assert other.submit(may_enter).result()
        monkeypatch.undo()
        assert other.submit(may_enter).result()


def may_enter() -> bool:
    lock = hdf4._library()
    free = lock.acquire(blocking=False)
    if free:
        lock.release()
    return free


def held(source: Path, folder: Path) -> tuple[Path, Callable[[NotHeldError], None]]:
    """A file that holds the head of another one, and what fetches more of it."""
    folder.mkdir()
    path, data = folder / source.name, source.read_bytes()

    def fetch(error: NotHeldError) -> None:
        keep(path, len(data), {low: data[low:high] for low, high in error.ranges})

    keep(path, len(data), {0: data[:4]})
    return path, fetch


def test_linked_blocks_of_a_table_are_structure(tmp_path: Path) -> None:
    """Blocks of values may be absent from a file that is held in part, those of tables not."""
    values = np.arange(80_000, dtype=np.int16).reshape(200, 400)
    source = build(tmp_path / "a.hdf", chunked(values, (5, 10), without=0))
    path, fetch = held(source, tmp_path / "held")

    def look() -> list[tuple[int, int]]:
        with closing(StoredData(path, Held.of(path))) as stored:
            stored.want_structure()
            return [place for (tag, _), place in _places(source).items() if tag == LINKED]

    blocks = completed(look, fetch)
    assert max(size for _, size in blocks) > 4096
    found = Held.of(path)
    assert found is None or not found.missing((at, at + size) for at, size in blocks)


@pytest.mark.parametrize("part", [((0, 0), (2, 400)), ((150, 3), (1, 1))])
def test_values_in_one_piece_are_asked_for_as_far_as_they_reach(
    tmp_path: Path, part: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    values = np.arange(80_000, dtype=np.int16).reshape(200, 400)
    pieces = {**group(), (VALUES, 4): values.astype(">i2").tobytes()}
    path, fetch = held(build(tmp_path / "a.hdf", pieces), tmp_path / "held")

    def look() -> npt.NDArray[np.generic] | None:
        with closing(StoredData(path, Held.of(path))) as stored:
            start, count = part
            return stored.read(REFERENCE, shape=values.shape, dtype=SHORT, start=start, count=count)

    (row, column), (rows, columns) = part
    found = completed(look, fetch)
    assert found is not None
    assert np.array_equal(found, values[row : row + rows, column : column + columns])


def _places(path: Path) -> dict[tuple[int, int], tuple[int, int]]:
    with path.open("rb") as file:
        return _descriptors(file)
