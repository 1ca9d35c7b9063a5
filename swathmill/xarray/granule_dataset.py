"""Describe a granule's group of layers as a dataset: coordinates, attributes, lazy variables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import numpy as np
import xarray as xr
from xarray.core import indexing

from reprojection.catalogue.layers import Layer, LayerKind
from reprojection.errors import ChoiceRefusedError, GridError, NoGeolocationError
from reprojection.formats.container import coordinate
from reprojection.grid.coordinates import SourceSpace
from reprojection.grid.crs import MODIS_SINUSOIDAL
from reprojection.grid.grids import Grid
from reprojection.read.cf import (
    cf_units,
    flags,
    identifier,
)
from reprojection.read.encoding import floating_encoding, stored_encoding
from reprojection.read.geolocation import scan_lines
from reprojection.read.granule import Granule
from reprojection.read.granule_layer import Rule, layer_grid
from reprojection.read.qa import resolve_rule
from reprojection.read.raster_dataset import MAPPING, grid_coordinates, with_units
from reprojection.read.temperatures import has_temperatures
from reprojection.reproject import Codes, Options, Units
from swathmill.xarray.explaining import OPTIONS
from swathmill.xarray.groups import Group, choose, groups_of
from swathmill.xarray.lazy import Decoding, LazyArray, LazyLayer, LazyPlaces, Places

Attributes = dict[str, object]

_CHUNK = 1 << 20  # pixels of a chunk that dask is advised to take, at least
_SWATH_DIMS = ("along_track", "cross_track")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is opened of a granule, and how: the options of the engine.

    `layers` are all of the group if none is named. Words are those of `Options`.
    """

    layers: tuple[str, ...] = ()
    group: str | None = None
    mask: bool = True
    qa: Rule = None
    units: Units = "physical"
    codes: Codes = "mask"
    geolocation: Path | None = None

    def __post_init__(self) -> None:
        for name, word, known in (
            ("units", self.units, get_args(Units)),
            ("codes", self.codes, get_args(Codes)),
        ):
            if word not in known:
                raise ChoiceRefusedError(
                    f"{name} {word!r} is not known; choose {' or '.join(known)}"
                )
        if self.qa is not None and not self.mask:
            raise ChoiceRefusedError(
                "a qa rule removes pixels, and mask=False keeps all but fill values; leave out one "
                "of the two"
            )


def dataset_of(granule: Granule, choices: Choices) -> xr.Dataset:
    """Make the dataset of one group of a granule.

    Raises:
        ChoiceRefusedError: there is no such group, or the options do not fit the layers.
        UnknownLayerError: the granule does not hold a layer.
    """
    group = choose(granule, choices.group, choices.layers)
    return _Description(granule, group, choices).dataset()


def datasets_of(granule: Granule, choices: Choices) -> dict[str, xr.Dataset]:
    """Make the datasets of all groups of a granule that have one of the layers, by their names.

    A QA rule goes for the groups that have a layer for which it goes.

    Raises:
        ChoiceRefusedError: the options do not fit the layers, or the rule goes for no group.
        UnknownLayerError: the granule does not hold a layer.
    """
    for name in choices.layers:
        granule.layer(name)
    found: dict[str, xr.Dataset] = {}
    refused: list[ChoiceRefusedError] = []
    for name, group in groups_of(granule).items():
        here = replace(choices, group=None, layers=tuple(filter(group.holds, choices.layers)))
        if choices.layers and not here.layers:
            continue
        try:
            found[name] = _Description(granule, group, here).dataset()
        except ChoiceRefusedError as problem:
            if choices.qa is None or here.layers:
                raise
            refused.append(problem)
            found[name] = _Description(granule, group, replace(here, qa=None)).dataset()
    if refused and len(refused) == len(found):
        raise refused[0]
    return found


class _Description:
    """The dataset of one group, while it is made."""

    def __init__(self, granule: Granule, group: Group, choices: Choices) -> None:
        self._granule = granule
        self._group = group
        self._choices = choices
        self._grid, self._problem = _grid(granule, group.layers[0])
        self._is_grid = group.grid is not None
        self._dims = ("y", "x") if self._is_grid else _SWATH_DIMS
        self._timed = self._is_grid and granule.start is not None
        self._sizes: dict[str, int] = {}

    def dataset(self) -> xr.Dataset:
        coordinates = {} if self._is_grid else self._swath_coordinates()
        layers = [self._granule.layer(name) for name in self._choices.layers] or [
            layer
            for layer in self._group.layers
            if self._is_grid or not (coordinate(layer.name) and "lat" in coordinates)
        ]
        self._check_rule(layers)
        if self._is_grid:
            coordinates |= self._grid_coordinates()
        variables: dict[str, xr.Variable] = {}
        for layer in layers:
            for name, variable in self._variables(layer):
                taken = name in variables or name in coordinates
                variables[f"{name}_layer" if taken else name] = variable
        for name, variable in variables.items():
            qa = variable.attrs.pop("_qa", None)
            if qa in variables and qa != name:
                variable.attrs["ancillary_variables"] = qa
        coordinates |= self._axes(layers)
        coordinates |= self._time()
        return xr.Dataset(variables, coordinates, self._about())

    def _variables(self, layer: Layer) -> Iterator[tuple[str, xr.Variable]]:
        name = layer.name.replace("/", "_")
        decoding = self._decoding(layer)
        yield name, self._variable(layer, decoding)
        keeps = self._choices.codes == "keep" and self._choices.mask
        if keeps and layer.codes and layer.kind is LayerKind.CONTINUOUS:
            stored = stored_encoding(layer, every_value=True, indices=-1)
            codes = Decoding(
                form="codes", dtype=stored.dtype, nodata=stored.nodata, rule=decoding.rule
            )
            yield f"{name}_codes", self._variable(layer, codes)

    def _variable(self, layer: Layer, decoding: Decoding) -> xr.Variable:
        lazy = LazyLayer(self._granule.path, layer, decoding, timed=self._timed)
        dims = (*(("time",) if self._timed else ()), *self._band_dims(layer), *self._dims)
        variable = xr.Variable(dims, indexing.LazilyIndexedArray(lazy))
        variable.attrs = self._attributes(layer, decoding)
        variable.encoding = self._encoding(layer, decoding, dims, lazy)
        return variable

    def _decoding(self, layer: Layer) -> Decoding:
        """Choose how a layer is decoded; the words are those of `reproject`."""
        mask, keep = self._choices.mask, self._choices.codes == "keep"
        if layer.kind is LayerKind.BITFIELD:
            return Decoding(form="raw", dtype=layer.dtype, nodata=layer.fill or 0)
        rule = self._rule(layer)
        stored = stored_encoding(layer, every_value=not mask or keep, indices=-1)
        if layer.kind is LayerKind.CLASS or self._units(layer) == "stored":
            return Decoding(
                form="classes" if keep and layer.kind is LayerKind.CLASS else "stored",
                dtype=stored.dtype,
                nodata=stored.nodata,
                mask=mask,
                rule=rule,
            )
        if self._units(layer) == "brightness":
            return Decoding(
                form="brightness", dtype=np.dtype(np.float32), nodata=np.nan, mask=mask, rule=rule
            )
        dtype = floating_encoding(layer).dtype
        return Decoding(form="physical", dtype=dtype, nodata=np.nan, mask=mask, rule=rule)

    def _units(self, layer: Layer) -> Units:
        """Return the units of a layer: those asked for, as far as it has them."""
        units = self._choices.units
        if units == "stored":
            return units
        if layer.scale_problem:
            if layer.name in self._choices.layers:
                raise ChoiceRefusedError(
                    f"physical units of layer {layer.name!r} are unknown: {layer.scale_problem}; "
                    'open it with units="stored", and scale the values by the product\'s user guide'
                )
            return "stored"
        entry = self._granule.entry
        known = has_temperatures(entry.layer(layer.name) if entry else None)
        return "brightness" if units == "brightness" and known else "physical"

    def _rule(self, layer: Layer) -> Rule:
        """Return the QA rule of a layer: the one asked for, as far as it goes for the layer.

        A layer that was named has to take it.
        """
        rule = self._choices.qa
        if rule is None or layer.kind is LayerKind.BITFIELD:
            return None
        if not isinstance(rule, str) and layer.base_name in rule:
            return None
        problem = self._refusal(layer)
        if problem is not None and layer.name in self._choices.layers:
            raise problem
        return rule if problem is None else None

    def _refusal(self, layer: Layer) -> ChoiceRefusedError | None:
        """Return why the QA rule does not go for a layer, None if it does."""
        try:
            resolve_rule(self._granule, self._one_band(layer), self._choices.qa)
        except ChoiceRefusedError as problem:
            return problem
        return None

    def _one_band(self, layer: Layer) -> Layer:
        if layer.index or not layer.bands:
            return layer
        return self._granule.layer(f"{layer.name}[{','.join('0' for _ in layer.bands)}]")

    def _check_rule(self, layers: Sequence[Layer]) -> None:
        """Refuse a rule that goes for none of the layers."""
        if self._choices.qa is None:
            return
        problems = [
            self._refusal(layer) for layer in layers if layer.kind is not LayerKind.BITFIELD
        ]
        if problems and all(problems):
            raise problems[0] or AssertionError

    def _attributes(self, layer: Layer, decoding: Decoding) -> Attributes:
        entry, form = self._granule.entry, decoding.form
        about: Attributes = {"long_name": layer.description or layer.name, "layer": layer.name}
        if layer.qa is not None:
            about["_qa"] = layer.qa.replace("/", "_")
        if form == "brightness":
            about["units"] = "K"
        elif form != "codes" and layer.kind is LayerKind.CONTINUOUS:
            units = cf_units(layer.units)
            about |= {"units": units} if units else {}
            name = entry.standard_name(layer.name) if entry else ""
            about = with_units(about | ({"standard_name": name} if name else {}))
            if form == "stored" and (layer.scale, layer.offset) != (1.0, 0.0):
                about |= {"scale_factor": layer.scale, "add_offset": layer.offset}
        about |= {
            key: value if isinstance(value, str) else np.array(value).astype(decoding.dtype)
            for key, value in self._flags(layer, decoding).items()
        }
        if decoding.dtype.kind in "iu" and (form != "raw" or layer.fill is not None):
            about["_FillValue"] = decoding.dtype.type(decoding.nodata)
        if decoding.rule is not None:
            rule = decoding.rule
            about["quality_rule"] = rule if isinstance(rule, str) else json.dumps(rule)
        if layer.scale_problem:
            about["scale_problem"] = layer.scale_problem
        if layer.convention:
            about["scaling"] = layer.convention
        if layer.notes:
            about["notes"] = "; ".join(layer.notes)
        return about

    def _flags(self, layer: Layer, decoding: Decoding) -> Mapping[str, str | list[float]]:
        if decoding.form == "codes":
            return flags({}, layer.codes, decoding.dtype)
        if layer.kind is LayerKind.CLASS:
            return flags({}, dict(sorted({**layer.classes, **layer.codes}.items())), decoding.dtype)
        if layer.kind is not LayerKind.BITFIELD or layer.dtype.kind not in "iu":
            return {}
        entry = self._granule.entry.layer(layer.name) if self._granule.entry else None
        room = 8 * layer.dtype.itemsize
        bits = entry.bits if entry and not any(size > 1 for _, size in layer.bands) else {}
        held = {name: one for name, one in bits.items() if one.start + one.length <= room}
        return flags(held, layer.classes, layer.dtype)

    def _encoding(
        self, layer: Layer, decoding: Decoding, dims: Sequence[str], lazy: LazyArray
    ) -> Attributes:
        """Return how a variable is written: floats as the granule packs them."""
        found: Attributes = {
            "preferred_chunks": self._chunks(layer, dims, lazy),
            OPTIONS: Options(resampling="nearest", qa=decoding.rule, mask=decoding.mask),
        }
        if self._grid is not None:
            found["grid_mapping"] = MAPPING
        if decoding.form == "physical" and not (layer.band_scales and not layer.index):
            stored = stored_encoding(layer, every_value=not self._choices.mask, indices=-1)
            found |= {"dtype": stored.dtype, "_FillValue": stored.dtype.type(stored.nodata)}
            if (layer.scale, layer.offset) != (1.0, 0.0):
                found |= {"scale_factor": layer.scale, "add_offset": layer.offset}
        elif decoding.dtype.kind == "f":
            found["_FillValue"] = decoding.dtype.type(np.nan)
        return found

    def _chunks(self, layer: Layer, dims: Sequence[str], lazy: LazyArray) -> dict[str, int]:
        """Return chunks of whole stored ones, so that dask reads none twice."""
        rows, columns = self._granule.stored_chunk(layer)
        if rows * columns < _CHUNK:
            columns = -(-layer.shape.cols // columns) * columns
            rows *= max(1, _CHUNK // (rows * columns))
        sizes = [*(1 for _ in dims[:-2]), rows, columns]
        return {
            dim: max(1, min(size, whole))
            for dim, size, whole in zip(dims, sizes, lazy.shape, strict=True)
        }

    def _band_dims(self, layer: Layer) -> list[str]:
        """Name a layer's axes besides rows and columns; of one name and two lengths apart."""
        if layer.index:
            return []
        names: list[str] = []
        for dim, size in layer.bands:
            name = identifier(dim) if dim else "band"
            if self._sizes.setdefault(name, size) != size or name in (*self._dims, "time", *names):
                name = f"{name}_{size}"
                self._sizes[name] = size
            names.append(name)
        return names

    def _axes(self, layers: Sequence[Layer]) -> dict[str, xr.Variable]:
        """Return the names of bands, where the catalogue has them for all layers of an axis."""
        found: dict[str, set[tuple[str, ...]]] = {}
        entry = self._granule.entry
        for layer in layers:
            axes = entry.facts(layer.name).axes if entry and not layer.index else ()
            for name, axis in zip(self._band_dims(layer), axes, strict=False):
                found.setdefault(name, set()).add(axis.names)
        return {
            # By CF texts are labels beside their axis; as its index, xarray could not write them.
            f"{name}_name": xr.Variable((name,), np.array(next(iter(names))))
            for name, names in found.items()
            if len(names) == 1 and len(next(iter(names))) == self._sizes[name]
        }

    def _grid_coordinates(self) -> dict[str, xr.Variable]:
        if self._grid is None:
            return {}
        return grid_coordinates(self._grid)

    def _swath_coordinates(self) -> dict[str, xr.Variable]:
        layer = self._group.layers[0]
        places = Places(self._granule.path, layer.name, self._choices.geolocation)
        try:
            if self._choices.geolocation is not None:
                places.located()
            else:
                self._granule.geolocation(layer)
        except NoGeolocationError as problem:
            if self._choices.geolocation is not None:
                raise
            self._problem = str(problem)
            return {}
        names: tuple[tuple[str, str, str], ...] = (
            ("lat", "latitude", "degrees_north"),
            ("lon", "longitude", "degrees_east"),
        )
        shape = (layer.shape.rows, layer.shape.cols)
        found = {}
        for name, standard, units in names:
            lazy = LazyPlaces(places, "lat" if name == "lat" else "lon", shape)
            found[name] = xr.Variable(
                _SWATH_DIMS,
                indexing.LazilyIndexedArray(lazy),
                {"standard_name": standard, "long_name": standard, "units": units},
                {"_FillValue": np.float64(np.nan)},
            )
        return found

    def _time(self) -> dict[str, xr.Variable]:
        """Return the granule's start, and of a swath the time of each scan."""
        start, end = self._granule.start, self._granule.end
        if start is None:
            return {}
        words = {"standard_name": "time", "long_name": "start of the granule"}
        if self._timed:
            return {"time": xr.Variable(("time",), [_moment(start)], words | {"axis": "T"})}
        found = {"time": xr.Variable((), _moment(start), words)}
        if end is not None and end > start:
            found["scan_time"] = self._scan_time(start, end)
        return found

    def _scan_time(self, start: datetime, end: datetime) -> xr.Variable:
        layer = self._group.layers[0]
        lines = max(1, scan_lines(self._granule, layer))
        scans = -(-layer.shape.rows // lines)
        share = (np.arange(layer.shape.rows) // lines) / scans
        nanoseconds = share * (end - start).total_seconds() * 1e9
        times = _moment(start) + nanoseconds.astype("timedelta64[ns]")
        about = {
            "standard_name": "time",
            "long_name": "start of the scan",
            "comment": "the granule's time, shared evenly among its scans",
        }
        return xr.Variable((_SWATH_DIMS[0],), times, about)

    def _about(self) -> Attributes:
        granule = self._granule
        about: Attributes = {
            "Conventions": "CF-1.11, ACDD-1.3",
            "title": f"{granule.product} {self._group.name}".strip(),
            "product": granule.product,
            "collection": granule.collection,
            "granule": granule.name,
            "group": self._group.name,
        }
        others = [name for name in groups_of(granule) if name != self._group.name]
        if others:
            about["other_groups"] = ", ".join(others)
        for word, moment in (("start", granule.start), ("end", granule.end)):
            if moment is not None:
                about[f"time_coverage_{word}"] = f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if granule.entry is not None:
            about |= {"summary": granule.entry.title, "institution": "NASA"}
            if doi := granule.entry.doi(granule.collection):
                about["references"] = f"https://doi.org/{doi}"
        if self._problem:
            about["place_problem"] = self._problem
        return about


def _moment(moment: datetime) -> np.datetime64:
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "ns")


def _grid(granule: Granule, layer: Layer) -> tuple[Grid | None, str]:
    """Return a layer's grid on its exact lattice, and why there is none.

    Corners that files give for one tile differ by fractions of a millimetre; coordinates of several
    granules are to be equal.
    """
    try:
        grid = layer_grid(granule, layer)
        if grid is None:
            return None, ""
        space = SourceSpace.of(grid)
        column, row = space.offset(grid)
    except GridError as problem:
        return None, str(problem)
    a, e = space.pixel_width, space.pixel_height
    crs = MODIS_SINUSOIDAL if grid.system.is_modis_sinusoidal else grid.crs
    transform = (a, 0.0, space.x0 + column * a, 0.0, e, space.y0 + row * e)
    return Grid(crs=crs, transform=transform, width=grid.width, height=grid.height), ""
