"""The layers of a request's results, and how each is drawn equally on all its dates."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from portal.results.layers import ResultLayer
from portal.results.legends import Entry, Legend
from portal.results.result_files import ResultFile
from portal.results.state import Results
from portal.results.statistics import known_of
from portal.serving.access import read_for
from portal.serving.portal import Portal
from portal.serving.problems import NotFoundError
from portal.serving.tokens import Person
from reprojection import catalogue
from reprojection.read.description import Description
from reprojection.read.qa import Reason
from tasks.requests.request_table import RequestRow

_DATES_SAMPLED = 12  # of a layer, for a legend that holds for all dates
_SHOWN = (2.0, 98.0)  # percentiles at the ends of the scale
_MOST_VALUES = 64  # classes or bit patterns in a legend
_REASONS: Mapping[int, str] = {
    Reason.VALID: "valid",
    Reason.FILL: "fill",
    Reason.CODE: "a code, or outside the valid range",
    Reason.QA: "quality",
    Reason.NO_GRANULE: "no granule",
}


def layers_of(
    portal: Portal, caller: Person, request_id: str
) -> tuple[RequestRow, Mapping[str, ResultLayer]]:
    """Return a request that a caller may read, and the layers of its finished rasters by id.

    Raises NotFoundError.
    """
    row = read_for(portal.runtime, caller, request_id)
    layers = portal.state(Results).arranged(row).layers
    if not layers:
        raise NotFoundError(
            f"Request {request_id} has no finished raster yet.",
            "Its map opens when its page shows results.",
        )
    return row, layers


def layer_named(layers: Mapping[str, ResultLayer], name: str) -> ResultLayer:
    """Find a layer by its id. Raises NotFoundError."""
    if name not in layers:
        raise NotFoundError(
            f"The results have no layer {name!r}.", f"They have: {', '.join(layers)}."
        )
    return layers[name]


def current(portal: Portal, row: RequestRow, result: ResultFile) -> ResultFile:
    """Return the file that a result has now. Raises GoneError."""
    return portal.state(Results).index.reader(portal.runtime, row).current(result)


def legend_of(portal: Portal, row: RequestRow, layer: ResultLayer, band: int) -> Legend:
    """Work out the colours from some of the dates, evenly spaced."""
    dates = layer.dates
    step = max(1, -(-len(dates) // _DATES_SAMPLED))
    files = [layer.rasters[day] for day in dates[::step]]
    key = f"{band} " + "".join(file.file.sha256[:16] for file in files)
    return portal.state(Results).legends.get(key, lambda: _new_legend(portal, row, files, band))


def _new_legend(portal: Portal, row: RequestRow, files: list[ResultFile], band: int) -> Legend:
    reader = portal.state(Results).index.reader(portal.runtime, row)
    read = [
        portal.state(Results).pictures.small(reader, current(portal, row, file), band)
        for file in files
    ]
    said, nodata = read[0][1], read[0][0].nodata
    if said.kind == "continuous":
        every = np.concatenate([known_of(raster) for raster, _ in read])
        low, high = _ends(every)
        return Legend(said=said, nodata=nodata, low=low, high=high, entries=())
    counts: Counter[int] = Counter()
    for raster, _ in read:
        values, times = np.unique(known_of(raster).astype(np.int64), return_counts=True)
        counts.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
    colours = {code: colour for _, one in read for code, colour in one.colours.items()}
    names = {code: name for _, one in read for code, name in one.codes.items()}
    if said.bands[band].is_index:
        colours, names = {}, {**_REASONS} if said.bands[band].role == "reason" else {}
    from reprojection.write.palette import class_colour

    shown = sorted(value for value, _ in counts.most_common(_MOST_VALUES))
    entries = tuple(
        Entry(
            value=value,
            text=names.get(value) or _in_words(said, value),
            colour=colours.get(value) or class_colour(value),
        )
        for value in shown
    )
    return Legend(said=said, nodata=nodata, low=None, high=None, entries=entries)


def _ends(values: npt.NDArray[np.float64]) -> tuple[float | None, float | None]:
    if not values.size:
        return None, None
    low, high = (float(end) for end in np.percentile(values, _SHOWN))
    return low, high if high > low else low + 1.0


def fields_of(said: Description, value: int) -> tuple[tuple[str, str], ...]:
    """Decode the bit fields of a stored value by the catalogue."""
    origin = said.provenance
    product = catalogue.product(origin.product, origin.collection)
    entry = product.layer(origin.layer) if product else None
    if entry is None or said.kind != "bitfield":
        return ()
    found = []
    for name, bits in entry.bits.items():
        number = (value >> bits.start) & ((1 << bits.length) - 1)
        found.append((name, bits.values.get(number, f"value {number}")))
    return tuple(found)


def _in_words(said: Description, value: int) -> str:
    return "; ".join(f"{name}: {text}" for name, text in fields_of(said, value))
