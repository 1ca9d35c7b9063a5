"""What a study leaves: every call, rates and failures as CSV, figures, and settings that follow."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Protocol, TextIO

from bench.platform import confidence, figures, instances
from bench.platform.confidence import Compared
from bench.platform.instances import Lives
from bench.platform.rates import Point, Rate, failures, rate
from bench.platform.trials import Timed

CALLS, RATES, FAILURES, TRIALS = "calls.csv", "rates.csv", "failures.csv", "trials.csv"
SETTINGS, STUDY, COMPARED = "settings.env", "study.json", "compared.csv"
LIVES = "instances.csv"
_LATE = 150.0  # seconds: half of the target time that SWATHMILL_SCALE_SECONDS has without this
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
        self._lines.writerow(map(_text, astuple(found)))
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
        written += conclude(self._folder, self._points, compared)
        return [*written, *draw(self._folder, self._points, self._rates, compared)]

    def _table(self, name: str, columns: Sequence[str]) -> "Writer":
        file = (self._folder / name).open("w", newline="", encoding="utf-8")
        self._files.append(file)
        table = csv.writer(file)
        table.writerow(columns)
        return table


def conclude(folder: Path, points: Sequence[Point], compared: Sequence[Compared]) -> list[Path]:
    """Write comparisons, lives of machines, and the settings that follow; return the files."""
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
    if some := instances.lives(one for one in points if one.experiment == "instances"):
        written.append(folder / LIVES)
        with written[-1].open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow([field.name for field in fields(Lives)])
            for one_life in some:
                table.writerow(map(_text, astuple(one_life)))
    if lines := settings(points, compared):
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
                made.append(figures.instances(path, instances.lives(calls[experiment])))
            case "transfers":
                made.append(figures.cuts(path, some, compared))
            case "partition":
                made.append(figures.partition(path, calls[experiment]))
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


def _text(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def settings(points: Iterable[Point], compared: Iterable[Compared] = ()) -> list[str]:
    """Return the settings that are better than today's, as lines of an environment file.

    Each only with confidence.
    """
    return [*confidence.lines(compared), *_of_instances(points)]


def _of_instances(points: Iterable[Point]) -> list[str]:
    """Return a target time in which new machines can still help.

    By the kind of machines whose last one surely takes longest.
    """
    times = instances.last_ones((one for one in points if one.experiment == "instances"), "add")
    known = [confidence.mean(some, len(times)) for some in times.values()]
    slow = [one for one in known if one is not None and one.low >= _LATE]
    if not slow:
        return []
    said = max(slow, key=lambda one: one.low)
    return [
        f"# new machines took {said.estimate:.0f} s, {confidence.CONFIDENCE:.0%} sure to be "
        f"{said.low:.0f} to {said.high:.0f}, by {said.rounds} starts: a shorter target is useless",
        f"SWATHMILL_SCALE_SECONDS={2 * said.estimate:.0f}",
    ]
