"""What a large package costs a run: its first one on a machine, and each after that.

`python -m bench.package_cost` makes a package of 150 MB (2,000 files), and one of two files, and
runs a program that does nothing from each, in turns, in the strongest sandbox of this machine.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.packages.packages import PackageArchive, load_package, pack, unpack
from tasks.settings import Settings
from worker.files.unpacked import Unpacked
from worker.sandbox.confined import run_confined
from worker.sandbox.sandbox import Places, SandboxLimits, Tier, report

MANIFEST = "name: {name}\ncommand: [sh, run.sh]\noutputs: [out.csv]\n"
BOUNDS = SandboxLimits(memory=10**9, seconds=60, processes=8, output=10**9)
GOAL = 0.050  # seconds that a run of the large package may cost more than one of the small


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of one run: until the package is at hand, and all of it."""

    package: float
    whole: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the costs; 0 if the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=30)
    given = parser.parse_args(arguments)
    tier = report(Settings()).tier
    if tier is None:
        raise SystemExit("No sandbox works on this machine; `swathmill doctor` says why.")
    with tempfile.TemporaryDirectory(prefix="swathmill-") as name:
        folder = Path(name)
        large = make(folder / "large", given.megabytes * 10**6, given.files)
        small = make(folder / "small", 100, 1)
        packages = Unpacked(folder / "unpacked", 10**10, guarded=tier == "bubblewrap")
        plain = [run(tier, packages, archive, folder) for archive in (large, small)]
        costs: dict[str, list[Cost]] = {"large": [], "small": []}
        for _ in range(given.runs):
            costs["large"].append(run(tier, packages, large, folder))
            costs["small"].append(run(tier, packages, small, folder))
    print(f"{given.megabytes} MB in {given.files} files, sandbox {tier}, {given.runs} runs each")
    print(f"first run: {plain[0].package:8.3f} s for the package, {plain[0].whole:.3f} s in all")
    for what, found in costs.items():
        at_hand = middle(found, lambda cost: cost.package)
        whole = middle(found, lambda cost: cost.whole)
        print(f"{what} after that: {at_hand * 1e3:6.1f} ms for the package, {whole * 1e3:.0f} ms")
    # Of runs that follow each other, which other work of the machine reaches alike.
    pairs = zip(costs["large"], costs["small"], strict=True)
    more = statistics.median(large.whole - small.whole for large, small in pairs)
    print(f"the large package costs {more * 1e3:.1f} ms more a run; goal {GOAL * 1e3:.0f} ms")
    return int(more > GOAL)


def make(folder: Path, size: int, files: int) -> PackageArchive:
    """Make a package of so many bytes in so many files besides its program."""
    (folder / "data").mkdir(parents=True)
    (folder / "package.yaml").write_text(MANIFEST.format(name=folder.name))
    (folder / "run.sh").write_text("true\n")
    source = random.Random(1)
    for number in range(files):
        (folder / "data" / f"{number:05d}").write_bytes(source.randbytes(size // files))
    return pack(folder)


def run(tier: Tier, packages: Unpacked, archive: PackageArchive, folder: Path) -> Cost:
    """Run a package's program once."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        places = [Path(name) / one for one in ("input", "output", "temporary")]
        for place in places:
            place.mkdir()
        start = time.perf_counter()
        with packages.use(archive.digest, lambda to: unpack(archive.data, to)) as at:
            package = load_package(at)
            at_hand = time.perf_counter() - start
            inputs, outputs, temporary = places
            run_confined(
                tier,
                package.command,
                Places(package=at, inputs=inputs, outputs=outputs, temporary=temporary),
                BOUNDS,
            )
        return Cost(package=at_hand, whole=time.perf_counter() - start)


def middle(costs: list[Cost], of: Callable[[Cost], float]) -> float:
    """Return the median."""
    return statistics.median(map(of, costs))


if __name__ == "__main__":
    raise SystemExit(main())
