"""The tasks of one product on one day: granules, their reprojection onto each cell, mosaics."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

from archives.model import GranuleRecord
from reprojection.grids import Grid
from service_manager.planner.choices import LayerChoice
from service_manager.planner.draft import Draft
from service_manager.planner.granules import collect
from service_manager.planner.located import Locator, Reach
from service_manager.planner.naming import layer_names, mosaic_name, product_name
from service_manager.planner.places import Place
from tasks.regions import area_geojson
from tasks.request import ProductChoice, Request
from tasks.spec import GridSpec, Input, MosaicSpec, ReprojectSpec
from tasks.target import Target

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

    @classmethod
    def of(cls, request: Request, target: Target, places: tuple[Place, ...]) -> "Layout":
        """The layout of a request's places."""
        return cls(
            request=request,
            target=target,
            places=places,
            clip=area_geojson(target.area) if request.region.clip else "",
            grid=grid_spec(target.grid),
            cells=tuple(grid_spec(place.grid) for place in places),
        )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One product choice of a request, resolved."""

    number: int
    choice: ProductChoice
    geometry: str
    period: int  # days between two granules of one place
    layers: tuple[LayerChoice, ...]
    product: str = field(init=False)
    names: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "product", product_name(self.choice))
        object.__setattr__(self, "names", layer_names(self.choice.layers))

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """How far each layer's kernel looks."""
        return tuple((layer.reach, layer.whole_pixel) for layer in self.layers)


def grid_spec(grid: Grid) -> GridSpec:
    """A grid as a specification has it."""
    return GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height)


def plan_day(
    layout: Layout,
    wanted: Wanted,
    day: date,
    records: Sequence[GranuleRecord],
    locator: Locator,
    draft: Draft,
) -> list[Made] | None:
    """Add the tasks of one product's granules of a day to the draft; the cells made where a
    reduction groups them. None when no granule touches a place."""
    near: dict[Reach, dict[int, list[GranuleRecord]]] = {}
    for reach in {_PLAIN, *wanted.reaches}:
        by_place = near[reach] = {}
        for record in records:
            for place in locator.of(record, reach):
                by_place.setdefault(place, []).append(record)
    touched = sorted(near[_PLAIN])  # where one is really there; the halo alone makes no cell
    if not touched:
        return None
    given = _collected(wanted, touched, near, draft)
    made = []
    for number, layer in enumerate(wanted.layers):
        by_place = near[layer.reach, layer.whole_pixel]
        folder = f"{wanted.product}/{wanted.names[layer.layer]}"
        cells = []
        for place in touched:
            inputs = tuple([given[record.name] for record in by_place.get(place, ())])
            spec = _reproject(layout, wanted, layer, day, place, inputs)
            name = layout.places[place].name
            output = f"{folder}/cells/{day}/{name}" if layout.request.cells else ""
            cell = draft.input(spec, f"{name} {day}", CELL_FILE, output)
            cells.append(cell)
            if layout.request.reduction is not None:
                made.append(
                    Made(choice=wanted.number, layer=number, place=place, day=day, key=cell.key)
                )
        _mosaic(layout, wanted, wanted.names[layer.layer], day, cells, draft)
    return made


def _collected(
    wanted: Wanted,
    touched: Sequence[int],
    near: dict[Reach, dict[int, list[GranuleRecord]]],
    draft: Draft,
) -> dict[str, Input]:
    """The collections that the layers' kernels need in these places, by granule name."""
    by_name = {
        record.name: record
        for reach in dict.fromkeys(wanted.reaches)
        for place in touched
        for record in near[reach].get(place, ())
    }
    return {name: draft.input(collect(by_name[name]), name) for name in sorted(by_name)}


def _reproject(
    layout: Layout,
    wanted: Wanted,
    layer: LayerChoice,
    day: date,
    place: int,
    inputs: tuple[Input, ...],
) -> ReprojectSpec:
    request = layout.request
    return ReprojectSpec(
        inputs=inputs,
        product=wanted.choice.name,
        collection=wanted.choice.collection,
        layer=layer.layer,
        day=day,
        grid=layout.cells[place],
        resampling=layer.resampling,
        merge=layer.merge,
        qa=layer.qa,
        mask=request.mask,
        units=request.units,
        codes=request.codes,
        extra_bands=tuple(sorted(set(request.extra_bands))),
        day_night=wanted.choice.day_night if wanted.geometry == "swath" else "any",
    )


def _mosaic(
    layout: Layout, wanted: Wanted, layer: str, day: date, cells: Sequence[Input], draft: Draft
) -> None:
    spec = MosaicSpec(
        inputs=tuple(cells),
        name=mosaic_name(wanted.product, layer, day),
        grid=layout.grid,
        clip=layout.clip,
        day=day,
    )
    draft.raster(spec, f"{wanted.product}/{layer}", day)
