"""The figures of a study, with what was published in 2010 and 2011 beside."""

import math
import re
import statistics
import textwrap
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
_LETTERS = 19  # of the smallest size, on an inch


def by_clients(path: Path, rates: Sequence[Rate]) -> Path:
    """Draw what all clients together and what one of them gets, by the number of clients.

    Each operation has a column, and each size a line.
    """
    by_bytes = rates[0].experiment in _MB_RATES
    of = "nodes" if rates[0].experiment == "nodes" else "clients"
    operations = sorted({one.operation for one in rates})
    all_sizes = sorted({one.size for one in rates})
    plots = pyplot()
    figure, panels = plots.subplots(
        2, len(operations), figsize=(3.4 * len(operations) + 2.5, 6), layout="constrained",
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
            failed = [bool(one.failed) for one in points]
            colour = f"C{all_sizes.index(size)}"
            _line(together, clients, total, failed, colour, _bytes(size) if size else "")
            _line(alone, clients, each, failed, colour)
        _published(together, rates[0].experiment, operation)
        together.set_title(operation)
        alone.set_xlabel(of)
    numbers = {one.clients for one in rates} | _published_at(rates[0].experiment)
    for panel in panels.flat:
        _by_number(panel, numbers)
        panel.grid(visible=True, alpha=0.3)
    for first, *_ in panels:
        _logarithmic(first)
    unit = "MB/s" if by_bytes else "calls/s"
    panels[0][0].set_ylabel(f"{unit}, all {of} together")
    panels[1][0].set_ylabel(f"{unit}, one of the {of}")
    _legend(figure, panels[0])
    return _saved(figure, path, rates[0].experiment)


def _by_number(panel: "Axes", numbers: Iterable[int]) -> None:
    """Have an axis below of numbers of clients, each with its tick."""
    at = sorted(numbers)
    panel.set_xscale("log", base=2)
    panel.set_xticks(at, [str(one) for one in at], fontsize=7)
    panel.minorticks_off()


def _logarithmic(panel: "Axes") -> None:
    """Have a logarithmic axis at the left, of a decade or more: a smaller one exaggerates."""
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    middle = math.sqrt(low * high)
    panel.set_ylim(min(low, middle / math.sqrt(10)), max(high, middle * math.sqrt(10)))
    _plain(panel.yaxis)


def _plain(axis: "Axis") -> None:
    """Write a logarithmic axis' numbers as they are, of some decades at 1, 2 and 5, too."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    axis.set_major_locator(
        ticker.LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e5 * low else (1.0,), numticks=30)
    )
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())


def _line(
    panel: "Axes", at: Sequence[float], values: Sequence[float], failed: Sequence[bool],
    colour: str, label: str = "",
) -> None:  # fmt: skip
    """Draw a line whose points are hollow where calls failed."""
    panel.plot(at, values, marker="o", color=colour, label=label)
    if any(failed):
        panel.plot(
            at, values, "o", markevery=[number for number, one in enumerate(failed) if one],
            color=colour, markerfacecolor="white", label="hollow: some calls failed",
        )  # fmt: skip


def _legend(figure: "Figure", panels: Iterable["Axes"]) -> None:
    """Say beside the panels what each line and each mark of any of them is, once."""
    found = {
        label: handle
        for panel in panels
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    if found:
        figure.legend(found.values(), found.keys(), fontsize=7, loc="outside right upper")


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


def partition(path: Path, points: Sequence[Point]) -> Path:
    """Draw how long each look for a property took, and the share of clients of which one failed."""
    figure, (times, failed) = pyplot().subplots(1, 2, figsize=(9, 4.5), layout="constrained")
    many, then = published.TIMED_OUT
    for number, operation in enumerate(sorted({one.operation for one in points})):
        found = sorted(
            (one for one in points if one.operation == operation), key=lambda one: one.clients
        )
        colour = f"C{number}"
        for point in found:
            took = [one.ended - one.began for one in point.calls if not one.failure]
            times.plot([point.clients] * len(took), took, ".", color=colour, alpha=0.4)
            if took:
                times.plot(point.clients, statistics.fmean(took), "_", color="k", markersize=24)
        failed.plot(
            [one.clients for one in found],
            [len({c.client for c in one.calls if c.failure}) / one.clients for one in found],
            marker="o",
            color=colour,
            label=operation,
        )
    failed.errorbar(many, then, yerr=0.1, lolims=True, fmt="k*", markersize=9,
                    label=f"more than half timed out of 220,000 rows,\n{_THEN}")  # fmt: skip
    times.set(xlabel="clients", ylabel="seconds of each filter; line: mean")
    _logarithmic(times)
    failed.set(xlabel="clients", ylabel="share of clients with a filter that failed")
    failed.set_ylim(-0.02, 1.02)
    failed.legend(fontsize=7)
    for panel in (times, failed):
        _by_number(panel, {one.clients for one in points} | {many})
        panel.margins(x=0.2)
        panel.grid(visible=True, alpha=0.3)
    return _saved(figure, path, "partition")


def lengths(path: Path, rates: Sequence[Rate]) -> Path:
    """Draw the rate of each operation by the number of messages that waited."""
    figure, panel = pyplot().subplots(figsize=(8.5, 4), layout="constrained")
    lines: dict[str, list[tuple[int, Rate]]] = defaultdict(list)
    for one in rates:
        operation, _, length = one.operation.partition(" at ")
        lines[operation].append((int(length.replace(",", "")), one))
    first, last = published.LENGTHS
    for number, (operation, points) in enumerate(sorted(lines.items())):
        points.sort(key=lambda one: one[0])
        at = [length for length, _ in points]
        failed = [bool(one.failed) for _, one in points]
        _line(panel, at, [one.per_second for _, one in points], failed, f"C{number}", operation)
        for known in published.RATES:
            if (known.experiment, known.operation) == ("queue", operation):
                panel.plot(
                    (first, last), [known.value] * 2, "*--", color=f"C{number}", markersize=9,
                    label=f"{operation}, {known.clients} clients, {_THEN}",
                )  # fmt: skip
    clients = " and ".join(str(one) for one in sorted({one.clients for one in rates}))
    panel.set(xlabel="messages in the queue", ylabel=f"calls/s, {clients} clients together")
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.minorticks_off()
    _logarithmic(panel)
    panel.grid(visible=True, alpha=0.3)
    _legend(figure, [panel])
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
        2, len(shown), figsize=(5 * len(shown) + 2, 7), layout="constrained", squeeze=False
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
        _plain(curve.xaxis)
        first = min(began for began, _ in calls)
        times = [began - first for began, _ in calls]
        course.plot(times, [found for _, found in calls], ".", markersize=3, alpha=0.5,
                    label="a call")  # fmt: skip
        for middle, mean, deviation in _stretches(times, [found for _, found in calls]):
            course.errorbar(middle, mean, yerr=deviation, fmt="o", color="k", markersize=4,
                            label="mean and deviation of a tenth of the time")  # fmt: skip
        course.set(xlabel="seconds since the first", ylabel=unit)
        for panel in (curve, course):
            panel.grid(visible=True, alpha=0.3)
    _legend(figure, panels.flat)
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
        2, len(operations), figsize=(3.6 * len(operations) + 2.5, 7), layout="constrained",
        squeeze=False, sharex=True, sharey=True,
    )  # fmt: skip
    for (scatter, ranges), operation in zip(panels.T, operations, strict=True):
        some = [one for one in points if one.operation == operation]
        for point in some:
            found = [
                point.size / MB / max(call.ended - call.began, 1e-9)
                for call in point.calls
                if not call.failure
            ]
            if not found:
                continue
            scatter.plot([point.size] * len(found), found, ".", color="C0", alpha=0.4,
                         label="a file")  # fmt: skip
            mean, deviation = statistics.fmean(found), statistics.pstdev(found)
            reach = [[min(deviation, mean - min(found))], [min(deviation, max(found) - mean)]]
            ranges.vlines(point.size, min(found), max(found), color="C0", linewidth=1,
                          label="range")  # fmt: skip
            ranges.errorbar(point.size, mean, yerr=reach, fmt="o", color="k", markersize=4,
                            label="mean, deviation within the range")  # fmt: skip
        for said, size, value in published.UPLOADS if operation.startswith("upload") else ():
            scatter.plot(size, value, said, color="k", markersize=9,
                         label=f"{published.UPLOADED[said]}, {_THEN}")  # fmt: skip
        calls = [call for one in some for call in one.calls]
        failed = sum(bool(call.failure) for call in calls)
        scatter.set_title(
            f"{operation}\n{max(len(one.calls) for one in some)} files of each size, "
            f"{failed or 'none'} failed",
            fontsize=9,
        )
        ranges.set_xlabel("size of a file")
    at = sorted({one.size for one in points} | {size for _, size, _ in published.UPLOADS})
    for panel in panels.flat:
        panel.set_xscale("log")
        panel.set_xticks(at, [_bytes(one) for one in at], fontsize=6, rotation=90)
        panel.minorticks_off()
        panel.grid(visible=True, alpha=0.3)
    _logarithmic(panels[0][0])
    panels[0][0].set_ylabel("MB/s of each file")
    panels[1][0].set_ylabel("MB/s of the files of a size")
    _legend(figure, panels.flat)
    return _saved(figure, path, "sizes")


def _down_to(mean: float, deviation: float) -> list[list[float]]:
    """Return how far the bars of a deviation reach: on a logarithmic axis not to 0."""
    return [[min(deviation, 0.9 * mean)], [deviation]]


def nodes(path: Path, rates: Sequence[Rate], points: Sequence[Point]) -> Path:
    """Draw what nodes at once have of as many times one node's rate, and what each did when."""
    operations = sorted({one.operation for one in rates})
    figure, panels = pyplot().subplots(
        2, len(operations), figsize=(5 * len(operations) + 2, 7), layout="constrained",
        squeeze=False,
    )  # fmt: skip
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
        share.set_xticks(sorted({one.clients for one in found} | {at}))
        share.grid(visible=True, alpha=0.3)
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
                label="a file that failed" if call.failure else "a file",
            )
        timeline.set(xlabel=f"seconds, of {most.clients} nodes at once", ylabel="node")
        timeline.yaxis.get_major_locator().set_params(integer=True)
    _legend(figure, panels.flat)
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
    """Draw by database the share of transactions committed, and times as multiples of one's.

    Shares are often alike: earlier databases' marks are larger, and seen behind later ones.
    """
    figure, (share, times) = pyplot().subplots(1, 2, figsize=(11, 4), layout="constrained")
    kinds = sorted({one.operation for one in rates})
    for number, kind in enumerate(kinds):
        found = sorted((one for one in rates if one.operation == kind), key=lambda one: one.clients)
        clients, colour = [one.clients for one in found], f"C{number}"
        good = [1 - one.failed / one.calls for one in found]
        share.plot(clients, good, marker="o", color=colour,
                   markersize=4 + 3 * (len(kinds) - number))  # fmt: skip
        alone = found[0].mean or 1e-9
        for values, style, said in (
            ([one.mean for one in found], "o-", "mean"),
            ([one.p99 for one in found], "^--", "99th percentile"),
        ):
            of_one = [value / alone for value in values]
            times.plot(clients, of_one, style, color=colour, label=f"{kind}, {said}")
    share.set(xlabel="clients", ylabel="share of transactions committed", ylim=(0, 1.05))
    times.set(xlabel="clients", ylabel="time, as a multiple of the mean with fewest", yscale="log")
    _plain(times.yaxis)
    _legend(figure, [times])
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
        width = round(_LETTERS * figure.get_figwidth())
        figure.supxlabel(textwrap.fill(f"{_THEN}: {words}.", width), fontsize=7)
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
    if size % 1024 == 0:
        return f"{size // 1024} KiB"
    large = (one for one in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B")))
    unit, name = next(one for one in large if size >= one[0])
    return f"{size / unit:g} {name}"
