"""`swathmill.load`: granules of many dates as one dataset on one grid, made by dask in blocks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from archives.model import GranuleRecord
from modis.collection import Collection, versioned
from modis.granule_day import granule_day
from reprojection import catalogue
from reprojection.errors import ChoiceRefusedError, GridError, UnknownLayerError
from reprojection.grid.grids import Grid
from reprojection.grid.targets import pixel_metres
from reprojection.read.granule_layer import layer_grid
from reprojection.read.kept import KEPT_BYTES, Keeping, opened
from reprojection.read.outline import outline
from reprojection.read.raster import Raster
from reprojection.read.raster_dataset import (
    MAPPING,
    band_attributes,
    dataset_attributes,
    grid_coordinates,
)
from reprojection.reproject import Driver, Options, blank, reproject
from reprojection.resampling import TRAITS
from service_manager.planner.located import Reach
from swathmill.xarray.cells import Cells
from swathmill.xarray.explaining import GRANULES, OPTIONS
from swathmill.xarray.granule_files import paths_of
from swathmill.xarray.targets import target_grid

if TYPE_CHECKING:
    import dask.array as da
    import xarray as xr

Array = npt.NDArray[np.generic]

_PHYSICAL = Options(units="physical")


def load(
    granules: object,
    layers: str | Sequence[str],
    target: object = None,
    *,
    like: object = None,
    crs: str | None = None,
    resolution: float | None = None,
    bounds: Sequence[float] | None = None,
    region: object = None,
    options: Options | Mapping[str, Options] = _PHYSICAL,
    cell_size: int | None = None,
    folder: str | Path | None = None,
    memory: int = 2 * KEPT_BYTES,
) -> "xr.Dataset":
    """Reproject granules of many dates onto one grid, as a dataset that dask makes block by block.

    A block is one date and one cell of the grid. Cells lie as those of requests do, and hold the
    same pixels. Of each date only the granules that may touch a cell are opened for it, when it is
    computed. It needs the extra `swathmill[xarray]`.

    Args:
        granules: Granules of one product, with those that say where their pixels lie, if others
            do: paths, a folder, what `swathmill.search` found, STAC items, or what earthaccess
            found, opened or downloaded.
        layers: A layer, or several; a band of a layer as `Name[2]`.
        target: The target grid: a `Grid`, odc-geo's GeoBox, an xarray object, or a rasterio
            profile.
        like: An xarray object whose grid is the target, the same as `target`.
        crs: Without a target, the CRS of the grid: WKT, authority code or PROJ string.
        resolution: The side of its pixels, in CRS units.
        bounds: Its extent: west, south, east, north, in CRS units.
        region: Its extent instead, in longitude and latitude: four numbers, or a geometry with
            `__geo_interface__`. Pixels beyond the geometry are made, too.
        options: How granules become pixels, for all layers or by layer's name; by default those of
            `Options`, in physical units.
        cell_size: Rows and columns of a block; by default those of a request's cell, 1024, on the
            sinusoidal grid those of a tile.
        folder: Where granules are fetched to that are not on this machine.
        memory: Bytes of decoded layers that each process keeps at most for the blocks to come,
            400 MB by default: they are forgotten when the last block that needs them was made.

    Returns:
        A variable of time, y and x for each layer, and for the other bands that options add. Times
        are the days of the granules. What the granules of a date do not hold there is empty. Where
        swaths overlap, other layers follow the first one, as in a request: each of their pixels
        comes from the granule that the first one's comes from, unless a `driver` says otherwise.

    Raises:
        GridError: the target says no grid.
        ChoiceRefusedError: there is no granule, they are of several products, the grid is rotated,
            or the options do not fit a layer.
        ReprojectionError: a granule cannot be read, or none holds a layer.
    """
    import xarray as xr

    if target is not None and like is not None:
        raise GridError("target and like both name a grid: give one of them")
    grid = target_grid(
        like if target is None else target,
        crs=crs,
        resolution=resolution,
        bounds=bounds,
        region=region,
    )
    coordinates = grid_coordinates(grid)
    names = [layers] if isinstance(layers, str) else list(layers)
    _check_layers(names, options)
    keeping = Keeping(memory)
    days = _by_day(paths_of(granules, None if folder is None else Path(folder)))
    cells = Cells(grid, cell_size)
    stacks: list[_Stack] = []
    for name in names:
        chosen = options if isinstance(options, Options) else options.get(name, _PHYSICAL)
        stacks.append(_Stack(name, _following(chosen, stacks), grid, cells, days, keeping))
    needed = Counter(path for stack in stacks for path in stack.needed.elements())
    variables = {key: one for stack in stacks for key, one in stack.variables(needed).items()}
    times = np.array([np.datetime64(day, "ns") for day in days])
    words = {"standard_name": "time", "axis": "T", "long_name": "day of the granules"}
    coordinates["time"] = xr.Variable(("time",), times, words)
    coordinates["granules"] = xr.Variable(
        ("time",),
        np.array([" ".join(_names(held)) for held in days.values()]),
        {"long_name": "granules that the date was made from"},
    )
    said = dataset_attributes(stacks[0].blank.description())
    return xr.Dataset(variables, coordinates, said)


@dataclass(frozen=True, kw_only=True)
class _Granule:
    """A granule's file, and what tells when and where it is."""

    path: Path
    record: GranuleRecord
    guides: bool  # whether it says where pixels of the others lie


@dataclass(frozen=True, kw_only=True)
class Block:
    """What it takes to make one block, in any process.

    `fills` are what the bands of an empty block hold; `dtype` and `nodata` those of all blocks.
    `names` are the granules of the date, by which the band "source" counts. `keeping` is what
    blocks share: neighbours are made of the same granules. `needed` says of each granule how many
    blocks of the layer, and of all layers, need it: after the last, it is not kept. Of swaths only
    all layers count, as they share where their pixels lie.
    """

    paths: tuple[Path, ...]
    layer: str
    grid: Grid
    options: Options
    dtype: np.dtype[np.generic]
    nodata: float | int | None
    fills: tuple[float, ...]
    names: tuple[str, ...] = ()
    keeping: Keeping | None = None
    needed: tuple[tuple[int, int], ...] = ()

    def made(self) -> None:
        """Say that the block was made."""
        if self.keeping is None:
            return
        place = self.grid.transform
        for path, (of_layer, of_all) in zip(self.paths, self.needed, strict=True):
            if of_layer:
                self.keeping.made(path, self.layer, place, of_layer)
            self.keeping.made(path, None, (self.layer, place), of_all)


def make_block(block: Block) -> Array:
    """Make a block, of shape (1, bands, rows, columns), as `reproject` makes it.

    The band "source" counts the granules of the date, in place of those of the block.
    """
    if not block.paths:
        return _empty(block)
    try:
        raster = reproject(block.paths, block.layer, block.grid, block.options)
    except UnknownLayerError:
        # Other dates hold the layer: level 1B has no reflectances by night.
        return _empty(block)
    finally:
        block.made()
    data = _of_the_date(raster, block.names)
    alike = np.array_equal([raster.nodata or 0], [block.nodata or 0], equal_nan=True)
    if data.dtype != block.dtype or not alike:
        # Of another number of granules, a type that has room for their numbers may be wider.
        data = data.astype(block.dtype)
        for number, plane in enumerate(data):
            if block.nodata is not None:
                plane[~raster.valid(number)] = block.nodata
    return data[np.newaxis]


def _of_the_date(raster: Raster, names: Sequence[str]) -> Array:
    """Return the pixels of a raster, with numbers of granules among those of its date."""
    for number, band in enumerate(raster.bands):
        if band.role == "source":
            own = [0, *(1 + names.index(one.name) for one in raster.provenance.granules)]
            data = raster.data.copy()
            data[number] = np.array(own, data.dtype)[raster.data[number].astype(np.intp)]
            return data
    return raster.data


def _empty(block: Block) -> Array:
    planes = [np.full(block.grid.shape, fill, block.dtype) for fill in block.fills]
    return np.stack(planes)[np.newaxis]


def _names(granules: Sequence[_Granule]) -> tuple[str, ...]:
    """Return the names of the granules of a date, by start, then file."""
    return tuple(dict.fromkeys(one.record.name for one in granules if not one.guides))


class _Stack:
    """One layer over all dates: what it is, and how dask makes it."""

    def __init__(
        self,
        layer: str,
        options: Options,
        grid: Grid,
        cells: Cells,
        days: Mapping[date, Sequence[_Granule]],
        keeping: Keeping,
    ) -> None:
        self.layer = layer
        self._cells = cells
        self._days = days
        self._keeping = keeping
        self.blank = self._first_blank(grid, options)
        # Chosen for the whole grid, as a request does: cells differ in the size of their pixels.
        method = str(dict(self.blank.provenance.parameters)["resampling"])
        self.options = replace(options, resampling=method)
        own = self._own_grid()
        self.is_swath = own is None
        widest = max(pixel_metres(grid), 1000.0 if own is None else pixel_metres(own))
        self._reach: Reach = TRAITS[method].reach * widest, TRAITS[method].whole_pixel
        self._blocks = self._made_blocks()
        self.needed = Counter(path for block in self._blocks.values() for path in block.paths)

    def _first_blank(self, grid: Grid, options: Options) -> Raster:
        """Describe the layer by a date whose granules hold it: of the most granules, the first."""
        problem: UnknownLayerError | None = None
        for granules in sorted(self._days.values(), key=len, reverse=True):
            try:
                return blank([one.path for one in granules], self.layer, grid, options)
            except UnknownLayerError as error:
                problem = problem or error
        raise problem or AssertionError

    def _own_grid(self) -> Grid | None:
        """Return the layer's own grid, None for a swath."""
        for granules in self._days.values():
            for one in granules:
                with opened(one.path) as (granule, _):
                    try:
                        return layer_grid(granule, granule.layer(self.layer))
                    except UnknownLayerError:
                        continue
        return None

    def variables(self, needed: Mapping[Path, int]) -> "dict[str, xr.Variable]":
        """Make the variables of the layer's bands; `needed` counts blocks of all layers."""
        import xarray as xr

        stack = self._array(needed)
        files = {
            day.isoformat(): tuple(one.path for one in granules)
            for day, granules in self._days.items()
        }
        made = {OPTIONS: self.options, GRANULES: files, "grid_mapping": MAPPING}
        said = self.blank.description()
        return {
            name: xr.Variable(("time", "y", "x"), stack[:, number], about, dict(made))
            for number, (name, about) in enumerate(
                band_attributes(said, self.blank.data.dtype, self.blank.nodata)
            )
        }

    def _array(self, needed: Mapping[Path, int]) -> "da.Array":
        """Make the dask array of shape (dates, bands, rows, columns)."""
        try:
            import dask.array as da
        except ImportError as problem:
            raise ChoiceRefusedError(
                "blocks are made by dask: install swathmill[xarray]"
            ) from problem
        from dask.base import tokenize
        from dask.highlevelgraph import HighLevelGraph

        blocks = {
            place: replace(
                block,
                needed=tuple(
                    (0 if self.is_swath else self.needed[path], needed[path])
                    for path in block.paths
                ),
            )
            for place, block in self._blocks.items()
        }
        files = sorted({path for block in blocks.values() for path in block.paths})
        stamps = [(str(path), path.stat().st_mtime_ns) for path in files]
        said = repr([replace(one, keeping=None) for one in self._blocks.values()])
        name = f"swathmill-{tokenize(stamps, said)}"
        graph: dict[Any, tuple[object, Block]] = {
            (name, *place): (make_block, block) for place, block in blocks.items()
        }
        chunks = (
            (1,) * len(self._days),
            (len(self.blank.bands),),
            self._cells.rows,
            self._cells.columns,
        )
        layers = HighLevelGraph.from_collections(name, graph, dependencies=())
        return da.Array(layers, name, chunks=chunks, dtype=self.blank.data.dtype)

    def _made_blocks(self) -> dict[tuple[int, int, int, int], Block]:
        """Make the blocks, by the place of each in the grid of chunks."""
        raster = self.blank
        empty = Block(
            paths=(),
            layer=self.layer,
            grid=raster.grid,
            options=self.options,
            dtype=raster.data.dtype,
            nodata=raster.nodata,
            fills=tuple(band.empty(raster.nodata) for band in raster.bands),
            keeping=self._keeping,
        )
        found: dict[tuple[int, int, int, int], Block] = {}
        for when, granules in enumerate(self._days.values()):
            placed = {one.record.url: one for one in granules if not one.guides}
            names = _names(granules)
            near = self._cells.near([one.record for one in placed.values()], self._reach)
            for number, grid in enumerate(self._cells.grids):
                touched = [placed[record.url] for record in near.get(number, ())]
                starts = {one.record.start for one in touched}
                beside = [one for one in granules if one.guides and one.record.start in starts]
                row, column = divmod(number, len(self._cells.columns))
                paths = tuple(one.path for one in (*touched, *beside))
                found[when, 0, row, column] = replace(empty, grid=grid, paths=paths, names=names)
        return found


def _following(options: Options, before: Sequence[_Stack]) -> Options:
    """Have a layer of swaths follow the first one, where its options do not say otherwise."""
    if not before or not before[0].is_swath or options.driver or options.merge == "mean":
        return options
    first = before[0]
    driver = Driver(layer=first.layer, resampling=first.options.resampling, qa=first.options.qa)
    return replace(options, driver=driver)


def _check_layers(names: Sequence[str], options: Options | Mapping[str, Options]) -> None:
    if not names:
        raise ChoiceRefusedError("no layer was named; `swathmill inspect` lists those of a granule")
    if len(set(names)) < len(names):
        raise ChoiceRefusedError(f"a layer is named twice: {', '.join(names)}")
    unknown = [] if isinstance(options, Options) else [one for one in options if one not in names]
    if unknown:
        raise ChoiceRefusedError(
            f"options are given for {', '.join(unknown)}, and the layers are: {', '.join(names)}"
        )


def _by_day(paths: Sequence[Path]) -> dict[date, list[_Granule]]:
    """Sort granules by their days.

    Raises ChoiceRefusedError if they are of several products.
    """
    records = {path: _record(path) for path in paths}
    entries = [catalogue.product(one.product, one.collection) for one in records.values()]
    guiding = {name for entry in entries if entry for name in entry.geolocations}
    of = sorted({(one.product, str(one.collection)) for one in records.values()})
    named = [one for one in of if one[0] not in guiding]
    if len(named) != 1:
        texts = [versioned(product, collection) for product, collection in named or of]
        raise ChoiceRefusedError(
            f"the granules are of several products ({'; '.join(texts)}), or say only where others "
            "lie: load one at a time, and put the datasets together by xarray.merge"
        )
    days: dict[date, list[_Granule]] = {}
    for path, record in sorted(records.items(), key=lambda one: (one[1].start, one[0].name)):
        guides = record.product in guiding
        days.setdefault(granule_day(record.start), []).append(
            _Granule(path=path, record=record, guides=guides)
        )
    return {day: held for day, held in days.items() if not all(one.guides for one in held)}


def _record(path: Path) -> GranuleRecord:
    """Read what tells when and where a granule is."""
    with opened(path) as (granule, _):
        found = outline(granule)
    start = found.start or datetime(1, 1, 1, tzinfo=UTC)
    return GranuleRecord(
        name=found.name,
        product=found.product,
        collection=Collection(found.collection),
        start=start,
        end=found.end or start,
        tile=found.tile,
        boundary=found.boundary,
        production_time=found.production_time,
        size=0,
        checksum=None,
        checksum_type=None,
        url=str(path),
        day_night=found.day_night,
    )
