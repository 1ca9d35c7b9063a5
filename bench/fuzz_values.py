"""Invert bytes of compressed data: no layer may give wrong values without an error.

    SWATHMILL_TEST_GRANULES=FOLDER python -m bench.fuzz_values --count 10000 --jobs 2

Each case inverts one to eight bytes of one compressed stream, reads every layer, and compares it
with the clean file's. The corpus are the fuzzer's small granules, HDF4 and HDF5, and the smallest
real granule of each product in the folder of SWATHMILL_TEST_GRANULES. `--format hdf4` (or hdf5)
takes only granules of that format. `--only SEED` repeats a case.
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
from reprojection.container import Container
from reprojection.errors import UnreadableGranuleError
from reprojection.read.hdf4 import Hdf4Container
from reprojection.read.hdf4_data import deflated_places
from reprojection.read.hdf5 import Hdf5Container

_BATCH = 100
_LARGEST = 6_000_000  # bytes: the real granules that are read quickly enough


@dataclass(frozen=True, kw_only=True)
class Original:
    """A clean granule: its bytes, where its compressed streams lie, and its layers' digests."""

    path: Path
    data: bytes
    streams: tuple[tuple[int, int], ...]  # offset and length
    digests: dict[str, str | None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """How one damaged granule was read: `wrong` layers differ from the clean file's in silence."""

    seed: int
    granule: str
    refused: int
    wrong: tuple[str, ...]


def read_original(path: Path) -> Original:
    """Read a clean granule."""
    return Original(
        path=path, data=path.read_bytes(), streams=_streams(path), digests=_digests(path)
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


def _digests(path: Path) -> dict[str, str | None]:
    """Return a digest of each layer's values; None for a layer that is refused as damaged."""
    found: dict[str, str | None] = {}
    container: Container = (Hdf5Container if path.suffix == ".h5" else Hdf4Container)(path)
    with closing(container):
        for dataset in container.datasets:
            try:
                values = container.read(dataset, (0,) * len(dataset.shape), dataset.shape)
            except UnreadableGranuleError:
                found[dataset.key] = None
            else:
                found[dataset.key] = hashlib.blake2b(values.tobytes()).hexdigest()
    return found


def run_case(originals: Sequence[Original], folder: Path, seed: int) -> Case:
    """Damage a granule as the seed says, read all its layers, and compare them."""
    source = random.Random(seed)
    original = source.choice(originals)
    data = bytearray(original.data)
    at, length = source.choice(original.streams)
    for place in {source.randrange(at, at + length) for _ in range(source.choice((1, 1, 2, 8)))}:
        data[place] ^= 0xFF
    damaged = folder / f"case{original.path.suffix}"
    damaged.write_bytes(data)
    found = _digests(damaged)
    wrong = [name for name, digest in original.digests.items() if found[name] not in (None, digest)]
    refused = sum(digest is None for digest in found.values())
    return Case(seed=seed, granule=original.path.name, refused=refused, wrong=tuple(wrong))


def run_batch(
    seeds: Sequence[int], real: Path | None = None, suffixes: Sequence[str] = (".hdf", ".h5")
) -> list[Case]:
    """Run some cases on the generated granules, or with `real` also on granules of that folder.

    Only granules whose names end in one of `suffixes` are damaged.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [*make_corpus(folder / "corpus"), _shuffled(folder / "shuffled.h5")]
        if real is not None:
            paths += _real_granules(real)
        originals = [read_original(path) for path in paths if path.suffix in suffixes]
        return [run_case([one for one in originals if one.streams], folder, at) for at in seeds]


def _shuffled(path: Path) -> Path:
    """An HDF5 tile in shuffled, deflated chunks, as VIIRS tiles are stored."""
    values = np.arange(240 * 240, dtype=np.int16).reshape(240, 240)
    with h5py.File(path, "w") as file:
        fields = file.create_group("HDFEOS/GRIDS/G/Data Fields")
        fields.create_dataset(
            "Band", data=values, chunks=(100, 100), shuffle=True, compression="gzip"
        )
    return path


def _real_granules(folder: Path) -> list[Path]:
    files: dict[str, list[Path]] = {}
    for path in sorted((*folder.glob("l*/**/*.hdf"), *folder.glob("l*/**/*.h5"))):
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
    parser.add_argument("--only", type=int, help="run this one case and show how it ended")
    chosen = parser.parse_args(arguments)
    granules = os.environ.get("SWATHMILL_TEST_GRANULES")
    real = Path(granules) if granules else None
    suffixes = {"hdf4": (".hdf",), "hdf5": (".h5",), "all": (".hdf", ".h5")}[chosen.format]
    started = time.monotonic()
    if chosen.only is not None:
        (case,) = run_batch([chosen.only], real, suffixes)
        sys.stdout.write(f"{case}\n")
        return int(bool(case.wrong))
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    batches = [seeds[at : at + _BATCH] for at in range(0, len(seeds), _BATCH)]
    ended: Counter[tuple[str, str]] = Counter()
    faults: list[Case] = []
    with ProcessPoolExecutor(max_workers=chosen.jobs) as pool:
        for cases in pool.map(run_batch, batches, repeat(real), repeat(suffixes)):
            for case in cases:
                how = "WRONG" if case.wrong else "refused" if case.refused else "no effect"
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
