"""Feed damaged granules to the reader: every one must end in a result or a named error.

    python -m bench.fuzz_granules --count 100000 --jobs 2

The corpus is made from the sample archive's granules, thinned, so that a run needs nothing else.
Each case is one number: `--only SEED` repeats it, and `--keep FOLDER` saves the files of cases that
ended in anything else than a result or a named error. HDF4 is a C library that trusts its files, so
a crash, hang or memory hunger of the reading process counts as a named error; how many is shown.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
from pyhdf.SD import SD, SDC

from bench.reading import read_everything
from reprojection.errors import ReprojectionError
from reprojection.isolation import ReadingProcess
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GranuleToWrite,
    SwathToWrite,
    write_granule,
)
from reprojection.sample.sample import swath_granules, tile_granules

SECONDS = 20.0
MEMORY = 2 << 30
_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class Case:
    """How one damaged granule ended."""

    seed: int
    outcome: str
    message: str

    @property
    def is_fault(self) -> bool:
        """True if the reader failed in a way it does not name."""
        return self.outcome.startswith("FAULT")


def make_corpus(folder: Path) -> list[Path]:
    """Small granules of every structure: grid, swath, swath with dimension maps, HDF5 grid."""
    folder.mkdir(parents=True, exist_ok=True)
    tile = next(tile_granules())
    grid = tile.structure
    if isinstance(grid, SwathToWrite):
        raise TypeError("the sample's tiles lie on grids")
    thin = [replace(item, values=item.values[::20, ::20].copy()) for item in grid.fields]
    tile = replace(tile, structure=replace(grid, fields=thin))
    swath = next(swath_granules())
    granules: list[tuple[str, GranuleToWrite]] = [
        ("tile.hdf", tile),
        ("swath.hdf", swath),
        ("mapped.hdf", replace(swath, structure=_mapped_swath())),
    ]
    paths = []
    for name, granule in granules:
        write_granule(folder / name, granule)
        paths.append(folder / name)
    paths.append(_viirs_tile(folder / "viirs.h5"))
    return paths


def _mapped_swath() -> SwathToWrite:
    """5 km geolocation for 1 km data, as in MYD11_L2."""
    coarse, fine = ("Lines_5km", "Pixels_5km"), ("Lines_1km", "Pixels_1km")
    lat = np.linspace(50, 52, 8 * 12, dtype=np.float32).reshape(8, 12)
    values = np.arange(40 * 64, dtype=np.uint16).reshape(40, 64)
    quality = np.zeros((40, 64, 3), np.int8)
    return SwathToWrite(
        name="S",
        geo_fields=[
            FieldToWrite(name="Latitude", values=lat, dims=coarse),
            FieldToWrite(name="Longitude", values=lat - 40, dims=coarse),
        ],
        data_fields=[
            FieldToWrite(
                name="LST",
                values=values,
                dims=fine,
                typed={"valid_range": (10, 60000), "_FillValue": 0},
                attributes={"scale_factor": 0.02, "add_offset": 0.0},
            ),
            FieldToWrite(
                name="QA", values=quality, dims=(*fine, "Byte"), typed={"valid_range": (0, -1)}
            ),
        ],
        maps=[("Lines_5km", "Lines_1km", 2, 5), ("Pixels_5km", "Pixels_1km", 2, 5)],
    )


def _viirs_tile(path: Path) -> Path:
    struct = (
        'GROUP=GridStructure\nGROUP=GRID_1\nGridName="G"\nXDim=60\nYDim=60\n'
        "UpperLeftPointMtrs=(0.000000,6671703.118000)\nLowerRightMtrs=(1111950.519667,5559752.598333)\n"
        "Projection=HE5_GCTP_SNSOID\nProjParams=(6371007.181000,0,0,0)\n"
        "END_GROUP=GRID_1\nEND_GROUP=GridStructure\nEND\n"
    )
    with h5py.File(path, "w") as file:
        file.create_group("HDFEOS INFORMATION")["StructMetadata.0"] = np.bytes_(struct)
        fields = file.create_group("HDFEOS/GRIDS/G/Data Fields")
        band = fields.create_dataset(
            "Band", data=np.arange(3600, dtype=np.int16).reshape(60, 60), compression="gzip"
        )
        band.attrs["scale_factor"] = np.array([0.0001])
        band.attrs["valid_range"] = np.array([0, 3000], np.int16)
    return path


def damage(original: Path, target: Path, random_source: random.Random) -> None:
    """Write a damaged copy of a granule."""
    kinds: list[Callable[[bytearray, random.Random], None]] = [
        _flip,
        _truncate,
        _blank,
        _repeat,
        _lie_in_metadata,
        _mangle_structure,
    ]
    data = bytearray(original.read_bytes())
    if random_source.random() < 0.2:
        target.write_bytes(data)
        wrong = _wrong_attributes if original.suffix == ".hdf" else _wrong_attributes_hdf5
        wrong(target, random_source)
        return
    for _ in range(random_source.choice((1, 1, 1, 2, 4))):
        random_source.choice(kinds)(data, random_source)
    target.write_bytes(data)


def _place(data: bytearray, random_source: random.Random) -> int:
    """Anywhere, but half of the time where HDF keeps its directories: near either end."""
    size = max(len(data), 1)
    if random_source.random() < 0.5:
        return random_source.randrange(size)
    near = random_source.randrange(min(size, 4096))
    return near if random_source.random() < 0.5 else size - 1 - near


def _flip(data: bytearray, random_source: random.Random) -> None:
    for _ in range(random_source.choice((1, 3, 20, 200))):
        if data:
            data[_place(data, random_source)] = random_source.choice(
                (0, 1, 0x7F, 0x80, 0xFF, random_source.randrange(256))
            )


def _truncate(data: bytearray, random_source: random.Random) -> None:
    del data[random_source.randrange(len(data) + 1) :]


def _blank(data: bytearray, random_source: random.Random) -> None:
    at = _place(data, random_source)
    length = random_source.choice((1, 4, 16, 512, 8192))
    data[at : at + length] = bytes([random_source.choice((0, 0xFF))]) * len(data[at : at + length])


def _repeat(data: bytearray, random_source: random.Random) -> None:
    at, to = _place(data, random_source), _place(data, random_source)
    data[to : to + 64] = data[at : at + len(data[to : to + 64])]


_LIES = (
    (b"XDim=", b"XDim=9"),
    (b"Size=", b"Size=8"),
    (b"Increment=5", b"Increment=0"),
    (b"Offset=2", b"Offset=-"),
    (b"END_GROUP", b"END_GROUQ"),
    (b"GROUP=", b"GROUP=("),
    (b"GridName", b"GridNane"),
    (b"DataField_1", b"DataField_2"),
    (b"VALUE", b"VALVE"),
    (b"VERSIONID", b"VERSIONIE"),
)


def _lie_in_metadata(data: bytearray, random_source: random.Random) -> None:
    """Change the metadata's words without moving anything behind them."""
    for old, new in random_source.sample(_LIES, 3):
        at = data.find(old)
        if at >= 0:
            data[at : at + len(new)] = new


def _mangle_structure(data: bytearray, random_source: random.Random) -> None:
    """Change digits, separators or letters within the structure metadata, which stays as long."""
    begin = data.find(b"GROUP=")
    end = data.find(b"\nEND\n", begin)
    if begin < 0 or end <= begin:
        return
    for _ in range(random_source.choice((1, 2, 8, 40))):
        at = random_source.randrange(begin, end)
        if random_source.random() < 0.7:  # a number is more telling than a letter
            while at < end - 1 and not chr(data[at]).isdigit():
                at += 1
        data[at] = random_source.choice(b'0123456789-.,()="\nEe9')


_ATTRIBUTES = ("valid_range", "_FillValue", "scale_factor", "add_offset", "units", "long_name")


def _wrong_attributes_hdf5(path: Path, random_source: random.Random) -> None:
    """The same for HDF5, where attributes have shapes and structure is a data set."""
    values: tuple[object, ...] = (
        "not a number",
        np.float64("nan"),
        np.float64("inf"),
        np.array([1e38, -1e38, 0.0], np.float32),
        np.array([[2**62], [-(2**62)]]),
        np.zeros((0,), np.int16),
        np.zeros(300, np.uint16),
        np.bytes_(b"\xff\x00\xfe"),
        np.array(["a", "bc"], dtype=object),
        np.True_,
        h5py.Empty("f4"),
        1 + 2j,
    )
    with h5py.File(path, "r+") as file:
        struct = file["HDFEOS INFORMATION"]
        fields: list[h5py.Dataset] = []
        file.visititems(
            lambda _, item: fields.append(item) if isinstance(item, h5py.Dataset) else None
        )
        for _ in range(random_source.choice((1, 3, 6))):
            holder = random_source.choice((*fields, file, struct))
            name = random_source.choice((*_ATTRIBUTES, "StructMetadata.0", "CoreMetadata.0"))
            value = random_source.choice(values)
            holder.attrs.create(
                name, value, dtype=h5py.string_dtype() if _is_text_array(value) else None
            )
        if random_source.random() < 0.2:
            del struct["StructMetadata.0"]
            struct["StructMetadata.0"] = random_source.choice(values[:-3])


def _is_text_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _wrong_attributes(path: Path, random_source: random.Random) -> None:
    """Give layers attributes of the wrong type or size, by the library's own means."""
    file = SD(str(path), SDC.WRITE)
    count, _ = file.info()
    for _ in range(random_source.choice((1, 3, 6))):
        sds = file.select(random_source.randrange(count))
        name = random_source.choice(_ATTRIBUTES)
        number_type, value = random_source.choice(
            (
                (SDC.CHAR8, "not a number"),
                (SDC.FLOAT64, float("nan")),
                (SDC.FLOAT64, float("inf")),
                (SDC.FLOAT32, [1e38, -1e38, 0.0]),
                (SDC.INT32, [2**31 - 1, -(2**31)]),
                (SDC.INT8, -1),
                (SDC.UINT16, [0] * 300),
                (SDC.FLOAT64, 0.0),
            )
        )
        sds.attr(name).set(number_type, value)
        sds.endaccess()
    file.end()


def run_case(reader: ReadingProcess, corpus: Sequence[Path], folder: Path, seed: int) -> Case:
    """Damage a granule as the seed says and read it."""
    source = random.Random(seed)
    original = source.choice(corpus)
    target = folder / f"case{original.suffix}"
    damage(original, target, source)
    try:
        return Case(seed=seed, outcome="result", message=reader.run(read_everything, target))
    except ReprojectionError as problem:
        text = str(problem)
        for word in ("crashed", "took over", "out of memory"):
            if word in text:
                return Case(seed=seed, outcome=f"reader {word}", message=text)
        return Case(seed=seed, outcome=type(problem).__name__, message=text)
    except Exception as problem:  # noqa: BLE001 - this is what a fuzzer looks for
        return Case(seed=seed, outcome=f"FAULT {type(problem).__name__}", message=str(problem))


def run_batch(seeds: Sequence[int], keep: Path | None) -> list[Case]:
    """Run some cases with one reading process."""
    cases = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = make_corpus(folder / "corpus")
        with ReadingProcess(seconds=SECONDS, memory=MEMORY, modules=["bench.reading"]) as reader:
            for seed in seeds:
                case = run_case(reader, corpus, folder, seed)
                cases.append(case)
                if case.is_fault and keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    for file in folder.glob("case.*"):
                        (keep / f"{seed}{file.suffix}").write_bytes(file.read_bytes())
                for file in folder.glob("case.*"):
                    file.unlink()
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer; 1 when any case ended in an unnamed failure."""
    parser = argparse.ArgumentParser(description="Feed damaged granules to the reader.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this one case and show its message")
    parser.add_argument("--keep", type=Path, help="save the files of failures here")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    if chosen.only is not None:
        cases = run_batch([chosen.only], chosen.keep)
        sys.stdout.write(f"{cases[0]}\n")
        return int(cases[0].is_fault)
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    batches = [seeds[at : at + _BATCH] for at in range(0, len(seeds), _BATCH)]
    outcomes: Counter[str] = Counter()
    faults: list[Case] = []
    with ProcessPoolExecutor(max_workers=chosen.jobs) as pool:
        for cases in pool.map(run_batch, batches, [chosen.keep] * len(batches)):
            outcomes.update(case.outcome for case in cases)
            faults += [case for case in cases if case.is_fault]
            done = sum(outcomes.values())
            sys.stderr.write(f"{done} of {chosen.count} cases, {len(faults)} faults\n")
    for outcome, count in outcomes.most_common():
        sys.stdout.write(f"{count:8d}  {outcome}\n")
    for case in faults[:20]:
        sys.stdout.write(f"case {case.seed}: {case.outcome}: {case.message}\n")
    sys.stdout.write(f"{chosen.count} cases in {time.monotonic() - started:.0f} s\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
