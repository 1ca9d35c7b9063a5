"""A granule held in part gives the values of the whole one, or says which bytes it lacks."""

import struct
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from reprojection.errors import NotHeldError, UnreadableGranuleError
from reprojection.formats.held import Held, Range, completed, joined, keep, pack, unpack
from reprojection.grid.grids import Lattice
from reprojection.read.granule import Granule, open_granule
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import write_granule
from tests.reprojection.reading_samples import noisy_tile

HEAD = 512
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=6)


class Far:
    """A granule elsewhere, of which what is asked for is fetched into a file of its name."""

    def __init__(self, source: Path, folder: Path) -> None:
        folder.mkdir()
        self.path = folder / source.name
        self.data = source.read_bytes()
        self.asked: list[Range] = []
        keep(self.path, len(self.data), {0: self.data[:HEAD]})

    def fetch(self, error: NotHeldError) -> None:
        assert error.path == self.path
        assert error.size == len(self.data)
        self.asked += error.ranges
        keep(self.path, error.size, {low: self.data[low:high] for low, high in error.ranges})

    def read(self, work: Callable[[Granule], NDArray[np.generic]]) -> NDArray[np.generic]:
        def opened() -> NDArray[np.generic]:
            with open_granule(self.path, check=False) as granule:
                return work(granule)

        return completed(opened, self.fetch)

    @property
    def bytes_asked(self) -> int:
        return sum(high - low for low, high in self.asked)


def of(name: str) -> Callable[[Granule], NDArray[np.generic]]:
    return lambda granule: granule.read_all_bands(name)


def layers_of(path: Path) -> dict[str, NDArray[np.generic]]:
    with open_granule(path) as granule:
        return {name: granule.read_all_bands(name) for name in granule.layers}


def all_layers_equal(source: Path, folder: Path) -> None:
    """Compare each layer, read by itself of a granule of which nothing but its head is here."""
    folder.mkdir()
    for number, (name, values) in enumerate(layers_of(source).items()):
        got = Far(source, folder / str(number)).read(of(name))
        assert got.dtype == values.dtype
        same = got.tobytes() == values.tobytes()
        assert same, f"{source.name}: {name}"


def written(path: Path, **how: object) -> Path:
    values = np.random.default_rng(1).integers(0, 999, (900, 1200)).astype(np.int16)
    with h5py.File(path, "w") as file:
        fields = file.create_group("HDFEOS/GRIDS/G/Data Fields")
        for name in ("Band", "Other"):
            fields.create_dataset(name, data=values, **how)
    return path


def tile(folder: Path) -> Path:
    granule = noisy_tile()
    path = folder / granule.local_name
    write_granule(path, granule)
    return path


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"chunks": (90, 120), "compression": "gzip", "shuffle": True},
        {"chunks": (90, 120), "compression": "lzf"},  # read by the library
    ],
)
def test_hdf5_is_read_by_its_parts(tmp_path: Path, how: dict[str, object]) -> None:
    source = written(tmp_path / "a.h5", **how)
    from reprojection.formats.hdf5 import Hdf5Container

    container = Hdf5Container(source)
    whole = {one.name: container.read(one, (70, 50), (9, 9)) for one in container.datasets}
    container.close()
    far = Far(source, tmp_path / "far")

    def part() -> NDArray[np.generic]:
        held = Hdf5Container(far.path)
        try:
            return held.read(held.datasets[0], (70, 50), (9, 9))
        finally:
            held.close()

    assert np.array_equal(completed(part, far.fetch), whole["Band"])
    if "chunks" in how:
        blocks = 3 << 16  # around the structure
        assert far.bytes_asked < blocks + len(far.data) // 10


def test_elements_of_hdf5_take_their_own_chunks(tmp_path: Path) -> None:
    source = written(tmp_path / "a.h5", chunks=(90, 120), compression="gzip")
    from reprojection.formats.hdf5 import Hdf5Container

    at = [np.array([0, 899, 450, 1, 899]), np.array([0, 1199, 600, 2, 0])]
    far = Far(source, tmp_path / "far")
    calls = 0

    def part() -> NDArray[np.generic]:
        nonlocal calls
        calls += 1
        held = Hdf5Container(far.path)
        try:
            (band,) = (one for one in held.datasets if one.name == "Band")
            return held.take(band, at)
        finally:
            held.close()

    found = completed(part, far.fetch)
    with h5py.File(source) as file:
        whole = file["HDFEOS/GRIDS/G/Data Fields/Band"][:]
    assert np.array_equal(found, whole[at[0], at[1]])
    structure = far.bytes_asked - 4 * len(far.data) // 200  # each layer has 100 chunks
    assert structure < len(far.data) // 10


def test_hdf4_is_read_by_its_parts(tmp_path: Path) -> None:
    source = tile(tmp_path)
    all_layers_equal(source, tmp_path / "layers")
    far = Far(source, tmp_path / "far")
    far.read(of("Lai_1km"))
    assert far.bytes_asked < 0.7 * len(far.data)


def test_a_file_that_holds_all_is_the_granule_itself(tmp_path: Path) -> None:
    source = tile(tmp_path)
    far = Far(source, tmp_path / "far")
    keep(far.path, len(far.data), {HEAD: far.data[HEAD:]})
    same = far.path.read_bytes() == far.data
    assert same
    assert Held.of(far.path) is None


def test_a_damaged_list_of_parts_is_told(tmp_path: Path) -> None:
    far = Far(tile(tmp_path), tmp_path / "far")
    good = far.path.read_bytes()
    size = len(far.data)
    for at in range(size, len(good) - 12):
        far.path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(UnreadableGranuleError, match="delete the file"):
            Held.of(far.path)


@pytest.mark.parametrize("count", [-1, 1, 2, 3, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("size", [-16, 0, 100, 1 << 62])
def test_a_forged_list_of_parts_is_told(tmp_path: Path, size: int, count: int) -> None:
    """Its checksum is right; what it says does not fit the file."""
    listed = struct.pack("<qq", 0, 50)
    head = struct.pack("<qq", size, count)
    tail = head + struct.pack("<I12s", zlib.crc32(listed + head), b"held in part")
    path = tmp_path / "a.hdf"
    path.write_bytes(bytes(100) + listed + tail)
    if (size, count) == (100, 1):
        found = Held.of(path)
        assert found is not None
        assert found.missing([(40, 60)]) == ((50, 60),)
    else:
        with pytest.raises(UnreadableGranuleError, match="delete the file"):
            Held.of(path)


def test_what_is_held_is_packed_without_its_holes(tmp_path: Path) -> None:
    data = bytes(range(200)) * 1000
    one, packed, again = (tmp_path / name for name in ("a.hdf", "a.hdf.parts", "again.hdf"))
    keep(one, len(data), {0: data[:70], 100: data[100:5000], 199_000: data[199_000:]})
    pack(one, packed)
    assert packed.stat().st_size < 70 + 4900 + 1000 + 200
    assert Held.of(packed) is None
    unpack(packed, again)
    assert again.read_bytes() == one.read_bytes()
    keep(one, len(data), {0: data})
    with pytest.raises(ValueError, match="is whole"):
        pack(one, packed)


@pytest.mark.parametrize(
    ("parts", "before"),
    [
        ([(0, 50), (60, 100)], 90),
        ([(0, 50), (60, 100)], 91),  # more bytes than parts
        ([(0, 50), (40, 80)], 90),  # one over the other
        ([(0, 50), (60, 101)], 91),  # beyond the granule
        ([(-10, 50), (60, 90)], 90),
        ([(50, 0), (60, 200)], 90),
    ],
)
def test_a_forged_list_of_packed_parts_is_told(
    tmp_path: Path, parts: list[Range], before: int
) -> None:
    listed = np.array(parts, "<i8").tobytes()
    head = struct.pack("<qq", 100, len(parts))
    path, to = tmp_path / "a.hdf.parts", tmp_path / "a.hdf"
    tail = head + struct.pack("<I12s", zlib.crc32(listed + head), b"packed parts")
    path.write_bytes(bytes(before) + listed + tail)
    if before == 90 and parts[1] == (60, 100):
        unpack(path, to)
        return
    with pytest.raises(UnreadableGranuleError, match="held in part"):
        unpack(path, to)


def test_a_fetch_that_does_not_help_ends(tmp_path: Path) -> None:
    far = Far(tile(tmp_path), tmp_path / "far")
    with pytest.raises(NotHeldError, match="is held in part, and"):
        completed(lambda: open_granule(far.path), lambda _: None)


def test_a_piece_beyond_the_granule_is_refused(tmp_path: Path) -> None:
    far = Far(tile(tmp_path), tmp_path / "far")
    size = len(far.data)
    with pytest.raises(ValueError, match="beyond"):
        keep(far.path, size, {size - 1: b"ab"})
    with pytest.raises(ValueError, match="bytes, not"):
        keep(far.path, size + 1, {0: b"ab"})


@given(SPANS, SPANS)
def test_what_is_missing_is_what_is_not_held(held: list[Range], wanted: list[Range]) -> None:
    parts = joined((at, at + size) for at, size in held)
    asked = [(at, at + size) for at, size in wanted]
    found = Held(Path("a"), 99, np.array(parts, np.int64).reshape(-1, 2)).missing(asked)
    inside = {byte for low, high in asked for byte in range(low, high)}
    inside -= {byte for low, high in parts for byte in range(low, high)}
    assert {byte for low, high in found for byte in range(low, high)} == inside
    assert all(one[1] < other[0] for one, other in pairwise(found))


@pytest.mark.real_data
@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("l3-tiles/MCD15A2/*A2012001.h17v03*", id="deflated chunks"),
        pytest.param("l3-tiles/MOD10A1/*A2018010*", id="linked blocks"),
        pytest.param("l2-swath/MYD11_L2/*.hdf", id="swath"),
        pytest.param("new-real/SS_MODIS*.nc", id="netCDF-4"),
    ],
)
def test_layers_of_a_real_granule_take_their_own_bytes(
    granules: Path, tmp_path: Path, pattern: str
) -> None:
    """Once its structure is here, all layers together take no byte twice, and each is right."""
    (source,) = sorted(granules.glob(pattern))[:1]
    first = Far(source, tmp_path / "first")
    completed(lambda: open_granule(first.path).close(), first.fetch)
    asked: list[Range] = []
    for number, (name, values) in enumerate(layers_of(source).items()):
        far = Far(source, tmp_path / str(number))
        keep(far.path, len(far.data), {low: far.data[low:high] for low, high in first.asked})
        same = far.read(of(name)).tobytes() == values.tobytes()
        assert same, name
        asked += far.asked
    assert sum(high - low for low, high in asked) <= 1.3 * len(first.data) - first.bytes_asked


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("pattern", "layer", "qa", "place", "most"),
    [
        ("l3-tiles/MCD15A2/*A2012001.h17v03*", "Lai_1km", "best", (-5.0, 55.0), 0.5),
        ("new-real/VNP13A2*", "1 km 16 days NDVI", None, (3.3, -3.3), 0.7),
        ("new-real/S2008001.L3m*", "chlor_a", None, (3.3, -3.3), 1.0),
    ],
)
def test_a_small_raster_of_a_real_granule_takes_its_own_bytes(
    granules: Path,
    tmp_path: Path,
    pattern: str,
    layer: str,
    qa: str | None,
    place: tuple[float, float],
    most: float,
) -> None:
    (source,) = sorted(granules.glob(pattern))[:1]
    far = Far(source, tmp_path / "far")
    grid = Lattice(crs="EPSG:4326", resolution=0.01).snap((*place, place[0] + 0.3, place[1] + 0.3))
    for method in ("nearest", "cubic"):
        options = Options(resampling=method, qa=qa)
        whole = reproject([source], layer, grid, options)
        part = completed(lambda: reproject([far.path], layer, grid, options), far.fetch)  # noqa: B023
        assert part.data.tobytes() == whole.data.tobytes()
        assert part.description() == whole.description()
    assert 0 < far.bytes_asked < most * len(far.data)


@pytest.mark.real_data
@pytest.mark.proof
def test_every_layer_of_real_granules_is_read_by_its_parts(granules: Path, tmp_path: Path) -> None:
    """The first granule of each folder, and all that are new: each layer by itself."""
    folders = {path.parent: path for path in sorted(granules.rglob("*.*"), reverse=True)}
    sources = {*folders.values(), *granules.glob("new-real/*")}
    kinds = (".hdf", ".h5", ".nc")
    for number, source in enumerate(sorted(one for one in sources if one.suffix in kinds)):
        all_layers_equal(source, tmp_path / str(number))
