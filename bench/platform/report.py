"""What a study leaves in its folder: CSV files, plots, and settings that follow from it."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from types import ModuleType
from typing import Protocol, TextIO

from bench.platform import published
from bench.platform.rates import Point, Rate, failures, rate
from bench.platform.transfer_sweep import cuts
from tasks.storage.azure.transfer_shapes import MIB, UP, Cut

CALLS, RATES, FAILURES = "calls.csv", "rates.csv", "failures.csv"
SETTINGS = "settings.env"


class Writer(Protocol):
    """A table of a CSV file."""

    def writerow(self, row: Iterable[object], /) -> object:
        """Write a row."""
        ...


_POINT = ("experiment", "operation", "size", "clients")
_MB_RATES = ("blobs", "files", "tcp")
_BETTER = 0.9  # of the time that today's cut takes


class Report:
    """Writes each point as it comes, so that a study that is broken off leaves what it has."""

    def __init__(self, folder: Path) -> None:
        """Begin the files. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._rates: list[Rate] = []
        self._files: list[TextIO] = []
        self._calls = self._table(CALLS, (*_POINT, "client", "began", "ended", "failure"))
        self._lines = self._table(RATES, [field.name for field in fields(Rate)])
        self._failures = self._table(FAILURES, (*_POINT, "failure", "calls"))

    def add(self, point: Point) -> Rate:
        """Write a point; return its figures."""
        for call in point.calls:
            self._calls.writerow(
                (*point.key, call.client, f"{call.began:.6f}", f"{call.ended:.6f}", call.failure)
            )
        found = rate(point)
        self._rates.append(found)
        self._lines.writerow(
            [f"{value:.6g}" if isinstance(value, float) else value for value in astuple(found)]
        )
        for category, number in failures(point).items():
            self._failures.writerow((*point.key, category, number))
        for file in self._files:
            file.flush()
        return found

    def finish(self) -> list[Path]:
        """Draw the plots and write the settings; return all files."""
        for file in self._files:
            file.close()
        plots = [
            plot(self._folder / f"{experiment}.svg", rates)
            for experiment, rates in _by(self._rates).items()
            if experiment not in ("transfers", "instances")
        ]
        sweep = [one for one in self._rates if one.experiment == "transfers"]
        written = [self._folder / name for name in (CALLS, RATES, FAILURES)]
        if sweep:
            plots.append(plot_transfers(self._folder / "transfers.svg", sweep))
        if lines := settings(self._rates):
            written.append(self._folder / SETTINGS)
            written[-1].write_text("\n".join(lines) + "\n", encoding="ascii")
        return [*written, *plots]

    def _table(self, name: str, columns: Sequence[str]) -> "Writer":
        file = (self._folder / name).open("w", newline="", encoding="utf-8")
        self._files.append(file)
        table = csv.writer(file)
        table.writerow(columns)
        return table


def settings(rates: Iterable[Rate]) -> list[str]:
    """Return the settings that would be better than today's, as lines of an environment file."""
    return [*_of_transfers(rates), *_of_instances(rates)]


def _of_transfers(rates: Iterable[Rate]) -> list[str]:
    """Return how to cut files, where another cut takes a tenth less time than today's.

    The largest files decide, up and down together.
    """
    sweep = [one for one in rates if one.experiment == "transfers" and one.failed < one.calls]
    if not sweep:
        return []
    size = max(one.size for one in sweep)
    times: dict[Cut, float] = {}
    for cut in cuts(size):
        taken = [
            one.p50 for one in sweep if one.size == size and one.operation.endswith(f", {cut}")
        ]
        if len(taken) == 2:
            times[cut] = sum(taken)
    today = min(
        times,
        key=lambda cut: (abs(cut.block - UP.block(size)), abs(cut.at_once - UP.parallel)),
        default=None,
    )
    if today is None:
        return []
    best = min(times, key=times.__getitem__)
    if times[best] > _BETTER * times[today]:
        return []
    return [
        f"# {size / 1e6:g} MB up and down: {times[best]:.2f} s, {times[today]:.2f} s as it is",
        f"SWATHMILL_BLOCKS={best.block // MIB}x{best.at_once}",
    ]


def _of_instances(rates: Iterable[Rate]) -> list[str]:
    """Return a target time in which new machines can still help."""
    starts = [one.p50 for one in rates if one.operation == "add" and one.experiment == "instances"]
    if not starts or max(starts) < 150:
        return []
    return [
        f"# new machines took {max(starts):.0f} s: a shorter target is useless",
        f"SWATHMILL_SCALE_SECONDS={2 * max(starts):.0f}",
    ]


def plot(path: Path, rates: Sequence[Rate]) -> Path:
    """Draw what all clients together and what one of them gets, by the number of clients.

    Each operation has a column, and each size a line.
    """
    by_bytes = rates[0].experiment in _MB_RATES
    operations = list(dict.fromkeys(one.operation for one in rates))
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(
        2, len(operations), figsize=(3.4 * len(operations) + 1, 6), layout="constrained",
        squeeze=False, sharex=True, sharey="row",
    )  # fmt: skip
    for (together, alone), operation in zip(panels.T, operations, strict=True):
        lines: dict[int, list[Rate]] = defaultdict(list)
        for one in rates:
            if one.operation == operation:
                lines[one.size].append(one)
        for size, points in lines.items():
            clients = [one.clients for one in points]
            total = [one.mb_per_second if by_bytes else one.per_second for one in points]
            each = [value / number for value, number in zip(total, clients, strict=True)]
            together.plot(clients, total, marker="o", label=_bytes(size) if size else operation)
            alone.plot(clients, each, marker="o")
        known = [
            one
            for one in published.RATES
            if (one.experiment, one.operation) == (rates[0].experiment, operation)
        ]
        if known:
            values = [one.value for one in known]
            at = [one.clients for one in known]
            together.plot(at, values, "k*", markersize=9, label="Windows Azure 2011")
        together.set(title=operation, xscale="log", yscale="log")
        together.legend(fontsize=7)
        alone.set(xlabel="clients", yscale="log")
        for panel in (together, alone):
            panel.grid(visible=True, alpha=0.3)
    unit = "MB/s" if by_bytes else "calls/s"
    panels[0][0].set_ylabel(f"{unit}, all clients together")
    panels[1][0].set_ylabel(f"{unit}, one client")
    if words := published.SHAPES.get(rates[0].experiment):
        figure.supxlabel(f"Windows Azure 2010/2011: {words}.", fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def plot_transfers(path: Path, rates: Sequence[Rate]) -> Path:
    """Draw the rate of transfers by how files are cut, a panel for each size."""
    pyplot = _pyplot()
    sizes = sorted({one.size for one in rates})
    figure, panels = pyplot.subplots(
        1, len(sizes), figsize=(4 * len(sizes), 4), layout="constrained", squeeze=False
    )
    for panel, size in zip(panels[0], sizes, strict=True):
        for direction, marker in (("upload", "^"), ("download", "v")):
            points = [
                one for one in rates if one.size == size and one.operation.startswith(direction)
            ]
            names = [one.operation.partition(", ")[2] for one in points]
            panel.plot(
                [size / 1e6 / (one.p50 or 1e-9) for one in points], names, marker, label=direction
            )
        panel.set(xlabel="MB/s", title=f"{size / 1e6:g} MB", xlim=(0, None))
        panel.grid(visible=True, alpha=0.3)
    panels[0][0].legend(fontsize=7)
    figure.supxlabel(f"Windows Azure 2010: {published.SHAPES['transfers']}.", fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _pyplot() -> ModuleType:
    """Import matplotlib, which takes long, for files alone."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "study"
    from matplotlib import pyplot

    return pyplot


def _by(rates: Iterable[Rate]) -> dict[str, list[Rate]]:
    """Return the rates of each experiment."""
    found: dict[str, list[Rate]] = defaultdict(list)
    for one in rates:
        found[one.experiment].append(one)
    return found


def _bytes(size: int) -> str:
    if size >= 1000 and size % 1000 == 0:
        return f"{size / 1e6:g} MB"
    return f"{size / 1024:g} KiB" if size >= 1024 else f"{size} B"
