"""Extraction: read layers of one date at a request's sites, in granules or in rasters.

The file is `rows.parquet`.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.windows import Window

from reprojection.read.completeness import WHOLE, found_besides
from reprojection.warp.sites import (
    REASONS,
    Cell,
    Places,
    Readings,
    Site,
    Wanted,
    read_cells,
    read_sites,
    touch_sites,
)
from reprojection.write.write import open_raster
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.site_specs import ExtractSpec, SampleSpec, SitesSpec
from tasks.bag.spec import PartsSpec
from tasks.request.sites import SiteChoice, load_sites
from tasks.service.classify import AttemptError
from worker.files.held_granules import granules_of
from worker.phases.completeness import completeness_of
from worker.phases.context import Context
from worker.phases.flat import physical
from worker.phases.reproject import grid_of, layers_of

SITES, ROWS = "sites.json", "rows.parquet"


def write_sites(spec: SitesSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Store the sites."""
    path = context.folder("sites") / SITES
    path.write_text(spec.sites, "utf-8")
    return (context.upload(path),)


def extract(spec: ExtractSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Read the granules at the sites."""
    fetched = context.fetch_inputs()
    files = [path for paths in fetched.values() for path in paths]
    places = places_of(listed(files))
    granules = granules_of([path for path in files if path.name != SITES], context.folder)
    context.tell(0.5, f"reading {len(spec.layers)} layers of {len(granules)} granules")
    readings, lacks = list[Readings](), WHOLE
    if granules:
        readings, lacks = read_sites(granules, wanted_of(spec), places, mask=spec.mask)
    path = context.folder("rows") / ROWS
    names = (name for name, _ in layers_of(spec.layers, spec.qa, spec.band))
    named = dict(zip(names, spec.layers, strict=True))
    found = [(named[one.layer], one) for one in readings]
    store([rows_of(spec.product, spec.collection, spec.day, None, found)], path)
    context.tell(0.9, f"storing {ROWS}")
    said = found_besides(completeness_of(spec, [WHOLE] * len(granules)), lacks)
    return (context.upload(path, completeness=said),)


def wanted_of(spec: ExtractSpec | PartsSpec) -> list[Wanted]:
    """Return the layers that an extraction reads."""
    return wanted_layers(spec.layers, spec.qa, spec.solar_times, spec.band)


def wanted_layers(
    layers: Sequence[str], qa: Sequence[str], solar_times: Sequence[str], band: int | None
) -> list[Wanted]:
    """Return layers of a band of granules that hold several dates, as extractions read them."""
    times = solar_times or ("",) * len(layers)
    return [
        Wanted(layer=layer, rule=rule, solar_time=time)
        for (layer, rule), time in zip(layers_of(layers, qa, band), times, strict=True)
    ]


def touch(spec: PartsSpec, paths: Sequence[Path], sites: Path) -> None:
    """Read of granules that are held in part what an extraction at a file's sites will."""
    places = places_of(sites.read_text("utf-8"))
    touch_sites(paths, wanted_of(spec), places, mask=spec.mask)


def sample(spec: SampleSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Read the rasters at the sites."""
    fetched = context.fetch_inputs()
    places = places_of(listed([path for paths in fetched.values() for path in paths]))
    context.tell(0.5, f"reading {len(spec.layers)} rasters")
    parts: list[tuple[str, Readings]] = []
    with ExitStack() as opened:
        for layer in dict.fromkeys(spec.layers):
            cells = [
                _cell(path, opened)
                for index, one in enumerate(spec.layers)
                if one == layer
                for path in fetched.get(index, ())
            ]
            if cells:
                found = read_cells(layer, cells, places, [grid_of(one) for one in spec.wholes])
                parts += [(layer, _timed(spec, one)) for one in found]
    path = context.folder("rows") / ROWS
    store([rows_of(spec.product, spec.collection, spec.day, spec.last, parts)], path)
    context.tell(0.9, f"storing {ROWS}")
    rasters = [context.inputs[n][0] for n in range(len(spec.layers)) if context.inputs.get(n)]
    said = completeness_of(spec, [one.completeness for one in rasters])
    return (context.upload(path, completeness=said),)


def _timed(spec: SampleSpec, found: Readings) -> Readings:
    """Give the readings of one raster the time of its overpass, if it is of one."""
    if not spec.time:
        return found
    moment = np.datetime64(f"{spec.day.isoformat()}T{spec.time}", "ms")
    return replace(found, time=np.full(found.site.shape, moment))


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
    return load_sites(listed(files))


def listed(files: Sequence[Path]) -> str:
    """Return the list of sites among the inputs' files; raise AttemptError if it is not there."""
    for path in files:
        if path.name == SITES:
            return path.read_text("utf-8")
    raise AttemptError(Category.CHOICE_REFUSED, "the list of the sites could not be made")


@lru_cache(maxsize=2)
def places_of(text: str) -> Places:
    """Return the places of a list of sites; the tasks of a request have one list."""
    sites = load_sites(text)
    return Places([Site(name=s.name, lon=s.lon, lat=s.lat, area=s.area) for s in sites])


def schema() -> Any:
    """Return the columns of the rows; `n` is the number of the site.

    `last` is the last day that a sampled value stands for.
    Texts that recur are stored once: in columns of codes, which are written and sorted faster.
    """
    # The library takes a second to load, and few tasks need it.
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("n", pa.int32()),
            ("product", text),
            ("collection", text),
            ("layer", text),
            ("date", pa.date32()),
            ("time", pa.timestamp("ms", "UTC")),
            ("day_night", text),
            ("value", pa.float64()),
            ("units", text),
            ("mean", pa.float64()),
            ("std", pa.float64()),
            ("valid", pa.int32()),
            ("pixels", pa.int32()),
            ("reason", text),
            ("quality", pa.int64()),
            ("quality_decoded", text),
            ("distance_m", pa.float64()),
            ("granule", text),
            ("row", pa.int32()),
            ("column", pa.int32()),
            ("last", pa.date32()),
        ]
    )


def store(rows: Sequence[Any], path: Path) -> None:
    """Write the rows of dates into one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = rows[0] if len(rows) == 1 else pa.concat_tables(rows).unify_dictionaries()
    pq.write_table(whole, path)


def rows_of(
    product: str,
    collection: str,
    day: date,
    last: date | None,
    found: Sequence[tuple[str, Readings]],
) -> Any:
    """Return the rows of one date: those of each layer and granule, or raster.

    `last` is the last day that a sampled value stands for.
    """
    import pyarrow as pa

    if not found:
        return schema().empty_table()
    layers, parts = [layer for layer, _ in found], [one for _, one in found]
    counts = [len(one.site) for one in parts]

    def texts(given: Sequence[str]) -> Any:
        """Return a text for the rows of each part."""
        known = [*dict.fromkeys(given)]
        codes = np.repeat([known.index(one) for one in given], counts).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(known, pa.string()))

    def numbers(name: str) -> Any:
        return np.concatenate([getattr(one, name) for one in parts])

    reason = pa.DictionaryArray.from_arrays(
        pa.array(numbers("reason").astype(np.int32)),
        pa.array([REASONS[n] for n in sorted(REASONS)]),
    )
    quality, words = _qualities(parts)
    columns = {
        "n": numbers("site"),
        "product": texts([product] * len(parts)),
        "collection": texts([collection] * len(parts)),
        "layer": texts(layers),
        "date": pa.repeat(pa.scalar(day), sum(counts)),
        "time": numbers("time"),
        "day_night": texts([one.day_night for one in parts]),
        "units": texts([one.units for one in parts]),
        "reason": reason,
        "quality": quality,
        "quality_decoded": words,
        "distance_m": numbers("distance"),
        "granule": texts([one.granule for one in parts]),
        "last": pa.repeat(pa.scalar(last, pa.date32()), sum(counts)),
    }
    made = []
    for field in schema():
        column = columns[field.name] if field.name in columns else numbers(field.name)
        if isinstance(column, np.ndarray):  # NaN stands for no value
            column = pa.array(column, field.type, from_pandas=True)
        made.append(column)
    return pa.table(made, schema=schema())


def _qualities(parts: Sequence[Readings]) -> tuple[Any, Any]:
    """Return the columns of QA values, and of their bit fields in words."""
    import pyarrow as pa

    known: dict[str, int] = {"": 0}
    stored, unknown, codes = [], [], []
    for one in parts:
        count, quality = len(one.site), one.quality
        stored.append(np.zeros(count, np.int64) if quality is None else quality.stored)
        unknown.append(np.full(count, quality is None))
        words = ("",) if quality is None else quality.words
        numbers = np.array([known.setdefault(text, len(known)) for text in words], np.int32)
        codes.append(numbers[np.zeros(count, np.int64) if quality is None else quality.word])
    return (
        pa.array(np.concatenate(stored), pa.int64(), mask=np.concatenate(unknown)),
        pa.DictionaryArray.from_arrays(
            pa.array(np.concatenate(codes)), pa.array([*known], pa.string())
        ),
    )
