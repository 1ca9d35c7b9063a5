"""Files to and from blob storage: Swathmill's way beside the SDK's defaults.

    python -m bench.transfer [--quick] [--study] [--largest MB] [--seed N]

SWATHMILL_BENCH_STORAGE names the account by its connection string; without it a local Azurite is
started for the run. Rounds stand in random order; a round moves files of one size in one direction,
each way once, in random order. So a slow minute of the machine or the network hits all ways alike,
and ways are compared within rounds: by the median of the ratios. The results go to
bench/out/transfer.csv (means and deviations) and bench/out/transfer.svg. Ways:

- `sdk`: `upload_blob(file)`, `download_blob().readinto(file)` with the SDK's defaults, unverified.
- `sdk + SHA-256`: the same, and the file's SHA-256, which the record of an artifact needs.
- `swathmill`: `AzureBlobs.put_file` and `get_file`, as the workers call them: with SHA-256, and MD5
  of each block on the way up.

Each begins with a blob's name and ends with what is stored, the client of the blob included.
- with `--study`, Swathmill's at other block sizes and numbers of calls at once, in rounds of their
  own.
"""

import argparse
import csv
import hashlib
import math
import os
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from azure.storage.blob import BlobClient, BlobServiceClient

from swathmill.stack.azurite import Account, AzuriteServer
from tasks.service.azure_clients import transport
from tasks.storage.azure.blobs import AzureBlobs
from tasks.storage.azure.transfer_shapes import DOWN, MIB, UP, Shape
from tasks.storage.azure.transfers import download, transfer_sizes, upload
from tasks.storage.blobs import GRANULES, file_digest

OUT = Path(__file__).parent / "out"
KB, MB = 1000, 1000 * 1000
SIZES = (2 * KB, 20 * KB, 200 * KB, 2 * MB, 8 * MB, 20 * MB, 64 * MB, 200 * MB, 1000 * MB)
QUICK = SIZES[:7]
WAYS = ("sdk", "sdk + SHA-256", "swathmill")
COLUMNS = (
    "direction", "bytes", "way", "study", "repetitions",
    "mean_s", "deviation_s", "median_s", "best_s", "client_cpu_s", "MB_per_s",
    "time_over_sdk", "time_over_sdk_sha256", "best_over_sdk", "best_over_sdk_sha256",
    "time_over_sdk_low", "time_over_sdk_high",
)  # fmt: skip
STUDY_SIZE = 64 * MB
STUDIED = 3  # rounds
BLOCKS = (4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB)
PARALLEL = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to move files of one size in one direction."""

    direction: str
    size: int  # bytes
    way: str
    study: bool = False


class Took(NamedTuple):
    """Seconds of one transfer, by the clock and of this process's CPU."""

    wall: float
    cpu: float


@dataclass(kw_only=True)
class Bench:
    """An account, and a folder for the files."""

    connection: str
    folder: Path

    def __post_init__(self) -> None:
        ours = BlobServiceClient.from_connection_string(
            self.connection, **transport(self.connection, retries=0), **transfer_sizes()
        )
        self.service = BlobServiceClient.from_connection_string(self.connection)
        self.ours = ours
        self.blobs = AzureBlobs(ours)
        self.blobs.create([GRANULES])
        self.files: dict[int, Path] = {}
        self.digests: dict[int, str] = {}

    def prepare(self, size: int) -> None:
        """A file of random bytes, and its blob for the way down."""
        path = self.folder / f"file-{size}"
        with path.open("wb") as file:
            for start in range(0, size, 16 * MIB):
                file.write(os.urandom(min(16 * MIB, size - start)))
        self.files[size] = path
        self.digests[size] = self.blobs.put_file(GRANULES, f"down-{size}", path).sha256

    def measure(self, case: Case) -> Took:
        """One transfer; what it left is removed outside of the time."""
        name = f"up-{uuid.uuid4().hex}"
        to = self.folder / "copy"
        source = self.files[case.size]
        call = self._up(case, name) if case.direction == "up" else self._down(case, to)
        began, used = time.perf_counter(), time.process_time()
        call()
        took = Took(time.perf_counter() - began, time.process_time() - used)
        if case.direction == "up":
            self.blobs.delete(GRANULES, name)
        else:
            assert to.stat().st_size == source.stat().st_size
            to.unlink()
        return took

    def _up(self, case: Case, name: str) -> Callable[[], object]:
        path = self.files[case.size]
        if case.way == "swathmill":
            return lambda: self.blobs.put_file(GRANULES, name, path)
        if case.way.endswith("at once"):
            client = self.ours.get_blob_client(GRANULES, name)
            return lambda: _up_shape(client, path, _shape(case.way, UP))
        verified = case.way == "sdk + SHA-256"
        return lambda: _up_sdk(self.service.get_blob_client(GRANULES, name), path, verified)

    def _down(self, case: Case, to: Path) -> Callable[[], object]:
        name = f"down-{case.size}"
        if case.way == "swathmill":
            return lambda: self.blobs.get_file(GRANULES, name, to, self.digests[case.size])
        if case.way.endswith("at once"):
            client = self.ours.get_blob_client(GRANULES, name)
            return lambda: _down_shape(client, to, _shape(case.way, DOWN))
        verified = case.way == "sdk + SHA-256"
        return lambda: _down_sdk(self.service.get_blob_client(GRANULES, name), to, verified)


def _up_sdk(client: BlobClient, path: Path, verified: bool) -> None:
    metadata = {"sha256": file_digest(path).sha256} if verified else None
    with path.open("rb") as file:
        client.upload_blob(file, metadata=metadata)


def _down_sdk(client: BlobClient, to: Path, verified: bool) -> None:
    with to.open("wb") as file:
        client.download_blob().readinto(file)
    if verified:
        file_digest(to)


def _up_shape(client: BlobClient, path: Path, shape: Shape) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        upload(client, file, size, metadata=lambda x: {"sha256": x}, sleep=time.sleep, shape=shape)


def _down_shape(client: BlobClient, to: Path, shape: Shape) -> None:
    digest = hashlib.sha256()
    with to.open("wb") as file:

        def take(part: bytes) -> None:
            file.write(part)
            digest.update(part)

        download(client, take, shape=shape)


def _study() -> list[str]:
    """Block sizes and numbers of calls under way, as names of ways."""
    return [f"{block // MIB} MiB, {calls} at once" for block in BLOCKS for calls in PARALLEL]


def _shape(way: str, base: Shape) -> Shape:
    block, _, parallel, _, _ = way.split()
    size = int(block) * MIB
    single = min(base.single, size)
    return replace(base, single=single, least=size, most=size, parallel=int(parallel))


def _repetitions(size: int, quick: bool) -> int:
    rounds = ((8 * MB, 240), (20 * MB, 60), (64 * MB, 12), (200 * MB, 6))
    most = next((number for largest, number in rounds if size <= largest), 3)
    return min(most, 5) if quick else most


def run(
    bench: Bench, *, quick: bool, study: bool, largest: int, seed: int
) -> dict[Case, list[Took]]:
    """All measurements by case, round after round."""
    sizes = [size for size in (QUICK if quick else SIZES) if size <= largest * MB]
    todo: list[list[Case]] = []
    order = random.Random(seed)
    for size in sizes:
        bench.prepare(size)
        for direction in ("up", "down"):
            cases = [Case(direction=direction, size=size, way=way) for way in WAYS]
            for case in cases if size <= 64 * MB else ():
                bench.measure(case)
            for _ in range(_repetitions(size, quick)):
                todo.append(order.sample(cases, len(cases)))
            if study and size == STUDY_SIZE:
                cases = [replace(cases[0], way=way, study=True) for way in [*WAYS, *_study()]]
                todo += [order.sample(cases, len(cases)) for _ in range(STUDIED)]
    order.shuffle(todo)
    found: dict[Case, list[Took]] = {}
    for case in chain.from_iterable(todo):
        found.setdefault(case, []).append(bench.measure(case))
    return found


def report(found: dict[Case, list[Took]], path: Path) -> None:
    """The means as CSV and on the screen, with how they compare with the SDK's defaults."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for case in sorted(found, key=lambda c: (c.direction, c.size, c.study, c.way)):
            times = [took.wall for took in found[case]]
            cpu = statistics.median(took.cpu for took in found[case])
            middle, best = statistics.median(times), min(times)
            mean, deviation = statistics.fmean(times), statistics.pstdev(times)
            peers = [[t.wall for t in found[replace(case, way=way)]] for way in WAYS[:2]]
            ratios = [
                statistics.median(mine / its for mine, its in zip(times, peer, strict=True))
                for peer in peers
            ]
            bests = [best / min(peer) for peer in peers]
            low, high = interval(mine / its for mine, its in zip(times, peers[0], strict=True))
            table.writerow(
                [case.direction, case.size, case.way, int(case.study), len(times),
                 *(f"{value:.5f}" for value in (mean, deviation, middle, best, cpu)),
                 f"{case.size / MB / middle:.2f}",
                 *(f"{ratio:.3f}" for ratio in (*ratios, *bests, low, high))]
            )  # fmt: skip
            print(
                f"{case.direction:4} {case.size / MB:8.3f} MB {case.way:17} "
                f"{1000 * mean:8.1f} +- {1000 * deviation:6.1f} ms  median {1000 * middle:8.1f}  "
                f"best {1000 * best:8.1f}  CPU {1000 * cpu:7.1f}  "
                f"of sdk {ratios[0]:5.2f} ({low:4.2f} to {high:4.2f}, best {bests[0]:4.2f})  "
                f"of sdk + SHA-256 {ratios[1]:5.2f} (best {bests[1]:4.2f})"
            )


def interval(values: Iterable[float]) -> tuple[float, float]:
    """Between which values the median lies, at 95%: by order, whatever their distribution."""
    ordered = sorted(values)
    last = len(ordered) - 1
    half = 0.98 * math.sqrt(len(ordered))
    low, high = math.floor(last / 2 - half), math.ceil(last / 2 + half)
    return ordered[max(0, low)], ordered[min(last, high)]


def plot(found: dict[Case, list[Took]], path: Path) -> None:
    """Throughput by size, one panel a direction, with one deviation up and down."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "transfer"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for panel, direction in zip(panels, ("up", "down"), strict=True):
        for way, marker in zip(WAYS, "os^", strict=True):
            cases = sorted(
                (c for c in found if (c.direction, c.way, c.study) == (direction, way, False)),
                key=lambda c: c.size,
            )
            rates = [[c.size / MB / took.wall for took in found[c]] for c in cases]
            panel.errorbar(
                [c.size / MB for c in cases],
                [statistics.fmean(r) for r in rates],
                yerr=[statistics.pstdev(r) for r in rates],
                marker=marker,
                capsize=3,
                label=way,
            )
        panel.set(xscale="log", yscale="log", xlabel="file size, MB", title=direction)
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("MB/s")
    panels[0].legend()
    figure.savefig(path, metadata={"Date": None})


@contextmanager
def account(folder: Path) -> Iterator[str]:
    """The connection string of the account to measure."""
    if given := os.environ.get("SWATHMILL_BENCH_STORAGE"):
        yield given
        return
    server = AzuriteServer.on_free_ports(
        folder=folder / "azurite", log=folder / "azurite.log", account=Account.new()
    )
    child = server.start()
    try:
        yield server.connection_string
    finally:
        child.stop()


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="Transfers to and from blob storage")
    parser.add_argument("--quick", action="store_true", help="up to 64 MB, five repetitions")
    parser.add_argument("--study", action="store_true", help="block sizes and parallelism, too")
    parser.add_argument("--largest", type=int, default=1000, help="largest file, in MB")
    parser.add_argument("--plot", type=Path, default=OUT / "transfer.svg", help="where it goes")
    parser.add_argument("--seed", type=int, default=1, help="of the random order")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, account(Path(name)) as connection:
        bench = Bench(connection=connection, folder=Path(name))
        found = run(
            bench,
            quick=options.quick,
            study=options.study,
            largest=options.largest,
            seed=options.seed,
        )
    report(found, OUT / "transfer.csv")
    plot(found, options.plot)


if __name__ == "__main__":
    main()
