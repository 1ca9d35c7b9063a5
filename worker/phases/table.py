"""Aggregation of sites: one tidy table as CSV and Parquet, and a picture of each layer."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.model.model import ArtifactFile
from tasks.model.spec import TableSpec
from tasks.request.sites import SiteChoice
from worker.phases.completeness import completeness_of
from worker.phases.context import Context
from worker.phases.extract import ROWS, schema, sites_among

_MOST_PANELS = 36
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def table(spec: TableSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Write `sites.csv`, `sites.parquet`, and a picture of each layer."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    fetched = context.fetch_inputs()
    files = [path for paths in fetched.values() for path in paths]
    sites = sites_among(files)
    context.tell(0.5, "joining what was read at the sites")
    rows = joined([path for path in files if path.name == ROWS], sites)
    folder = context.folder("table")
    pc.write_csv(rows, folder / "sites.csv")
    pq.write_table(rows, folder / "sites.parquet")
    context.tell(0.7, "plotting")
    plot(rows, sites, folder)
    extracted = [part for part in context.inputs.values() if part[0].name == ROWS]
    said = completeness_of(spec, [part[0].completeness for part in extracted])
    return tuple(
        context.upload(path, keep=False, completeness=said) for path in sorted(folder.iterdir())
    )


def joined(paths: Sequence[Path], sites: Sequence[SiteChoice]) -> Any:
    """Join the rows of all dates, by site, layer and time, with the sites' own columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pa.concat_tables([schema().empty_table(), *(pq.read_table(path) for path in paths)])
    order = ("n", "product", "collection", "layer", "date", "time", "granule")
    rows = found.sort_by([(name, "ascending") for name in order])
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


def plot(rows: Any, sites: Sequence[SiteChoice], folder: Path) -> None:
    """Plot the values of each layer over time, a panel for each of the first sites."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    series: dict[tuple[str, str, str], dict[str, list[tuple[Any, float]]]] = {}
    names = ("product", "collection", "layer", "units", "site", "date", "time", "value")
    columns = [rows[name].to_pylist() for name in names]
    units: dict[tuple[str, str, str], str] = {}
    for product, collection, layer, unit, site, day, time, value in zip(*columns, strict=True):
        what = product, collection, layer
        units[what] = unit
        if value is not None:
            points = series.setdefault(what, {}).setdefault(site, [])
            points.append((time.replace(tzinfo=None) if time else day, value))
    for what, by_site in series.items():
        shown = [site.name for site in sites if site.name in by_site][:_MOST_PANELS]
        across = min(3, len(shown))
        down = -(-len(shown) // across)
        figure = Figure(figsize=(4.2 * across, 2.4 * down + 0.6), layout="constrained")
        FigureCanvasAgg(figure)
        more = len(by_site) - len(shown)
        text = f"{what[0]} {what[2]}" + (f" ({units[what]})" if units[what] else "")
        figure.suptitle(text + (f"; {more} more sites are in the table" if more else ""))
        panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for panel, name in zip(panels.flat, shown, strict=False):
            panel.plot(*zip(*by_site[name], strict=True), marker=".", linewidth=0.8)
            panel.set_title(name, fontsize="medium")
            panel.tick_params(axis="x", labelrotation=30, labelbottom=True)
            panel.grid(alpha=0.3)
        for panel in panels.flat[len(shown) :]:
            panel.set_visible(False)
        file = _UNSAFE.sub("_", ".".join(what)) + ".png"
        figure.savefig(folder / file, dpi=110, metadata={"Software": None})
