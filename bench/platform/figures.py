"""The figures of a study, with what was published in 2010 and 2011 beside."""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bench.platform import published
from bench.platform.confidence import CONFIDENCE, WORTH, Compared
from bench.platform.instances import Lives
from bench.platform.rates import MB, Point, Rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_MB_RATES = ("blobs", "files", "nodes")
_THEN = "Windows Azure 2010/2011"


def by_clients(path: Path, rates: Sequence[Rate]) -> Path:
    """Draw what all clients together and what one of them gets, by the number of clients.

    Each operation has a column, and each size a line.
    """
    by_bytes = rates[0].experiment in _MB_RATES
    operations = sorted({one.operation for one in rates})
    plots = pyplot()
    figure, panels = plots.subplots(
        2, len(operations), figsize=(3.4 * len(operations) + 1, 6), layout="constrained",
        squeeze=False, sharex=True, sharey="row",
    )  # fmt: skip
    for (together, alone), operation in zip(panels.T, operations, strict=True):
        lines: dict[int, list[Rate]] = defaultdict(list)
        for one in sorted(rates, key=lambda rate: (rate.size, rate.clients)):
            if one.operation == operation:
                lines[one.size].append(one)
        for size, points in lines.items():
            clients = [one.clients for one in points]
            total = [one.mb_per_second if by_bytes else one.per_second for one in points]
            each = [value / number for value, number in zip(total, clients, strict=True)]
            together.plot(clients, total, marker="o", label=_bytes(size) if size else operation)
            alone.plot(clients, each, marker="o")
        _published(together, rates[0].experiment, operation)
        together.set(title=operation, yscale="log")
        together.legend(fontsize=7)
        alone.set(xlabel="clients", yscale="log")
    numbers = {one.clients for one in rates} | _published_at(rates[0].experiment)
    for panel in panels.flat:
        _by_number(panel, numbers)
        panel.grid(visible=True, alpha=0.3)
    unit = "MB/s" if by_bytes else "calls/s"
    panels[0][0].set_ylabel(f"{unit}, all clients together")
    panels[1][0].set_ylabel(f"{unit}, one client")
    return _saved(figure, path, rates[0].experiment)


def _by_number(panel: "Axes", numbers: Iterable[int]) -> None:
    """Have an axis below of numbers of clients, each with its tick."""
    at = sorted(numbers)
    panel.set_xscale("log", base=2)
    panel.set_xticks(at, [str(one) for one in at], fontsize=7)
    panel.minorticks_off()


def _plain(axis: "Axis") -> None:
    """Write a logarithmic axis' numbers as they are, at 1, 2 and 5 of each power of ten."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())


def _published_at(experiment: str) -> set[int]:
    """Return the numbers of clients for which something of an experiment was published."""
    found = {one.clients for one in published.RATES if one.experiment == experiment}
    return found | {number for what, number in published.PEAKS.items() if what[0] == experiment}


def _published(panel: "Axes", experiment: str, operation: str) -> None:
    known = [
        one for one in published.RATES if (one.experiment, one.operation) == (experiment, operation)
    ]
    if known:
        at, values = [one.clients for one in known], [one.value for one in known]
        panel.plot(at, values, "k*", markersize=9, label=_THEN)
    peak = published.PEAKS.get((experiment, operation))
    if peak:
        panel.axvline(peak, color="k", linestyle=":", label=f"fastest, {_THEN}")


def lengths(path: Path, rates: Sequence[Rate]) -> Path:
    """Draw the rate of each operation by the number of messages that waited."""
    figure, panel = pyplot().subplots(figsize=(6, 4), layout="constrained")
    lines: dict[str, list[Rate]] = defaultdict(list)
    for one in sorted(rates, key=lambda rate: rate.size):
        lines[one.operation.partition(" at ")[0]].append(one)
    for operation, points in sorted(lines.items()):
        at = [one.size for one in points]
        panel.plot(at, [one.per_second for one in points], marker="o", label=operation)
    panel.set(xlabel="messages in the queue", ylabel="calls/s, all clients together", xscale="log")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=7)
    panel.grid(visible=True, alpha=0.3)
    return _saved(figure, path, "lengths")


def cumulative(path: Path, points: Sequence[Point]) -> Path:
    """Draw which share of calls took how long, or was how fast; and both over time."""
    kinds = {one.operation for one in points}
    shown: list[tuple[str, str, Callable[[float, int], float]]] = [
        ("round trip", "ms", lambda seconds, _size: 1000 * seconds),
        ("transfer", "MB/s", lambda seconds, size: size / MB / seconds),
    ]
    shown = [one for one in shown if one[0] in kinds]
    plots = pyplot()
    figure, panels = plots.subplots(
        2, len(shown), figsize=(5 * len(shown), 7), layout="constrained", squeeze=False
    )
    for (curve, course), (operation, unit, value) in zip(panels.T, shown, strict=True):
        calls = [
            (call.began, value(max(call.ended - call.began, 1e-9), point.size))
            for point in points
            if point.operation == operation
            for call in point.calls
            if not call.failure
        ]
        ordered = sorted(found for _, found in calls)
        shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
        curve.step(ordered, shares, where="post", label="here")
        at, then = zip(*published.CURVES[operation], strict=True)
        curve.plot(at, then, "k*", markersize=9, label=_THEN)
        curve.set(title=operation, xlabel=unit, ylabel="share of calls", xscale="log", ylim=(0, 1))
        curve.legend(fontsize=7)
        first = min(began for began, _ in calls)
        times = [began - first for began, _ in calls]
        course.plot(times, [found for _, found in calls], ".", markersize=2, alpha=0.4)
        for lower, mean, deviation in _stretches(times, [found for _, found in calls]):
            course.errorbar(lower, mean, yerr=deviation, fmt="o", color="k", markersize=4)
        course.set(xlabel="seconds since the first", ylabel=unit)
        for panel in (curve, course):
            panel.grid(visible=True, alpha=0.3)
    return _saved(figure, path, "tcp")


def _stretches(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float, float]]:
    """Return middle, mean and deviation of ten stretches of time that have calls."""
    step = max(times) / 10 or 1.0
    by: dict[int, list[float]] = defaultdict(list)
    for at, value in zip(times, values, strict=True):
        by[min(9, int(at / step))].append(value)
    return [
        ((number + 0.5) * step, statistics.fmean(some), statistics.pstdev(some))
        for number, some in sorted(by.items())
    ]


def sizes(path: Path, points: Sequence[Point]) -> Path:
    """Draw the rate of each file by its size, and of each size mean, deviation and range."""
    operations = sorted({one.operation for one in points})
    figure, panels = pyplot().subplots(
        2, len(operations), figsize=(3.6 * len(operations) + 1, 7), layout="constrained",
        squeeze=False, sharex=True, sharey=True,
    )  # fmt: skip
    for (scatter, ranges), operation in zip(panels.T, operations, strict=True):
        for point in sorted(points, key=lambda one: one.size):
            if point.operation != operation:
                continue
            found = [
                point.size / MB / max(call.ended - call.began, 1e-9)
                for call in point.calls
                if not call.failure
            ]
            if not found:
                continue
            scatter.plot([point.size] * len(found), found, ".", color="C0", alpha=0.4)
            mean = statistics.fmean(found)
            ranges.vlines(point.size, min(found), max(found), color="C0", linewidth=1)
            ranges.errorbar(
                point.size, mean, yerr=_down_to(mean, statistics.pstdev(found)), fmt="o", color="k",
                markersize=4,
            )  # fmt: skip
        scatter.set(title=operation, xscale="log", yscale="log")
        ranges.set(xlabel="bytes of a file")
        for panel in (scatter, ranges):
            panel.grid(visible=True, alpha=0.3)
    panels[0][0].set_ylabel("MB/s of each file")
    panels[1][0].set_ylabel("MB/s: range; mean and deviation")
    return _saved(figure, path, "sizes")


def _down_to(mean: float, deviation: float) -> list[list[float]]:
    """Return how far the bars of a deviation reach: on a logarithmic axis not to 0."""
    return [[min(deviation, 0.9 * mean)], [deviation]]


def nodes(path: Path, rates: Sequence[Rate], points: Sequence[Point]) -> Path:
    """Draw what nodes at once have of as many times one node's rate, and what each did when."""
    operations = sorted({one.operation for one in rates})
    figure, panels = pyplot().subplots(
        2, len(operations), figsize=(5 * len(operations), 7), layout="constrained", squeeze=False
    )
    at, low, high = published.ATTENUATION
    for (share, timeline), operation in zip(panels.T, operations, strict=True):
        found = sorted(
            (one for one in rates if one.operation == operation), key=lambda one: one.clients
        )
        alone = found[0].mb_per_second_a_client or 1e-9
        share.plot(
            [one.clients for one in found],
            [one.mb_per_second_a_client / alone for one in found],
            marker="o",
            label="here",
        )
        share.vlines(at, low, high, color="k", linewidth=3, label=_THEN)
        share.axhline(1.0, color="k", linestyle=":", label="linear")
        share.set(
            title=operation, xlabel="nodes", ylabel="share of one node's rate", ylim=(0, None)
        )
        share.legend(fontsize=7)
        most = max(
            (one for one in points if one.operation == operation), key=lambda one: one.clients
        )
        first = min(call.began for call in most.calls)
        for call in most.calls:
            timeline.barh(
                call.client,
                call.ended - call.began,
                left=call.began - first,
                color="C3" if call.failure else "C0",
                edgecolor="white",
                linewidth=0.5,
            )
        timeline.set(xlabel="seconds", ylabel="node")
        timeline.yaxis.get_major_locator().set_params(integer=True)
        share.xaxis.get_major_locator().set_params(integer=True)
    return _saved(figure, path, "nodes")


def instances(path: Path, lives: Sequence[Lives]) -> Path:
    """Draw from the first to the last machine of each step; starts by the size of deployments."""
    sized = [one for one in lives if one.size and one.step == "run"]
    kinds = list(dict.fromkeys(one.kind for one in lives))
    figure, panels = pyplot().subplots(
        1, 1 + bool(sized), figsize=(6 + 5 * bool(sized), 1.6 + 0.32 * len(lives)),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    bars = panels[0][0]
    for number, one in enumerate(reversed(lives)):
        colour = f"C{kinds.index(one.kind)}"
        bars.plot([one.first, one.last], [number] * 2, color=colour, linewidth=4)
        bars.plot(one.last, number, "o", color=colour, markersize=5)
        bars.errorbar(one.last, number, xerr=_down_to(one.last or 1e-9, one.deviation),
                      color="k", capsize=3)  # fmt: skip
        then = published.INSTANCES.get(one.step)
        if then:
            bars.plot(then, number, "k*", markersize=9)
    labels = [
        f"{one.step}, {one.kind}" + (f" ({one.failed:.1%} failed)" if one.failed else "")
        for one in reversed(lives)
    ]
    bars.set_yticks(range(len(lives)), labels)
    bars.set(xlabel=f"seconds: first to last, deviation of the last; stars: {_THEN}", xscale="log")
    _plain(bars.xaxis)
    if sized:
        by_size = panels[0][1]
        for one in sized:
            at = [one.size / MB] * 2
            by_size.plot(at, [one.first, one.last], marker="o", label=one.kind,
                         color=f"C{kinds.index(one.kind)}")  # fmt: skip
        by_size.set(xlabel="MB of the deployment", ylabel="seconds to the first word: first, last")
        by_size.set(xlim=(0, 1.1 * max(one.size for one in sized) / MB), ylim=(0, None))
        by_size.legend(fontsize=7)
    for panel in panels[0]:
        panel.grid(visible=True, alpha=0.3)
    return _saved(figure, path, "instances")


def committed(path: Path, rates: Sequence[Rate]) -> Path:
    """Draw by database the share of transactions committed, and times as multiples of one's."""
    figure, (share, times) = pyplot().subplots(1, 2, figsize=(9, 4), layout="constrained")
    for number, kind in enumerate(sorted({one.operation for one in rates})):
        found = sorted((one for one in rates if one.operation == kind), key=lambda one: one.clients)
        clients, colour = [one.clients for one in found], f"C{number}"
        good = [1 - one.failed / one.calls for one in found]
        share.plot(clients, good, marker="o", color=colour, label=kind)
        alone = found[0].mean or 1e-9
        for values, style, said in (
            ([one.mean for one in found], "o-", "mean"),
            ([one.p99 for one in found], "^--", "99th percentile"),
        ):
            of_one = [value / alone for value in values]
            times.plot(clients, of_one, style, color=colour, label=f"{kind}, {said}")
    share.set(xlabel="clients", ylabel="share of transactions committed", ylim=(0, 1.05))
    share.legend(fontsize=7)
    times.set(xlabel="clients", ylabel="time, as a multiple of the mean with fewest", yscale="log")
    _plain(times.yaxis)
    times.legend(fontsize=7)
    for panel in (share, times):
        _by_number(panel, {one.clients for one in rates})
        panel.grid(visible=True, alpha=0.3)
    return _saved(figure, path, "sql")


def cuts(path: Path, rates: Sequence[Rate], compared: Sequence[Compared]) -> Path:
    """Draw the rate of transfers by how files are cut, and how sure each is to be faster."""
    files = sorted({one.size for one in rates})
    figure, panels = pyplot().subplots(
        2, len(files), figsize=(4 * len(files), 9), layout="constrained", squeeze=False
    )
    for (rated, sure), size in zip(panels.T, files, strict=True):
        for direction, marker in (("upload", "^"), ("download", "v")):
            points = sorted(
                (one for one in rates if one.size == size and one.operation.startswith(direction)),
                key=lambda one: _natural(one.operation),
                reverse=True,
            )
            names = [one.operation.partition(", ")[2] for one in points]
            values = [size / 1e6 / (one.p50 or 1e-9) for one in points]
            rated.plot(values, names, marker, label=direction)
        rated.set(xlabel="MB/s", title=f"{size / 1e6:g} MB", xlim=(0, None))
        rated.grid(visible=True, alpha=0.3)
        paired = [one for one in compared if one.size == size]
        for one in sorted(paired, key=lambda one: _natural(str(one.cut)), reverse=True):
            said = one.ratio
            colour = "C2" if one.recommended else "C0"
            sure.plot([said.low, said.high], [str(one.cut)] * 2, color=colour)
            sure.plot(said.estimate, str(one.cut), "o", color=colour)
        if not paired:
            sure.text(0.5, 0.5, "nothing to compare", ha="center", transform=sure.transAxes)
            sure.set_axis_off()
            continue
        sure.axvline(1.0, color="k", linestyle=":")
        sure.axvline(WORTH, color="C2", linestyle=":")
        sure.set(xscale="log", xlim=(0.9 * min(WORTH, *(one.ratio.low for one in paired)), None))
        sure.set(
            xlabel=f"time, as a multiple of today's ({CONFIDENCE:.0%})\nrecommended left of green"
        )
        _plain(sure.xaxis)
        sure.grid(visible=True, alpha=0.3)
    panels[0][0].legend(fontsize=7)
    return _saved(figure, path, "transfers")


def _natural(text: str) -> list[int]:
    """Return the numbers in a text, by which cuts are in order."""
    return [int(number) for number in re.findall(r"\d+", text)]


def _saved(figure: "Figure", path: Path, experiment: str) -> Path:
    if words := published.SHAPES.get(experiment):
        figure.supxlabel(f"{_THEN}: {words}.", fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    pyplot().close(figure)
    return path


def pyplot() -> ModuleType:
    """Import matplotlib, which takes long, for files alone."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "study"
    from matplotlib import pyplot

    return pyplot


def _bytes(size: int) -> str:
    if size >= 1000 and size % 1000 == 0:
        return f"{size / 1e6:g} MB"
    return f"{size / 1024:g} KiB" if size >= 1024 else f"{size} B"
