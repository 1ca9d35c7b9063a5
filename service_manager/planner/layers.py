"""The tasks of one product on one day: granules, their reprojection onto each cell, mosaics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, lru_cache

from archives.model import GranuleRecord
from modis.composites import last_day
from modis.tile import Tile
from reprojection.grid.grids import Grid
from reprojection.resampling import TRAITS, MethodTraits
from service_manager.planner.cells import WindowCell, grid_spec
from service_manager.planner.counts import CountedClass, kind_of, raster_bytes
from service_manager.planner.draft import Draft, Line, MadeLayer
from service_manager.planner.granules import collected, tile_of
from service_manager.planner.located import Locator, Reach
from service_manager.planner.naming import layer_names, moment_name, product_name
from service_manager.planner.overpasses import overpasses
from service_manager.planner.parts import PartsPlan
from service_manager.planner.patterns import Given, Pattern, grid_texts, quoted, together
from tasks.bag.absence import Absent, bounded
from tasks.bag.classes import sized
from tasks.bag.model import Phase
from tasks.bag.spec import GridSpec, Input, LayerSpec, MosaicSpec, RasterSpec, ReprojectSpec
from tasks.canonical import canonical
from tasks.request.document import Request
from tasks.request.region.kinds import region_tiles
from tasks.request.region.regions import area_geojson
from tasks.request.resolved import ResolvedLayer, ResolvedProduct, ResolvedRequest
from tasks.request.target import Part
from tasks.spec_parts import Driver, RecordedLayer

CELL_FILE = "cell.tif"
NOT_THERE = "not in the archive"
_ABSENCE = ("missing", "missing_unnamed")  # fields of specifications
_PLAIN: Reach = (0.0, False)
_UNKNOWN = MethodTraits()
"""Of a method that a worker chooses: never one that overshoots."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """One reprojected cell of a plan, which a reduction groups.

    It holds the numbers of its product choice, of the layer there, and of its place. `time` is the
    start of the overpass that it is of, HH:MM in UTC; empty: of the whole day. `file` is the
    artifact's that has the pixels.
    """

    choice: int
    layer: int
    place: int
    day: date
    time: str
    key: str
    file: str


@dataclass(frozen=True, kw_only=True)
class RasterPart:
    """A raster of each layer and date: its grid, its places, and the pattern of its mosaics."""

    name: str
    grid: GridSpec
    places: frozenset[int]
    mosaic: Pattern
    recorded: Pattern
    """The pattern of mosaics of a record's layers."""
    mosaic_kind: CountedClass

    def folder(self, folder: str) -> str:
        """Return the folder of its files, one of its own where there are several parts."""
        return f"{folder}/{self.name}" if self.name else folder

    def file(self, name: str, window: str) -> str:
        """Return the name of a file without its ending."""
        return f"{name}.{self.name}.{window}" if self.name else f"{name}.{window}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What all products of a request share: the target and its cells.

    If `fused`, a raster of the results is made of granules, without its only cell.
    """

    request: Request
    places: tuple[WindowCell, ...]
    clip: str
    """The region as GeoJSON where results are clipped to it, else empty."""
    grid: GridSpec
    cells: tuple[GridSpec, ...]
    grids: tuple[Given, ...]
    """The cells' grids as text."""
    pixels: tuple[int, ...]
    """How many pixels each cell has."""
    parts: tuple[RasterPart, ...]
    fused: bool

    @cached_property
    def tile_places(self) -> dict[Tile, tuple[int, ...]]:
        """The tiles that the region enters, each with the places where it is expected."""
        entered = region_tiles(self.request.region)
        found: dict[Tile, list[int]] = {tile: [] for tile in entered}
        for index, place in enumerate(self.places):
            for tile in place.tiles(*_PLAIN) & entered:
                found[tile].append(index)
        return {tile: tuple(places) for tile, places in found.items()}

    @cached_property
    def place_tiles(self) -> dict[int, tuple[Tile, ...]]:
        """The tiles that are expected in each place."""
        found: dict[int, list[Tile]] = {}
        for tile in sorted(self.tile_places):
            for place in self.tile_places[tile]:
                found.setdefault(place, []).append(tile)
        return {place: tuple(tiles) for place, tiles in found.items()}

    @classmethod
    def of(
        cls, resolved: ResolvedRequest, places: tuple[WindowCell, ...], *, fused: bool = False
    ) -> "Layout":
        """Build the layout of a request's places."""
        request, target = resolved.request, resolved.target
        clip = area_geojson(target.area) if request.region.clip else ""
        cells = tuple(grid_spec(place.grid) for place in places)
        return cls(
            request=request,
            places=places,
            clip=clip,
            grid=grid_spec(target.grid),
            cells=cells,
            grids=tuple(map(grid_texts, cells)),
            pixels=tuple(cell.pixels for cell in cells),
            parts=tuple(_raster_part(part, clip, places) for part in target.parts),
            fused=fused,
        )


def _overlap(one: Grid, other: Grid) -> bool:
    """Tell whether two grids of a lattice share a pixel."""
    half = 0.5 * one.transform[0]
    west, south, east, north = one.bounds
    left, bottom, right, top = other.bounds
    return bool(
        min(east, right) - max(west, left) > half and min(north, top) - max(south, bottom) > half
    )


def _raster_part(part: Part, clip: str, places: Sequence[WindowCell]) -> RasterPart:
    whole = MosaicSpec(name="", grid=grid_spec(part.grid), clip=clip, day=date.min)
    return RasterPart(
        name=part.name,
        grid=whole.grid,
        places=frozenset(
            index for index, place in enumerate(places) if _overlap(part.grid, place.window)
        ),
        mosaic=Pattern(whole, "inputs", "name", "day", *_ABSENCE),
        recorded=Pattern(
            whole.model_copy(update={"record": RecordedLayer(record="", layer="")}),
            *("inputs", "name", "day", "record", *_ABSENCE),
        ),
        mosaic_kind=kind_of(whole),
    )


@dataclass(frozen=True, kw_only=True)
class ProductLayers(ResolvedProduct):
    """One resolved product of a request, with the patterns of its specifications."""

    layout: Layout
    product: str = field(init=False)
    names: dict[str, str] = field(init=False)
    patterns: tuple[Pattern, ...] = field(init=False)
    """Of each layer's cells. The layer's name varies, as it may say the band of the date."""
    cells: tuple[ReprojectSpec, ...] = field(init=False)
    """One cell of each layer, without inputs."""
    rasters: tuple[RasterSpec, ...] = field(init=False)
    """One raster of each layer that is made without cells, without inputs."""
    raster_patterns: tuple[Pattern, ...] = field(init=False)
    records: dict[str, str] = field(init=False)
    """What each layer is to a record, as JSON; empty if it is of none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "product", product_name(self.choice))
        object.__setattr__(self, "names", layer_names(self.choice))
        cells = [_cell(self, layer) for layer in self.layers]
        varying = ("inputs", "grid", "day", "layer", *_ABSENCE)
        object.__setattr__(self, "patterns", tuple(Pattern(cell, *varying) for cell in cells))
        object.__setattr__(self, "cells", tuple(cells))
        rasters = [_raster(self, cell) for cell in cells]
        patterns = tuple(Pattern(one, *varying, "name") for one in rasters)
        object.__setattr__(self, "rasters", tuple(rasters))
        object.__setattr__(self, "raster_patterns", patterns)
        object.__setattr__(self, "records", _records(self))

    @property
    def by_overpass(self) -> bool:
        """True if each overpass of a day is by itself."""
        return self.choice.overpasses == "all" and self.geometry == "swath"

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """The reach of each layer's kernel."""
        return tuple((layer.reach, layer.whole_pixel) for layer in self.layers)


def _records(wanted: ProductLayers) -> dict[str, str]:
    part = wanted.choice.part
    if part is None:
        return {}
    found = {}
    for layer in wanted.choice.layers:
        named = wanted.choice.asked_layer(layer)
        made = RecordedLayer(record=part.record, layer=named, units=part.units[named])
        found[layer] = canonical(made.model_dump()).decode("ascii")
    return found


def _cell(wanted: ProductLayers, layer: ResolvedLayer) -> ReprojectSpec:
    """Return a cell of a layer; all its cells have the same resolution."""
    request = wanted.layout.request
    leads = wanted.driver
    follows = wanted.geometry == "swath" and layer.merge != "mean" and layer.name != leads.name
    return ReprojectSpec(
        product=wanted.choice.name,
        collection=wanted.choice.collection,
        layer=layer.name,
        day=date.min,
        grid=next(iter(wanted.layout.cells), wanted.layout.grid),
        resampling=layer.resampling,
        merge=layer.merge,
        qa=layer.qa,
        mask=layer.mask,
        units=layer.units,
        codes=request.codes,
        extra_bands=tuple(sorted(set(request.extra_bands))),
        day_night=wanted.choice.day_night if wanted.geometry == "swath" else "any",
        driver=Driver(layer=leads.name, resampling=leads.resampling, qa=leads.qa)
        if follows
        else None,
        clamp=request.clamp and TRAITS.get(layer.resampling, _UNKNOWN).overshoots,
    )


def _raster(wanted: ProductLayers, cell: ReprojectSpec) -> RasterSpec:
    """Return a raster of the layer of a cell, which it is made without."""
    common = {name: getattr(cell, name) for name in LayerSpec.model_fields}
    return RasterSpec(**common, name="", clip=wanted.layout.clip)


def plan_date(
    wanted: ProductLayers,
    day: date,
    band: int,
    records: Sequence[GranuleRecord],
    locator: Locator,
    parts: PartsPlan,
    draft: Draft,
    *,
    mosaics: bool,
) -> list[Made] | None:
    """Add the tasks of one date of a product's granules, sorted by name, to the draft.

    `band` is the date's in granules that hold several. Without `mosaics` the cells are not put
    together. Returns the cells, where a reduction groups them; None when no granule touches a
    place.
    """
    if not wanted.by_overpass:
        return _plan_moment(wanted, day, "", band, records, locator, parts, draft, mosaics=mosaics)
    made: list[Made] | None = None
    for time, passed in overpasses(record for record in records if locator.touches(record)):
        found = _plan_moment(
            wanted, day, time, band, passed, locator, parts, draft, mosaics=mosaics
        )
        if found is not None:
            made = [*(made or ()), *found]
            draft.overpasses[wanted.number] += 1
    return made


def _plan_moment(
    wanted: ProductLayers,
    day: date,
    time: str,
    band: int,
    records: Sequence[GranuleRecord],
    locator: Locator,
    parts: PartsPlan,
    draft: Draft,
    *,
    mosaics: bool,
) -> list[Made] | None:
    """Add the tasks of a date, or of one overpass of it, as `plan_date` does."""
    near = {reach: _near(records, locator, reach) for reach in {_PLAIN, *wanted.reaches}}
    touched = sorted(near[_PLAIN])  # where one is really there; the halo alone makes no cell
    if not touched:
        return None
    reaches = {*wanted.reaches}
    given = _collected(
        wanted, band, records, touched, [near[reach] for reach in reaches], parts, draft
    )
    inputs = {
        reach: {
            place: together([given[index] for index in near[reach][place]]) for place in touched
        }
        for reach in reaches
    }
    granules = [1 + len(record.companions) for record in records]
    numbers = {
        reach: {place: sum(granules[index] for index in near[reach][place]) for place in touched}
        for reach in reaches
    }
    lacking = lacking_tiles(wanted, day, records)
    made: list[Made] = []
    for number, layer in enumerate(wanted.layers):
        reach = layer.reach, layer.whole_pixel
        make, file = _cells, CELL_FILE
        if mosaics and wanted.layout.fused:
            make, file = _rasters, f"{_name(wanted, layer.name, moment_name(day, time))}.tif"
        keys = make(wanted, number, band, day, time, inputs[reach], numbers[reach], lacking, draft)
        if mosaics and not wanted.layout.fused:
            for part in wanted.layout.parts:
                _mosaic(wanted, layer.name, part, day, time, keys.items(), lacking, draft)
        choice = wanted.choice
        if draft.compares(choice.name, choice.collection, layer.name):
            cells = {
                place: Input(key=key, name=layer.name, file=file) for place, key in keys.items()
            }
            draft.made.append(
                MadeLayer(
                    product=choice.name,
                    collection=choice.collection,
                    layer=layer.name,
                    first=day,
                    last=covered_until(wanted, day, records),
                    time=time,
                    cells=cells,
                )
            )
        if wanted.layout.request.steps or choice.part is not None:
            made += [
                Made(
                    choice=wanted.number,
                    layer=number,
                    place=place,
                    day=day,
                    time=time,
                    key=key,
                    file=file,
                )
                for place, key in keys.items()
            ]
    return made


def plan_mean(
    members: Sequence[tuple[ProductLayers, Sequence[GranuleRecord], Sequence[Made]]],
    day: date,
    draft: Draft,
) -> None:
    """Add the mosaics of a date of a record that are the mean of its sensors.

    `members` are the products that have the date, each with its granules and planned cells.
    """
    head, records, _ = members[0]
    lacking = lacking_tiles(head, day, records)
    for number, layer in enumerate(head.layers):
        keys = [(one.place, one.key) for *_, made in members for one in made if one.layer == number]
        for part in head.layout.parts:
            _mosaic(head, layer.name, part, day, "", keys, lacking, draft)


def covered_until(wanted: ProductLayers, day: date, records: Sequence[GranuleRecord]) -> date:
    """Return the last day that a date of a product choice covers, by what its granules state."""
    ends = (record.end for record in records) if wanted.geometry != "swath" else ()
    return last_day(day, wanted.covers, ends)


def lacking_tiles(
    wanted: ProductLayers, day: date, records: Sequence[GranuleRecord]
) -> dict[int, list[Absent]]:
    """Return the expected tiles that the archive does not have on a day, by place."""
    if wanted.geometry != "tile":
        return {}
    there = {tile_of(record) for record in records}
    found: dict[int, list[Absent]] = {}
    for tile, places in wanted.layout.tile_places.items():
        if tile not in there:
            name = tile.name
            what = f"{wanted.product} {day.isoformat()} {name}"
            for place in places:
                absent = Absent(part=name, what=what, why=NOT_THERE)
                found.setdefault(place, []).append(absent)
    return {place: sorted(absent, key=lambda one: one.what) for place, absent in found.items()}


def _absence(absent: Sequence[Absent]) -> tuple[str, str]:
    """Return what a task lacks as values of the two fields, in JSON."""
    if not absent:
        return "[]", "null"
    named, unnamed = bounded(absent)
    return canonical(named).decode("ascii"), canonical(unnamed).decode("ascii")


def _near(records: Sequence[GranuleRecord], locator: Locator, reach: Reach) -> dict[int, list[int]]:
    """Return the granules, by index, for each place where a kernel of this reach looks at them."""
    by_place: dict[int, list[int]] = {}
    for index, record in enumerate(records):
        for place in locator.of(record, reach):
            found = by_place.get(place)
            if found is None:
                by_place[place] = [index]
            else:
                found.append(index)
    return by_place


def _collected(
    wanted: ProductLayers,
    band: int,
    records: Sequence[GranuleRecord],
    touched: Sequence[int],
    near: Sequence[dict[int, list[int]]],
    parts: PartsPlan,
    draft: Draft,
) -> dict[int, Given]:
    """Return the collections that the layers' kernels need in these places, by granule index."""
    needed: dict[int, set[int]] = {}
    for by_place in near:
        for place in touched:
            for index in by_place[place]:
                needed.setdefault(index, set()).add(place)
    given = {}
    for index in sorted(needed):
        record = records[index]
        inputs = parts.plan_cells(wanted, record, band, sorted(needed[index]), draft)
        mine = [Given.of(one.key, one.name) for one in inputs or ()]
        for one in (record, *record.companions) if inputs is None else ():
            key, line = collected(one)
            draft.put(key, line)
            mine.append(Given.of(key, one.name))
        given[index] = Given(
            ",".join(one.identity for one in mine), ",".join(one.text for one in mine)
        )
    return given


def _cells(
    wanted: ProductLayers,
    number: int,
    band: int,
    day: date,
    time: str,
    inputs: dict[int, Given],
    numbers: Mapping[int, int],
    lacking: Mapping[int, Sequence[Absent]],
    draft: Draft,
) -> dict[int, str]:
    """Add the cells of a layer and day; their keys by place. `numbers` count their inputs."""
    layout = wanted.layout
    work = wanted.cells[number].work
    pattern = wanted.patterns[number]
    when, layer = _dated(wanted, number, band, day)
    keys = {}
    for place, given in inputs.items():
        grid = layout.grids[place]
        values = when, layer, *_absence(lacking.get(place, ()))
        key = keys[place] = pattern.key(given.identity, grid.identity, *values)
        text = pattern.text(given.text, grid.text, *values)
        output = ""
        if layout.request.hands_over_cells and layout.request.delivers_layers(day):
            name = wanted.names[wanted.layers[number].name]
            folder = f"{wanted.product}/{name}/cells/{moment_name(day, time)}"
            output = f"{folder}/{layout.places[place].name}"
        kind = _kind(work, layout.pixels[place], numbers[place])
        draft.put(key, Line(output, text, kind))
    return keys


def _rasters(
    wanted: ProductLayers,
    number: int,
    band: int,
    day: date,
    time: str,
    inputs: dict[int, Given],
    numbers: Mapping[int, int],
    lacking: Mapping[int, Sequence[Absent]],
    draft: Draft,
) -> dict[int, str]:
    """Add the raster of a layer and day, which has no cells; as `_cells`."""
    layout, layer = wanted.layout, wanted.layers[number].name
    ((place, given),) = inputs.items()
    grid, pattern = layout.grids[place], wanted.raster_patterns[number]
    name = _name(wanted, layer, moment_name(day, time))
    values = *_dated(wanted, number, band, day), *_absence(lacking.get(place, ())), quoted(name)
    key = pattern.key(given.identity, grid.identity, *values)
    text = pattern.text(given.text, grid.text, *values)
    folder = f"{wanted.product}/{wanted.names[layer]}"
    kind = _kind(wanted.rasters[number].work, layout.pixels[place], numbers[place])
    draft.put(key, Line(folder, text, kind))
    draft.result(key, name, folder, day, time)
    return {place: key}


def _dated(wanted: ProductLayers, number: int, band: int, day: date) -> tuple[str, str]:
    """Return the day and the layer's name as values of the two fields, in JSON."""
    name, exact = wanted.layers[number].name, wanted.choice.exact
    undated = exact is not None and not exact.raster.days
    stacked = not undated if exact is not None else wanted.stack > 1
    when = quoted((date.min if undated else day).isoformat())
    return when, quoted(f"{name}[{band}]" if stacked else name)


def _name(wanted: ProductLayers, layer: str, when: str) -> str:
    """Return the name of the raster of a layer and date without its ending."""
    return f"{wanted.product}.{wanted.names[layer]}.{when}"


@lru_cache(maxsize=4096)
def _kind(work: str, pixels: int, inputs: int) -> CountedClass:
    """As what a cell counts that has so many pixels and is made of so many granules."""
    return CountedClass(Phase.REPROJECTION, sized(work, pixels * inputs), raster_bytes(pixels))


def _mosaic(
    wanted: ProductLayers,
    layer: str,
    part: RasterPart,
    day: date,
    time: str,
    keys: Iterable[tuple[int, str]],
    lacking: Mapping[int, Sequence[Absent]],
    draft: Draft,
) -> None:
    """Add the raster of a layer and date; `keys` are its cells by place, of a mean several."""
    layout, when = wanted.layout, moment_name(day, time)
    keys = [*keys]
    given = [
        Given.of(key, f"{layout.places[place].name} {when}", CELL_FILE)
        for place, key in keys
        if place in part.places
    ]
    if not given:
        return
    cells = together(given)
    name = part.file(f"{wanted.product}.{wanted.names[layer]}", when)
    folder = part.folder(f"{wanted.product}/{wanted.names[layer]}")
    there = {place for place, _ in keys}
    absent = [
        one.model_copy(update={"part": f"{layout.places[place].name} {when}"})
        for place in sorted(lacking)
        if place not in there and place in part.places
        for one in lacking[place]
    ]
    values = [quoted(name), quoted(day.isoformat())]
    pattern, record = part.mosaic, wanted.records.get(layer)
    if record is not None:
        pattern = part.recorded
        values.append(record)
    values += _absence(absent)
    key = pattern.key(cells.identity, *values)
    draft.put(key, Line(folder, pattern.text(cells.text, *values), part.mosaic_kind))
    draft.result(key, name, folder, day, time)
