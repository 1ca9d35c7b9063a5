"""What a study leaves: every call, rates and failures as CSV, figures, and settings that follow."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Protocol, TextIO

from bench.platform import confidence, figures
from bench.platform.confidence import Compared
from bench.platform.rates import Point, Rate, failures, rate
from bench.platform.trials import Timed

CALLS, RATES, FAILURES, TRIALS = "calls.csv", "rates.csv", "failures.csv", "trials.csv"
SETTINGS, STUDY, COMPARED = "settings.env", "study.json", "compared.csv"
_POINT = ("experiment", "operation", "size", "clients")
_TRIAL = (
    *("experiment", "order", "round", "service", "direction", "size", "cut", "seconds", "failure"),
)


class Writer(Protocol):
    """A table of a CSV file."""

    def writerow(self, row: Iterable[object], /) -> object:
        """Write a row."""
        ...


class Report:
    """Writes each point as it comes, so that a study that is broken off leaves what it has."""

    def __init__(self, folder: Path, about: dict[str, object] | None = None) -> None:
        """Begin the files; `about` says how the study is made. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._points: list[Point] = []
        self._rates: list[Rate] = []
        self._timed: list[Timed] = []
        self._files: list[TextIO] = []
        self._calls = self._table(CALLS, (*_POINT, "client", "began", "ended", "moved", "failure"))
        self._lines = self._table(RATES, [field.name for field in fields(Rate)])
        self._failures = self._table(FAILURES, (*_POINT, "failure", "calls"))
        self._trials = self._table(TRIALS, _TRIAL)
        (folder / STUDY).write_text(json.dumps(about or {}, indent=1) + "\n", encoding="utf-8")

    def add(self, point: Point) -> Rate:
        """Write a point; return its figures."""
        for call in point.calls:
            times = f"{call.began:.6f}", f"{call.ended:.6f}"
            self._calls.writerow((*point.key, call.client, *times, call.size, call.failure))
        found = rate(point)
        self._points.append(point)
        self._rates.append(found)
        self._lines.writerow(
            [f"{value:.6g}" if isinstance(value, float) else value for value in astuple(found)]
        )
        for category, number in failures(point).items():
            self._failures.writerow((*point.key, category, number))
        for file in self._files:
            file.flush()
        return found

    def add_trials(self, experiment: str, timed: Sequence[Timed]) -> None:
        """Write trials in the order in which they were made."""
        for number, one in enumerate(timed):
            trial = one.trial
            self._trials.writerow(
                (experiment, number, trial.round, trial.service, trial.direction, trial.size,
                 trial.cut, f"{one.seconds:.6f}", one.call.failure)
            )  # fmt: skip
        if experiment == "transfers":
            self._timed += timed

    def finish(self) -> list[Path]:
        """Draw the figures and write the settings; return all files."""
        written = [self._folder / name for name in (CALLS, RATES, FAILURES, TRIALS, STUDY)]
        for file in self._files:
            file.close()
        compared = confidence.compare_cuts([self._timed])
        written += conclude(self._folder, self._rates, compared)
        return [*written, *draw(self._folder, self._points, self._rates, compared)]

    def _table(self, name: str, columns: Sequence[str]) -> "Writer":
        file = (self._folder / name).open("w", newline="", encoding="utf-8")
        self._files.append(file)
        table = csv.writer(file)
        table.writerow(columns)
        return table


def conclude(folder: Path, rates: Iterable[Rate], compared: Sequence[Compared]) -> list[Path]:
    """Write what was compared, and the settings that follow; return the files."""
    written = []
    if compared:
        written.append(folder / COMPARED)
        with written[-1].open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(("size", "cut", "ratio", "low", "high", "rounds", "runs", "recommended"))
            for one in compared:
                said = one.ratio
                values = (f"{value:.4f}" for value in (said.estimate, said.low, said.high))
                table.writerow(
                    (one.size, one.cut, *values, said.rounds, said.runs, one.recommended)
                )
    if lines := settings(rates, compared):
        written.append(folder / SETTINGS)
        written[-1].write_text("\n".join(lines) + "\n", encoding="ascii")
    return written


def draw(
    folder: Path, points: Sequence[Point], rates: Sequence[Rate], compared: Sequence[Compared] = ()
) -> list[Path]:
    """Draw the figures of all experiments that were made."""
    of: dict[str, list[Rate]] = defaultdict(list)
    calls: dict[str, list[Point]] = defaultdict(list)
    for one in rates:
        of[one.experiment].append(one)
    for point in points:
        calls[point.experiment].append(point)
    made = []
    for experiment, some in of.items():
        path = folder / f"{experiment}.svg"
        match experiment:
            case "instances":
                continue
            case "transfers":
                made.append(figures.cuts(path, some, compared))
            case "lengths":
                made.append(figures.lengths(path, some))
            case "tcp":
                made.append(figures.cumulative(path, calls[experiment]))
            case "sizes":
                made.append(figures.sizes(path, calls[experiment]))
            case "nodes":
                made.append(figures.by_clients(folder / "nodes-rates.svg", some))
                made.append(figures.nodes(path, some, calls[experiment]))
            case "sql":
                made.append(figures.by_clients(path, some))
                made.append(figures.committed(folder / "sql-committed.svg", some))
            case _:
                made.append(figures.by_clients(path, some))
    return made


def settings(rates: Iterable[Rate], compared: Iterable[Compared] = ()) -> list[str]:
    """Return the settings that are better than today's, as lines of an environment file.

    Those of transfers only with confidence; the time of new machines is one measurement.
    """
    return [*confidence.lines(compared), *_of_instances(rates)]


def _of_instances(rates: Iterable[Rate]) -> list[str]:
    """Return a target time in which new machines can still help."""
    starts = [one.p50 for one in rates if one.operation == "add" and one.experiment == "instances"]
    if not starts or max(starts) < 150:
        return []
    return [
        f"# new machines took {max(starts):.0f} s: a shorter target is useless",
        f"SWATHMILL_SCALE_SECONDS={2 * max(starts):.0f}",
    ]
