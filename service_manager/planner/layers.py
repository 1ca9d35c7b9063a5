"""The tasks of one product: granules, their reprojection onto each cell, a mosaic per date."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from archives.model import GranuleRecord
from archives.names import parse_granule_name
from reprojection.grids import Grid
from service_manager.planner.choices import LayerChoice, layer_choice
from service_manager.planner.draft import Draft
from service_manager.planner.gaps import swath_gaps, tile_gaps
from service_manager.planner.granules import Found, collect
from service_manager.planner.naming import layer_names, mosaic_name, product_name
from service_manager.planner.places import Place
from tasks.plan import Gap
from tasks.regions import area_geojson, region_tiles
from tasks.request import Request
from tasks.spec import GridSpec, Input, MosaicSpec, ReprojectSpec
from tasks.target import Target

CELL_FILE = "cell.tif"


@dataclass(frozen=True, kw_only=True)
class Made:
    """One reprojected cell of a plan: what a reduction groups."""

    layer: LayerChoice
    period: int
    day: date
    place: Place
    input: Input


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What all products of a request share: the target and its cells."""

    request: Request
    target: Target
    places: tuple[Place, ...]

    @property
    def clip(self) -> str:
        """The region as GeoJSON where results are clipped to it, else empty."""
        return area_geojson(self.target.area) if self.request.region.clip else ""


def grid_spec(grid: Grid) -> GridSpec:
    """A grid as a specification has it."""
    return GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height)


def plan_product(layout: Layout, found: Found, draft: Draft) -> tuple[list[Made], list[Gap]]:
    """Add the tasks of one product's granules to the draft; the cells made, and the gaps."""
    choice = found.choice
    names = layer_names(choice.layers)
    layers = [
        layer_choice(layout.request, choice, layer, layout.target, found.geometry)
        for layer in choice.layers
    ]
    made: list[Made] = []
    touched_days: list[date] = []
    for day, records in found.by_day.items():
        touching = [
            (place, near) for place in layout.places if (near := _near(place, records, layers))
        ]
        if not touching:
            continue
        touched_days.append(day)
        given = {
            record.name: draft.input(collect(record), record.name)
            for record in _in_order(near for _, by_layer in touching for near in by_layer)
        }
        for number, layer in enumerate(layers):
            folder = f"{product_name(choice)}/{names[layer.layer]}"
            cells = []
            for place, by_layer in touching:
                inputs = tuple(given[record.name] for record in by_layer[number])
                spec = _reproject(layout, found, layer, day, place, inputs)
                output = f"{folder}/cells/{day}/{place.name}" if layout.request.cells else ""
                cell = draft.input(spec, f"{place.name} {day}", CELL_FILE, output)
                cells.append(
                    Made(layer=layer, period=found.period, day=day, place=place, input=cell)
                )
            made.extend(cells)
            _mosaic(layout, found, names[layer.layer], day, cells, draft)
    return made, [*_gaps(layout, found, touched_days)]


def _near(
    place: Place, records: Sequence[GranuleRecord], layers: Sequence[LayerChoice]
) -> list[tuple[GranuleRecord, ...]]:
    """For each layer the granules its kernel needs in a cell; nothing when none is really there."""
    if not any(place.touched_by(record, 0.0, False) for record in records):
        return []
    by_reach: dict[tuple[float, bool], tuple[GranuleRecord, ...]] = {}
    for layer in layers:
        key = layer.reach, layer.whole_pixel
        if key not in by_reach:
            by_reach[key] = tuple(r for r in records if place.touched_by(r, *key))
    return [by_reach[layer.reach, layer.whole_pixel] for layer in layers]


def _in_order(groups: Iterable[tuple[GranuleRecord, ...]]) -> list[GranuleRecord]:
    by_name = {record.name: record for group in groups for record in group}
    return [by_name[name] for name in sorted(by_name)]


def _reproject(
    layout: Layout,
    found: Found,
    layer: LayerChoice,
    day: date,
    place: Place,
    inputs: tuple[Input, ...],
) -> ReprojectSpec:
    request = layout.request
    return ReprojectSpec(
        inputs=inputs,
        product=found.choice.name,
        collection=found.choice.collection,
        layer=layer.layer,
        day=day,
        grid=grid_spec(place.grid),
        resampling=layer.resampling,
        merge=layer.merge,
        qa=layer.qa,
        mask=request.mask,
        units=request.units,
        codes=request.codes,
        extra_bands=tuple(sorted(set(request.extra_bands))),
        day_night=found.choice.day_night if found.geometry == "swath" else "any",
    )


def _mosaic(
    layout: Layout, found: Found, layer: str, day: date, cells: Sequence[Made], draft: Draft
) -> None:
    product = product_name(found.choice)
    spec = MosaicSpec(
        inputs=tuple(cell.input for cell in cells),
        name=mosaic_name(product, layer, day),
        grid=grid_spec(layout.target.grid),
        clip=layout.clip,
        day=day,
    )
    draft.add(spec, f"{product}/{layer}")


def _gaps(layout: Layout, found: Found, touched: Sequence[date]) -> Iterable[Gap]:
    request = layout.request
    if found.geometry == "swath":
        return swath_gaps(found.choice, request.time, touched)
    tiles = {
        day: frozenset(tile for record in records if (tile := _tile(record)) is not None)
        for day, records in found.by_day.items()
    }
    return tile_gaps(found.choice, found.period, request.time, region_tiles(request.region), tiles)


def _tile(record: GranuleRecord) -> tuple[int, int] | None:
    """The tile a granule is of; a cut-out of one is known by its name alone."""
    if record.tile is not None:
        return record.tile
    parts = parse_granule_name(record.name)
    return parts.tile if parts else None
