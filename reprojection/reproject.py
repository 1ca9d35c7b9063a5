"""Reproject granules of one date onto one grid: mask, resample each granule, merge.

This module is the API of `reprojection`; all its other modules serve it.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from reprojection import catalogue
from reprojection.catalogue import Product
from reprojection.catalogue.layers import LayerKind
from reprojection.errors import ChoiceRefusedError, UnknownLayerError
from reprojection.files import AnyPath, as_paths
from reprojection.grid.grids import Grid
from reprojection.grid.targets import pixel_metres
from reprojection.read.completeness import WHOLE, Completeness, Missing, of_parts, only_fill
from reprojection.read.description import Band, Provenance
from reprojection.read.encoding import Encoding, floating_encoding, stored_encoding
from reprojection.read.granule_layer import (
    UNDATED,
    Found,
    GranuleHeader,
    find_places,
    place_in,
)
from reprojection.read.kept import KEPT_BYTES, keep_granules, one_call, opened
from reprojection.read.lineage import Parameter
from reprojection.read.qa import Reason, resolve_rule
from reprojection.read.raster import Pixels, Raster
from reprojection.read.temperatures import has_temperatures, temperatures
from reprojection.resampling import METHODS, STATISTICS, SWATH_METHODS, TRAITS, Method
from reprojection.warp.from_swaths import Driving, newest_of_each_swath, swaths_onto_grid
from reprojection.warp.from_tiles import newest_of_each_place, tiles_onto_grid, window_of
from reprojection.warp.merge import Merged
from reprojection.write.palette import colours_of

__all__ = [
    "ALGORITHM",
    "KEPT_BYTES",
    "Driver",
    "ExtraBand",
    "Merge",
    "Options",
    "Raster",
    "Units",
    "keep_granules",
    "reproject",
]

Merge = Literal["nadir", "latest", "mean", "first"]
ExtraBand = Literal["count", "source", "reason"]
Units = Literal["stored", "physical", "brightness"]
Codes = Literal["mask", "keep"]
Search = Literal["footprint", "valid"]

ALGORITHM = "7"
"""Version of the pixels, recorded in provenance.

Increase it whenever the same granules and options would give other pixels, together with the
version in task keys of everything that makes artifacts.
"""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Name the layer by whose values the granule of each pixel is chosen for other swath layers.

    Attributes:
        layer: Name of the driving layer, in the same granules.
        resampling: A method for swaths; None, the default, means "nearest".
        qa: The driving layer's own rule, as in `Options`; None, the default, means no rule.
    """

    layer: str
    resampling: str | None = None
    qa: str | Mapping[str, Mapping[str, Sequence[int]]] | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Say how granules become pixels.

    The defaults are those of a request that says nothing.

    Attributes:
        resampling: How source pixels become one pixel. Tiles: "nearest", "bilinear", "cubic",
            "average", "gdal-average", "mode", "min", "max", "median"; swaths: "nearest", and of the
            footprints in the pixel "average", "mode", "min", "max", "count", "std".
            None, the default, takes the catalogue's choice for the layer, "nearest" for swaths.
        merge: From which swath granule a pixel is taken where several have a value: "nadir" (the
            default: the smallest sensor zenith, then the newest), "latest", "first", or "mean" of
            all. Tiles do not overlap, so it says nothing to them, but for layers that hold several
            orbits of a day (MCD19A2): there it chooses the orbit.
        qa: Which pixels are data. A rule names QA layers, their bit fields and the values wanted,
            `{"FparLai_QC": {"MODLAND": [0]}}`; "best" and "good" are the catalogue's rules for the
            layer. None, the default, takes every pixel.
        mask: Whether pixels with codes, or outside the valid range, are empty; True by default.
            False leaves only fill empty, and allows no `qa`.
        units: "stored" (the default) keeps the granule's integers with scale and offset;
            "physical" gives float32 in the layer's units; "brightness" the same, and brightness
            temperatures in kelvin for the radiances of level 1B's thermal bands.
        codes: "mask" (the default) leaves pixels with a code empty; "keep" adds a band of codes.
        search: For the nearest source pixel: "footprint" (the default) takes it whatever it holds;
            "valid" takes the nearest with a value, within the footprint's radius.
        extra_bands: Bands to add, none by default: "count" of granules with a value, "source"
            (number of the granule the value came from, 1 is the first of the raster's provenance,
            0 none), "reason" why a pixel is empty (0 it has a value, 1 fill, 2 code or outside the
            valid range, 3 QA, 4 no granule).
        clamp: Whether values that "cubic" makes beyond the layer's valid range become the range's
            nearest end; False by default.
        driver: The layer that this one follows where swath granules overlap: each pixel comes from
            the granule that the driver's comes from. None by default; not for merge "mean".
    """

    resampling: str | None = None
    merge: Merge = "nadir"
    qa: str | Mapping[str, Mapping[str, Sequence[int]]] | None = None
    mask: bool = True
    units: Units = "stored"
    codes: Codes = "mask"
    search: Search = "footprint"
    extra_bands: tuple[ExtraBand, ...] = ()
    clamp: bool = False
    driver: Driver | None = None


def reproject(
    paths: AnyPath | Iterable[AnyPath],
    layer: str,
    grid: Grid,
    options: Options,
    *,
    product: Product | None = None,
    threads: int = 1,
) -> Raster:
    """Reproject one layer of granules of one date onto one grid.

    Tiles are one source raster, on the sinusoidal projection of the sphere of `modis.sphere`
    (MODIS Land tile grid). A source value is worth what the product's user guide says, by scale and
    offset of the file's attributes: `stored * scale + offset`, or `scale * (stored - offset)` in
    the Atmosphere products. Fill codes, valid ranges and bit fields are those of the product's
    user guide, which heads its file in `reprojection/catalogue`. A swath pixel sees the footprint
    whose centre is nearest on the unit sphere (chords), within half the diagonal of the footprint's
    spacing: the rule heads `reprojection/warp/swath.py`.

    Args:
        paths: Files of tile granules of one date, or of swath granules, in any order, or one file;
            of several editions of one granule the newest counts.
        layer: The layer's name in the granules; of a layer with several bands one, as `Name[2]`,
            counted from 0.
        grid: The target grid.
        options: How granules become pixels; `Options()` holds the defaults.
        product: The catalogue's entry; None, the default, looks it up by the granules' own name.
        threads: How many threads work, 1 by default. The pixels do not depend on it.

    Returns:
        The raster: `data` of shape (bands, grid.height, grid.width), the layer first, then the
        bands of `options`. A grid that no granule reaches gives a raster of nodata. A granule that
        lacks the layer beside others that hold it is no part; `completeness` names it.

    Raises:
        UnreadableGranuleError: a granule is damaged.
        BadFormatError: a file is not HDF.
        UnknownLayerError: no granule holds the layer, or one of another product does not.
        NoGeolocationError: a swath does not say where its pixels lie.
        GridError: the grid cannot be used.
        ChoiceRefusedError: no granule was given, granules do not belong in one raster, or options
            would give wrong values, such as classes that are blended.
    """
    files = as_paths(paths)
    if not files:
        raise ChoiceRefusedError("no granule was given; name at least one")
    with one_call():
        return _reproject(files, layer, grid, options, product, threads)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """The granules that count, and how they become pixels.

    `encoding` is that of the raster, but for physical units; `held` that of pixels until then.
    """

    places: Sequence[GranuleHeader]
    found: Found
    method: str
    encoding: Encoding
    held: Encoding


def _prepared(
    paths: Sequence[Path], layer: str, grid: Grid, options: Options, product: Product | None
) -> _Prepared:
    found = find_places(paths, layer)
    places = _agreeing(found.places, options)
    if places[0].grid is None:
        places = newest_of_each_swath(places)
    else:
        places = newest_of_each_place(places)
    entry = product or catalogue.product(places[0].product, places[0].collection)
    method = _resampling(places[0], entry, grid, options)
    _check(places[0], method, options)
    encoding = _encoding(places, options, method)
    held = _held(places[0], options, method, encoding)
    return _Prepared(places=places, found=found, method=method, encoding=encoding, held=held)


def blank(
    paths: Sequence[Path],
    layer: str,
    grid: Grid,
    options: Options,
    *,
    product: Product | None = None,
) -> Raster:
    """Say what `reproject` makes of granules on a grid: a raster of one pixel, which is empty.

    No pixel is read. The resampling in its provenance is the one that the whole grid takes.

    Args:
        paths: The granules.
        layer: The layer.
        grid: The target grid.
        options: How granules become pixels.
        product: The catalogue's entry; None looks it up.

    Raises:
        ReprojectionError: as `reproject`, but for damage to pixels.
    """
    with one_call():
        plan = _prepared(paths, layer, grid, options, product)
        with opened(plan.places[0].path) as (granule, _):
            resolve_rule(granule, granule.layer(layer), options.qa)
        pixel = replace(grid, width=1, height=1)
        values: Pixels = np.full(pixel.shape, plan.held.nodata, plan.held.dtype)
        nothing = np.zeros(pixel.shape, np.uint16)
        why = np.full(pixel.shape, Reason.NO_GRANULE, np.uint8)
        merged = Merged(values=values, codes=values, counts=nothing, sources=nothing, reasons=why)
        return _raster(plan, pixel, options, merged)


def _reproject(
    paths: Sequence[Path],
    layer: str,
    grid: Grid,
    options: Options,
    product: Product | None,
    threads: int,
) -> Raster:
    plan = _prepared(paths, layer, grid, options, product)
    places, method = plan.places, plan.method
    empty = set[int]()
    if places[0].grid is None:
        merged, empty = swaths_onto_grid(
            places,
            grid,
            options.qa,
            encoding=plan.held,
            resampling=method,
            merge=options.merge,
            driving=_driving(places, options, plan.found.guides),
            mask=options.mask,
            search_valid=options.search == "valid",
            codes=options.codes == "keep",
            extra=bool(options.extra_bands),
            threads=threads,
        )
    else:
        merged = tiles_onto_grid(
            [window_of(place, grid) for place in places],
            grid,
            options.qa,
            encoding=plan.held,
            resampling=cast(Method, method),
            merge=options.merge,
            mask=options.mask,
            search=options.search,
            codes=options.codes == "keep",
            extra=bool(options.extra_bands),
            clamp=places[0].layer.valid_range if options.clamp and options.mask else None,
            threads=threads,
        )
    raster = _raster(plan, grid, options, merged)
    return replace(raster, completeness=_completeness(places, layer, plan.found.without, empty))


def _completeness(
    places: Sequence[GranuleHeader], layer: str, without: Sequence[Missing], empty: Collection[int]
) -> Completeness:
    """Say what the granules that were given lack of a layer; editions and companions count once.

    Raises UnknownLayerError if all are of night and hold only fill.
    """
    if len(empty) == len(places):
        names = ", ".join(place.name for place in places[:3])
        where = f"{len(places)} granules of night, which hold only fill in it ({names})"
        raise UnknownLayerError(layer, [], where)
    filled = [Missing(what=places[n].name, why=only_fill(layer)) for n in empty]
    used = [WHOLE] * (len(places) - len(empty))
    return of_parts(used, len(empty) + len(without), [*without, *filled])


def _driving(
    places: Sequence[GranuleHeader],
    options: Options,
    guides: Mapping[tuple[str, datetime | None], Path],
) -> Driving | None:
    driver = options.driver
    if driver is None or options.merge == "mean":
        return None
    entry = catalogue.product(places[0].product, places[0].collection)
    needed = entry.facts(driver.layer).geolocation if entry is not None else ""
    theirs = [
        found and replace(found, companion=guides.get((needed, found.start)))
        for place in places
        for found in [place_in(place.path, driver.layer)]
    ]
    method = driver.resampling or "nearest"
    first = next((place for place in theirs if place is not None), None)
    if first is not None:
        _check(first, method, replace(options, qa=driver.qa))
    return Driving(places=theirs, rule=driver.qa, resampling=method)


def _agreeing(places: list[GranuleHeader], options: Options) -> list[GranuleHeader]:
    """Check that granules are of one product and one kind of layer, and tiles of one date.

    Scales may differ between granules of level 1B: physical values of all belong together.
    """
    first = places[0]
    for place in places[1:]:
        same = (
            (place.product, place.collection) == (first.product, first.collection)
            and (place.grid is None) == (first.grid is None)
            and place.layer.dtype == first.layer.dtype
            and (_scale(place) == _scale(first) or _may_differ(place, options))
            and place.layer.scale_problem == first.layer.scale_problem
        )
        if not same:
            raise ChoiceRefusedError(
                f"{place.name} and {first.name} do not belong in one raster: product, collection, "
                "type and scale of the layer must agree"
                + (", or units be physical" if _may_differ(place, _PHYSICAL) else "")
            )
        if first.grid is not None and place.start.date() != first.start.date():
            raise ChoiceRefusedError(
                f"{first.name} and {place.name} are of two dates, {first.start:%Y-%m-%d} and "
                f"{place.start:%Y-%m-%d}; give the tiles of one date at a time"
            )
    return places


_PHYSICAL = Options(units="physical")


def _scale(place: GranuleHeader) -> tuple[float, float]:
    return place.layer.scale, place.layer.offset


def _may_differ(place: GranuleHeader, options: Options) -> bool:
    return bool(place.layer.band_scales) and _is_physical(place, options)


def _resampling(place: GranuleHeader, entry: Product | None, grid: Grid, options: Options) -> str:
    if options.resampling is not None:
        return options.resampling
    if place.grid is None:
        return "nearest"
    facts = entry.facts(place.layer.name) if entry is not None else None
    if facts is not None and facts.entry is not None:
        return facts.default_resampling(_coarser_by(place, grid))
    return catalogue.default_resampling(place.layer.kind, _coarser_by(place, grid))


def _coarser_by(place: GranuleHeader, grid: Grid) -> float:
    """Return the target's pixel side divided by the layer's own."""
    if place.grid is None:
        raise AssertionError(f"{place.name} lies on no grid")
    return pixel_metres(grid) / pixel_metres(place.grid)


def _check(place: GranuleHeader, method: str, options: Options) -> None:
    kind, name = place.layer.kind, place.layer.name
    if options.qa is not None and not options.mask:
        raise ChoiceRefusedError(
            "a qa rule removes pixels, and mask=False keeps all but fill values; leave out one of "
            "the two"
        )
    _check_words(options)
    if place.grid is None and method not in SWATH_METHODS:
        raise ChoiceRefusedError(
            f"layer {name!r} is of a swath, which is resampled by {_words(SWATH_METHODS)}, not "
            f"{method!r}"
        )
    if place.grid is not None and method not in METHODS:
        raise ChoiceRefusedError(
            f"resampling {method!r} is not known; choose {_words(tuple(METHODS))}"
        )
    if place.layer.scale_problem and _is_physical(place, options):
        raise ChoiceRefusedError(
            f"physical units of layer {name!r} are unknown: {place.layer.scale_problem}; ask for "
            "units: stored, and scale the values by the product's user guide"
        )
    if options.units == "brightness" and method == "std" and _is_radiance(place):
        raise ChoiceRefusedError(
            f"the standard deviation of layer {name!r} is of radiances, which is not a "
            "temperature; choose average, min or max, or units: physical"
        )
    if kind is not LayerKind.CONTINUOUS and TRAITS[method].blends:
        raise ChoiceRefusedError(
            f"{method!r} would blend layer {name!r}, whose values are a {kind.value}; choose "
            "nearest or mode"
        )
    if kind is not LayerKind.CONTINUOUS and options.merge == "mean" and place.grid is None:
        raise ChoiceRefusedError(
            f"merge 'mean' would blend layer {name!r}, whose values are a {kind.value}; choose "
            "nadir, latest or first"
        )


def _check_words(options: Options) -> None:
    for name, chosen, known in (
        ("merge", (options.merge,), get_args(Merge)),
        ("units", (options.units,), get_args(Units)),
        ("codes", (options.codes,), get_args(Codes)),
        ("search", (options.search,), get_args(Search)),
        ("extra_bands", options.extra_bands, get_args(ExtraBand)),
    ):
        for word in chosen:
            if word not in known:
                raise ChoiceRefusedError(f"{name} {word!r} is not known; choose {_words(known)}")


def _is_radiance(place: GranuleHeader) -> bool:
    entry = catalogue.product(place.product, place.collection)
    return has_temperatures(entry.layer(place.layer.name) if entry else None)


def _words(choices: Sequence[str]) -> str:
    return " or ".join([", ".join(choices[:-1]), choices[-1]])


def _encoding(places: Sequence[GranuleHeader], options: Options, method: str) -> Encoding:
    """Choose how pixels are held while merging; they become physical units at the end."""
    layer = places[0].layer
    if method in STATISTICS:
        counts = method == "count"
        return Encoding(
            dtype=np.dtype(np.float32),
            nodata=math.nan,
            scale=1.0 if counts else abs(layer.scale),
            offset=0.0,
            units="1" if counts else layer.units,
        )
    if _is_physical(places[0], options):
        return floating_encoding(layer)
    every_value = not options.mask or options.codes == "keep"
    indices = max(len(places), 4) if options.extra_bands else -1
    return stored_encoding(layer, every_value=every_value, indices=indices)


def _held(place: GranuleHeader, options: Options, method: str, encoding: Encoding) -> Encoding:
    """Choose how pixels are held until they become physical units: copied ones as stored.

    The pixels are the same; floats take twice the memory and more time.
    """
    copied = method == "nearest" and place.grid is not None and options.codes == "mask"
    if not copied or options.units != "physical" or place.layer.dtype.kind not in "iu":
        return encoding
    if place.layer.kind is not LayerKind.CONTINUOUS:
        return encoding
    return stored_encoding(place.layer, every_value=not options.mask, indices=-1)


def _is_physical(place: GranuleHeader, options: Options) -> bool:
    return options.units != "stored" and place.layer.kind is LayerKind.CONTINUOUS


def _raster(plan: _Prepared, grid: Grid, options: Options, merged: Merged) -> Raster:
    places, method, encoding = plan.places, plan.method, plan.encoding
    layer = places[0].layer
    values: Pixels = merged.values
    scale, offset = encoding.scale, encoding.offset
    dtype = encoding.dtype
    units = encoding.units
    by_stored = _temperatures(places[0], options, method)
    if by_stored is not None:
        # Means are of radiances, which are linear in stored values; temperatures are not.
        dtype, units = np.dtype(np.float32), "K"
        values = np.interp(values.astype(np.float64), np.arange(len(by_stored)), by_stored)
        values = values.astype(np.float32)
        scale, offset = 1.0, 0.0
    elif _is_physical(places[0], options):
        dtype = np.dtype(np.float32)
        values = _physical(values, plan.held)
        scale, offset = 1.0, 0.0
    bands = [Band(name=layer.name, role="data")]
    planes = [values]
    if options.codes == "keep":
        bands.append(Band(name=f"{layer.name} codes", role="class"))
        planes.append(merged.codes)
    extra: dict[str, Pixels] = {
        "count": merged.counts,
        "source": merged.sources,
        "reason": merged.reasons,
    }
    for name in options.extra_bands:
        bands.append(Band(name=name, role=name))
        planes.append(extra[name])
    if len(planes) == 1 and values.dtype == dtype:
        data = values[np.newaxis]
    else:
        data = np.empty((len(planes), *grid.shape), dtype)
        for band, plane in enumerate(planes):
            data[band] = plane
    counted = method in STATISTICS
    is_class = layer.kind is LayerKind.CLASS and not counted
    return Raster(
        data=data,
        grid=grid,
        nodata=encoding.nodata,
        kind=(LayerKind.CONTINUOUS if counted else layer.kind).value,
        bands=tuple(bands),
        scale=scale,
        offset=offset,
        units=units,
        codes={} if counted else {**(layer.classes if is_class else {}), **layer.codes},
        colours=colours_of(layer.classes) if is_class and dtype.kind == "u" else {},
        provenance=_provenance(places, grid, options, method),
        notes=tuple(sorted({note for place in places for note in place.layer.notes})),
    )


def _temperatures(
    place: GranuleHeader, options: Options, method: str
) -> npt.NDArray[np.float64] | None:
    """Return the brightness temperature of each stored value, if such are asked for."""
    if options.units != "brightness" or method == "count" or not _is_radiance(place):
        return None
    with opened(place.path) as (granule, _):
        return temperatures(granule, place.layer)


def _physical(values: Pixels, held: Encoding) -> npt.NDArray[np.float32]:
    """Convert stored values to physical units, a few rows at a time to save memory."""
    out = np.empty(values.shape, np.float32)
    for first in range(0, len(values), 64):
        rows = slice(first, first + 64)
        out[rows] = values[rows].astype(np.float64) * held.scale + held.offset
        if not math.isnan(held.nodata):
            out[rows][values[rows] == held.nodata] = np.nan
    return out


def _provenance(
    places: Sequence[GranuleHeader], grid: Grid, options: Options, method: str
) -> Provenance:
    used = grid.system.operation
    starts = [place.start for place in places if place.start > UNDATED]
    ends = [place.end for place in places if place.end is not None]
    return Provenance(
        product=places[0].product,
        collection=places[0].collection,
        layer=places[0].layer.name,
        granules=tuple(place.source for place in places),
        start=_utc(min(starts)) if starts else "",
        end=_utc(max(ends)) if ends else "",
        parameters=_parameters(options, method, is_swath=places[0].grid is None),
        operation=used.description,
        accuracy=used.accuracy,
        scaling=_scaling(places[0], options, method),
        software=_software(),
    )


def _scaling(place: GranuleHeader, options: Options, method: str) -> str:
    problem = place.layer.scale_problem
    if options.units == "brightness" and method != "count" and _is_radiance(place):
        return f"brightness temperature of the radiance {place.layer.convention}"
    return f"unknown: {problem}" if problem else place.layer.convention


@lru_cache(maxsize=1)
def _software() -> str:
    # Only here: the module's import takes a tenth of that of this one.
    from importlib.metadata import version

    return f"swathmill {version('swathmill')}, reprojection {ALGORITHM}"


def _utc(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _parameters(
    options: Options, method: str, *, is_swath: bool
) -> tuple[tuple[str, Parameter], ...]:
    rule = options.qa if isinstance(options.qa, str | None) else json.dumps(options.qa)
    follows = options.driver if is_swath and options.merge != "mean" else None
    return (
        ("resampling", method),
        ("merge", options.merge),
        ("qa", rule),
        ("mask", options.mask),
        ("units", options.units),
        ("codes", options.codes),
        ("search", options.search),
        ("extra_bands", ",".join(options.extra_bands)),
        *((("clamp", True),) if options.clamp else ()),
        *((("driver", json.dumps(asdict(follows))),) if follows else ()),
    )
