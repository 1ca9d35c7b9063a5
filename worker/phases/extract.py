"""Extraction: read layers of one date's granules at a request's sites, as `rows.parquet`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprojection.read.completeness import WHOLE
from reprojection.warp.sites import Reading, Site, Wanted, read_sites
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.spec import ExtractSpec, SitesSpec
from tasks.request.sites import SiteChoice, load_sites
from tasks.run.classify import AttemptError
from worker.phases.completeness import completeness_of
from worker.phases.context import Context
from worker.phases.reproject import qa_rule

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
    _write(spec, readings, path)
    context.tell(0.9, f"storing {ROWS}")
    said = completeness_of(spec, [WHOLE] * len(granules))
    return (context.upload(path, completeness=said),)


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


def _write(spec: ExtractSpec, readings: Sequence[Reading], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = len(readings)
    named = dict(zip((f"{one}{_band(spec)}" for one in spec.layers), spec.layers, strict=True))
    columns: dict[str, list[object]] = {
        "n": [one.site for one in readings],
        "product": [spec.product] * count,
        "collection": [spec.collection] * count,
        "layer": [named[one.layer] for one in readings],
        "date": [spec.day] * count,
        "time": [one.time for one in readings],
        "day_night": [one.day_night for one in readings],
        "value": [one.value for one in readings],
        "units": [one.units for one in readings],
        "mean": [one.mean for one in readings],
        "std": [one.std for one in readings],
        "valid": [one.valid for one in readings],
        "pixels": [one.pixels for one in readings],
        "reason": [one.reason for one in readings],
        "quality": [one.quality for one in readings],
        "quality_decoded": [one.decoded for one in readings],
        "distance_m": [one.distance for one in readings],
        "granule": [one.granule for one in readings],
        "row": [one.row for one in readings],
        "column": [one.column for one in readings],
    }
    pq.write_table(pa.Table.from_pydict(columns, schema=schema()), path)


def _band(spec: ExtractSpec) -> str:
    return "" if spec.band is None else f"[{spec.band}]"
