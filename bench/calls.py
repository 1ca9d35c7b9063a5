"""One call of `reproject`: two tiles of 1 km onto a cell of 1024 x 1024, with its QA, and its file.

    python -m bench.calls [--rounds N] [TILE TILE]

The tiles are two of the sample archive, or the LAI granules given. Times are CPU time: of the first
call in a fresh process ("cold"), and medians of later calls ("warm"), without and with
`keep_granules`. The parts of a warm call are timed alone, each on what the one before it made.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from reprojection.grid.grids import Lattice
from reprojection.read.granule import Granule, open_granule
from reprojection.read.qa import reasons
from reprojection.reproject import Options, keep_granules, reproject
from reprojection.sample.hdfeos_write import write_granule
from reprojection.sample.sample import tile_granules
from reprojection.write.write import write_cog

LAYER, QA = "Lai_1km", "FparLai_QC"
GRID = Lattice(crs="EPSG:4326", resolution=0.01).snap((-5.12, 50.0, 5.12, 60.24))
OPTIONS = Options(resampling="nearest", qa="good")


def cpu_ms(act: Callable[[], object]) -> float:
    """CPU time of one act in milliseconds."""
    start = time.process_time()
    act()
    return (time.process_time() - start) * 1000


def measure(tiles: list[Path], folder: Path, rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time by name."""
    found: dict[str, float] = {}

    def call() -> object:
        return reproject(tiles, LAYER, GRID, OPTIONS)

    def median(name: str, act: Callable[[], object]) -> None:
        found[name] = statistics.median(cpu_ms(act) for _ in range(rounds))

    found["cold"] = cpu_ms(call)
    median("warm", call)
    keep_granules()
    found["kept, first"] = cpu_ms(call)
    median("kept", call)
    keep_granules(0)

    def open_both() -> None:
        with ExitStack() as stack:
            granules(stack)

    def granules(stack: ExitStack) -> list[Granule]:
        return [stack.enter_context(open_granule(path, check=False)) for path in tiles]

    median("open, parse", open_both)
    with ExitStack() as stack:
        both = granules(stack)
        median("decode", lambda: [one.read(name) for one in both for name in (LAYER, QA)])
        values = [one.read(LAYER) for one in both]
        pairs = list(zip(both, values, strict=True))
        median("decode QA, mask", lambda: [reasons(one, LAYER, "good", at) for one, at in pairs])
    raster = reproject(tiles, LAYER, GRID, OPTIONS)
    median("write", lambda: write_cog(raster, folder / "cell.tif", overviews=False))
    return found


def main() -> None:
    """Measure in a fresh process and print the table."""
    parser = argparse.ArgumentParser(description="One call of reproject")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("tiles", nargs="*", type=Path)
    options = parser.parse_args()
    if options.inside:
        with tempfile.TemporaryDirectory() as folder:
            for name, took in measure(options.tiles, Path(folder), options.rounds).items():
                sys.stdout.write(f"| {name} | {took:.1f} |\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        tiles = options.tiles or [Path(folder) / f"{number}.hdf" for number in (1, 2)]
        if not options.tiles:
            # Ten dates of the first tile come before the second tile.
            for path, granule in zip(tiles, islice(tile_granules(), 0, 11, 10), strict=True):
                write_granule(path, granule)
        sys.stdout.write("| part | CPU ms |\n|---|--:|\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "bench.calls", "--inside", "--rounds"]
        subprocess.run([*command, str(options.rounds), *map(str, tiles)], check=True)


if __name__ == "__main__":
    main()
