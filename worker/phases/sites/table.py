"""Aggregation of sites: one tidy table as CSV and Parquet.

Where a request has measurements, they are compared (`worker/phases/sites/comparison.py`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.bag.model import ArtifactFile
from tasks.bag.site_specs import TableSpec
from tasks.request.sites import SiteChoice
from worker.phases.completeness import completeness_of
from worker.phases.context import Context
from worker.phases.sites.comparison import write_comparison
from worker.phases.sites.extract import ROWS, schema, sites_among
from worker.phases.sites.table_csv import as_texts, write_csv

_PART = 2**16  # rows


def table(spec: TableSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Write `sites.csv`, `sites.parquet`, and the comparison if there is one."""
    import pyarrow.parquet as pq

    fetched = context.fetch_inputs()
    files = [path for paths in fetched.values() for path in paths]
    sites = sites_among(files)
    context.tell(0.5, "joining what was read at the sites")
    rows = joined([path for path in files if path.name == ROWS], sites)
    folder = context.folder("table")
    read = rows.drop_columns("last")
    write_csv(read, folder / "sites.csv")
    # Without Arrow's own schema readers get texts, not codes. Parts let them find a site's rows.
    pq.write_table(read, folder / "sites.parquet", row_group_size=_PART, store_schema=False)
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
