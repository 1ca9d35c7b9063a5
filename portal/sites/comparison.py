"""What a request's page tells of a comparison with measurements."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portal.results.charts import Chart, Line, Mark, chart
from portal.results.result_files import ResultFile, ResultReader
from portal.serving.quantities import unit_text
from portal.sites.site_series import AT_ONCE, MOST_MARKS
from portal.sites.site_table import rows_of

STATISTICS = "sites/comparison-statistics.csv"
PAIRS = "sites/comparison.csv"
_MOST = 2**20  # bytes of statistics that a page reads
_NUMBERS = ("bias", "rmse", "r", "slope", "intercept")
_LAYER = ("product", "collection", "layer", "column")
_ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How a layer agrees with measurements, at one site or in all; numbers as texts."""

    layer: str
    column: str
    units: str
    site: str
    n: str
    numbers: tuple[str, ...]
    regression: str


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """The values of a layer over what was measured; `step` is 1 where all pairs are drawn."""

    layer: str
    column: str
    chart: Chart
    step: int


@dataclass(frozen=True, kw_only=True)
class ComparisonView:
    """The statistics of a comparison, and the charts of its pairs."""

    rows: tuple[Agreement, ...]
    scatters: tuple[Scatter, ...]

    @property
    def regression(self) -> str:
        """The regression of the slopes."""
        return self.rows[0].regression if self.rows else ""


def comparison(files: Mapping[str, ResultFile], reader: ResultReader) -> ComparisonView | None:
    """Read the comparison among a request's results; None if there is none yet.

    Raises the errors of `ResultReader.part`.
    """
    found = files.get(STATISTICS)
    if found is None or found.file.size > _MOST:
        return None
    text = b"".join(reader.whole(reader.current(found))).decode("utf-8")
    said = [*csv.DictReader(text.splitlines())]
    rows = tuple(
        Agreement(
            layer=f"{row['product']} {row['layer']}",
            column=row["column"],
            units=row["units"],
            site=row["site"],
            n=row["n"],
            numbers=tuple(f"{float(row[name]):.4g}" if row[name] else "" for name in _NUMBERS),
            regression=row["regression"],
        )
        for row in said
    )
    pairs = files.get(PAIRS)
    scatters = _scatters(reader, reader.current(pairs), said) if pairs is not None else ()
    return ComparisonView(rows=rows, scatters=scatters)


def _scatters(
    reader: ResultReader, pairs: ResultFile, said: Sequence[Mapping[str, str]]
) -> tuple[Scatter, ...]:
    """Draw the pairs of each layer that was compared: of many, one in some."""
    layers = {
        tuple(one[name] for name in _LAYER): one
        for one in said
        if one["site"] == _ALL and int(one["n"])
    }
    steps = {layer: -(-int(one["n"]) // MOST_MARKS) for layer, one in layers.items()}
    drawn: dict[tuple[str, ...], list[_Pair]] = {layer: [] for layer in layers}
    seen = dict.fromkeys(layers, 0)
    for row in rows_of(reader, pairs):
        layer = tuple(row[name] for name in _LAYER)
        if layer not in layers:
            continue
        if seen[layer] % steps[layer] == 0:
            drawn[layer].append(_pair(row))
        seen[layer] += 1
    return tuple(
        Scatter(
            layer=f"{one['product']} {one['layer']}",
            column=one["column"],
            chart=_scatter(drawn[layer], one),
            step=steps[layer],
        )
        for layer, one in layers.items()
        if drawn[layer]
    )


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A value and what was measured."""

    site: str
    first_day: str
    value: float
    measured: float


def _pair(row: Mapping[str, str]) -> _Pair:
    return _Pair(
        site=row["site"],
        first_day=row["first_day"],
        value=float(row["value"]),
        measured=float(row["measured"]),
    )


def _scatter(rows: Sequence[_Pair], said: Mapping[str, str]) -> Chart:
    """Draw pairs, with the line of equal values and the regression."""
    sites = [*dict.fromkeys(row.site for row in rows)]
    named = sites if len(sites) <= AT_ONCE - 2 else []
    lines = [
        Line(
            name=site,
            marks=[_mark(row) for row in rows if not named or row.site == site],
            is_points=True,
        )
        for site in (named or [f"{len(sites)} sites"])
    ]
    both = [number for row in rows for number in (row.measured, row.value)]
    ends = min(both), max(both)
    lines.append(_line("equal", ends, 0.0, 1.0))
    if said["slope"]:
        lines.append(_line("regression", ends, float(said["intercept"]), float(said["slope"])))
    return chart(lines, unit_text(said["units"]), has_dates=False)


def _mark(row: _Pair) -> Mark:
    return Mark(
        name=f"{row.site} {row.first_day}",
        moment=row.measured,
        value=row.value,
        text=f"{row.value:.6g}, measured {row.measured:.6g}",
    )


def _line(name: str, ends: tuple[float, float], start: float, slope: float) -> Line:
    marks = [Mark(name="", moment=end, value=start + slope * end) for end in ends]
    return Line(name=name, marks=marks, is_plain=True)
