"""The tasks of one product on one day: granules, their reprojection onto each cell, mosaics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from archives.model import GranuleRecord
from reprojection.grid.grids import Grid
from service_manager.planner.choices import LayerChoice
from service_manager.planner.counts import Kind, kind_of
from service_manager.planner.draft import Draft, Line
from service_manager.planner.granules import collected
from service_manager.planner.located import Locator, Reach
from service_manager.planner.naming import layer_names, mosaic_name, product_name
from service_manager.planner.places import Place
from tasks.model.patterns import Given, Pattern, grid_texts, quoted, together
from tasks.model.spec import GridSpec, MosaicSpec, ReprojectSpec
from tasks.request.regions import area_geojson
from tasks.request.request import ProductChoice, Request
from tasks.request.target import Target

CELL_FILE = "cell.tif"
_PLAIN: Reach = (0.0, False)


@dataclass(frozen=True, kw_only=True)
class Made:
    """One reprojected cell of a plan, what a reduction groups: numbers of its product choice, its
    layer there and its place."""

    choice: int
    layer: int
    place: int
    day: date
    key: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What all products of a request share: the target and its cells."""

    request: Request
    target: Target
    places: tuple[Place, ...]
    clip: str
    """The region as GeoJSON where results are clipped to it, else empty."""
    grid: GridSpec
    cells: tuple[GridSpec, ...]
    grids: tuple[Given, ...]
    """The cells' grids as text."""
    mosaic: Pattern
    mosaic_kind: Kind

    @classmethod
    def of(cls, request: Request, target: Target, places: tuple[Place, ...]) -> "Layout":
        """The layout of a request's places."""
        clip = area_geojson(target.area) if request.region.clip else ""
        cells = tuple(grid_spec(place.grid) for place in places)
        whole = MosaicSpec(name="", grid=grid_spec(target.grid), clip=clip, day=date.min)
        return cls(
            request=request,
            target=target,
            places=places,
            clip=clip,
            grid=whole.grid,
            cells=cells,
            grids=tuple(map(grid_texts, cells)),
            mosaic=Pattern(whole, "inputs", "name", "day"),
            mosaic_kind=kind_of(whole),
        )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One product choice of a request, resolved."""

    number: int
    choice: ProductChoice
    geometry: str
    period: int  # days between two granules of one place
    layers: tuple[LayerChoice, ...]
    layout: Layout
    product: str = field(init=False)
    names: dict[str, str] = field(init=False)
    patterns: tuple[Pattern, ...] = field(init=False)
    """Of each layer's cells."""
    kinds: tuple[Kind, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "product", product_name(self.choice))
        object.__setattr__(self, "names", layer_names(self.choice.layers))
        cells = [_cell(self, layer) for layer in self.layers]
        patterns = tuple(Pattern(cell, "inputs", "grid", "day") for cell in cells)
        object.__setattr__(self, "patterns", patterns)
        object.__setattr__(self, "kinds", tuple(map(kind_of, cells)))

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """How far each layer's kernel looks."""
        return tuple((layer.reach, layer.whole_pixel) for layer in self.layers)


def grid_spec(grid: Grid) -> GridSpec:
    """A grid as a specification has it."""
    return GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height)


def _cell(wanted: Wanted, layer: LayerChoice) -> ReprojectSpec:
    """A cell of a layer: all others of the lattice have its size and resolution."""
    request = wanted.layout.request
    return ReprojectSpec(
        product=wanted.choice.name,
        collection=wanted.choice.collection,
        layer=layer.layer,
        day=date.min,
        grid=next(iter(wanted.layout.cells), wanted.layout.grid),
        resampling=layer.resampling,
        merge=layer.merge,
        qa=layer.qa,
        mask=request.mask,
        units=request.units,
        codes=request.codes,
        extra_bands=tuple(sorted(set(request.extra_bands))),
        day_night=wanted.choice.day_night if wanted.geometry == "swath" else "any",
    )


def plan_day(
    wanted: Wanted,
    day: date,
    records: Sequence[GranuleRecord],
    locator: Locator,
    draft: Draft,
) -> list[Made] | None:
    """Add the tasks of one product's granules of a day, sorted by name, to the draft; the cells
    made where a reduction groups them. None when no granule touches a place."""
    near = {reach: _near(records, locator, reach) for reach in {_PLAIN, *wanted.reaches}}
    touched = sorted(near[_PLAIN])  # where one is really there; the halo alone makes no cell
    if not touched:
        return None
    reaches = {*wanted.reaches}
    given = _collected(records, touched, [near[reach] for reach in reaches], draft)
    inputs = {
        reach: {
            place: together([given[index] for index in near[reach][place]]) for place in touched
        }
        for reach in reaches
    }
    made: list[Made] = []
    for number, layer in enumerate(wanted.layers):
        keys = _cells(wanted, number, day, inputs[layer.reach, layer.whole_pixel], draft)
        _mosaic(wanted, layer.layer, day, keys, draft)
        if wanted.layout.request.reduction is not None:
            made += [
                Made(choice=wanted.number, layer=number, place=place, day=day, key=key)
                for place, key in keys.items()
            ]
    return made


def _near(records: Sequence[GranuleRecord], locator: Locator, reach: Reach) -> dict[int, list[int]]:
    """The granules, by index, by the places where a kernel of this reach looks at them."""
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
    records: Sequence[GranuleRecord],
    touched: Sequence[int],
    near: Sequence[dict[int, list[int]]],
    draft: Draft,
) -> dict[int, Given]:
    """The collections that the layers' kernels need in these places, by the granule's index."""
    needed: set[int] = set()
    for by_place in near:
        needed.update(*[by_place[place] for place in touched])
    given = {}
    for index in sorted(needed):
        record = records[index]
        key, line = collected(record)
        draft.put(key, line)
        given[index] = Given.of(key, record.name)
    return given


def _cells(
    wanted: Wanted, number: int, day: date, inputs: dict[int, Given], draft: Draft
) -> dict[int, str]:
    """Add the cells of a layer and day; their keys by place."""
    layout, pattern, kind = wanted.layout, wanted.patterns[number], wanted.kinds[number]
    layer = wanted.names[wanted.layers[number].layer]
    quoted_day = quoted(day.isoformat())
    keys = {}
    for place, given in inputs.items():
        grid = layout.grids[place]
        key = keys[place] = pattern.key(given.identity, grid.identity, quoted_day)
        text = pattern.text(given.text, grid.text, quoted_day)
        output = ""
        if layout.request.cells:
            output = f"{wanted.product}/{layer}/cells/{day}/{layout.places[place].name}"
        draft.put(key, Line(output, text, kind))
    return keys


def _mosaic(wanted: Wanted, layer: str, day: date, keys: Mapping[int, str], draft: Draft) -> None:
    layout, when = wanted.layout, day.isoformat()
    cells = together(
        [
            Given.of(key, f"{layout.places[place].name} {when}", CELL_FILE)
            for place, key in keys.items()
        ]
    )
    name = mosaic_name(wanted.product, wanted.names[layer], day)
    folder = f"{wanted.product}/{wanted.names[layer]}"
    values = quoted(name), quoted(when)
    key = layout.mosaic.key(cells.identity, *values)
    text = layout.mosaic.text(cells.text, *values)
    draft.put(key, Line(folder, text, layout.mosaic_kind))
    draft.result(key, name, folder, day)
