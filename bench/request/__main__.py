"""Whole requests beside the script that a scientist would write.

    python -m bench.request [--rounds N] [--only Q1,Q4] [--archive FOLDER] [--makers]

In each round the sides take turns: the script at DEFLATE level 1, at the default level, a request
on a running stack ("warm"), and `swathmill run` ("cold"). All use the same cores. The stack is new
in each round, since it would reuse what it has made; it warms up with a request of the same kind
over other granules. CPU time is that of all processes from submission to the last file in the
folder: of the stack, of its children that have ended, and of the client. The rasters of both sides
are compared. The useful share of CPU is sampled in a round of its own (bench/request/probe).

With `--makers` the sides are a warm request as it is, and one whose children open granules
themselves: what makers cost.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.request import makers, meter, ours
from bench.request.agree import agreement
from bench.request.cases import Case, cases
from bench.request.meter import Spent
from bench.request.ours import Warm
from bench.request.probe.sitecustomize import PACKAGE, PARTS, SAMPLER, USEFUL
from processes.parents import become_subreaper

OUT = Path(__file__).parents[1] / "out"
LEVELS = {"level 1": 1, "level 6": 6}  # 6 is GDAL's default
QUICK = "level 1"


@dataclass(kw_only=True)
class Measured:
    """All rounds of a case."""

    case: str
    title: str
    rasters: int = 0
    agreement: float = 0.0
    script: dict[str, list[Spent]] = field(default_factory=lambda: {name: [] for name in LEVELS})
    warm: list[Warm] = field(default_factory=list)
    cold: list[Spent] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)


def one_round(case: Case, archive: Path, folder: Path, found: Measured, turn: int) -> None:
    """Run all sides once; in every second round they go in the other order."""
    cores = len(os.sched_getaffinity(0))

    def script(level: str) -> None:
        out = _fresh(folder / f"script-{LEVELS[level]}")
        words = case.script_command(archive, out, LEVELS[level], cores)
        environment = os.environ | {"PYTHON": sys.executable}
        spent = meter.measure(lambda: _done(subprocess.run(words, env=environment)))
        found.script[level].append(spent)
        _tell(case, f"script, {level}", spent)

    def warm() -> None:
        place = _fresh(folder / "warm")
        with ours.stack(archive, place) as stack:
            stack.take(case.warm_up, place / "warm-up")
            found.warm.append(stack.take(case.request, place / "out"))
        _tell(case, "warm", found.warm[-1].spent)
        _drop_data(place)

    def cold() -> None:
        place = _fresh(folder / "cold")
        found.cold.append(ours.cold(case.request, archive, place))
        _tell(case, "cold", found.cold[-1])
        _drop_data(place)

    acts = [lambda: script("level 1"), warm, lambda: script("level 6"), cold]
    for act in reversed(acts) if turn % 2 else acts:
        act()
    if not turn:
        for side in ("warm", "cold"):
            rasters, share = agreement(
                folder / side / "out", folder / f"script-{LEVELS[QUICK]}", case.largest, case.side
            )
            if rasters != case.results:
                raise RuntimeError(f"{case.name}: {rasters} rasters, not {case.results}")
        found.rasters, found.agreement = rasters, share
        place = _fresh(folder / "shares")
        found.shares = ours.shares(case.request, case.warm_up, archive, place)
        _drop_data(place)


def _tell(case: Case, side: str, spent: Spent) -> None:
    """Print a measurement at once: a run that is interrupted has told what it measured."""
    sys.stdout.write(f"{case.name}, {side}: {spent.wall_s:.2f} s, CPU {spent.cpu_s:.2f} s\n")
    sys.stdout.flush()


def _done(process: subprocess.CompletedProcess[bytes]) -> None:
    process.check_returncode()


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _drop_data(folder: Path) -> None:
    shutil.rmtree(folder / "data", ignore_errors=True)


def table(all_found: Sequence[Measured]) -> str:
    """Format the rounds as Markdown."""
    lines = [
        "| | script, level 1: s (CPU) | default level | warm: s to complete | s to files (CPU) | "
        "wall, of the script's | CPU, of the script's | cold: s (CPU) | cold adds s | rasters | "
        "pixels that agree |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for found in all_found:
        scripts = found.script[QUICK]
        warm = [one.spent for one in found.warm]
        lines.append(
            " | ".join(
                (
                    f"| {found.case}",
                    _times(scripts),
                    _times(found.script["level 6"]),
                    _middle([one.complete_s for one in found.warm]),
                    _times(warm),
                    _middle([a.wall_s / b.wall_s for a, b in zip(warm, scripts, strict=True)]),
                    _middle([a.cpu_s / b.cpu_s for a, b in zip(warm, scripts, strict=True)]),
                    _times(found.cold),
                    _middle([a.wall_s - b.wall_s for a, b in zip(found.cold, warm, strict=True)]),
                    str(found.rasters),
                    f"{100 * found.agreement:.3f}% |",
                )
            )
        )
    return "\n".join(lines)


def tables(all_found: Sequence[Measured]) -> str:
    """Format all tables."""
    return "\n\n".join(make(all_found) for make in (table, parts_table, shares_table)) + "\n"


def parts_table(all_found: Sequence[Measured]) -> str:
    """Format where the CPU time of warm requests goes."""
    names = sorted({name for found in all_found for one in found.warm for name in one.roles})
    lines = [f"| warm, CPU s | {' | '.join(names)} | client |", "|---|" + "--:|" * (len(names) + 1)]
    for found in all_found:
        cells = [[one.roles.get(name, 0.0) for one in found.warm] for name in names]
        cells.append([one.spent.cpu_s - sum(one.roles.values()) for one in found.warm])
        lines.append(f"| {found.case} | {' | '.join(map(_middle, cells))} |")
    return "\n".join(lines)


def shares_table(all_found: Sequence[Measured]) -> str:
    """Format where the CPU time of warm requests goes, and the useful share of it."""

    def line(what: str, parts: Sequence[str]) -> str:
        cells = [100 * sum(found.shares.get(part, 0.0) for part in parts) for found in all_found]
        return f"| {what} | {' | '.join(f'{cell:.1f}' for cell in cells)} |"

    return "\n".join(
        (
            f"| warm, % of CPU | {' | '.join(found.case for found in all_found)} |",
            "|---|" + "--:|" * len(all_found),
            *(line(part, [part]) for part in PARTS if part != SAMPLER),
            line("useful", USEFUL),
            line("useful, with the package's own code", (*USEFUL, PACKAGE)),
        )
    )


def _times(spent: Sequence[Spent]) -> str:
    cpu = statistics.median(one.cpu_s for one in spent)
    return f"{_middle([one.wall_s for one in spent])} ({cpu:.2f})"


def _middle(values: Sequence[float]) -> str:
    """Return the median with the quartiles, where there are enough values for them."""
    middle = f"{statistics.median(values):.2f}"
    if len(values) < 4:
        return middle
    low, _, high = statistics.quantiles(values, method="inclusive")
    return f"{middle} [{low:.2f} to {high:.2f}]"


def archive_of(case: Case, kept: Path, real: Path | None) -> Path:
    """Return the folder of a case's granules, which is made when it is absent."""
    linked = "-real" if real is not None and case.archive == "leaf_area" else ""
    folder = kept / f"{case.archive}{linked}"
    if not folder.is_dir():
        draft = _fresh(kept / f"{folder.name}.part")
        case.make_archive(draft, real)
        draft.rename(folder)
    for path in folder.iterdir():
        path.read_bytes()  # into the page cache, for all sides
    return folder


def _formats() -> str:
    return subprocess.run(["gdalwarp", "--formats"], capture_output=True, text=True).stdout


def main() -> None:
    """Measure, print the tables, and keep all under bench/out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="names of cases, such as Q1,Q4")
    parser.add_argument("--archive", type=Path, help="folder with real leaf area granules")
    parser.add_argument("--granules", type=Path, default=OUT / "granules", help="made granules")
    parser.add_argument("--makers", action="store_true", help="measure what makers cost")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile the product again
    named = os.environ.get("SWATHMILL_TEST_GRANULES", "")
    real = given.archive or (Path(named) if named else None)
    if not given.makers and "HDF4" not in _formats():
        parser.error("gdalwarp with HDF4 is needed: on Debian, apt install gdal-bin")
    become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what runs is stopped on the way
    wanted = [case for name, case in cases().items() if name in (given.only or name).split(",")]
    all_found = [Measured(case=case.name, title=case.title) for case in wanted]
    given.granules.mkdir(parents=True, exist_ok=True)
    archives = [archive_of(case, given.granules.resolve(), real) for case in wanted]
    with tempfile.TemporaryDirectory(prefix="swathmill-bench-") as name:
        if given.makers:
            for case, archive in zip(wanted, archives, strict=True):
                told = makers.price(case, archive, Path(name) / case.name, given.rounds)
                sys.stdout.write(f"{case.title}\n\n{told}\n")
            return
        for turn in range(given.rounds):
            for case, archive, found in zip(wanted, archives, all_found, strict=True):
                one_round(case, archive, Path(name) / case.name, found, turn)
                sys.stdout.write(f"round {turn + 1}\n{tables([found])}\n")
                sys.stdout.flush()
    text = tables(all_found)
    sys.stdout.write(text)
    OUT.mkdir(exist_ok=True)
    (OUT / "request.md").write_text(text, encoding="utf-8")
    document = [asdict(found) for found in all_found]
    (OUT / "request.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
