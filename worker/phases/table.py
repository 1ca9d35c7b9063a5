"""Aggregation of sites: one tidy table as CSV and Parquet, and a picture of each layer.

Where a request has measurements, they are compared (`worker/phases/comparison.py`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from tasks.model.model import ArtifactFile
from tasks.model.spec import TableSpec
from tasks.request.sites import SiteChoice
from worker.phases.comparison import write_comparison
from worker.phases.completeness import completeness_of
from worker.phases.context import Context
from worker.phases.extract import LAST, ROWS, schema, sites_among

_MOST_PANELS = 12
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def table(spec: TableSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Write `sites.csv`, `sites.parquet`, a picture of each layer, and the comparison if any."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    fetched = context.fetch_inputs()
    files = [path for paths in fetched.values() for path in paths]
    sites = sites_among(files)
    context.tell(0.5, "joining what was read at the sites")
    rows = joined([path for path in files if path.name == ROWS], sites)
    folder = context.folder("table")
    read = rows.drop_columns(LAST)
    pc.write_csv(read, folder / "sites.csv")
    pq.write_table(read, folder / "sites.parquet")
    context.tell(0.7, "plotting")
    plot(read, sites, folder)
    if spec.comparison is not None:
        context.tell(0.8, "comparing with measurements")
        write_comparison(rows, sites, spec.comparison, folder)
    extracted = [part for part in context.inputs.values() if part[0].name == ROWS]
    said = completeness_of(spec, [part[0].completeness for part in extracted])
    return tuple(
        context.upload(path, keep=False, completeness=said) for path in sorted(folder.iterdir())
    )


def joined(paths: Sequence[Path], sites: Sequence[SiteChoice]) -> Any:
    """Join the rows of all dates, by site, layer and time, with the sites' own columns.

    The column `last` has the last day that a sampled value stands for, else nothing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    empty = schema().append(pa.field(LAST, pa.date32())).empty_table()
    found = pa.concat_tables(
        [empty, *(pq.read_table(path) for path in paths)], promote_options="default"
    )
    order = ("n", "product", "collection", "layer", "date", "time", "granule")
    rows = found.take(_order([found[name] for name in order]))
    numbers = rows["n"].combine_chunks()

    def of_site(values: Sequence[object], kind: Any) -> Any:
        return pa.array(values, kind).take(numbers)

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
    return np.lexsort([_ranks(column) for column in reversed(columns)])


def _ranks(column: Any) -> Any:
    """Return numbers in the order of a column's values: numbers are sorted faster than texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = column.combine_chunks().dictionary_encode()
    order = pc.sort_indices(coded.dictionary)
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    ranks[-1] = len(order)
    return ranks[pc.fill_null(coded.indices, pa.scalar(len(order), coded.indices.type)).to_numpy()]


def plot(rows: Any, sites: Sequence[SiteChoice], folder: Path) -> None:
    """Plot the values of each layer over time, a panel for each of the first sites."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    there = rows.filter(pc.is_valid(rows["value"]))
    keys = ("product", "collection", "layer", "units")
    for what in there.group_by(keys, use_threads=False).aggregate([]).to_pylist():
        of_layer = there.filter(_equal(there, what))
        with_value = {*pc.unique(of_layer["site"]).to_pylist()}
        shown = [site.name for site in sites if site.name in with_value][:_MOST_PANELS]
        across = min(3, len(shown))
        down = -(-len(shown) // across)
        height = 1.7 * down + 1.6
        figure = Figure(figsize=(4.0 * across + 0.6, height))
        FigureCanvasAgg(figure)
        more = len(with_value) - len(shown)
        text = f"{what['product']} {what['layer']}"
        text += f" ({what['units']})" if what["units"] else ""
        figure.suptitle(text + (f"; {more} more sites are in the table" if more else ""))
        # Fixed margins and limits: matplotlib takes seconds to lay out and to share so many axes.
        panels = figure.subplots(down, across, squeeze=False)
        figure.subplots_adjust(
            left=0.6 / (4.0 * across + 0.6),
            right=0.98,
            bottom=0.9 / height,
            top=1 - 0.7 / height,
            wspace=0.06,
            hspace=0.25,
        )
        drawn = of_layer.filter(pc.is_in(of_layer["site"], pa.array(shown)))
        limits = _limits(_times(drawn).to_numpy()), _limits(drawn["value"].to_numpy())
        for number, (panel, name) in enumerate(zip(panels.flat, shown, strict=False)):
            here = of_layer.filter(pc.equal(of_layer["site"], name))
            times = _times(here).to_numpy()
            panel.plot(times, here["value"].to_numpy(), marker=".", linewidth=0.8)
            panel.set(xlim=limits[0], ylim=limits[1])
            panel.set_title(name, fontsize="medium", y=1.0, pad=3)
            last = number + across >= len(shown)
            panel.tick_params(axis="x", labelrotation=30, labelbottom=last)
            panel.tick_params(axis="y", labelleft=number % across == 0)
            panel.grid(alpha=0.3)
        for panel in panels.flat[len(shown) :]:
            panel.set_visible(False)
        named = filter(None, (what["product"], what["collection"], what["layer"]))
        file = _UNSAFE.sub("_", ".".join(named))
        figure.savefig(folder / f"{file}.png", dpi=110, metadata={"Software": None})


def _times(rows: Any) -> Any:
    """Return the time of each row; its date where no time is known."""
    import pyarrow.compute as pc

    return pc.coalesce(rows["time"], rows["date"].cast(rows["time"].type))


def _limits(values: Any) -> tuple[Any, Any]:
    """Return the ends of an axis that shows the values, with a margin of a twentieth."""
    low, high = values.min(), values.max()
    margin = (high - low) / 20
    if not margin:
        margin = np.timedelta64(1, "D") if values.dtype.kind == "M" else 1.0
    return low - margin, high + margin


def _equal(rows: Any, values: Mapping[str, str]) -> Any:
    import pyarrow.compute as pc

    return reduce(pc.and_, (pc.equal(rows[name], value) for name, value in values.items()))
