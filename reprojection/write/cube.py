"""Write rasters of several dates as one cube over time: CF NetCDF or Zarr, for xarray.

Conventions: CF-1.11, sections 2.6.2 (description of the contents), 3.5 (flags), 4 (coordinates),
5.6 (grid mapping), 7.1 (bounds), 7.3 (cell methods), 7.4 (climatologies) and 8.1 (packed data);
ACDD-1.3 for who made the data, the licence, and the region and the time that are covered; its
dates of making are left out, so that the same rasters make the same bytes. Rasters are written one
after the other, so memory holds one of them. The optional packages netCDF4 (NetCDF) or zarr (Zarr)
are needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import rasterio
from pydantic import TypeAdapter
from rasterio.windows import Window

from modis.collection import Collection, versioned
from reprojection.errors import ChoiceRefusedError
from reprojection.read.cf import (
    Attribute,
    axis_words,
    band_name,
    cf_flags,
    identifier,
    mapping_words,
    product_of,
    quantity,
)
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.description import Description, Provenance
from reprojection.read.raster import Pixels
from reprojection.read.window_time import granule_bounds
from reprojection.write.stac import footprint, outline_box
from reprojection.write.write import Opened, open_raster

Format = Literal["netcdf", "zarr"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK = 512
_ROWS = _CHUNK  # that are read at once
_WHOLE_BYTES = 1 << 28
_TIME_UNITS = "days since 1970-01-01 00:00:00"
_PROVENANCE: TypeAdapter[Provenance] = TypeAdapter(Provenance)
_LICENCE = "Data of NASA's EOSDIS are shared openly, without restriction; cite them by their DOI."

_NASA: dict[str, Attribute] = {
    "institution": "NASA",
    "creator_name": "NASA",
    "creator_type": "institution",
    "creator_url": "https://www.earthdata.nasa.gov",
    "license": _LICENCE,
}

# Methods that give of parts of the values what they give of all; of means that is usual to say.
_BY_PARTS = ("maximum", "mean", "minimum", "sum")


@dataclass(frozen=True, kw_only=True)
class _Variable:
    """A variable of the cube, its attributes, and its values if they are already known."""

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[np.generic]
    attributes: Mapping[str, Attribute]
    fill: float | int | None = None
    values: Pixels | None = None


class _Writer(Protocol):
    """A file that accepts variables, then rasters one by one, some rows from `top` on at once."""

    def define(self, variable: _Variable, shape: tuple[int, ...]) -> None: ...

    def put(self, name: str, index: int, top: int, rows: Pixels) -> None: ...

    def close(self) -> None: ...


def write_cube(
    paths: Sequence[Path],
    out: Path,
    *,
    kind: Format = "netcdf",
    times: Sequence[datetime] | None = None,
    completeness: Completeness = WHOLE,
) -> None:
    """Write rasters of one layer and grid as one cube over time.

    `times` are by default the times at which the rasters' granules or windows started.
    `completeness` is that of the whole cube. If it lacks anything, a variable `completeness` along
    time holds the share of each date, and attributes name what is missing.

    `out` is a file for NetCDF, a folder for Zarr. Raises ChoiceRefusedError for rasters that differ
    in layer, grid, type, scale or cell method, for climatologies among others, for rasters without
    a time or with equal times, and if the package that writes the format is not installed.
    """
    if not paths:
        raise ChoiceRefusedError("no raster was given; a cube needs at least one")
    found = [open_raster(path) for path in paths]
    opened, axis = _in_order(found, times or [_start(one) for one in found])
    _agree(opened)
    first = opened[0]
    grid = first.said.grid
    names, records = _granules(opened), _records(opened)
    sizes = {
        "time": len(opened),
        "bnds": 2,
        "y": grid.height,
        "x": grid.width,
        "granules_length": names.dtype.itemsize,
        "provenance_length": records.dtype.itemsize,
    }
    sensors = _sensors(opened)
    sizes |= {
        f"{one.name}_length": one.values.shape[1] for one in sensors if one.values is not None
    }
    about = _title(opened) | _reach(opened, axis) | _missing(completeness)
    writer = _netcdf(out, about, sizes) if kind == "netcdf" else _zarr(out, about)
    try:
        variables = [
            *_variables(opened, axis),
            _texts("granules", names, "granules that the date was made from"),
            _texts("provenance", records, "how the date was made, as JSON"),
            *sensors,
        ]
        if completeness != WHOLE:
            variables = [*_linked(variables), _shares(opened)]
        for variable in variables:
            writer.define(variable, tuple(sizes[dim] for dim in variable.dims))
        planes = [variable.name for variable in variables if variable.values is None]
        for index, one in enumerate(opened):
            for band, top, rows in _stripes(one.path, (grid.height, grid.width)):
                writer.put(planes[band], index, top, rows)
    finally:
        writer.close()


def _stripes(path: Path, shape: tuple[int, int]) -> Iterator[tuple[int, int, Pixels]]:
    """Read a raster band by band, the rows of a chunk at once; yield band, first row and rows.

    Of a large raster no more is in memory than these rows. Bands lie pixel by pixel in the file:
    where there are several, a small one is decoded once for all of them.
    """
    height, width = shape
    with rasterio.open(path) as dataset:
        size = dataset.count * height * width * np.dtype(dataset.dtypes[0]).itemsize
        whole = dataset.read() if dataset.count > 1 and size <= _WHOLE_BYTES else None
        for band in range(dataset.count):
            for top in range(0, height, _ROWS):
                rows = min(_ROWS, height - top)
                if whole is not None:
                    yield band, top, whole[band, top : top + rows]
                else:
                    yield band, top, dataset.read(band + 1, window=Window(0, top, width, rows))


def _agree(opened: Sequence[Opened]) -> None:
    first = opened[0]
    for one in opened:
        alike = all(
            mine == theirs
            for mine, theirs in (
                (_named(one), _named(first)),
                (one.said.grid, first.said.grid),
                (_roles(one), _roles(first)),
                (one.said.units, first.said.units),
                ((one.said.scale, one.said.offset), (first.said.scale, first.said.offset)),
                (one.dtype, first.dtype),
                (repr(one.nodata), repr(first.nodata)),
                (_over_time(one.said), _over_time(first.said)),
            )
        )
        if not alike:
            raise ChoiceRefusedError(
                f"{one.path.name} and {first.path.name} do not fit in one cube: layer, grid, "
                "number and roles of bands, type, nodata, scale, units, cell method and whether "
                "it is a climatology must agree"
            )


def _named(one: Opened) -> tuple[str, str]:
    """Return the record, if it is of one, and the layer."""
    said = one.said.provenance
    return said.record.record if said.record is not None else "", said.called


def _roles(one: Opened) -> list[str]:
    """List the role of each band; band names may contain the date and need not agree."""
    return [band.role for band in one.said.bands]


def _over_time(said: Description) -> tuple[str, bool]:
    """Return the cell method of a raster, and whether it is of a window of all years."""
    window = said.provenance.window
    return said.provenance.cell_method, window is not None and window.recurs


def _cell_methods(said: Description) -> dict[str, Attribute]:
    """Return the attribute of CF 7.3, of a climatology in the form of CF 7.4."""
    method, recurs = _over_time(said)
    if not method:
        return {}
    if not recurs:
        return {"cell_methods": f"time: {method}"}
    text = f"time: {method} within years time: {method} over years"
    together = "" if method in _BY_PARTS else " (comment: of the values of all years together)"
    return {"cell_methods": text + together}


def _start(one: Opened) -> datetime:
    try:
        return datetime.fromisoformat(one.said.provenance.start)
    except ValueError as problem:
        raise ChoiceRefusedError(f"{one.path.name} has no date; give its time") from problem


def _in_order(
    found: Sequence[Opened], times: Sequence[datetime]
) -> tuple[list[Opened], list[float]]:
    """Sort the rasters by time; return also the days since 1970 of each."""
    order = sorted(range(len(found)), key=lambda index: times[index])
    axis = [(times[index] - _EPOCH).total_seconds() / 86400.0 for index in order]
    for index, day, before in zip(order[1:], axis[1:], axis, strict=False):
        if day == before:
            raise ChoiceRefusedError(
                f"the cube has several rasters of {times[index]}; give one for each date"
            )
    return [found[index] for index in order], axis


def _variables(opened: Sequence[Opened], axis: Sequence[float]) -> list[_Variable]:
    said, grid = opened[0].said, opened[0].said.grid
    a, b, c, d, e, f = grid.transform
    if b or d:
        raise ChoiceRefusedError("a cube's grid must run along its axes; this one is rotated")
    words = axis_words(grid.crs)
    mapping = mapping_words(grid.crs, grid.transform)
    wide = np.dtype(np.float64)
    climatology = _over_time(said)[1]
    bounds = "climatology_bounds" if climatology else "time_bnds"
    variables = [
        _Variable(
            name="time",
            dims=("time",),
            dtype=wide,
            values=np.array(axis),
            attributes={
                "standard_name": "time",
                "axis": "T",
                "units": _TIME_UNITS,
                "calendar": "standard",
                "climatology" if climatology else "bounds": bounds,
            },
        ),
        _Variable(
            name=bounds,
            dims=("time", "bnds"),
            dtype=wide,
            values=_bounds(opened, axis),
            attributes={"units": _TIME_UNITS, "calendar": "standard"} if climatology else {},
        ),
        *_inputs(opened, axis),
        _Variable(
            name="y",
            dims=("y",),
            dtype=wide,
            values=f + (np.arange(grid.height) + 0.5) * e,
            attributes=words["Y"],
        ),
        _Variable(
            name="x",
            dims=("x",),
            dtype=wide,
            values=c + (np.arange(grid.width) + 0.5) * a,
            attributes=words["X"],
        ),
        _Variable(
            name="crs",
            dims=(),
            dtype=np.dtype(np.int32),
            values=np.zeros((), np.int32),
            attributes=mapping,
        ),
    ]
    base = identifier(said.provenance.called)
    for number, band in enumerate(said.bands):
        names = {one.said.bands[number].name for one in opened}
        shown = band.name if len(names) == 1 else said.provenance.called
        about: dict[str, Attribute] = {"long_name": shown, "grid_mapping": "crs"}
        if band.role == "data":
            if (said.scale, said.offset) != (1.0, 0.0):
                about |= {"scale_factor": said.scale, "add_offset": said.offset}
            about |= quantity(said) | _cell_methods(said)
        about |= cf_flags(said, band.role, opened[0].dtype)
        variables.append(
            _Variable(
                name=band_name(base, band.role, number),
                dims=("time", "y", "x"),
                dtype=opened[0].dtype,
                attributes=about,
                fill=None if band.is_index else opened[0].nodata,
            )
        )
    return variables


def _shares(opened: Sequence[Opened]) -> _Variable:
    """Make the variable with the share of the expected inputs that each date was made from."""
    return _Variable(
        name="completeness",
        dims=("time",),
        dtype=np.dtype(np.float64),
        values=np.array([one.said.completeness.share for one in opened]),
        attributes={
            "long_name": "share of the expected inputs that the date was made from",
            "units": "1",
            "valid_range": [0.0, 1.0],
        },
    )


def _linked(variables: Sequence[_Variable]) -> list[_Variable]:
    """Link the variables of data to their completeness (CF 3.4)."""
    return [
        replace(one, attributes={**one.attributes, "ancillary_variables": "completeness"})
        if one.values is None
        else one
        for one in variables
    ]


def _missing(said: Completeness) -> dict[str, Attribute]:
    """Describe what the whole cube lacks, as attributes of the file."""
    if said == WHOLE:
        return {}
    lines = [f"{one.what}: {one.why}" for one in said.missing]
    if said.unnamed:
        lines.append(f"and {said.unnamed:,} more")
    return {"completeness": said.share, "missing_inputs": "\n".join(lines)}


def _title(opened: Sequence[Opened]) -> dict[str, Attribute]:
    said = opened[0].said.provenance
    product = product_of(said)
    options = ", ".join(
        f"{key}={value}" for key, value in said.parameters if value not in (None, "")
    )
    found: dict[str, Attribute] = {
        "Conventions": "CF-1.11, ACDD-1.3",
        "title": f"{said.product} {said.layer}".strip(),
        "source": f"{versioned(said.product, said.collection)}; {said.software}",
        "history": f"{said.software}: rasters of {said.called}, one for each date; {options}",
        "cdm_data_type": "Grid",
    }
    if said.record is not None:
        every = dict.fromkeys(one.said.provenance.product for one in opened)
        of = {one.said.provenance.product: one.said.provenance.collection for one in opened}
        named = ", ".join(versioned(name, of[name]) for name in every)
        found["title"] = f"{said.record.record} {said.called}"
        found["source"] = f"{named}; {said.software}"
        return found | _NASA
    if product is not None:
        found |= {"summary": product.title, **_NASA}
        if product.keywords:
            found["keywords"] = ", ".join(product.keywords.split())
        if said.collection:
            found["product_version"] = Collection(said.collection).padded
        if product.standard_name(said.layer):
            found["standard_name_vocabulary"] = "CF Standard Name Table"
        if doi := product.doi(said.collection):
            found["references"] = f"https://doi.org/{doi}"
    return found


def _reach(opened: Sequence[Opened], axis: Sequence[float]) -> dict[str, Attribute]:
    """Return where and when the data are, by ACDD-1.3; west > east across the antimeridian."""
    reach = np.array(outline_box(footprint(opened[0].said.grid.grid())), np.float64)
    west, south, east, north = (float(degrees) for degrees in reach)
    bounds = _bounds(opened, axis)
    # ACDD writes latitude first, as EPSG:4326 has it. A box across the antimeridian is no polygon.
    ring = ((south, west), (north, west), (north, east), (south, east), (south, west))
    corners = ", ".join(f"{lat:g} {lon:g}" for lat, lon in ring)
    box: dict[str, Attribute] = {
        "geospatial_bounds": f"POLYGON (({corners}))",
        "geospatial_bounds_crs": "EPSG:4326",
    }
    return {
        **(box if west < east else {}),
        "geospatial_lat_min": south,
        "geospatial_lat_max": north,
        "geospatial_lat_units": "degrees_north",
        "geospatial_lon_min": west,
        "geospatial_lon_max": east,
        "geospatial_lon_units": "degrees_east",
        "time_coverage_start": _iso(bounds.min()),
        "time_coverage_end": _iso(bounds.max()),
        "time_coverage_duration": f"P{bounds.max() - bounds.min():.10g}D",
    }


def _iso(day: float) -> str:
    """Return a day since 1970 as text; the end of the year 9999 is beyond what a datetime holds."""
    return f"{np.datetime64(round(day * 86400), 's')}Z"


def _sensors(opened: Sequence[Opened]) -> list[_Variable]:
    """Make the variable with the sensor of each date of a record; none for other layers."""
    found = [one.said.provenance.record for one in opened]
    texts = np.array([one.sensor.encode() for one in found if one is not None])
    if not texts.size:
        return []
    return [_texts("sensor", texts, "sensor that the date is of")]


def _granules(opened: Sequence[Opened]) -> npt.NDArray[np.bytes_]:
    """Return the names of each date's granules, joined by blanks."""
    lines = [" ".join(one.name for one in raster.said.provenance.granules) for raster in opened]
    return np.array([line.encode() or b" " for line in lines])


def _records(opened: Sequence[Opened]) -> npt.NDArray[np.bytes_]:
    """Return the provenance of each date as JSON."""
    return np.array([_PROVENANCE.dump_json(one.said.provenance) for one in opened])


def _texts(name: str, texts: npt.NDArray[np.bytes_], meaning: str) -> _Variable:
    """Make a variable that has a text for each date."""
    return _Variable(
        name=name,
        dims=("time", f"{name}_length"),
        dtype=np.dtype("S1"),
        values=texts.view("S1").reshape(len(texts), -1),
        attributes={"long_name": meaning, "_Encoding": "utf-8"},
    )


def _bounds(opened: Sequence[Opened], axis: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the bounds of each date: those of its window, else of its granules."""
    return np.array([_bounds_of(one, day) for one, day in zip(opened, axis, strict=True)])


def _bounds_of(one: Opened, day: float) -> tuple[float, float]:
    said = one.said.provenance
    if said.window is not None:
        return said.window.bounds
    first, last = _covered(said.start, said.end, day)
    return min(first, day), max(last, day)


def _covered(start: str, end: str, day: float) -> tuple[float, float]:
    """Return what granules cover; the date itself if they do not say it."""
    try:
        return granule_bounds(start, end)
    except ValueError:
        return day, day


def _inputs(opened: Sequence[Opened], axis: Sequence[float]) -> list[_Variable]:
    """Make the variable with what the inputs of each window cover, if there are windows."""
    taken = [one.said.provenance.taken for one in opened]
    if not any(taken):
        return []
    spans = [_covered(*(both or ("", "")), day) for both, day in zip(taken, axis, strict=True)]
    return [
        _Variable(
            name="inputs_time",
            dims=("time", "bnds"),
            dtype=np.dtype(np.float64),
            values=np.array(spans),
            attributes={
                "long_name": "begin of the first and end of the last input of the window",
                "units": _TIME_UNITS,
                "calendar": "standard",
            },
        )
    ]


def _netcdf(out: Path, about: Mapping[str, Attribute], sizes: Mapping[str, int]) -> _Writer:
    try:
        import netCDF4
    except ImportError as problem:
        raise ChoiceRefusedError(
            "NetCDF needs the package netCDF4: install swathmill[cube], or choose zarr"
        ) from problem

    class NetCdf:
        def __init__(self) -> None:
            self._file = netCDF4.Dataset(str(out), "w", format="NETCDF4")
            self._file.setncatts(about)
            for name, size in sizes.items():
                self._file.createDimension(name, size)
            self._file.set_auto_maskandscale(False)

        def define(self, variable: _Variable, shape: tuple[int, ...]) -> None:
            chunks = (1, min(_CHUNK, shape[1]), min(_CHUNK, shape[2])) if len(shape) == 3 else None
            made = self._file.createVariable(
                variable.name,
                "S1" if variable.dtype.kind == "S" else variable.dtype.name,
                variable.dims,
                fill_value=variable.fill,
                chunksizes=chunks,
                zlib=chunks is not None,
                complevel=4,
                shuffle=variable.dtype.itemsize > 1,
            )
            made.set_auto_maskandscale(False)
            made.setncatts(
                {key: _typed(key, value, variable) for key, value in variable.attributes.items()}
            )
            if variable.values is not None:
                made[...] = variable.values

        def put(self, name: str, index: int, top: int, rows: Pixels) -> None:
            self._file[name][index, top : top + len(rows)] = rows

        def close(self) -> None:
            self._file.close()

    return NetCdf()


def _zarr(out: Path, about: Mapping[str, Attribute]) -> _Writer:
    try:
        import zarr
    except ImportError as problem:
        raise ChoiceRefusedError(
            "Zarr needs the package zarr: install swathmill[cube], or choose netcdf"
        ) from problem

    class Zarr:
        def __init__(self) -> None:
            self._group = zarr.open_group(str(out), mode="w", zarr_format=2)
            self._group.attrs.update(dict(about))

        def define(self, variable: _Variable, shape: tuple[int, ...]) -> None:
            chunks = (1, min(_CHUNK, shape[1]), min(_CHUNK, shape[2])) if len(shape) == 3 else shape
            made = self._group.create_array(
                variable.name,
                shape=shape,
                dtype=variable.dtype,
                chunks=chunks,
                fill_value=variable.fill,
            )
            made.attrs.update({**variable.attributes, "_ARRAY_DIMENSIONS": list(variable.dims)})
            if variable.values is not None:
                made[...] = variable.values

        def put(self, name: str, index: int, top: int, rows: Pixels) -> None:
            array = self._group[name]
            if not isinstance(array, zarr.Array):
                raise TypeError(f"{name} is not an array of the cube")
            array[index, top : top + len(rows)] = rows

        def close(self) -> None:
            zarr.consolidate_metadata(str(out), zarr_format=2)

    return Zarr()


def _typed(key: str, value: Attribute, variable: _Variable) -> Attribute | npt.NDArray[np.generic]:
    """Convert flag values to the variable's own type, as CF requires."""
    return np.array(value, variable.dtype) if key in ("flag_values", "flag_masks") else value
