"""The tasks of sites: one extraction or sample per product and date, and one table.

A request for sites reads them in granules; a request for rasters that compares them with
measurements, in its cells.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

import numpy as np
import numpy.typing as npt
import shapely

from archives.model import GranuleRecord, Ring
from modis.box import LonLatBox
from modis.sphere import METRES_PER_DEGREE
from modis.tile import Tile, tiles_around
from reprojection.grid.coordinates import SourceSpace
from reprojection.grid.crs import lonlat_to_sinusoidal
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_at import pixels_in
from reprojection.grid.sinusoidal import tiles_touching
from service_manager.planner.cells import WindowCell, grid_spec
from service_manager.planner.draft import Draft, PlannedRaster
from service_manager.planner.granules import tile_of
from service_manager.planner.layers import NOT_THERE, ProductLayers
from service_manager.planner.located import Locator, Reach
from service_manager.planner.parts import PartsPlan, collect_spec
from tasks.bag.absence import Absent, bounded
from tasks.bag.site_specs import (
    ExtractNearSpec,
    ExtractSpec,
    NearDate,
    SampleSpec,
    SitesSpec,
    TableSpec,
)
from tasks.bag.spec import Input
from tasks.errors import RequestRefusedError
from tasks.request.compared import comparison_of
from tasks.request.region.site_regions import site_areas
from tasks.request.resolved import ResolvedRequest
from tasks.request.sites import SiteChoice, parse_sites, sites_text
from tasks.request.vertices import Area

FOLDER = "sites"
NEAR_DAYS = 16  # dates of one such span of the calendar are read together, whoever asks for them
NEAR_GRANULES = 64  # are read together at most
NEAR_BYTES = 500_000_000  # of them are copied at once, at most
MOST_DATES = 15_000  # the table's specification names each
_SITES_FILE, _ROWS_FILE = "sites.json", "rows.parquet"
_NAMED = 10  # sites in a note
_COARSEST = 10_000.0  # metres: a pixel of a product that the catalogue does not know
_HERE: Reach = (0.0, False)


@dataclass(frozen=True, kw_only=True)
class SitePlace:
    """A site as a place that granules touch."""

    site: SiteChoice
    near: Area
    """Around the site: a swath that touches it may see the site."""

    def tiles(self, reach: float, whole_pixel: bool) -> frozenset[Tile]:
        """Return the tiles within `reach` metres of the site."""
        del whole_pixel
        if self.site.area is not None:
            return frozenset(tiles_touching(self.site.area.buffer(reach / METRES_PER_DEGREE)))
        x, y = lonlat_to_sinusoidal(np.array([self.site.lon]), np.array([self.site.lat]))
        return tiles_around(x, y, reach)

    def outline(self) -> tuple[LonLatBox | tuple[Ring, ...], ...]:
        """Return the box around the site."""
        return (LonLatBox(*self.near.bounds),)


@dataclass(kw_only=True)
class _Near:
    """Dates of a product that are read together, in granules where they lie."""

    wanted: ProductLayers
    times: tuple[str, ...]
    dates: list[NearDate] = field(default_factory=list)
    records: dict[str, GranuleRecord] = field(default_factory=dict)  # by name
    absent: list[Absent] = field(default_factory=list)

    def takes(self, day: date, records: Mapping[str, GranuleRecord]) -> bool:
        """Tell whether a date with its granules belongs to them, and leaves them small enough."""
        if not self.dates:
            return True
        every = {**self.records, **records}
        return (
            self.dates[0].day.toordinal() // NEAR_DAYS == day.toordinal() // NEAR_DAYS
            and len(every) <= NEAR_GRANULES
            and sum(one.size for one in every.values()) <= NEAR_BYTES
        )


class SitesPlan:
    """The sites of a request, and the extractions and samples planned so far.

    `cells` are those of the request's rasters, none where it asks for sites alone.
    """

    def __init__(
        self,
        resolved: ResolvedRequest,
        sites: Sequence[SiteChoice],
        cells: Sequence[WindowCell],
        parts: PartsPlan,
    ) -> None:
        self._parts = parts
        self.places: tuple[SitePlace, ...] = ()
        if not cells:
            areas = site_areas(resolved.request.region)
            self.places = tuple(
                SitePlace(site=site, near=near) for site, near in zip(sites, areas, strict=True)
            )
        self._spec = SitesSpec(sites=sites_text(sites))
        self._comparison = comparison_of(resolved)
        self._made: list[PlannedRaster] = []
        self._may_lack = resolved.request.on_missing == "skip"
        self._near: dict[int, _Near] = {}  # by product choice
        wholes = [part.grid for part in resolved.target.parts]
        self._wholes = tuple(grid_spec(whole) for whole in wholes)
        self._cells, self._outside = cells_with(sites, [cell.grid for cell in cells], wholes)

    @classmethod
    def of(
        cls, resolved: ResolvedRequest, cells: Sequence[WindowCell], parts: PartsPlan
    ) -> "SitesPlan | None":
        """Return the plan of a request's sites; None if there are none."""
        given = resolved.request.read_at
        return None if given is None else cls(resolved, parse_sites(given), cells, parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """The sites that the rasters do not cover, for the scientist."""
        if not self._outside:
            return ()
        named = ", ".join(self._outside[:_NAMED])
        more = len(self._outside) - _NAMED
        return (
            f"These sites lie outside the results: {named}{f' and {more:,} more' * (more > 0)}.",
        )

    @property
    def compared(self) -> frozenset[tuple[str, str, str]]:
        """The layers and outputs that are sampled: product or step, collection, name."""
        if self._comparison is None or self.places:
            return frozenset()
        pairs = self._comparison.pairs
        return frozenset((pair.product, pair.collection, pair.layer) for pair in pairs)

    def plan_after(self, draft: Draft, *, final: bool) -> None:
        """Plan what follows the dates of a stretch, and after the last the table of all.

        Raises RequestRefusedError for too many dates.
        """
        for number in sorted(self._near):
            self._plan_near(self._near.pop(number), draft)
        self._plan_samples(draft)
        if final:
            self._plan_table(draft)

    def _plan_samples(self, draft: Draft) -> None:
        """Add the samples of the layers that the draft made, one for each product and date."""
        found: dict[tuple[str, str, date, date, str], list[tuple[str, Input]]] = {}
        for one in draft.made:
            mine = [(one.layer, one.cells[place]) for place in self._cells if place in one.cells]
            if mine:
                of = one.product, one.collection, one.first, one.last, one.time
                found.setdefault(of, []).extend(mine)
        for (product, collection, first, last, time), given in found.items():
            spec = SampleSpec(
                inputs=(*(one for _, one in given), self._sites(draft)),
                product=product,
                collection=collection,
                layers=tuple(layer for layer, _ in given),
                day=first,
                last=last,
                time=time,
                wholes=self._wholes,
            )
            key = draft.add(spec)
            draft.rasters.append(PlannedRaster(key=key, file=_ROWS_FILE, folder=FOLDER, day=first))

    @cached_property
    def _tiles(self) -> frozenset[Tile]:
        return frozenset().union(*(place.tiles(*_HERE) for place in self.places))

    def plan_date(
        self,
        wanted: ProductLayers,
        day: date,
        band: int,
        records: Sequence[GranuleRecord],
        locator: Locator,
        draft: Draft,
    ) -> bool:
        """Add the extraction of a date's granules; whether any is expected at the sites."""
        entry = wanted.entry
        pixel = (entry.resolution if entry is not None else None) or _COARSEST
        touched = [record for record in records if locator.of(record, (pixel, False))]
        if not any(locator.of(record, _HERE) for record in touched):
            return wanted.geometry == "tile"
        times, which = _solar_times(wanted), band if wanted.stack > 1 else None
        if self._may_lack and self._parts.near(wanted, touched, which):
            self._take_near(wanted, NearDate(day, which, ()), times, touched, records, draft)
            return True
        sites = self._sites(draft)
        inputs = [
            given
            for record in touched
            for given in self._parts.plan(wanted, record, which, sites, times, draft)
        ]
        named, unnamed = bounded(self._absent(wanted, day, records))
        spec = ExtractSpec(
            inputs=(*inputs, sites),
            missing=named,
            missing_unnamed=unnamed,
            product=wanted.choice.name,
            collection=wanted.choice.collection,
            layers=tuple(layer.name for layer in wanted.layers),
            qa=tuple(layer.qa for layer in wanted.layers),
            mask=wanted.layout.request.mask,
            day=day,
            band=which,
            solar_times=times,
        )
        key = draft.add(spec)
        draft.rasters.append(PlannedRaster(key=key, file=_ROWS_FILE, folder=FOLDER, day=day))
        return True

    def _take_near(
        self,
        wanted: ProductLayers,
        date: NearDate,
        times: tuple[str, ...],
        touched: Sequence[GranuleRecord],
        records: Sequence[GranuleRecord],
        draft: Draft,
    ) -> None:
        """Take in a date whose granules are read where they lie."""
        found = {one.name: one for record in touched for one in (record, *record.companions)}
        number = wanted.number
        if number in self._near and not self._near[number].takes(date.day, found):
            self._plan_near(self._near.pop(number), draft)
        mine = self._near.setdefault(number, _Near(wanted=wanted, times=times))
        mine.dates.append(date._replace(granules=tuple(sorted(found))))
        mine.records |= found
        mine.absent += [
            one.model_copy(update={"part": f"{date.day} {one.part}"})
            for one in self._absent(wanted, date.day, records)
        ]

    def _plan_near(self, near: _Near, draft: Draft) -> None:
        """Add the extraction of dates that are read together."""
        wanted = near.wanted
        records = [near.records[name] for name in sorted(near.records)]
        granules = tuple(map(collect_spec, records))
        named, unnamed = bounded(near.absent)
        spec = ExtractNearSpec(
            inputs=(self._sites(draft),),
            missing=named,
            missing_unnamed=unnamed,
            product=wanted.choice.name,
            collection=wanted.choice.collection,
            layers=tuple(layer.name for layer in wanted.layers),
            qa=tuple(layer.qa for layer in wanted.layers),
            mask=wanted.layout.request.mask,
            dates=tuple(near.dates),
            granules=granules,
            wholes=tuple(one.key for one in granules),
            stamps=tuple(one.stamp for one in records),
            solar_times=near.times,
        )
        key, day = draft.add(spec), near.dates[0].day
        draft.rasters.append(PlannedRaster(key=key, file=_ROWS_FILE, folder=FOLDER, day=day))

    def _absent(
        self, wanted: ProductLayers, day: date, records: Sequence[GranuleRecord]
    ) -> list[Absent]:
        if wanted.geometry != "tile":
            return []
        there = {tile_of(record) for record in records}
        whole = f"{wanted.product} {day.isoformat()}"
        return [
            Absent(part=tile.name, what=f"{whole} {tile.name}", why=NOT_THERE)
            for tile in sorted(self._tiles - there)
        ]

    def _sites(self, draft: Draft) -> Input:
        return draft.input(self._spec, _SITES_FILE, _SITES_FILE)

    def add(self, made: Iterable[PlannedRaster]) -> None:
        """Take in extractions and samples of a stretch that is not the last."""
        self._made += (one for one in made if one.folder == FOLDER)

    def _plan_table(self, draft: Draft) -> None:
        """Take in the draft's extractions, the last, and add the table of all."""
        self.add(draft.rasters)
        if not self._made:
            return
        if len(self._made) > MOST_DATES:
            raise RequestRefusedError(
                "time",
                f"the products have {len(self._made):,} dates together; a table of sites may have "
                f"{MOST_DATES:,}.",
                "Ask for fewer days or products at a time.",
            )
        inputs = tuple(
            Input(key=one.key, name=f"{one.day.isoformat()}", file=one.file) for one in self._made
        )
        inputs = (*inputs, self._sites(draft))
        draft.add(TableSpec(inputs=inputs, comparison=self._comparison), FOLDER)


def _solar_times(wanted: ProductLayers) -> tuple[str, ...]:
    """Name the layers that say when pixels of tiles were seen; nothing if no layer has one."""
    if wanted.geometry != "tile":
        return ()
    names = tuple(layer.facts.solar_time for layer in wanted.layers)
    return names if any(names) else ()


def cells_with(
    sites: Sequence[SiteChoice], grids: Sequence[Grid], wholes: Sequence[Grid]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the cells in which pixels around a site lie, by number, and the sites in none.

    `wholes` are the grids that the cells are parts of: a site has the pixel that it has there, as
    when the cells are read (`reprojection.warp.sites`). A polygon is in a cell if its bounds are.
    """
    if not grids:
        return (), ()
    space = SourceSpace.of(grids[0])
    rows, columns = pixels_in(
        space, wholes, np.array([s.lon for s in sites]), np.array([s.lat for s in sites])
    )
    polygons = [number for number, site in enumerate(sites) if site.area is not None]
    areas = _Bounds.of(space, [sites[number] for number in polygons]) if polygons else None
    found, inside = [], np.zeros(len(sites), np.bool_)
    for number, grid in enumerate(grids):
        left, top = space.offset(grid)
        # Around each site, the pixels next to its own count.
        right, bottom = left + grid.width, top + grid.height
        near = (rows >= top - 1) & (rows <= bottom) & (columns >= left - 1) & (columns <= right)
        inside |= (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
        if areas is not None:
            near[polygons] |= areas.touch(space, grid, 1)
            inside[polygons] |= areas.touch(space, grid, 0)
        if near.any():
            found.append(number)
    return tuple(found), tuple(s.name for s, there in zip(sites, inside, strict=True) if not there)


@dataclass(frozen=True, kw_only=True)
class _Bounds:
    """The fractional columns and rows of polygons' points, and where those of each begin."""

    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    firsts: npt.NDArray[np.intp]

    @classmethod
    def of(cls, space: SourceSpace, sites: Sequence[SiteChoice]) -> "_Bounds":
        points = [shapely.get_coordinates(site.area) for site in sites]
        lon, lat = np.concatenate(points).T
        x, y = space.pixels(lon, lat)
        return cls(x=x, y=y, firsts=np.cumsum([0, *(len(each) for each in points[:-1])]))

    def touch(self, space: SourceSpace, grid: Grid, beside: int) -> npt.NDArray[np.bool_]:
        """Tell which polygons' bounds touch a grid with so many pixels around it.

        NaN, of a point that the grid's CRS does not have, is in no grid.
        """
        left, top = space.offset(grid)
        x = space.near(grid, self.x)
        west, east = np.minimum.reduceat(x, self.firsts), np.maximum.reduceat(x, self.firsts)
        north = np.minimum.reduceat(self.y, self.firsts)
        south = np.maximum.reduceat(self.y, self.firsts)
        across = (east + beside >= left) & (west - beside < left + grid.width)
        down = (south + beside >= top) & (north - beside < top + grid.height)
        return np.asarray(across & down)
