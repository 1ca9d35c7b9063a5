"""Aggregation into a group: the complete input of one run of a reduction.

`manifest.json` describes the group, `lineage.json` how its rasters were made. For each layer there
is one GeoTIFF with a band per day (of swaths, where they were asked for, a band per overpass), and
one for each further band of its cells (codes, count, source, reason).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import rasterio
from pydantic import Field, TypeAdapter
from rasterio.windows import Window
from shapely import MultiPolygon, Polygon, from_geojson

from modis.collection import versioned
from modis.composites import Counted
from reprojection.read.completeness import Completeness, Missing
from reprojection.read.description import Description, Provenance, SourceGranule
from reprojection.read.lineage import CellRecord
from reprojection.read.raster import Pixels
from reprojection.read.window_time import WindowTime
from reprojection.write.joined_lineage import LineageJoiner, Taken
from reprojection.write.mosaic import inside_polygon
from reprojection.write.stack import StackBand, write_stack
from reprojection.write.write import Opened, open_raster
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GridSpec, GroupSpec
from tasks.packages.packages import LayerKind, layer_labels
from tasks.service.classify import AttemptError
from tasks.spec_parts import Band
from tasks.strict_model import StrictModel
from worker.phases.completeness import completeness_of, without_file
from worker.phases.context import Context, Tell
from worker.phases.own_days import by_own_days, differs, outside
from worker.phases.reproject import grid_of

MANIFEST = "manifest.json"
REGION = "region.tif"
LINEAGE = "lineage.json"
PROVENANCE: TypeAdapter[Provenance] = TypeAdapter(Provenance)
FurtherRole = Literal["codes", "count", "source", "reason"]


class FurtherBand(StrictModel):
    """A band beside the values of a layer and day: its content and its position."""

    role: FurtherRole
    file: str
    band: int


class ManifestBand(StrictModel):
    """One band of a stack: its position, its content, and how it counts.

    `start` and `end` are those of its granules or of its window, ISO 8601 in UTC; `date` is the
    nominal start day.
    `kind` and `units` describe the layer, `codes` gives the meanings of single stored values.
    A stored value is worth `stored * scale + offset`; with `applied` the file has these values
    already, and scale and offset are 1 and 0. `valid_share` is the share of its pixels that have a
    value. `completeness` is the share of its expected granules that it was made from. Of an output
    of an earlier step, `step` and `window` are its step and window, `layer` is the output and
    `date` the first day of the window. Of a single overpass, `overpass` is its start in UTC, the
    same in all cells: 2012-04-13T10:35. `days` is how many of the days that it covers count in the
    window, `share` those as a share of all that it covers. A mean counts it by `weight`: its days
    where the request weighs by days, else 1; a total takes it times its `share`. All three are by
    the dates that its granules state; where the plan expected another last day, that is `expected`.
    Of a layer of a record, which is the `product` and has no collection, `sensor` is the product
    that it came from: MOD13A2.061. `near_real_time` counts those of its granules that are LANCE's,
    which standard ones replace.
    """

    file: str
    band: int
    product: str
    collection: str
    layer: str
    date: str
    weight: float
    share: float = 1.0
    days: int = 1
    start: str = ""
    end: str = ""
    granules: tuple[SourceGranule, ...] = ()
    kind: LayerKind = "continuous"
    units: str = ""
    scale: float = 1.0
    offset: float = 0.0
    applied: bool = False
    valid_share: float | None = None
    codes: dict[int, str] = Field(default_factory=dict)
    further: tuple[FurtherBand, ...] = ()
    completeness: float = Field(default=1.0, exclude_if=lambda share: share == 1.0)
    step: str = Field(default="", exclude_if=lambda name: not name)
    window: str = Field(default="", exclude_if=lambda name: not name)
    overpass: str = Field(default="", exclude_if=lambda name: not name)
    expected: str = Field(default="", exclude_if=lambda day: not day)
    sensor: str = Field(default="", exclude_if=lambda name: not name)
    near_real_time: int = Field(default=0, exclude_if=lambda count: count == 0)

    @property
    def files(self) -> tuple[str, ...]:
        """The stacks that hold it."""
        return self.file, *(band.file for band in self.further)


class Manifest(StrictModel):
    """The document a package reads: the group, its grid, its bands.

    `time` has the days of the window. The grid has a `halo` of so many pixels on each side around
    the cell, which are cut off the outputs. `region` is the file with the mask of the request's
    region: 1 inside, 0 outside. If expected inputs are missing, it holds the share of inputs that
    exist, the names of missing ones, and the number of missing ones without a name here.
    """

    version: Literal[1] = 1
    group: str
    cell: str
    window: str
    time: WindowTime | None = Field(default=None, exclude_if=lambda time: time is None)
    grid: GridSpec | None
    halo: int = 0
    region: str = ""
    bands: tuple[ManifestBand, ...]
    completeness: float = Field(default=1.0, exclude_if=lambda share: share == 1.0)
    missing: tuple[Missing, ...] = Field(default=(), exclude_if=lambda value: not value)
    missing_unnamed: int = Field(default=0, exclude_if=lambda number: number == 0)

    @property
    def said(self) -> Completeness:
        """The group's completeness."""
        return Completeness(
            share=self.completeness, missing=self.missing, unnamed=self.missing_unnamed
        )


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One stack to be written: its file, and its bands with their rasters, by day or overpass.

    `around` has the rasters of neighbouring cells by `Band.when`. `further` lists the stacks of the
    rasters' further bands, by the band's number there.
    """

    file: str
    bands: tuple[tuple[Band, Opened], ...]
    around: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    further: tuple[tuple[int, FurtherRole, str], ...] = ()

    @property
    def files(self) -> tuple[tuple[int, str], ...]:
        """Each stack's file, with the number of the band it is made of; values come first."""
        return (1, self.file), *((number, file) for number, _, file in self.further)


def group(spec: GroupSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Stack the cells by layer and write the manifest."""
    fetched = context.fetch_inputs()
    without = without_file(spec, fetched)
    paths = {spec.inputs[index]: files[0] for index, files in fetched.items() if files}
    spec = spec.over({i: given for i, given in enumerate(spec.inputs) if given in paths})
    folder = context.folder("group")
    opened = {given: open_raster(path) for given, path in paths.items()}
    found = {index: opened[given] for index, given in enumerate(spec.inputs)}
    away = outside(spec, _ends(spec, found))
    if away:
        without = (*without, *away.values())
        there = [index for index in found if index not in away]
        if not {*there} & {*spec.own}:
            told = "; ".join(f"{one.what} {one.why}" for one in away.values())
            raise AttemptError(Category.CHOICE_REFUSED, f"{spec.group} has nothing: {told}")
        spec = spec.over({index: spec.inputs[index] for index in there})
        found = {index: opened[given] for index, given in enumerate(spec.inputs)}
    spec = by_own_days(spec, _ends(spec, found))

    def tell(share: float, note: str) -> None:
        context.tell(0.5 + 0.4 * share, note)

    names = write_group(spec, found, folder, tell, without=without)
    context.tell(0.9, f"storing {spec.group}")
    return tuple(context.upload(folder / name) for name in names)


def write_group(
    spec: GroupSpec,
    rasters: Mapping[int, Opened],
    folder: Path,
    tell: Tell,
    *,
    without: Sequence[Missing] = (),
    whole: Completeness | None = None,
) -> list[str]:
    """Write a group's files into a folder; `rasters` are by band index.

    Bands count as the specification says: by their own dates, if `by_own_days` has seen to it.
    `whole` is the group's completeness; None computes it from the specification. Returns the names.

    Raises:
        AttemptError: choice refused, if the cell itself has nothing, or its rasters differ.
    """
    layers = sort_layers(spec, rasters)
    if not layers:
        raise AttemptError(
            Category.CHOICE_REFUSED,
            f"{spec.group} has nothing in the cell itself: its own granules are missing",
        )
    halo = spec.grid.widened(spec.halo) if spec.grid is not None and spec.halo else None
    shares: dict[str, tuple[float, ...]] = {}
    for n, layer in enumerate(layers):
        tell(n / len(layers), f"stacking {layer.file}")
        for number, file in layer.files:
            shares[file] = stack(layer, number, folder / file, halo)
    described = manifest(spec, layers, shares, without)
    if whole is not None:
        lacks = {
            "completeness": whole.share,
            "missing": whole.missing,
            "missing_unnamed": whole.unnamed,
        }
        described = described.model_copy(update=lacks)
    (folder / MANIFEST).write_text(described.model_dump_json(indent=1) + "\n", "utf-8")
    names = [MANIFEST, *(file for layer in layers for _, file in layer.files)]
    if spec.region and spec.grid is not None:
        write_region(spec.region, spec.grid.widened(spec.halo), folder / REGION)
        names.append(REGION)
    lineage = group_lineage(spec, rasters, described.said)
    if lineage is not None:
        (folder / LINEAGE).write_bytes(PROVENANCE.dump_json(lineage))
        names.append(LINEAGE)
    return names


def _ends(spec: GroupSpec, rasters: Mapping[int, Opened]) -> dict[int, str]:
    """Return the ends of the granules of composites, by band index."""
    return {
        number: raster.said.provenance.end
        for number, raster in rasters.items()
        if spec.bands[number].last is not None
    }


def group_lineage(
    spec: GroupSpec, rasters: Mapping[int, Opened], said: Completeness
) -> Provenance | None:
    """Return the granules of a group, and the lineage of a run of it, whose package is not known.

    None if one of the rasters has no lineage.
    """
    if spec.grid is None:
        return None
    joiner = LineageJoiner()
    bands: list[tuple[int, int, Counted]] = []
    granules: set[SourceGranule] = set()
    for index, band in enumerate(spec.bands):
        opened = rasters[index]
        taken = Taken(
            said=opened.said,
            product=band.product,
            collection=band.collection,
            layer=band.layer,
            date=band.day.isoformat(),
            time=band.time,
            use=band.use,
            counted=band.counted,
            cell=band.cell,
            window=band.window,
            expected=differs(band, opened.said.provenance.end),
        )
        found = joiner.take(taken)
        if found is None:
            return None
        bands.append((*found, band.counted))
        granules.update(opened.said.provenance.granules)
    cell = CellRecord(
        name=spec.cell,
        transform=spec.grid.transform,
        width=spec.grid.width,
        height=spec.grid.height,
    )
    joiner.run(spec.window, cell, bands, said, spec.region, spec.time)
    ordered = tuple(sorted(granules, key=lambda one: one.name))
    return joiner.finish(Provenance(product="", collection="", layer="", granules=ordered))


def sort_layers(spec: GroupSpec, rasters: Mapping[int, Opened]) -> tuple[Layer, ...]:
    """Arrange the bands into stacks, each with its days in order; `rasters` are by band index."""
    own = set(spec.own) if spec.halo else set(range(len(spec.bands)))
    labels = _labels(spec, [spec.bands[index] for index in sorted(own)])
    chosen: dict[str, list[tuple[Band, Opened]]] = {label: [] for label in labels.values()}
    around: dict[str, dict[str, tuple[Path, ...]]] = {label: {} for label in labels.values()}
    for index, band in enumerate(spec.bands):
        label = labels.get((band.product, band.collection, band.layer), "")
        if index in own:
            chosen[label].append((band, rasters[index]))
        elif label:
            others = around[label].get(band.when, ())
            around[label][band.when] = (*others, rasters[index].path)
    return tuple(
        Layer(
            file=f"{label}.tif",
            bands=tuple(sorted(found, key=lambda item: item[0].when)),
            around=around[label],
            further=tuple(_further(label, found[0][1])),
        )
        for label, found in chosen.items()
    )


def _labels(spec: GroupSpec, own: Sequence[Band]) -> dict[tuple[str, str, str], str]:
    """Return what the files of the cell's own layers are called."""
    if spec.labels is None:
        return layer_labels(own, short=True)
    known = {(one.product, one.collection, one.layer): one.label for one in spec.labels}
    layers = dict.fromkeys((band.product, band.collection, band.layer) for band in own)
    return {layer: known[layer] for layer in layers}


def write_region(geojson: str, grid: GridSpec, to: Path) -> None:
    """Write the mask of a region on a grid: 1 where a pixel's centre is inside, else 0."""
    shape = from_geojson(geojson)
    if not isinstance(shape, Polygon | MultiPolygon):
        raise ValueError(f"a region is a polygon, not a {shape.geom_type}")
    with rasterio.open(
        to,
        "w",
        driver="GTiff",
        dtype="uint8",
        count=1,
        width=grid.width,
        height=grid.height,
        crs=grid.crs,
        transform=rasterio.Affine(*grid.transform),
        compress="deflate",
        photometric="MINISBLACK",
    ) as out:
        out.write(inside_polygon(shape, grid_of(grid)).astype("uint8"), 1)


def _further(label: str, raster: Opened) -> Iterator[tuple[int, FurtherRole, str]]:
    """Yield a raster's bands other than values: number, role and the file of the stack."""
    for number, band in enumerate(raster.said.bands, 1):
        if number > 1 and band.role == "data":
            raise AttemptError(
                Category.CHOICE_REFUSED,
                f"{label}.tif has several bands of values; a later step takes rasters of one band: "
                "write each into an output of its own",
            )
        if band.role != "data":
            role: FurtherRole = "codes" if band.role == "class" else band.role
            yield number, role, f"{label}.{role}.tif"


def manifest(
    spec: GroupSpec,
    layers: Sequence[Layer],
    shares: Mapping[str, Sequence[float]],
    without: Sequence[Missing] = (),
) -> Manifest:
    """Write down what the package reads: the group, its grid, each band's position and meaning.

    `shares` are the valid shares of the bands of each file.
    """
    opened = [
        (layer, n, band, raster.said)
        for layer in layers
        for n, (band, raster) in enumerate(layer.bands, 1)
    ]
    whole = completeness_of(spec, [said.completeness for _, _, _, said in opened], without)
    return Manifest(
        group=spec.group,
        cell=spec.cell,
        window=spec.window,
        time=spec.time,
        grid=spec.grid.widened(spec.halo) if spec.grid is not None else None,
        halo=spec.halo,
        region=REGION if spec.region else "",
        bands=tuple(
            _described(layer, n, band, said, shares[layer.file][n - 1])
            for layer, n, band, said in opened
        ),
        completeness=whole.share,
        missing=whole.missing,
        missing_unnamed=whole.unnamed,
    )


def _described(
    layer: Layer, number: int, band: Band, raster: Description, valid_share: float
) -> ManifestBand:
    said = raster.provenance
    return ManifestBand(
        file=layer.file,
        band=number,
        product=band.product,
        collection=band.collection,
        layer=band.layer,
        date=band.day.isoformat(),
        weight=band.counted.weight,
        share=band.counted.share,
        days=band.counted.days,
        start=said.start,
        end=said.end,
        granules=said.granules,
        kind=raster.kind,
        units=raster.units,
        scale=raster.scale,
        offset=raster.offset,
        valid_share=valid_share,
        codes=raster.codes,
        further=tuple(
            FurtherBand(role=role, file=file, band=number) for _, role, file in layer.further
        ),
        completeness=raster.completeness.share,
        step=band.product if band.window else "",
        window=band.window,
        overpass=band.when if band.time else "",
        expected=differs(band, said.end),
        sensor="" if band.collection or band.window else versioned(said.product, said.collection),
        near_real_time=said.near_real_time,
    )


def stack(layer: Layer, number: int, to: Path, halo: GridSpec | None = None) -> tuple[float, ...]:
    """Copy one band of each day's raster, by its number there, into one file.

    With the grid of a `halo`, which is wider than the cell, what the neighbouring cells have of it
    is copied, too. Returns the share of pixels with a value, by band.

    Raises:
        AttemptError: choice refused, if the cells differ in shape, type or nodata.
    """
    first = layer.bands[0][1]
    shown = _shown(first)
    for band, raster in layer.bands:
        if (found := _shown(raster)) != shown:
            raise AttemptError(
                Category.CHOICE_REFUSED,
                f"{layer.file}: {band.when} has type, nodata and shape {found}, the first "
                f"day has {shown}",
            )
    shares = []

    def planes() -> Iterator[Pixels]:
        for band, raster in layer.bands:
            if halo is None:
                with rasterio.open(raster.path, driver="GTiff") as cell:
                    values = cell.read(number)
            else:
                values = _around(number, halo, raster, layer.around.get(band.when, ()))
            shares.append(float(f"{_valid(values, raster.nodata) / values.size:.6g}"))
            yield values

    bands = [_described_band(band, raster, number) for band, raster in layer.bands]
    grid = first.said.grid.grid() if halo is None else grid_of(halo)
    write_stack(to, planes(), bands, grid, first.dtype, first.nodata)
    return tuple(shares)


def _shown(raster: Opened) -> tuple[str, str, int, int]:
    """Return what the rasters of a stack have in common: type, nodata, width and height."""
    grid = raster.said.grid
    return raster.dtype.name, repr(raster.nodata), grid.width, grid.height


def _described_band(band: Band, raster: Opened, number: int) -> StackBand:
    said = raster.said
    if said.bands[number - 1].role != "data":
        return StackBand(name=band.when, scale=1.0, offset=0.0, units="")
    return StackBand(name=band.when, scale=said.scale, offset=said.offset, units=said.units)


def _valid(values: Pixels, nodata: float | int | None) -> int:
    """Count the pixels that have a value."""
    if nodata is None:
        return values.size
    if np.isnan(nodata):
        return int((~np.isnan(values)).sum())
    return int((values != nodata).sum())


def _around(number: int, grid: GridSpec, own: Opened, around: Sequence[Path]) -> Pixels:
    """Put a band of a group's own cell, and of those around it, together on a grid."""
    empty = own.said.bands[number - 1].empty(own.nodata)
    plane = np.full((grid.height, grid.width), 0 if empty is None else empty, own.dtype)
    for path in (*reversed(around), own.path):
        with rasterio.open(path, driver="GTiff") as cell:
            here = GridSpec(
                crs=grid.crs,
                transform=tuple(cell.transform)[:6],
                width=cell.width,
                height=cell.height,
            )
            column, row = grid.offset(here)
            left, top = max(0, column), max(0, row)
            right = min(grid.width, column + cell.width)
            bottom = min(grid.height, row + cell.height)
            if left < right and top < bottom:
                window = Window(left - column, top - row, right - left, bottom - top)
                plane[top:bottom, left:right] = cell.read(number, window=window)
    return plane
