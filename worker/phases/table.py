"""Aggregation of sites: one tidy table as CSV and Parquet, and a picture of each layer.

Where a request has measurements, they are compared (`worker/phases/comparison.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.bag.model import ArtifactFile
from tasks.bag.spec import TableSpec
from tasks.packages.file_names import file_name, free_name
from tasks.request.sites import SiteChoice
from worker.phases.comparison import write_comparison
from worker.phases.completeness import completeness_of
from worker.phases.context import Context
from worker.phases.extract import ROWS, schema, sites_among
from worker.phases.table_csv import as_texts, write_csv

_PANELS = 12  # of a picture
_MOST_PLOTTED = 240  # sites; of more the first few are plotted
_PANEL, _STEP = (3.6, 1.2), (3.8, 1.7)  # width and height of a panel, and from one to the next
_LAYER = ["product", "collection", "layer", "units"]
Floats = npt.NDArray[np.float64]


def table(spec: TableSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Write `sites.csv`, `sites.parquet`, a picture of each layer, and the comparison if any."""
    import pyarrow.parquet as pq

    fetched = context.fetch_inputs()
    files = [path for paths in fetched.values() for path in paths]
    sites = sites_among(files)
    context.tell(0.5, "joining what was read at the sites")
    rows = joined([path for path in files if path.name == ROWS], sites)
    folder = context.folder("table")
    read = rows.drop_columns("last")
    write_csv(read, folder / "sites.csv")
    # Without Arrow's own schema readers get texts, not codes.
    pq.write_table(read, folder / "sites.parquet", store_schema=False)
    context.tell(0.7, "plotting")
    plot(read, sites, folder)
    if spec.comparison is not None:
        context.tell(0.8, "comparing with measurements")
        write_comparison(as_texts(rows), sites, spec.comparison, folder)
    extracted = [part for part in context.inputs.values() if part[0].name == ROWS]
    said = completeness_of(spec, [part[0].completeness for part in extracted])
    return tuple(
        context.upload(path, keep=False, completeness=said) for path in sorted(folder.iterdir())
    )


def joined(paths: Sequence[Path], sites: Sequence[SiteChoice]) -> Any:
    """Join the rows of all dates, by site, layer and time, with the sites' own columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [pq.ParquetFile(path).read(use_threads=False) for path in paths]
    # Rows that the build before wrote have no column `last`, but for samples.
    whole = pa.concat_tables([schema().empty_table(), *parts], promote_options="default")
    found = whole.unify_dictionaries().combine_chunks()
    order = ("n", "product", "collection", "layer", "date", "time", "granule")
    rows = found.take(_order([found[name] for name in order]))
    numbers = rows["n"].combine_chunks()

    def of_site(values: Sequence[object], kind: Any) -> Any:
        given = pa.array(values, kind)
        if kind != pa.string():
            return given.take(numbers)
        coded = given.dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices.take(numbers), coded.dictionary)

    columns = {
        "site": of_site([site.name for site in sites], pa.string()),
        "latitude": of_site([site.lat for site in sites], pa.float64()),
        "longitude": of_site([site.lon for site in sites], pa.float64()),
        **{name: rows[name] for name in rows.column_names if name != "n"},
    }
    for name in dict.fromkeys(name for site in sites for name, _ in site.columns):
        columns[name] = of_site([dict(site.columns).get(name) for site in sites], pa.string())
    return pa.table(columns)


def _order(columns: Sequence[Any]) -> Any:
    """Return the order of rows by columns, the first one first; what is empty comes last."""
    ranks = [_ranks(column.combine_chunks()) for column in reversed(columns)]
    return np.lexsort([one for one in ranks if one.size and one.min() < one.max()] or [ranks[-1]])


def _ranks(column: Any) -> Any:
    """Return numbers in the order of a column's values: numbers are sorted faster than texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        order = pc.sort_indices(column.dictionary).to_numpy()
        ranks = np.empty(len(order) + 1, np.int64)
        ranks[order] = np.arange(len(order))
        ranks[-1] = len(order)
        return ranks[pc.fill_null(column.indices, len(order)).to_numpy()]
    wide = pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()
    numbers = column.cast(wide).cast(pa.int64())
    return pc.fill_null(numbers, np.iinfo(np.int64).max).to_numpy()


@dataclass(frozen=True, kw_only=True)
class _Series:
    """The values of a layer at one site, over time in days since 1970."""

    site: str
    days: Floats
    values: Floats


def plot(rows: Any, sites: Sequence[SiteChoice], folder: Path) -> None:
    """Plot the values of each layer over time, a panel for each site, in pictures of some."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = rows.filter(pc.is_valid(rows["value"]))
    order = {site.name: number for number, site in enumerate(sites)}
    taken: set[str] = set()
    for what, of_layer in _by_layer(there):
        names = of_layer["site"].combine_chunks()
        with_value = [names.dictionary[n].as_py() for n in pc.unique(names.indices).to_pylist()]
        with_value.sort(key=order.__getitem__)
        shown = with_value if len(with_value) <= _MOST_PLOTTED else with_value[:_PANELS]
        codes = pc.index_in(pa.array(shown), names.dictionary)
        drawn = of_layer.filter(pc.is_in(names.indices, codes))
        text = f"{what['product']} {what['layer']}"
        text += f" ({what['units']})" if what["units"] else ""
        more = len(with_value) - len(shown)
        text += f"; {more:,} more sites are in the table" if more else ""
        of = as_texts(drawn.select(["site"]))["site"].to_numpy()
        days = _times(drawn).to_numpy().astype("M8[ms]").astype(np.float64) / 86_400_000
        values = drawn["value"].to_numpy()
        named = filter(None, (what["product"], what["collection"], what["layer"]))
        file = free_name(file_name(".".join(named)), taken)
        for first in range(0, len(shown), _PANELS):
            series = [
                _Series(site=name, days=days[of == name], values=values[of == name])
                for name in shown[first : first + _PANELS]
            ]
            # No file name of a layer has the mark: `B.2` is a layer, `B~2` the second picture of B.
            number = f"~{first // _PANELS + 1}" if first else ""
            _panels(text, series, folder / f"{file}{number}.png")


def _panels(title: str, series: Sequence[_Series], path: Path) -> None:
    """Draw a panel for each site, with the same axes in all.

    All is drawn on one plane, in inches from the upper left: matplotlib takes a second for the
    ticks of so many axes.
    """
    from matplotlib import dates
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    across = min(3, len(series))
    size = _STEP[0] * across + 0.8, _STEP[1] * -(-len(series) // across) + 1.0
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    plane = figure.add_axes((0, 0, 1, 1), xlim=(0, size[0]), ylim=(size[1], 0))
    plane.axis("off")
    plane.text(size[0] / 2, 0.3, title, ha="center", va="center", fontsize="large")
    first, last = _limits(np.concatenate([one.days for one in series]))
    low, high = _limits(np.concatenate([one.values for one in series]))
    timed: Any = dates  # its functions have no types
    locator = timed.AutoDateLocator(maxticks=6)
    at = locator.tick_values(timed.num2date(first), timed.num2date(last))
    at = [day for day in at if first < day < last]
    levels = [y for y in MaxNLocator(4).tick_values(low, high) if low < y < high]
    labels = timed.ConciseDateFormatter(locator).format_ticks(at)
    lines, thin, points = [], [], []
    for number, one in enumerate(series):
        left, top = 0.6 + _STEP[0] * (number % across), 0.8 + _STEP[1] * (number // across)

        def x(days: Floats | float, left: float = left) -> Floats:
            return np.asarray(left + _PANEL[0] * (days - first) / (last - first))

        def y(values: Floats | float, top: float = top) -> Floats:
            return np.asarray(top + _PANEL[1] * (high - values) / (high - low))

        right, bottom = left + _PANEL[0], top + _PANEL[1]
        thin += [[(float(x(day)), top), (float(x(day)), bottom)] for day in at]
        thin += [[(left, float(y(level))), (right, float(y(level)))] for level in levels]
        thin.append([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)])
        points.append(np.stack([x(one.days), y(one.values)], axis=1))
        lines.append(points[-1])
        plane.text((left + right) / 2, top - 0.06, one.site, ha="center", va="bottom")
        if number + across >= len(series):
            for day, label in zip(at, labels, strict=True):
                plane.text(float(x(day)), bottom + 0.06, label, ha="center", va="top", fontsize=8)
        if not number % across:
            for level in levels:
                place = left - 0.06, float(y(level))
                plane.text(*place, f"{level:.4g}", ha="right", va="center", fontsize=8)
    plane.add_collection(LineCollection(thin, colors="0.8", linewidths=0.6))
    plane.add_collection(LineCollection(lines, colors="C0", linewidths=0.8))
    dots = np.concatenate(points)
    plane.plot(dots[:, 0], dots[:, 1], linestyle="none", marker=".", markersize=4)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _times(rows: Any) -> Any:
    """Return the time of each row; its date where no time is known."""
    import pyarrow.compute as pc

    return pc.coalesce(rows["time"], rows["date"].cast(rows["time"].type))


def _limits(values: Floats) -> tuple[float, float]:
    """Return the ends of an axis that shows the values, with a margin of a twentieth."""
    low, high = float(values.min()), float(values.max())
    margin = (high - low) / 20 or 1.0
    return low - margin, high + margin


def _by_layer(rows: Any) -> Iterator[tuple[dict[str, str], Any]]:
    """Yield what names each layer, and its rows, in the order of the layers' first rows."""
    columns = [rows[name].combine_chunks() for name in _LAYER]
    sizes = [len(column.dictionary) for column in columns]
    codes = [column.indices.to_numpy() for column in columns]
    layer = np.ravel_multi_index(codes, sizes) if rows.num_rows else np.empty(0, np.int64)
    numbers, firsts = np.unique(layer, return_index=True)
    for number in numbers[np.argsort(firsts)].tolist():
        of = np.unravel_index(number, sizes)
        texts = [column.dictionary[int(n)].as_py() for column, n in zip(columns, of, strict=True)]
        yield dict(zip(_LAYER, texts, strict=True)), rows.filter(layer == number)
