"""Invert bytes of granules: no layer may give wrong values without an error.

    SWATHMILL_TEST_GRANULES=FOLDER python -m bench.fuzz_values --count 10000 --jobs 2

Each case inverts one to eight bytes of one compressed stream, reads every layer, and compares it
with the clean file's. With `--anywhere` it inverts one byte of the whole file, so the indices of
chunks, the headers and the attributes, too. An attribute that reads as another one is counted
apart ("attribute"): no format of granules has a checksum of them. Bytes that are stored plain,
without compression, are left alone: nothing tells that they changed.

The corpus are the fuzzer's small granules, HDF4 and HDF5, a netCDF-4 map, and the smallest real
granule of each product in the folder of SWATHMILL_TEST_GRANULES. `--format hdf4` (or hdf5, with
netCDF-4) takes only granules of that format. `--only SEED` repeats a case.
"""

import argparse
import hashlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import h5py
import numpy as np

from bench.fuzz_granules import make_corpus
from reprojection.errors import BadFormatError, UnreadableGranuleError
from reprojection.formats.container import Container
from reprojection.formats.hdf4 import Hdf4Container
from reprojection.formats.hdf4_data import deflated_places, plain_places
from reprojection.formats.hdf5 import Hdf5Container
from reprojection.isolation import run_in_fork

_BATCH = 100
_LARGEST = 6_000_000  # bytes: the real granules that are read quickly enough


@dataclass(frozen=True, kw_only=True)
class Original:
    """A clean granule: its bytes, where its compressed streams lie, and its layers' digests."""

    path: Path
    data: bytes
    streams: tuple[tuple[int, int], ...]  # offset and length
    plain: tuple[tuple[int, int], ...]  # values that are not compressed, likewise
    digests: "Digests"


@dataclass(frozen=True, kw_only=True)
class Case:
    """How one damaged granule was read: `wrong` layers differ from the clean file's in silence."""

    seed: int
    granule: str
    refused: int
    wrong: tuple[str, ...]
    attributes: int = 0  # layers whose attributes read as others


def read_original(path: Path) -> Original:
    """Read a clean granule."""
    return Original(
        path=path,
        data=path.read_bytes(),
        streams=_streams(path),
        plain=_plain(path),
        digests=_digests(path),
    )


def _streams(path: Path) -> tuple[tuple[int, int], ...]:
    if path.suffix != ".h5":
        return deflated_places(path)
    found: list[tuple[int, int]] = []

    def add(_: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.chunks:
            chunks = (item.id.get_chunk_info(at) for at in range(item.id.get_num_chunks()))
            found.extend((chunk.byte_offset, chunk.size) for chunk in chunks)

    with h5py.File(path, "r") as file:
        file.visititems(add)
    return tuple(found)


def _plain(path: Path) -> tuple[tuple[int, int], ...]:
    """List where values lie that are not compressed."""
    if path.suffix != ".h5":
        return plain_places(path)
    found: list[tuple[int, int]] = []

    def add(_: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.chunks is None and item.id.get_offset():
            found.append((item.id.get_offset(), item.id.get_storage_size()))

    with h5py.File(path, "r") as file:
        file.visititems(add)
    return tuple(found)


Digests = dict[str, tuple[str | None, str]]


def _digests(path: Path) -> Digests:
    """Return digests of each layer's values and attributes; None for values that are refused.

    Nothing for a file that is refused as a whole.
    """
    try:
        return _digests_of(path)
    except (UnreadableGranuleError, BadFormatError):
        return {}


def _digests_of(path: Path) -> Digests:
    found: Digests = {}
    container: Container = (Hdf5Container if path.suffix == ".h5" else Hdf4Container)(path)
    with closing(container):
        for dataset in container.datasets:
            try:
                values = container.read(dataset, (0,) * len(dataset.shape), dataset.shape)
            except UnreadableGranuleError:
                digest = None
            else:
                content = f"{values.dtype} {values.shape} ".encode() + values.tobytes()
                digest = hashlib.blake2b(content).hexdigest()
            try:
                about = str(sorted(dataset.attributes.items(), key=str))
            except UnreadableGranuleError:
                about = "refused"
            found[f"{dataset.structure}/{dataset.name}"] = digest, about
    return found


def run_case(
    originals: Sequence[Original], folder: Path, seed: int, *, anywhere: bool = False
) -> Case:
    """Damage a granule as the seed says, read all its layers, and compare them."""
    source = random.Random(seed)
    original = source.choice(originals)
    data = bytearray(original.data)
    if anywhere:
        places = {_place(source, original)}
    else:
        at, length = source.choice(original.streams)
        places = {source.randrange(at, at + length) for _ in range(source.choice((1, 1, 2, 8)))}
    for place in places:
        data[place] ^= 0xFF
    damaged = folder / f"case{original.path.suffix}"
    damaged.write_bytes(data)
    # The HDF4 library crashes on some damaged headers.
    try:
        found = run_in_fork([damaged], _digests, damaged) if anywhere else _digests(damaged)
    except UnreadableGranuleError:
        found = {}
    same = {key: found.get(key, (None, "")) for key in original.digests}
    wrong = [
        key for key, (digest, _) in same.items() if digest not in (None, original.digests[key][0])
    ]
    return Case(
        seed=seed,
        granule=original.path.name,
        refused=sum(digest is None for digest, _ in same.values()),
        wrong=tuple(wrong),
        attributes=sum(
            digest is not None and about != original.digests[key][1]
            for key, (digest, about) in same.items()
        ),
    )


def _place(source: random.Random, original: Original) -> int:
    """Choose a byte of a file that does not lie in values which are stored plain."""
    while True:
        place = source.randrange(len(original.data))
        if not any(at <= place < at + length for at, length in original.plain):
            return place


def run_batch(
    seeds: Sequence[int],
    real: Path | None = None,
    suffixes: Sequence[str] = (".hdf", ".h5"),
    anywhere: bool = False,
) -> list[Case]:
    """Run some cases on the generated granules, or with `real` also on granules of that folder.

    Only granules whose names end in one of `suffixes` are damaged.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = [_shuffled(folder / "shuffled.h5"), _netcdf(folder / "netcdf.h5")]
        paths = [*make_corpus(folder / "corpus"), *own]
        if real is not None:
            paths += _real_granules(real)
        originals = [read_original(path) for path in paths if path.suffix in suffixes]
        taken = [one for one in originals if one.streams or anywhere]
        return [run_case(taken, folder, at, anywhere=anywhere) for at in seeds]


def _shuffled(path: Path) -> Path:
    """An HDF5 tile in shuffled, deflated chunks, as VIIRS tiles are stored."""
    values = np.arange(240 * 240, dtype=np.int16).reshape(240, 240)
    with h5py.File(path, "w") as file:
        fields = file.create_group("HDFEOS/GRIDS/G/Data Fields")
        fields.create_dataset(
            "Band", data=values, chunks=(100, 100), shuffle=True, compression="gzip"
        )
    return path


def _netcdf(path: Path) -> Path:
    """A map in netCDF-4, as ocean colour is stored: coordinates, scales of dimensions, groups."""
    values = np.arange(90 * 120, dtype=np.int16).reshape(90, 120)
    axes = {"lat": np.linspace(59.5, -29.5, 90), "lon": np.linspace(-59.5, 59.5, 120)}
    with h5py.File(path, "w") as file:
        for name, places in axes.items():
            file.create_dataset(name, data=places.astype(np.float32)).make_scale(name)
        for name in ("chlor_a", "processing/l2_flags"):
            item = file.create_dataset(
                name, data=values, chunks=(16, 120), shuffle=True, compression="gzip"
            )
            for number, axis in enumerate(axes):
                item.dims[number].attach_scale(file[axis])
            item.attrs["_FillValue"] = np.int16(-32767)
    return path


def _real_granules(folder: Path) -> list[Path]:
    files: dict[str, list[Path]] = {}
    for path in sorted((*folder.glob("*/**/*.hdf"), *folder.glob("*/**/*.h5"))):
        if path.stat().st_size <= _LARGEST:
            files.setdefault(path.name.partition(".")[0], []).append(path)
    return [min(paths, key=lambda path: path.stat().st_size) for paths in files.values()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer; 1 if any layer gave wrong values in silence."""
    parser = argparse.ArgumentParser(description="Invert bytes of compressed data.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--format", choices=("hdf4", "hdf5", "all"), default="all")
    parser.add_argument("--anywhere", action="store_true", help="invert a byte of the whole file")
    parser.add_argument("--only", type=int, help="run this one case and show how it ended")
    chosen = parser.parse_args(arguments)
    granules = os.environ.get("SWATHMILL_TEST_GRANULES")
    real = Path(granules) if granules else None
    suffixes = {"hdf4": (".hdf",), "hdf5": (".h5",), "all": (".hdf", ".h5")}[chosen.format]
    started = time.monotonic()
    if chosen.only is not None:
        (case,) = run_batch([chosen.only], real, suffixes, chosen.anywhere)
        sys.stdout.write(f"{case}\n")
        return int(bool(case.wrong))
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    batches = [seeds[at : at + _BATCH] for at in range(0, len(seeds), _BATCH)]
    ended: Counter[tuple[str, str]] = Counter()
    faults: list[Case] = []
    with ProcessPoolExecutor(max_workers=chosen.jobs) as pool:
        given = repeat(real), repeat(suffixes), repeat(chosen.anywhere)
        for cases in pool.map(run_batch, batches, *given):
            for case in cases:
                how = "refused" if case.refused else "attribute" if case.attributes else "no effect"
                how = "WRONG" if case.wrong else how
                ended[case.granule, how] += 1
            faults += [case for case in cases if case.wrong]
            sys.stderr.write(f"{sum(ended.values())} of {chosen.count} cases\n")
    for (granule, how), count in sorted(ended.items()):
        sys.stdout.write(f"{count:8d}  {how:9s}  {granule}\n")
    for case in faults[:20]:
        sys.stdout.write(f"case {case.seed}: {case.granule}: {', '.join(case.wrong)}\n")
    seconds = time.monotonic() - started
    sys.stdout.write(f"{chosen.count} cases, {len(faults)} wrong in silence, {seconds:.0f} s\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
