"""Extraction: read layers of one date at a request's sites, in granules or in rasters.

The file is `rows.parquet`.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.windows import Window

from reprojection.read.completeness import WHOLE
from reprojection.warp.sites import (
    REASONS,
    Cell,
    Readings,
    Site,
    Wanted,
    read_cells,
    read_sites,
)
from reprojection.write.write import open_raster
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.spec import ExtractSpec, SampleSpec, SitesSpec
from tasks.request.sites import SiteChoice, load_sites
from tasks.run.classify import AttemptError
from worker.phases.completeness import completeness_of
from worker.phases.context import Context
from worker.phases.flat import physical
from worker.phases.reproject import qa_rule

SITES, ROWS = "sites.json", "rows.parquet"
LAST = "last"
"""The column of samples that says the last day a value stands for."""


def write_sites(spec: SitesSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Store the sites."""
    path = context.folder("sites") / SITES
    path.write_text(spec.sites, "utf-8")
    return (context.upload(path),)


def extract(spec: ExtractSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Read the granules at the sites."""
    fetched = context.fetch_inputs()
    files = [path for paths in fetched.values() for path in paths]
    sites = sites_among(files)
    granules = [path for path in files if path.name != SITES]
    context.tell(0.5, f"reading {len(spec.layers)} layers of {len(granules)} granules")
    wanted = [
        Wanted(layer=f"{layer}{_band(spec)}", rule=qa_rule(rule))
        for layer, rule in zip(spec.layers, spec.qa, strict=True)
    ]
    places = [Site(name=one.name, lon=one.lon, lat=one.lat, area=one.area) for one in sites]
    readings = read_sites(granules, wanted, places, mask=spec.mask) if granules else []
    path = context.folder("rows") / ROWS
    named = dict(zip((f"{one}{_band(spec)}" for one in spec.layers), spec.layers, strict=True))
    _store([_rows(spec, one, named[one.layer]) for one in readings], path)
    context.tell(0.9, f"storing {ROWS}")
    said = completeness_of(spec, [WHOLE] * len(granules))
    return (context.upload(path, completeness=said),)


def sample(spec: SampleSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Read the rasters at the sites."""
    fetched = context.fetch_inputs()
    sites = sites_among([path for paths in fetched.values() for path in paths])
    places = [Site(name=one.name, lon=one.lon, lat=one.lat, area=one.area) for one in sites]
    context.tell(0.5, f"reading {len(spec.layers)} rasters")
    parts = []
    with ExitStack() as opened:
        for layer in dict.fromkeys(spec.layers):
            cells = [
                _cell(path, opened)
                for index, one in enumerate(spec.layers)
                if one == layer
                for path in fetched.get(index, ())
            ]
            if cells:
                found = read_cells(layer, cells, places)
                parts += [_sampled(spec, one, layer) for one in found]
    path = context.folder("rows") / ROWS
    _store(parts, path)
    context.tell(0.9, f"storing {ROWS}")
    rasters = [context.inputs[n][0] for n in range(len(spec.layers)) if context.inputs.get(n)]
    said = completeness_of(spec, [one.completeness for one in rasters])
    return (context.upload(path, completeness=said),)


def _sampled(spec: SampleSpec, found: Readings, layer: str) -> Any:
    """Return the rows of one raster, with the time of its overpass, if it is of one."""
    import pyarrow as pa

    if spec.time:
        moment = np.datetime64(f"{spec.day.isoformat()}T{spec.time}", "ms")
        found = replace(found, time=np.full(found.site.shape, moment))
    rows = _rows(spec, found, layer)
    return rows.append_column(LAST, pa.repeat(pa.scalar(spec.last), rows.num_rows))


def _cell(path: Path, opened: ExitStack) -> Cell:
    """Open a raster of ours; its first band holds the values."""
    said = open_raster(path).said
    dataset = opened.enter_context(rasterio.open(path))

    def rows(first: int, last: int) -> npt.NDArray[np.float64]:
        return physical(dataset, 1, Window(0, first, dataset.width, last - first))

    return Cell(
        name=path.name,
        grid=said.grid.grid(),
        units=said.units,
        continuous=said.kind == "continuous",
        rows=rows,
    )


def sites_among(files: Sequence[Path]) -> tuple[SiteChoice, ...]:
    """Read the sites from the inputs' files.

    Raises AttemptError if they are not among them.
    """
    for path in files:
        if path.name == SITES:
            return load_sites(path.read_text("utf-8"))
    raise AttemptError(Category.CHOICE_REFUSED, "the list of the sites could not be made")


def schema() -> Any:
    """Return the columns of the rows; `n` is the number of the site."""
    # The library takes a second to load, and few tasks need it.
    import pyarrow as pa

    return pa.schema(
        [
            ("n", pa.int32()),
            ("product", pa.string()),
            ("collection", pa.string()),
            ("layer", pa.string()),
            ("date", pa.date32()),
            ("time", pa.timestamp("ms", "UTC")),
            ("day_night", pa.string()),
            ("value", pa.float64()),
            ("units", pa.string()),
            ("mean", pa.float64()),
            ("std", pa.float64()),
            ("valid", pa.int32()),
            ("pixels", pa.int32()),
            ("reason", pa.string()),
            ("quality", pa.int64()),
            ("quality_decoded", pa.string()),
            ("distance_m", pa.float64()),
            ("granule", pa.string()),
            ("row", pa.int32()),
            ("column", pa.int32()),
        ]
    )


def _store(parts: Sequence[Any], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    empty = schema().empty_table()
    pq.write_table(pa.concat_tables([empty, *parts], promote_options="default"), path)


def _rows(spec: ExtractSpec | SampleSpec, found: Readings, layer: str) -> Any:
    """Return the rows of one layer and granule, or raster."""
    import pyarrow as pa

    count = len(found.site)
    words: Any = pa.repeat("", count)
    if found.quality is not None:
        words = pa.array(found.quality.words).take(pa.array(found.quality.word))
    columns = {
        "n": found.site,
        "product": pa.repeat(spec.product, count),
        "collection": pa.repeat(spec.collection, count),
        "layer": pa.repeat(layer, count),
        "date": pa.repeat(spec.day, count),
        "time": found.time,
        "day_night": pa.repeat(found.day_night, count),
        "value": found.value,
        "units": pa.repeat(found.units, count),
        "mean": found.mean,
        "std": found.std,
        "valid": found.valid,
        "pixels": found.pixels,
        "reason": pa.array([REASONS[n] for n in sorted(REASONS)]).take(pa.array(found.reason)),
        "quality": pa.nulls(count) if found.quality is None else found.quality.stored,
        "quality_decoded": words,
        "distance_m": found.distance,
        "granule": pa.repeat(found.granule, count),
        "row": found.row,
        "column": found.column,
    }
    # NaN stands for no value.
    made = [pa.array(columns[one.name], one.type, from_pandas=True) for one in schema()]
    return pa.table(made, schema=schema())


def _band(spec: ExtractSpec) -> str:
    return "" if spec.band is None else f"[{spec.band}]"
