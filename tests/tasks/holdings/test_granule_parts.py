"""Granules of sources are fetched as far as they are read, and whole where that is less."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from archives.errors import UnlikeRecordError
from archives.fetch.parts import Range, WholeOnlyError
from archives.model import Fetched, GranuleRecord
from modis.collection import Collection
from reprojection.errors import NotHeldError
from reprojection.formats.held import Held
from reprojection.isolation import ReadingProcess
from reprojection.read.granule import open_granule
from reprojection.sample.hdfeos_write import FieldToWrite, SwathToWrite, write_granule
from tasks.errors import StoreError
from tasks.holdings import parts
from tasks.holdings.parts import PartsFolder
from tasks.holdings.stored_structures import STRETCH, StoredStructures, drop_old
from tasks.holdings.structures import MOST_BYTES, Structures, open_structures
from tasks.storage.blobs import GRANULES, Blobs, MemoryBlobs
from tasks.storage.clock import ManualClock
from tasks.storage.file_blobs import FileBlobs
from tests.generated.hdf5_write import write_hdf5_granule
from tests.reprojection.reading_samples import noisy_tile, small_tile, wrap_up

LAYER = "Lai_1km"


class Elsewhere:
    """A source of one granule, that counts what it sends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sent: list[Range] = []
        self.calls: list[int] = []  # one after another, of so many parts each
        self.whole_only = False
        self.edition = "1"
        self.replaced = False

    def size(self) -> int:
        return self.path.stat().st_size

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        if self.whole_only:
            raise WholeOnlyError("no parts")
        if self.replaced:
            raise UnlikeRecordError("it was replaced")
        self.sent += ranges
        self.calls.append(len(ranges))
        data = self.path.read_bytes()
        return [data[low:high] for low, high in ranges]

    def fetch(self, record: GranuleRecord, to: Path, accept: object = None) -> Fetched:
        del accept
        to.write_bytes(self.path.read_bytes())
        return Fetched(path=to, size=record.size)


@pytest.fixture(scope="module")
def granule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tile = noisy_tile()
    path = tmp_path_factory.mktemp("archive") / tile.local_name
    write_granule(path, tile)
    return path


@pytest.fixture
def source(granule: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    monkeypatch.setattr(parts, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(parts, "_HEAD", 512)
    return Elsewhere(granule)


def folder(source: Elsewhere, place: Path, most: int | None = 10**9) -> PartsFolder:
    sources: Any = SimpleNamespace(
        path_of=lambda _: None, in_parts=lambda _: source, fetch=source.fetch
    )
    return PartsFolder(sources, place / "parts", most)


def record(path: Path, url: str = "") -> GranuleRecord:
    day = datetime(2012, 3, 5, tzinfo=UTC)
    return GranuleRecord(
        name=path.name, product="MCD15A2", collection=Collection("5"), start=day, end=day,
        tile=None, boundary=None, production_time="", size=path.stat().st_size, checksum=None,
        checksum_type=None, url=url or str(path), day_night="", source="there",
    )  # fmt: skip


def corner(path: Path, layer: str) -> tuple[float, int]:
    """Read a layer in a process that has no network."""
    with open_granule(path) as found:
        values = found.read(layer)
        return float(values.sum()), values.size


PROCESS = ReadingProcess()


@pytest.fixture(scope="module", autouse=True)
def _reading() -> Iterator[None]:
    with PROCESS:
        yield


def read(held: PartsFolder, of: GranuleRecord) -> tuple[float, int]:
    return held.read([of], lambda files: PROCESS.run(corner, files[0], LAYER))


def truth(path: Path) -> tuple[float, int]:
    with open_granule(path) as found:
        values = found.read(LAYER)
    return float(np.sum(values)), values.size


def test_a_layer_is_read_without_the_others(source: Elsewhere, tmp_path: Path) -> None:
    held = folder(source, tmp_path)
    assert read(held, record(source.path)) == truth(source.path)
    sent = sum(high - low for low, high in source.sent)
    assert sent < 0.7 * source.size()
    assert held.traffic.whole == 0
    before = held.traffic.bytes
    assert read(held, record(source.path)) == truth(source.path)
    assert held.traffic.bytes == before  # nothing is fetched twice


def test_a_cold_layer_takes_few_calls_one_after_another(source: Elsewhere, tmp_path: Path) -> None:
    """However many fields a granule has, and however long its lists are; of each kind."""
    for number, (path, in_haste) in enumerate(product(written(tmp_path), (False, True))):
        source.path, source.sent, source.calls = path, [], []
        held = folder(source, tmp_path / str(number))
        held.in_haste = in_haste

        def read_layer(files: Sequence[Path]) -> bytes:
            with open_granule(files[0], check=False) as granule:
                return granule.read_all_bands("Band20").tobytes()

        assert held.read([record(path)], read_layer) == read_layer([path])
        assert (held.traffic.whole, len(source.calls) <= 6) == (0, True), (path, source.calls)


def written(place: Path) -> Iterator[Path]:
    """Write a granule of each kind with many layers."""
    values = np.random.default_rng(1).integers(0, 255, (70, 70)).astype(np.uint8)

    def bands(*dims: str) -> list[FieldToWrite]:
        return [FieldToWrite(name=f"Band{n}", values=values + n, dims=dims) for n in range(30)]

    tile = small_tile(side=70, fields=bands("YDim", "XDim"))
    along, across = np.mgrid[50:60:70j, 0:9:70j].astype(np.float32)
    geo = [
        FieldToWrite(name=name, values=one, dims=("Along", "Across"))
        for name, one in (("Latitude", along), ("Longitude", across))
    ]
    swath = wrap_up(
        SwathToWrite(name="mod04", geo_fields=geo, data_fields=bands("Along", "Across")),
        "MYD04_L2.A2012065.0250.061.2012153130500.hdf", "MYD04_L2", 61,
    )  # fmt: skip
    hdf5 = place / "VNP09GA.A2012065.h17v03.002.2012153130500.h5"
    for granule in (tile, swath):
        write_granule(place / granule.local_name, granule)
    write_hdf5_granule(hdf5, tile, eos=True)
    yield from (place / tile.local_name, place / swath.local_name, hdf5)


def test_a_list_that_leads_on_is_read_ahead(
    source: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each place tells where the next one is, as in HDF4: close together, or far apart."""
    monkeypatch.setattr(parts, "MOST_ROUNDS", 99)
    size = 4_000_000
    source.path = tmp_path / "a.hdf"
    source.path.write_bytes(bytes(size))
    for number, (step, in_haste, most, share) in enumerate(
        ((3000, False, 24, 1.0), (3000, True, 10, 1.0), (120_000, False, 36, 0.2),
         (120_000, True, 10, 1.0))
    ):  # fmt: skip
        source.calls, source.sent = [], []
        held = folder(source, tmp_path / str(number))
        held.in_haste = in_haste

        def walk(files: Sequence[Path], places: range = range(600, size, step)) -> int:
            if found := Held.of(files[0]):
                for at in places:
                    found.want([(at, at + 16)])
            return len(places)

        assert held.read([record(source.path)], walk)
        assert len(source.calls) <= most, (step, in_haste)
        assert (held.traffic.whole, held.traffic.bytes <= share * size) == (0, True)
        largest = max(high - low for low, high in source.sent)
        assert in_haste or largest in (parts._BLOCK, parts._MOST_BLOCK)


def test_scattered_structure_is_fetched_whole_and_blocks_have_a_most(
    source: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile file points to thousands of places at once, or leads on without an end."""
    monkeypatch.setattr(parts, "_MOST_PARTS", 20)
    monkeypatch.setattr(parts, "_MOST_IN_HASTE", 1 << 16)
    source.path = tmp_path / "a.hdf"
    source.path.write_bytes(bytes(2_000_000))

    def far_apart(files: Sequence[Path]) -> bool:
        if found := Held.of(files[0]):
            found.want([(at, at + 16) for at in range(600, found.size, 40_000)])
        return True

    held = folder(source, tmp_path / "scattered")
    assert held.read([record(source.path)], far_apart)
    assert (held.traffic.whole, held.traffic.parts) == (1, 2)  # two: its ends

    def one_by_one(files: Sequence[Path]) -> bool:
        for at in range(600, 1_000_000, 40_000):
            if found := Held.of(files[0]):
                found.want([(at, at + 16)])
        return True

    held = folder(source, tmp_path / "long")
    held.in_haste = True
    source.sent = []
    assert held.read([record(source.path)], one_by_one)
    assert (held.traffic.whole, max(high - low for low, high in source.sent)) == (0, 1 << 16)


def test_what_another_process_has_fetched_meanwhile_is_kept(
    source: Elsewhere, tmp_path: Path
) -> None:
    """A source that was asked for nothing yet knows no edition: that is no other edition."""
    first = folder(source, tmp_path)
    assert read(first, record(source.path)) == truth(source.path)
    second, source.edition, source.calls = folder(source, tmp_path), "", []
    lacked: list[Path] = []

    def work(files: Sequence[Path]) -> bool:
        found = Held.of(files[0])
        assert found is not None
        if not lacked:
            lacked.extend(files)
            begin, end = max(found.parts.tolist(), key=lambda one: one[1] - one[0])
            raise NotHeldError(files[0], found.size, ((begin, min(end, begin + 16)),), False)
        return True

    assert second.read([record(source.path)], work)
    assert source.calls in ([], [0])


def test_a_granule_is_opened_once_for_all_its_parts(source: Elsewhere, tmp_path: Path) -> None:
    held = folder(source, tmp_path)
    sources, opened = cast("Any", held.sources), list[GranuleRecord]()

    def in_parts(one: GranuleRecord) -> Elsewhere:
        opened.append(one)
        return source

    sources.in_parts = in_parts
    assert read(held, record(source.path)) == truth(source.path)
    assert len(opened) == 1


def test_a_small_granule_is_fetched_whole(
    source: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "WHOLE_BYTES", 10**9)
    held = folder(source, tmp_path)
    assert read(held, record(source.path)) == truth(source.path)
    assert (held.traffic.whole, held.traffic.parts) == (1, 0)


def test_a_source_without_parts_sends_the_granule(source: Elsewhere, tmp_path: Path) -> None:
    source.whole_only = True
    held = folder(source, tmp_path)
    assert read(held, record(source.path)) == truth(source.path)
    assert held.traffic.whole == 1


def test_a_granule_that_takes_many_calls_is_fetched_whole(
    source: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_ROUNDS", 1)
    monkeypatch.setattr(parts, "BYTES_OF_ROUND", 10**9)
    held = folder(source, tmp_path)
    assert read(held, record(source.path)) == truth(source.path)
    assert held.traffic.whole == 1


def test_of_a_replaced_granule_nothing_is_kept(source: Elsewhere, tmp_path: Path) -> None:
    held = folder(source, tmp_path)
    held.path_of(record(source.path))
    source.replaced = True
    with pytest.raises(UnlikeRecordError):
        read(held, record(source.path))
    assert not list((tmp_path / "parts").glob("*/*"))
    source.replaced = False
    assert read(held, record(source.path)) == truth(source.path)


def test_parts_of_two_editions_are_never_held_together(source: Elsewhere, tmp_path: Path) -> None:
    held = folder(source, tmp_path)
    held.path_of(record(source.path))
    source.edition = "2"  # of the same size
    with pytest.raises(UnlikeRecordError, match="since parts of it came"):
        read(held, record(source.path))
    assert not list((tmp_path / "parts").glob("*/*"))
    assert read(held, record(source.path)) == truth(source.path)


def places(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "parts").glob("*") if path.is_dir())


def test_what_was_used_longest_ago_makes_room(source: Elsewhere, tmp_path: Path) -> None:
    held = folder(source, tmp_path, most=1)
    for number in range(3):
        held.path_of(record(source.path, str(number)))
    old, other, used = places(tmp_path)
    for place, age in ((old, 9000), (other, 8000), (used, 7000)):
        moment = place.stat().st_mtime - age
        os.utime(place, (moment, moment))
    again = next(str(number) for number in range(3) if used == at(held, source, str(number)))
    assert read(held, record(source.path, again)) == truth(source.path)
    assert places(tmp_path) == [used]


def at(held: PartsFolder, source: Elsewhere, url: str) -> Path:
    """Where a granule is, which counts as no use of it."""
    before = {place: place.stat().st_mtime for place in places(held.folder.parent)}
    found = held.path_of(record(source.path, url)).parent
    for place, moment in before.items():
        os.utime(place, (moment, moment))
    return found


def test_what_is_in_use_stays(source: Elsewhere, tmp_path: Path) -> None:
    """More than there is room for is read at once: it is over when that ends."""
    held = folder(source, tmp_path, most=1)
    for number in range(3):
        assert read(held, record(source.path, str(number))) == truth(source.path)
    assert len(places(tmp_path)) == 3


def test_an_attempts_own_granules_make_no_room(source: Elsewhere, tmp_path: Path) -> None:
    """On a disk of large blocks parts may take more than the granule has bytes."""
    held = folder(source, tmp_path, most=None)
    for number in range(3):
        held.path_of(record(source.path, str(number)))
    for place in places(tmp_path):
        os.utime(place, (1, 1))
    assert read(held, record(source.path)) == truth(source.path)
    assert len(places(tmp_path)) == 4


def knowing(source: Elsewhere, place: Path, most: int = MOST_BYTES) -> PartsFolder:
    """A folder of its own, beside what is known of structures."""
    held = folder(source, place)
    held.structures = Structures(place.parent / "structures", most)
    return held


def known(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (place / "structures").iterdir()}


def test_what_is_known_of_a_structure_leaves_one_call_for_values(
    source: Elsewhere, tmp_path: Path
) -> None:
    assert read(knowing(source, tmp_path / "a"), record(source.path)) == truth(source.path)
    (data,) = known(tmp_path).values()
    first, source.sent = len(source.sent), []
    held = knowing(source, tmp_path / "b")
    assert read(held, record(source.path)) == truth(source.path)
    assert len(source.sent) < first
    assert 0 < held.traffic.parts == len(source.sent) <= 2
    assert len(data) + held.traffic.bytes < 0.7 * source.size()
    assert known(tmp_path).popitem()[1] == data


def test_the_structure_of_another_edition_is_learnt_again(
    source: Elsewhere, tmp_path: Path
) -> None:
    read(knowing(source, tmp_path / "a"), record(source.path))
    (before,) = known(tmp_path).values()
    source.edition = "2"  # of the same size
    assert read(knowing(source, tmp_path / "b"), record(source.path)) == truth(source.path)
    (after,) = known(tmp_path).values()
    assert before != after
    source.sent = []
    assert read(knowing(source, tmp_path / "c"), record(source.path)) == truth(source.path)
    assert len(source.sent) <= 2


def test_a_damaged_structure_is_made_again(source: Elsewhere, tmp_path: Path) -> None:
    read(knowing(source, tmp_path / "first"), record(source.path))
    ((name, data),) = known(tmp_path).items()
    for number, at in enumerate((0, 65, 66, 300, len(data) // 2, len(data) - 20)):
        wrong = bytearray(data)
        wrong[at] ^= 1
        for damaged in (bytes(wrong), data[:at]):
            (tmp_path / "structures" / name).write_bytes(damaged)
            held = knowing(source, tmp_path / f"{number} {len(damaged)}")
            held.path_of(record(source.path))
            assert not (tmp_path / "structures" / name).exists()
    assert read(held, record(source.path)) == truth(source.path)
    assert known(tmp_path) == {name: data}


class Machine:
    """A machine of its own, over storage that others have, too."""

    def __init__(self, source: Elsewhere, place: Path, blobs: Blobs) -> None:
        self.source, self.place = source, place
        self.structures = open_structures(place, blobs)

    def sent(self, folder_name: str = "") -> list[Range]:
        """Read the granule, and return what the source sent for that."""
        self.source.sent = []
        held = folder(self.source, self.place / folder_name)
        held.structures = self.structures
        assert read(held, record(self.source.path)) == truth(self.source.path)
        return self.source.sent


def test_another_machine_fetches_nothing_of_a_structure_that_is_stored(
    source: Elsewhere, tmp_path: Path
) -> None:
    blobs = MemoryBlobs()
    first = Machine(source, tmp_path / "first", blobs)
    learning, values = first.sent("a"), first.sent("b")
    assert len(values) <= 2 < len(learning)
    second = Machine(source, tmp_path / "second", blobs)
    assert second.sent("a") == values
    assert known(tmp_path / "second") == known(tmp_path / "first")

    # Of another edition it is learnt again, by whoever meets that; the next one finds the new one.
    (name,) = blobs.names(GRANULES)
    before = blobs.get_bytes(GRANULES, name)
    source.edition = "2"
    assert len(Machine(source, tmp_path / "third", blobs).sent()) > len(values)
    assert blobs.get_bytes(GRANULES, name) != before
    assert Machine(source, tmp_path / "fourth", blobs).sent() == values

    # So it is where what is stored is damaged or lost.
    good = blobs.get_bytes(GRANULES, name)
    for number, damaged in enumerate((good[:-1] + bytes([good[-1] ^ 1]), good[:100], None)):
        blobs.delete(GRANULES, name)
        if damaged is not None:
            blobs.put_bytes(GRANULES, name, damaged)
        assert Machine(source, tmp_path / f"damaged {number}", blobs).sent() == learning
        assert blobs.get_bytes(GRANULES, name) == good


def test_storage_that_does_not_answer_changes_no_reading(source: Elsewhere, tmp_path: Path) -> None:
    class Away(MemoryBlobs):
        def get_bytes(self, *_: object) -> bytes:
            raise StoreError("away")

        put_bytes: Any = get_bytes

    assert Machine(source, tmp_path / "first", Away()).sent()
    local = Machine(source, tmp_path / "second", FileBlobs(tmp_path / "blobs"))
    assert local.sent()
    assert local.structures.stored is None  # it would lie on this machine twice


def test_what_was_stored_of_structures_long_ago_goes() -> None:
    blobs, clock = MemoryBlobs(), ManualClock()
    stored = StoredStructures(blobs, clock.now)
    index = "index/1/2.sqlite"
    blobs.put_bytes(GRANULES, index, b"index")
    stored.put("a", b"a")
    clock.sleep(STRETCH)
    stored.put("b", b"b")
    assert [*drop_old(blobs, clock.now())] == []
    assert (stored.find("a"), stored.find("b"), stored.find("c")) == (b"a", b"b", None)
    clock.sleep(STRETCH)
    assert [*drop_old(blobs, clock.now())] == [True]
    assert (stored.find("a"), stored.find("b")) == (None, b"b")
    clock.sleep(STRETCH)
    assert [*drop_old(blobs, clock.now())] == [True]
    assert [*blobs.names(GRANULES)] == [index]


def test_structures_used_longest_ago_make_room(source: Elsewhere, tmp_path: Path) -> None:
    read(knowing(source, tmp_path / "a"), record(source.path))
    ((name, data),) = known(tmp_path).items()
    os.utime(tmp_path / "structures" / name, (1, 1))
    other = record(source.path, "other")
    read(knowing(source, tmp_path / "b", most=2 * len(data)), other)
    assert len(known(tmp_path)) == 2
    read(knowing(source, tmp_path / "c", most=2 * len(data) - 1), record(source.path, "third"))
    assert name not in known(tmp_path)
