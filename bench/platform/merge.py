"""Several runs of a study, made on different days or times, as one."""

import csv
import datetime as dt
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.platform.clients import Call
from bench.platform.confidence import compare_cuts
from bench.platform.figures import pyplot
from bench.platform.rates import Point, Rate, rate
from bench.platform.report import CALLS, STUDY, TRIALS, conclude, draw
from bench.platform.study import APART
from bench.platform.trials import Service, Timed, Trial, read_cut
from swathmill.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MERGED = "merged.csv"
_APART = 1e6  # seconds between the clocks of two runs: no call of one is within another


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run: when it began, its points, and the transfers that compare cuts."""

    began: dt.datetime
    points: tuple[Point, ...]
    timed: tuple[Timed, ...]


def read_run(folder: Path) -> Run:
    """Read a run's calls. Raises ArgumentError."""
    try:
        about = json.loads((folder / STUDY).read_text("utf-8"))
        began = dt.datetime.fromisoformat(about["began"])
        calls: dict[tuple[str, str, int, int], list[Call]] = defaultdict(list)
        with (folder / CALLS).open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = row["experiment"], row["operation"], int(row["size"]), int(row["clients"])
                calls[key].append(
                    Call(
                        client=int(row["client"]),
                        began=float(row["began"]),
                        ended=float(row["ended"]),
                        size=int(row["moved"]),
                        failure=row["failure"],
                    )
                )
        timed = tuple(_timed(folder / TRIALS))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{folder} is not a run of a study: {error}.", "Name folders that `measure --out` made."
        ) from None
    points = tuple(
        Point(
            experiment=key[0],
            operation=key[1],
            size=key[2],
            clients=key[3],
            calls=tuple(some),
            apart=key[0] in APART,
        )
        for key, some in calls.items()
    )
    return Run(began=began, points=points, timed=timed)


def _timed(path: Path) -> Iterator[Timed]:
    """Read the transfers of a run that compare cuts."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["experiment"] != "transfers":
                continue
            trial = Trial(
                service=Service(row["service"]),
                direction=row["direction"],
                size=int(row["size"]),
                cut=read_cut(row["cut"]),
                round=int(row["round"]),
            )
            call = Call(client=0, began=0.0, ended=float(row["seconds"]), failure=row["failure"])
            yield Timed(trial=trial, call=call)


def merged(out: Path, folders: Sequence[Path]) -> list[Path]:
    """Merge runs: each point's rate over the runs, figures of all calls, the course over the runs.

    Cuts of transfers are compared over all runs, and settings follow from that.

    Raises:
        ArgumentError: a folder is no run, two are the same, or there is one alone.
        OSError: the files cannot be written.
    """
    if len(folders) < 2:
        raise ArgumentError("One run is no series.", "Name two folders or more.")
    runs = sorted((read_run(folder) for folder in folders), key=lambda run: run.began)
    if len({run.began for run in runs}) < len(runs):
        raise ArgumentError("Two folders hold one run.", "Name each run once.")
    out.mkdir(parents=True, exist_ok=True)
    by_key: dict[tuple[str, str, int, int], list[tuple[dt.datetime, Point]]] = defaultdict(list)
    for run in runs:
        for point in run.points:
            by_key[point.key].append((run.began, point))
    rates = [_one([rate(point) for _, point in some]) for some in by_key.values()]
    _write(out / MERGED, by_key)
    points = [_joined([point for _, point in some]) for some in by_key.values()]
    compared = compare_cuts(run.timed for run in runs)
    concluded = conclude(out, points, compared)
    figures = draw(out, points, rates, compared)
    return [out / MERGED, *concluded, *figures, _courses(out / "course.svg", by_key)]


def _one(some: Sequence[Rate]) -> Rate:
    """Return the mean of the rates of several runs; failures and calls of all."""

    def mean(of: Callable[[Rate], float]) -> float:
        return statistics.fmean(map(of, some))

    first = some[0]
    per_second, mb_per_second = (
        mean(lambda one: one.per_second),
        mean(lambda one: one.mb_per_second),
    )
    return replace(
        first,
        calls=sum(one.calls for one in some),
        failed=sum(one.failed for one in some),
        seconds=sum(one.seconds for one in some),
        per_second=per_second,
        per_second_a_client=per_second / first.clients,
        mb_per_second=mb_per_second,
        mb_per_second_a_client=mb_per_second / first.clients,
        mean=mean(lambda one: one.mean),
        deviation=mean(lambda one: one.deviation),
        p50=mean(lambda one: one.p50),
        p90=mean(lambda one: one.p90),
        p99=mean(lambda one: one.p99),
    )


def _joined(points: Sequence[Point]) -> Point:
    """Return one point with the calls of all runs, one run after the other."""
    calls = []
    for number, point in enumerate(points):
        first = min(call.began for call in point.calls) - number * _APART
        calls += [
            replace(call, began=call.began - first, ended=call.ended - first)
            for call in point.calls
        ]
    return replace(points[0], calls=tuple(calls))


def _write(
    path: Path, by_key: dict[tuple[str, str, int, int], list[tuple[dt.datetime, Point]]]
) -> None:
    head = ("experiment", "operation", "size", "clients", "runs", "calls", "failed")
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow((*head, "per_second", "deviation_between_runs", "least", "most"))
        for key, some in by_key.items():
            rates = [rate(point) for _, point in some]
            each = [one.per_second for one in rates]
            table.writerow(
                (
                    *key,
                    len(rates),
                    sum(one.calls for one in rates),
                    sum(one.failed for one in rates),
                    f"{statistics.fmean(each):.6g}",
                    f"{statistics.stdev(each):.6g}" if len(each) > 1 else "",
                    f"{min(each):.6g}",
                    f"{max(each):.6g}",
                )
            )


def _courses(
    path: Path, by_key: dict[tuple[str, str, int, int], list[tuple[dt.datetime, Point]]]
) -> Path:
    """Draw each experiment's rates over the runs, as multiples of the mean of all runs."""
    experiments = sorted({key[0] for key in by_key})
    plots = pyplot()
    figure, panels = plots.subplots(
        len(experiments), 1, figsize=(8, 2.4 * len(experiments)), layout="constrained",
        squeeze=False, sharex=True,
    )  # fmt: skip
    for (panel,), experiment in zip(panels, experiments, strict=True):
        _course(panel, [some for key, some in by_key.items() if key[0] == experiment])
        panel.set(title=experiment, ylabel="of the mean", ylim=(0, None))
    figure.autofmt_xdate()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)
    return path


def _course(panel: "Axes", every: Sequence[Sequence[tuple[dt.datetime, Point]]]) -> None:
    for some in every:
        each = [rate(point).per_second for _, point in some]
        mean = statistics.fmean(each)
        if mean:
            at = [began.timestamp() / 86_400 for began, _ in some]  # days, as matplotlib counts
            panel.plot(at, [one / mean for one in each], marker=".", alpha=0.5)
    panel.xaxis_date()
    panel.grid(visible=True, alpha=0.3)
